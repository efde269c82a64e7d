//! Futures of queue pairs that share their receives.

use std::pin::pin;

use futures_core::Stream;
use rnic::aio::{CompletionQueue, DeviceEvents, QueuePair, SharedReceiveQueue};
use rnic::{AsyncEvent, Context, ProtectionDomain, Rc};

use crate::futures::on_tokio;

struct Server {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    receives: SharedReceiveQueue,
}

/// `None`: the device has no shared receive queues.
fn server(receives: u32) -> Option<Server> {
    if !crate::device().srq {
        return None;
    }
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = CompletionQueue::new(&context, 1024).expect("a queue");
    let queue = SharedReceiveQueue::new(&pd, receives).expect("srq");
    queue.fill(receives as usize, 64).expect("receives");
    Some(Server {
        context,
        pd,
        cq,
        receives: queue,
    })
}

impl Server {
    /// A queue pair of the server and its client.
    fn pair(&self) -> [QueuePair<Rc>; 2] {
        let gid = self.context.loopback_gid().expect("an address");
        let builder = || self.cq.create_qp::<Rc>(&self.pd).gid(&gid);
        let ours = builder().srq(&self.receives).build().expect("qp");
        let theirs = builder().build().expect("qp");
        let (to_ours, to_theirs) = (ours.endpoint(), theirs.endpoint());
        [
            ours.handshake(to_theirs).expect("handshake"),
            theirs.handshake(to_ours).expect("handshake"),
        ]
    }
}

/// Each queue pair gives out its own messages, and a message that is dropped makes room for another
/// one of any: four receives carry 400 messages of eight peers.
#[test]
fn messages_of_many_peers_by_a_few_receives() {
    let Some(server) = server(4) else { return };
    let pairs = [(); 8].map(|()| server.pair());
    on_tokio(async {
        let mut tasks = tokio::task::JoinSet::new();
        for (peer, [ours, theirs]) in pairs.into_iter().enumerate() {
            tasks.spawn(async move {
                for n in 0..50_u8 {
                    let bytes = [peer as u8, n];
                    theirs.send_inline(&bytes).await.expect("sent");
                }
                theirs
            });
            tasks.spawn(async move {
                for n in 0..50_u8 {
                    let message = ours.recv().await.expect("a message");
                    assert_eq!(&message[..], [peer as u8, n]);
                    assert_eq!(message.qpn(), ours.qpn());
                }
                ours
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
    });
}

/// Messages that nobody took do not keep their receives: a queue pair that goes gives them back.
#[test]
fn a_queue_pair_that_goes_gives_its_receives_back() {
    let Some(server) = server(4) else { return };
    on_tokio(async {
        for _ in 0..8 {
            let [ours, theirs] = server.pair();
            for n in 0..3_u8 {
                theirs.send_inline(&[n]).await.expect("sent");
            }
            // One is read, and all are there: what is sent is acknowledged behind it.
            assert_eq!(&ours.recv().await.expect("a message")[..], [0]);
            drop((ours, theirs));
        }
    });
}

/// The limit is an event of the device, told once.
#[test]
fn the_limit_is_told() {
    let Some(server) = server(4) else { return };
    let [ours, theirs] = server.pair();
    let mut events = pin!(DeviceEvents::new(&server.context).expect("events"));
    server.receives.arm_limit(4).expect("armed");
    on_tokio(async {
        theirs.send_inline(b"takes one").await.expect("sent");
        let event = std::future::poll_fn(|cx| events.as_mut().poll_next(cx)).await;
        let cookie = server.receives.event_cookie();
        let event = event.expect("no end").expect("no error");
        assert_eq!(event, AsyncEvent::SrqLimit { cookie });
        assert_eq!(&ours.recv().await.expect("a message")[..], b"takes one");
    });
}

/// The completion queue has places for the messages of all receives, counted once.
#[test]
fn a_completion_queue_that_is_too_small_is_refused() {
    let Some(server) = server(64) else { return };
    let gid = server.context.loopback_gid().expect("an address");
    let cq = CompletionQueue::new(&server.context, 64).expect("a queue");
    let places = cq.capacity();
    let build = |sends: u32| {
        let builder = cq.create_qp::<Rc>(&server.pd).srq(&server.receives);
        builder.max_send_wr(sends).gid(&gid).build()
    };
    let receives = server.receives.capacity();
    let refused = build(places - receives + 1).map(drop);
    let refused = refused.expect_err("one place is missing").to_string();
    assert!(refused.contains("make it larger"), "{refused}");
    if places > receives + 1 {
        let first = build(1).expect("it fits");
        let second = build(places - receives - 1).expect("the receives are counted once");
        drop((first, second));
        build(places - receives).expect("the places are free again");
    }
}
