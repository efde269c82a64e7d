//! XRC by the safe API, over loopback.

use std::time::Duration;

use rnic::{
    Completion, CompletionQueue, Context, ProtectionDomain, QpState, QueuePair, SendRequest,
    Status, Xrc, XrcDomain, XrcTarget,
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Fixture {
    pd: ProtectionDomain,
    /// Of what is received.
    cq: CompletionQueue,
    send_cq: CompletionQueue,
    domain: XrcDomain,
    target: XrcTarget,
    initiator: QueuePair<Xrc>,
}

impl Fixture {
    fn new() -> Fixture {
        let context = Context::open().expect("the device opens");
        let domain = context.open_xrc_domain().expect("domain");
        Fixture::of(&context, domain)
    }

    fn of(context: &Context, domain: XrcDomain) -> Fixture {
        let gid = context.loopback_gid().expect("an address");
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(64).build().expect("cq");
        let send_cq = context.create_cq(64).build().expect("cq");
        let target = domain.create_target().gid(&gid).build().expect("target");
        let initiator = pd.create_qp::<Xrc>(&send_cq, &send_cq).gid(&gid);
        let initiator = initiator.build().expect("initiator");
        let (to_target, to_initiator) = (target.endpoint(), initiator.endpoint());
        Fixture {
            target: target.handshake(to_initiator).expect("RTR"),
            initiator: initiator.handshake(to_target).expect("RTS"),
            pd,
            cq,
            send_cq,
            domain,
        }
    }

    fn send(&self, text: &str, srq: u32) {
        let request = SendRequest::send_inline(text.as_bytes());
        self.initiator.post(request, srq).expect("posted");
    }

    fn sent(&self) -> Completion {
        self.send_cq.wait(PATIENCE).expect("a completion")
    }

    fn received(&self) -> Completion {
        let completion = self.cq.wait(PATIENCE).expect("a completion");
        completion.ok().expect("success")
    }
}

/// Both queues complete into one queue, under one QP number, and with the same ids.
#[test]
fn each_message_lands_in_the_queue_that_it_names() {
    if !crate::device().xrc {
        return;
    }
    let f = Fixture::new();
    let queues = [(); 2].map(|()| f.domain.create_srq(&f.pd, &f.cq, 8).expect("srq"));
    assert_ne!(queues[0].number(), queues[1].number());
    for (n, queue) in queues.iter().enumerate() {
        for id in 0..4 {
            // Their lengths tell whose a buffer is.
            let buffer = f.pd.buffer(64 + n).expect("memory");
            queue.post_recv(buffer, id).expect("posted");
        }
    }
    for (n, id) in [
        (1, 0),
        (0, 0),
        (0, 1),
        (1, 1),
        (1, 2),
        (0, 2),
        (1, 3),
        (0, 3),
    ] {
        let text = format!("message {id} for {n}");
        f.send(&text, queues[n].number());
        let received = f.received();
        assert_eq!((received.id(), received.qpn()), (id, f.target.qpn()));
        assert_eq!(received.data(), text.as_bytes());
        assert_eq!(received.into_buffer().expect("comes back").len(), 64 + n);
        assert_eq!(f.sent().status(), Status::Success);
    }
    assert_eq!(f.target.state(), QpState::Rtr);
    let counted = if crate::device().counters { 8 } else { 0 };
    assert_eq!(f.target.counters().messages_received, counted);
}

#[test]
fn remote_memory_is_that_of_the_queues_protection_domain() {
    if !crate::device().xrc {
        return;
    }
    let f = Fixture::new();
    let own = f.pd.context().alloc_pd().expect("pd");
    let (near, far) = (
        f.domain.create_srq(&f.pd, &f.cq, 8).expect("srq"),
        f.domain.create_srq(&own, &f.cq, 8).expect("srq"),
    );
    let region = own.writable(64).readable().build().expect("region");
    let write = || SendRequest::write_inline(b"written", region.remote());
    f.initiator.post(write(), far.number()).expect("posted");
    assert_eq!(f.sent().status(), Status::Success);
    let read = SendRequest::read(f.pd.buffer(7).expect("memory"), region.remote());
    f.initiator.post(read, far.number()).expect("posted");
    assert_eq!(f.sent().data(), b"written");
    // The same key through a queue of another domain.
    f.initiator.post(write(), near.number()).expect("posted");
    assert_eq!(f.sent().status(), Status::RemoteAccessError);
    assert_eq!(f.initiator.state(), QpState::Err);
}

#[test]
fn a_queue_that_is_gone_is_refused_and_what_nobody_polled_goes_with_it() {
    if !crate::device().xrc {
        return;
    }
    let f = Fixture::new();
    let stays = f.domain.create_srq(&f.pd, &f.cq, 8).expect("srq");
    let goes = f.domain.create_srq(&f.pd, &f.cq, 8).expect("srq");
    let number = goes.number();
    for queue in [&stays, &goes] {
        queue.post_recv_empty(7).expect("posted");
        queue
            .post_recv(f.pd.buffer(16).expect("memory"), 8)
            .expect("posted");
    }
    f.send("", number);
    f.send("", stays.number());
    for _ in 0..2 {
        assert_eq!(f.sent().status(), Status::Success);
    }
    drop(goes);
    assert_eq!(f.received().id(), 7, "that of the other queue");
    f.send("too late", number);
    assert_eq!(f.sent().status(), Status::RemoteInvalidRequest);
    assert_eq!(f.target.state(), QpState::Err);
    assert!(f.cq.poll_one().expect("a queue").is_none());
}

#[test]
fn openings_for_one_file_are_one_domain() {
    if !crate::device().xrc {
        return;
    }
    let path = std::env::temp_dir().join(format!("rnic-xrc-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("our file");
    let context = Context::open().expect("the device opens");
    let open = || context.open_xrc_domain_of(&file).expect("domain");
    let f = Fixture::of(&context, open());
    let queue = open().create_srq(&f.pd, &f.cq, 8).expect("srq");
    queue
        .post_recv(f.pd.buffer(16).expect("memory"), 1)
        .expect("posted");
    f.send("through the file", queue.number());
    assert_eq!(f.received().data(), b"through the file");
    assert_eq!(f.sent().status(), Status::Success);
    // Another domain's queue is out of reach.
    let other = context.open_xrc_domain().expect("domain");
    let foreign = other.create_srq(&f.pd, &f.cq, 8).expect("srq");
    foreign.post_recv_empty(2).expect("posted");
    f.send("", foreign.number());
    assert_eq!(f.sent().status(), Status::RemoteInvalidRequest);
}
