//! Datagrams and unreliable connections by the safe API, over loopback.

use std::net::IpAddr;
use std::time::Duration;

use rnic::{
    CompletionQueue, Context, DatagramQueuePair, Destination, GidEntry, HEADER_LEN, MULTICAST_QPN,
    ProtectionDomain, QpState, SendRequest, Status, Uc, Ud,
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    gid: GidEntry,
    qp: DatagramQueuePair,
}

impl Side {
    fn new() -> Side {
        let context = Context::open().expect("the device opens");
        let gid = context.loopback_gid().expect("an address");
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(64).build().expect("cq");
        let qp = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).build().expect("qp");
        Side { pd, cq, gid, qp }
    }

    fn to(&self, other: &Side) -> Destination {
        Destination {
            ah: self.pd.create_ah(&self.gid, other.gid.addr).expect("a way"),
            qpn: other.qp.qpn(),
            qkey: other.qp.qkey(),
        }
    }

    fn expect(&self, id: u64) {
        let buffer = self.pd.buffer(HEADER_LEN + 100).expect("memory");
        self.qp.post_recv(buffer, id).expect("a receive");
    }
}

#[test]
fn an_answer_goes_back_the_way_the_question_came() {
    if !crate::device().ud {
        return;
    }
    let (left, right) = (Side::new(), Side::new());
    right.expect(1);
    let question = left.pd.buffer_from(b"question").expect("memory");
    let request = SendRequest::send(question).imm(*b"ask!").id(7);
    left.qp.post(request, &left.to(&right)).expect("posted");
    let sent = left.cq.wait(PATIENCE).expect("sent").ok().expect("success");
    assert_eq!(sent.id(), 7);
    assert_eq!(sent.into_buffer().expect("comes back")[..], *b"question");

    let received = right
        .cq
        .wait(PATIENCE)
        .expect("received")
        .ok()
        .expect("success");
    assert_eq!(received.message(), b"question");
    assert_eq!(received.byte_len(), HEADER_LEN + 8);
    assert_eq!((received.id(), received.imm()), (1, Some(*b"ask!")));
    let (address, qpn) = received.source().expect("a datagram has a source");
    assert_eq!((address, qpn), (left.gid.addr, left.qp.qpn()));

    left.expect(2);
    let back = Destination {
        ah: right.pd.create_ah_from(&received).expect("the way back"),
        qpn,
        qkey: left.qp.qkey(),
    };
    let answer = SendRequest::send_inline(b"answer").unsignaled();
    right.qp.post(answer, &back).expect("posted");
    let received = left
        .cq
        .wait(PATIENCE)
        .expect("received")
        .ok()
        .expect("success");
    assert_eq!(received.message(), b"answer");
}

#[test]
fn who_does_not_know_the_key_is_not_heard() {
    if !crate::device().ud {
        return;
    }
    let (left, right) = (Side::new(), Side::new());
    right.expect(1);
    let good = left.to(&right);
    let bad = Destination {
        qkey: good.qkey ^ 1,
        ..good.clone()
    };
    for (to, text) in [(&bad, b"bad"), (&good, b"yes")] {
        let request = SendRequest::send_inline(text).unsignaled();
        left.qp.post(request, to).expect("posted");
    }
    let received = right
        .cq
        .wait(PATIENCE)
        .expect("received")
        .ok()
        .expect("success");
    assert_eq!(received.message(), b"yes");
    let counts = crate::device().counters;
    assert_eq!(right.qp.counters().qkey_violations, u64::from(counts));
}

#[test]
fn only_sends_of_the_mtu_are_datagrams() {
    if !crate::device().ud {
        return;
    }
    let (left, right) = (Side::new(), Side::new());
    let to = left.to(&right);
    let region = left.pd.writable(64).build().expect("memory");
    let write = SendRequest::write_inline(b"no", region.remote());
    let refused = left.qp.post(write, &to).expect_err("no WRITE over UD");
    assert!(refused.to_string().contains("SEND"), "{refused}");
    let buffer = left.pd.buffer(1 << 16).expect("memory");
    left.qp
        .post(SendRequest::send(buffer), &to)
        .expect("posted");
    let failed = left.cq.wait(PATIENCE).expect("a completion");
    if crate::device().exact_failures {
        assert_eq!(failed.status(), Status::LocalLengthError);
        assert_eq!(left.qp.state(), QpState::Sqe);
        left.qp.recover().expect("sends again");
    }
    right.expect(1);
    let request = SendRequest::send_inline(b"again").unsignaled();
    left.qp.post(request, &to).expect("posted");
    let received = right
        .cq
        .wait(PATIENCE)
        .expect("received")
        .ok()
        .expect("success");
    assert_eq!(received.message(), b"again");
}

#[test]
fn what_a_full_queue_gives_back_can_be_posted_again() {
    if !crate::device().ud {
        return;
    }
    let (left, deaf, right) = (Side::new(), Side::new(), Side::new());
    let to = left.to(&deaf);
    let full = loop {
        let data = left.pd.buffer_from(b"again").expect("memory");
        let request = SendRequest::send(data).imm(*b"take");
        if let Err(error) = left.qp.post(request, &to) {
            break error;
        }
    };
    assert!(full.error.is_queue_full(), "{full}");
    left.cq.wait(PATIENCE).expect("sent").ok().expect("success");
    // It may be changed before, and go elsewhere.
    right.expect(1);
    let again = full.request.imm(*b"two!");
    left.qp.post(again, &left.to(&right)).expect("posted");
    let received = right.cq.wait(PATIENCE).expect("received");
    let received = received.ok().expect("success");
    assert_eq!(received.message(), b"again");
    assert_eq!(received.imm(), Some(*b"two!"));
}

#[test]
fn a_group_reaches_its_members() {
    if !crate::device().multicast_loopback {
        return;
    }
    let (left, right, outside) = (Side::new(), Side::new(), Side::new());
    if left.gid.addr.is_ipv6() {
        // Linux has no multicast over IPv6 loopback.
        return;
    }
    let group = IpAddr::from([239, 7, 7, 7]);
    left.qp.attach(group).expect("joins");
    right.qp.attach(group).expect("joins");
    for side in [&left, &right, &outside] {
        side.expect(1);
    }
    let to = Destination {
        ah: left.pd.create_ah(&left.gid, group).expect("a way"),
        qpn: MULTICAST_QPN,
        qkey: left.qp.qkey(),
    };
    let request = SendRequest::send_inline(b"all of you").unsignaled();
    left.qp.post(request, &to).expect("posted");
    for side in [&left, &right] {
        let received = side
            .cq
            .wait(PATIENCE)
            .expect("received")
            .ok()
            .expect("success");
        assert_eq!(received.message(), b"all of you");
        side.pd
            .create_ah_from(&received)
            .expect_err("a group is nobody's address");
    }
    assert_eq!(outside.qp.counters().packets_received, 0);
    right.qp.detach(group).expect("leaves");
    right.qp.detach(group).expect_err("is gone");
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    if !crate::device().uc {
        return;
    }
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(64).build().expect("cq");
    let left = pd.create_qp::<Uc>(&cq, &cq).gid(&gid).build().expect("qp");
    let right = pd.create_qp::<Uc>(&cq, &cq).gid(&gid).build().expect("qp");
    let (to_left, to_right) = (left.endpoint(), right.endpoint());
    let left = left.handshake(to_right).expect("handshake");
    let right = right.handshake(to_left).expect("handshake");

    let region = pd.writable(100_000).build().expect("memory");
    right
        .post_recv(pd.buffer(10_000).expect("memory"), 1)
        .expect("a receive");
    let data: Vec<u8> = (0..9_999u32).map(|i| (i * 7) as u8).collect();
    let write = SendRequest::write(pd.buffer_from(&data).expect("memory"), region.remote());
    left.post(write.id(2)).expect("posted");
    // In order: once the message is there, so is what was written before it.
    let send = SendRequest::send(pd.buffer_from(&data).expect("memory"));
    left.post(send.id(3)).expect("posted");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let done = cq
            .wait(PATIENCE)
            .expect("a completion")
            .ok()
            .expect("success");
        if done.id() == 1 {
            assert_eq!(done.data(), data);
        }
        seen.push(done.id());
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    let mut written = vec![0; data.len()];
    region.copy_out(0, &mut written).expect("in range");
    assert_eq!(written, data);
    // READ is not in UC.
    let read = SendRequest::read(pd.buffer(8).expect("memory"), region.remote());
    left.post(read).expect_err("no READ over UC");
}
