//! Shared receive queues: what becomes of receives whose queue pair ends.

use std::ptr::NonNull;
use std::sync::mpsc;

use rnic::{
    AsyncEvent, CompletionQueue, Context, Error, QpEvent, QpState, QueuePair, Rc, SendRequest,
    SharedReceiveQueue, StableMemory, Status,
};

use crate::loopback::PATIENCE;

struct Bench {
    context: Context,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    server: QueuePair<Rc>,
    client: QueuePair<Rc>,
}

/// `None`: the device has no shared receive queues.
fn bench() -> Option<Bench> {
    if !crate::device().srq {
        return None;
    }
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(64).build().expect("cq");
    let srq = pd.create_srq(16).expect("srq");
    let server = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).gid(&gid);
    let server = server.build().expect("qp");
    let client_cq = context.create_cq(64).build().expect("cq");
    let client = pd.create_qp::<Rc>(&client_cq, &client_cq).gid(&gid);
    let client = client.build().expect("qp");
    let (to_server, to_client) = (server.endpoint(), client.endpoint());
    let server = server.handshake(to_client).expect("handshake");
    let client = client.handshake(to_server).expect("handshake");
    Some(Bench {
        context,
        srq,
        cq,
        server,
        client,
    })
}

impl Bench {
    fn send(&self) {
        let request = SendRequest::send_inline(b"message");
        self.client.post(request).expect("posted");
        let sent = self.client.send_cq().wait(PATIENCE).expect("sent");
        sent.ok().expect("success");
    }
}

/// Memory that uses the queues when it goes.
struct Talkative(Vec<u8>, SharedReceiveQueue, CompletionQueue);

impl Drop for Talkative {
    fn drop(&mut self) {
        self.1.post_recv_empty(99).expect("posted");
        let _ = self.2.poll_one().expect("polls");
    }
}

// SAFETY: a vector's.
unsafe impl StableMemory for Talkative {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        self.0.bytes()
    }
}

/// What a buffer's memory does when it is dropped may be anything: no lock of ours is held.
#[test]
fn memory_that_goes_with_a_queue_pair_may_use_the_queues() {
    let Some(bench) = bench() else { return };
    let (told, done) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..3 {
            let memory = Talkative(vec![0; 64], bench.srq.clone(), bench.cq.clone());
            let buffer = bench.server.pd().adopt(memory).expect("registered");
            bench.srq.post_recv(buffer, 1).expect("posted");
            bench.send();
        }
        // Nobody has polled the three, which go with the queue pair.
        drop(bench.server);
        told.send(()).expect("the test waits");
    });
    done.recv_timeout(PATIENCE)
        .expect("it does not wait for itself");
}

/// A queue pair that is drained leaves no receive behind: what it took has completed, and the
/// shared queue has the others.
#[test]
fn a_drained_queue_pair_leaves_no_receive_behind() {
    if !crate::device().failure_events {
        return;
    }
    let Some(bench) = bench() else { return };
    for id in 0..8 {
        let buffer = bench.server.pd().buffer(16).expect("memory");
        bench.srq.post_recv(buffer, id).expect("posted");
    }
    for _ in 0..3 {
        bench.send();
    }
    // Another event, which is not lost.
    bench.srq.arm_limit(8).expect("armed");
    bench.server.drain(PATIENCE).expect("drained");
    assert_eq!(bench.server.state(), QpState::Err);
    let mut ids = Vec::new();
    while let Some(received) = bench.cq.poll_one().expect("polls") {
        assert_eq!(received.status(), Status::Success);
        ids.push(received.id());
    }
    assert_eq!(ids, [0, 1, 2]);
    bench.server.drain(PATIENCE).expect("it is drained already");
    let event = bench.context.wait_async_event(Some(PATIENCE));
    let cookie = bench.srq.event_cookie();
    assert_eq!(event.expect("kept"), AsyncEvent::SrqLimit { cookie });

    // The others are there for the next queue pair.
    let pd = bench.server.pd().clone();
    drop(bench.server);
    let gid = bench.context.loopback_gid().expect("an address");
    let [server, client] = [true, false].map(|shared| {
        let builder = pd.create_qp::<Rc>(&bench.cq, &bench.cq).gid(&gid);
        match shared {
            true => builder.srq(&bench.srq),
            false => builder,
        }
        .build()
        .expect("qp")
    });
    let (to_server, to_client) = (server.endpoint(), client.endpoint());
    let _server = server.handshake(to_client).expect("handshake");
    let client = client.handshake(to_server).expect("handshake");
    for id in 3..8 {
        let request = SendRequest::send_inline(b"next").unsignaled();
        client.post(request).expect("posted");
        assert_eq!(bench.cq.wait(PATIENCE).expect("received").id(), id);
    }
}

/// Without a shared queue all that is posted completes, and no event is waited for.
#[test]
fn a_queue_pair_of_its_own_receives_drains_at_once() {
    let (left, right) = crate::loopback::pair();
    for id in 0..4 {
        right.qp.post_recv_empty(id).expect("posted");
    }
    right.qp.drain(PATIENCE).expect("drained");
    for id in 0..4 {
        let flushed = right.next();
        assert_eq!(
            (flushed.id(), flushed.status()),
            (id, Status::WorkRequestFlushed)
        );
    }
    let none = right.pd.context().try_async_event().expect("looks");
    assert_eq!(none, None);
    drop(left);
}

/// The event tells whoever takes events by himself.
#[test]
fn the_last_receive_is_an_event() {
    if !crate::device().failure_events {
        return;
    }
    let Some(bench) = bench() else { return };
    let cookie = bench.server.event_cookie();
    bench.send_to_nobody();
    let event = bench.context.wait_async_event(Some(PATIENCE));
    let event = event.expect("the queue pair has failed");
    let last = AsyncEvent::Qp {
        cookie,
        event: QpEvent::LastWqeReached,
    };
    assert_eq!(event, last);
    // It has been told, and is not waited for.
    bench.server.drain(PATIENCE).expect("had failed before");
    let none = bench.context.try_async_event().expect("looks");
    assert_eq!(none, None);
    let late = bench
        .context
        .wait_async_event(Some(std::time::Duration::ZERO));
    assert!(matches!(late, Err(Error::Timeout(_))), "{late:?}");
}

impl Bench {
    /// A message that is longer than its receive: the server fails.
    fn send_to_nobody(&self) {
        let buffer = self.server.pd().buffer(1).expect("memory");
        self.srq.post_recv(buffer, 1).expect("posted");
        let request = SendRequest::send_inline(b"too long");
        self.client.post(request).expect("posted");
        let failed = self.cq.wait(PATIENCE).expect("told");
        assert_eq!(failed.status(), Status::LocalLengthError);
    }
}
