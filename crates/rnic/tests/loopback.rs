//! Two queue pairs of one process over loopback: every operation, and what a safe API promises
//! beside.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rnic::{
    Access, AsyncEvent, Buffer, Completion, CompletionOpcode, CompletionQueue, Context, Error,
    PathMtu, ProtectionDomain, QpState, QueuePair, Rc, SendRequest, Status, WindowRights,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Side {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair<Rc>,
}

impl Side {
    pub(crate) fn next(&self) -> Completion {
        self.cq.wait(PATIENCE).expect("a completion")
    }

    pub(crate) fn done(&self) -> Completion {
        self.next().ok().expect("success")
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.pd.buffer_from(bytes).expect("memory")
    }
}

pub(crate) type Builder = rnic::QueuePairBuilder<Rc>;

/// Two connected sides with a completion queue and a protection domain each.
pub(crate) fn pair_with(
    left: impl Fn(Builder) -> Builder,
    right: impl Fn(Builder) -> Builder,
) -> (Side, Side) {
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let side = |build: &dyn Fn(Builder) -> Builder| {
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(256).build().expect("cq");
        let qp = build(pd.create_qp::<Rc>(&cq, &cq).gid(&gid))
            .build()
            .expect("qp");
        (pd, cq, qp)
    };
    let (pd_l, cq_l, qp_l) = side(&left);
    let (pd_r, cq_r, qp_r) = side(&right);
    let (to_l, to_r) = (qp_l.endpoint(), qp_r.endpoint());
    let left = Side {
        pd: pd_l,
        cq: cq_l,
        qp: qp_l.handshake(to_r).expect("handshake"),
    };
    let right = Side {
        pd: pd_r,
        cq: cq_r,
        qp: qp_r.handshake(to_l).expect("handshake"),
    };
    (left, right)
}

pub(crate) fn pair() -> (Side, Side) {
    pair_with(|b| b, |b| b)
}

/// It failed by this status, if the device is exact about that.
pub(crate) fn failed_by(completion: &Completion, status: Status) {
    match crate::device().exact_failures {
        true => assert_eq!(completion.status(), status),
        false => assert_ne!(completion.status(), Status::Success),
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed)
        .collect()
}

#[test]
fn sends_of_every_size_arrive_whole() {
    for mtu in PathMtu::ALL {
        let (left, right) = pair_with(|b| b.path_mtu(mtu), |b| b);
        // No larger than the port's, as of another interface than the loopback one.
        let port = left.pd.context().port_attr(1).expect("a port").active_mtu;
        let agreed = left.qp.path_mtu();
        assert_eq!(agreed, mtu.min(port), "the smallest of three");
        for len in [
            1,
            10,
            mtu.bytes() - 1,
            mtu.bytes(),
            mtu.bytes() + 1,
            100_000,
            1 << 20,
        ] {
            let bytes = pattern(len, 7);
            right
                .qp
                .post_recv(right.pd.buffer(len).unwrap(), 5)
                .unwrap();
            left.qp
                .post(SendRequest::send(left.buffer(&bytes)).id(6))
                .unwrap();
            let got = right.done();
            assert_eq!(
                (got.id(), got.opcode(), got.byte_len()),
                (5, CompletionOpcode::Recv, len)
            );
            assert!(got.data() == bytes, "{len} bytes at {mtu:?}");
            let sent = left.done();
            assert_eq!((sent.id(), sent.opcode()), (6, CompletionOpcode::Send));
            assert!(
                sent.into_buffer().unwrap()[..] == bytes,
                "the buffer comes back as it was"
            );
        }
    }
}

#[test]
fn inline_immediate_and_empty_messages() {
    let (left, right) = pair();
    right.qp.post_recv(right.pd.buffer(64).unwrap(), 1).unwrap();
    right.qp.post_recv(right.pd.buffer(64).unwrap(), 2).unwrap();
    right.qp.post_recv_empty(3).unwrap();
    left.qp.post(SendRequest::send_inline(b"inline")).unwrap();
    left.qp
        .post(
            SendRequest::send(left.buffer(b"0123456789"))
                .range(2..5)
                .unwrap()
                .imm(*b"imm!"),
        )
        .unwrap();
    left.qp
        .post(SendRequest::send_inline(b"").imm([0; 4]))
        .unwrap();
    let got = right.done();
    assert_eq!((got.id(), got.data(), got.imm()), (1, &b"inline"[..], None));
    let got = right.done();
    assert_eq!(
        (got.id(), got.data(), got.imm()),
        (2, &b"234"[..], Some(*b"imm!"))
    );
    let got = right.done();
    assert_eq!(
        (got.id(), got.data(), got.imm()),
        (3, &b""[..], Some([0; 4]))
    );
}

#[test]
fn writes_land_where_they_should_and_nowhere_else() {
    let (left, right) = pair();
    let region = right.pd.writable(300_000).build().unwrap();
    region.copy_in(0, &vec![0xee; 300_000]).unwrap();
    let bytes = pattern(200_001, 3);
    let to = region.remote().slice(777, 200_001).unwrap();
    left.qp
        .post(SendRequest::write(left.buffer(&bytes), to))
        .unwrap();
    assert_eq!(left.done().opcode(), CompletionOpcode::RdmaWrite);
    let mut seen = vec![0; 300_000];
    region.copy_out(0, &mut seen).unwrap();
    assert!(seen[777..200_778] == bytes);
    assert!(
        seen[..777]
            .iter()
            .chain(&seen[200_778..])
            .all(|b| *b == 0xee),
        "guards are untouched"
    );

    right.qp.post_recv_empty(9).unwrap();
    left.qp
        .post(SendRequest::write_inline(b"with imm", region.remote()).imm(*b"done"))
        .unwrap();
    let got = right.done();
    assert_eq!(
        (got.id(), got.imm(), got.byte_len()),
        (9, Some(*b"done"), 8)
    );
    assert_eq!(got.opcode(), CompletionOpcode::RecvRdmaWithImm);
    let mut seen = [0; 8];
    region.copy_out(0, &mut seen).unwrap();
    assert_eq!(&seen, b"with imm");
}

#[test]
fn reads_and_reclaimed_memory() {
    let (left, right) = pair();
    let bytes = pattern(150_000, 9);
    let region = right.pd.share(right.buffer(&bytes)).unwrap();
    let remote = region.remote();
    let from = remote.slice(99, 149_000).unwrap();
    left.qp
        .post(SendRequest::read(left.pd.buffer(149_000).unwrap(), from))
        .unwrap();
    let got = left.done();
    assert_eq!(got.byte_len(), 149_000);
    assert!(got.data() == &bytes[99..149_099]);

    let again = region.clone();
    let region = region.reclaim().expect_err("another handle is out");
    drop(again);
    let mut buffer = region.reclaim().expect("the last handle");
    buffer[0] = 1;
    left.qp
        .post(SendRequest::read(left.pd.buffer(8).unwrap(), remote))
        .unwrap();
    let error = left.next().ok().unwrap_err();
    assert_eq!(error.status, Status::RemoteAccessError);
    assert!(error.to_string().contains("rkey"), "{error}");
}

#[test]
fn atomics_change_the_word_once() {
    if !crate::device().atomics {
        return;
    }
    let (left, right) = pair();
    let region = right.pd.writable(64).atomic().build().unwrap();
    region.store_u64(8, 40, Ordering::SeqCst).unwrap();
    let word = region.remote().slice(8, 8).unwrap();
    let request = SendRequest::fetch_add(left.pd.buffer(8).unwrap(), word, 2);
    left.qp.post(request).unwrap();
    assert_eq!(left.done().original_value(), Some(40));
    assert_eq!(region.load_u64(8, Ordering::SeqCst).unwrap(), 42);
    for (compare, expect) in [(41, 42), (42, 7)] {
        let request = SendRequest::compare_swap(left.pd.buffer(8).unwrap(), word, compare, 7);
        left.qp.post(request).unwrap();
        assert_eq!(left.done().original_value(), Some(42));
        assert_eq!(region.load_u64(8, Ordering::SeqCst).unwrap(), expect);
    }
    assert!(
        region.load_u64(60, Ordering::SeqCst).is_err(),
        "past the end"
    );
    assert!(region.load_u64(4, Ordering::SeqCst).is_err(), "not aligned");
}

/// What a completion shows is what arrived, also where that is not the start of the buffer.
#[test]
fn what_arrives_in_a_part_of_a_buffer_is_shown_from_there() {
    if !crate::device().atomics {
        return;
    }
    let (left, right) = pair();
    let region = right.pd.writable(64).readable().atomic();
    let region = region.build().expect("memory");
    region.copy_in(0, &pattern(64, 1)).expect("in range");
    let read = SendRequest::read(left.buffer(&[0xee; 96]), region.remote());
    let read = read.range(32..64).expect("in range");
    left.qp.post(read).expect("posted");
    let done = left.done();
    assert_eq!(done.data(), &pattern(64, 1)[..32]);
    let buffer = done.into_buffer().expect("comes back");
    assert_eq!(
        (&buffer[..32], &buffer[64..]),
        (&[0xee; 32][..], &[0xee; 32][..])
    );

    region
        .store_u64(8, 41, Ordering::Relaxed)
        .expect("in range");
    let word = region.remote().slice(8, 8).expect("in range");
    for (request, found) in [
        (
            SendRequest::fetch_add(left.buffer(&[0xee; 64]), word, 1),
            41,
        ),
        (
            SendRequest::compare_swap(left.buffer(&[0xee; 64]), word, 42, 7),
            42,
        ),
    ] {
        left.qp
            .post(request.range(56..).expect("in range"))
            .expect("posted");
        assert_eq!(left.done().original_value(), Some(found));
    }
}

#[test]
fn a_flush_ends_after_the_writes_before_it() {
    if !crate::device().flush {
        return;
    }
    let (left, right) = pair();
    let region = right.pd.writable(4096).flushable().build().expect("memory");
    let write = SendRequest::write(left.buffer(&[7; 4096]), region.remote());
    left.qp.post(write.unsignaled().id(1)).expect("posted");
    let flush = SendRequest::flush(region.remote()).id(2);
    left.qp.post(flush).expect("posted");
    let mut done = left.done();
    assert_eq!((done.id(), done.opcode()), (2, CompletionOpcode::Flush));
    assert_eq!(done.take_released()[0].0, 1, "the write is done as well");
    let mut seen = [0; 4096];
    region.copy_out(0, &mut seen).expect("in range");
    assert_eq!(seen, [7; 4096]);
    // Of a region that does not allow it.
    let plain = right.pd.writable(4096).build().expect("memory");
    left.qp
        .post(SendRequest::flush(plain.remote()))
        .expect("posted");
    assert_eq!(left.next().status(), Status::RemoteAccessError);
}

#[test]
fn unsignaled_buffers_come_back_with_the_next_completion() {
    let (left, right) = pair();
    for id in 0..3 {
        right.qp.post_recv(right.pd.buffer(8).unwrap(), id).unwrap();
    }
    left.qp
        .post(SendRequest::send(left.buffer(b"one")).id(1).unsignaled())
        .unwrap();
    left.qp
        .post(SendRequest::send(left.buffer(b"two")).id(2).unsignaled())
        .unwrap();
    left.qp
        .post(SendRequest::send(left.buffer(b"three")).id(3))
        .unwrap();
    let mut done = left.done();
    assert_eq!(done.id(), 3);
    let released = done.take_released();
    let released: Vec<_> = released
        .iter()
        .map(|(id, buffer)| (*id, &buffer[..]))
        .collect();
    assert_eq!(released, [(1, &b"one"[..]), (2, &b"two"[..])]);
    for text in ["one", "two", "three"] {
        assert_eq!(right.done().data(), text.as_bytes());
    }
}

#[test]
fn a_full_queue_gives_the_request_back() {
    let context = Context::open().unwrap();
    let gid = context.loopback_gid().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    let prepared = pd
        .create_qp::<Rc>(&cq, &cq)
        .gid(&gid)
        .max_recv_wr(2)
        .build()
        .unwrap();
    let mut posted = 0;
    let error = loop {
        match prepared.post_recv(pd.buffer_from(b"keep").unwrap(), posted) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
        assert!(posted < 100_000, "the queue has no end");
    };
    assert!(posted >= 2);
    assert!(error.error.is_queue_full(), "{error}");
    assert_eq!(error.error.errno(), Some(libc::ENOMEM));
    assert_eq!(&error.into_buffer().unwrap()[..], b"keep");
}

/// Whoever polls and posts again because the queue is full would do so for ever.
#[test]
fn more_inline_data_than_there_is_room_for_is_no_full_queue() {
    let (left, _right) = pair_with(|b| b.max_inline_data(16), |b| b);
    let error = left.qp.post(SendRequest::send_inline(&[1; 1000]));
    let error = error.expect_err("too much");
    assert!(!error.error.is_queue_full(), "{error}");
    assert!(
        error.to_string().contains("1000 bytes of inline data"),
        "{error}"
    );
}

#[test]
fn refused_rights_fail_the_request_and_not_the_next_queue_pair() {
    let (left, right) = pair_with(|b| b, |b| b.access(Access(0)));
    let region = right.pd.writable(64).build().unwrap();
    left.qp
        .post(SendRequest::write_inline(b"no", region.remote()))
        .unwrap();
    let error = left.next().ok().unwrap_err();
    assert!(
        matches!(
            error.status,
            Status::RemoteAccessError | Status::RemoteInvalidRequest
        ),
        "{error}"
    );
    assert_eq!(left.qp.state(), QpState::Err);
    assert_eq!(
        region.load_u64(0, Ordering::SeqCst).unwrap(),
        0,
        "nothing was written"
    );

    let (left, right) = pair();
    let region = right.pd.writable(64).build().unwrap();
    left.qp
        .post(SendRequest::read(
            left.pd.buffer(8).unwrap(),
            region.remote(),
        ))
        .unwrap();
    let error = left.next().ok().unwrap_err();
    assert_eq!(
        error.status,
        Status::RemoteAccessError,
        "the region is not readable: {error}"
    );
}

#[test]
fn nobody_receives_and_nobody_is_there() {
    let (left, _right) = pair_with(|b| b.rnr_retry(1), |b| b.min_rnr_timer(1));
    left.qp.post(SendRequest::send_inline(b"?").id(4)).unwrap();
    let error = left.next().ok().unwrap_err();
    assert_eq!((error.status, error.id), (Status::RnrRetryExceeded, 4));

    let (left, right) = pair_with(|b| b.timeout(8).retry_cnt(1), |b| b);
    drop(right);
    left.qp.post(SendRequest::send_inline(b"?").id(5)).unwrap();
    left.qp.post(SendRequest::send_inline(b"?").id(6)).unwrap();
    let error = left.next().ok().unwrap_err();
    assert_eq!((error.status, error.id), (Status::RetryExceeded, 5));
    let error = left.next().ok().unwrap_err();
    assert_eq!((error.status, error.id), (Status::WorkRequestFlushed, 6));
}

#[test]
fn buffers_of_a_dropped_queue_pair_are_freed_and_the_queue_goes_on() {
    let (left, right) = pair();
    let cq = right.cq.clone();
    right
        .qp
        .post_recv(right.pd.buffer(1 << 20).unwrap(), 1)
        .unwrap();
    drop(right);
    assert!(
        cq.poll_one().unwrap().is_none(),
        "a destroyed queue pair leaves nothing behind"
    );
    drop(left);
}

#[test]
fn a_receive_flushed_by_an_error_returns_its_buffer() {
    let (left, right) = pair();
    right.qp.post_recv(right.pd.buffer(4).unwrap(), 1).unwrap();
    right.qp.post_recv(right.pd.buffer(77).unwrap(), 2).unwrap();
    left.qp.post(SendRequest::send_inline(b"too long")).unwrap();
    let first = right.next();
    assert_eq!(first.id(), 1);
    failed_by(&first, Status::LocalLengthError);
    let mut second = right.next();
    assert_eq!(
        (second.id(), second.status()),
        (2, Status::WorkRequestFlushed)
    );
    assert_eq!(second.take_buffer().unwrap().len(), 77);
    failed_by(&left.next(), Status::RemoteInvalidRequest);
}

#[test]
fn pieces_of_a_buffer_receive_side_by_side() {
    let (left, right) = pair();
    let mut a = right.pd.buffer(12).unwrap();
    let b = a.split_off(6);
    right.qp.post_recv(b, 2).unwrap();
    right.qp.post_recv(a, 1).unwrap();
    left.qp.post(SendRequest::send_inline(b"second")).unwrap();
    left.qp.post(SendRequest::send_inline(b"first.")).unwrap();
    let b = right.done().into_buffer().unwrap();
    let a = right.done().into_buffer().unwrap();
    let (b, a) = b.unsplit(a).expect_err("in the wrong order");
    assert_eq!(&a.unsplit(b).unwrap()[..], b"first.second");
}

#[test]
fn a_thread_sleeps_on_the_channel_until_a_message_comes() {
    use std::os::fd::{AsFd, AsRawFd};
    let context = Context::open().unwrap();
    let gid = context.loopback_gid().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    assert!(channel.as_fd().as_raw_fd() >= 0);
    let quiet = context
        .create_cq(16)
        .channel(&channel)
        .id(1)
        .build()
        .unwrap();
    let cq = context
        .create_cq(16)
        .channel(&channel)
        .id(2)
        .build()
        .unwrap();
    let send_cq = context.create_cq(16).build().unwrap();
    let a = pd
        .create_qp::<Rc>(&send_cq, &quiet)
        .gid(&gid)
        .build()
        .unwrap();
    let b = pd.create_qp::<Rc>(&send_cq, &cq).gid(&gid).build().unwrap();
    b.post_recv(pd.buffer(16).unwrap(), 0).unwrap();
    quiet.arm(false);
    cq.arm(false);
    assert!(channel.try_event().unwrap().is_none());
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (a, _b) = (a.handshake(to_b).unwrap(), b.handshake(to_a).unwrap());
    let sleeper = std::thread::spawn({
        let channel = channel.clone();
        move || channel.wait_event(Some(PATIENCE))
    });
    a.post(SendRequest::send_inline(b"wake up")).unwrap();
    assert_eq!(sleeper.join().unwrap().unwrap(), 2);
    assert_eq!(cq.wait(PATIENCE).unwrap().data(), b"wake up");
    assert!(matches!(
        channel.wait_event(Some(Duration::from_millis(1))),
        Err(Error::Timeout(_))
    ));
}

/// The longest time there is may be given, as for ever.
#[test]
fn events_may_be_waited_for_for_ever() {
    let (left, right) = pair();
    right.cq.arm(false);
    right.qp.post_recv(right.buffer(&[0; 4]), 1).unwrap();
    // Refused, which fails the queue pair: its receive is flushed, and there is an asynchronous
    // event.
    let nowhere = rnic::RemoteMemory {
        addr: 0,
        len: 8,
        rkey: 0,
    };
    let request = SendRequest::write_inline(&[1; 8], nowhere);
    left.qp.post(request).unwrap();
    assert_eq!(left.next().status(), Status::RemoteAccessError);
    let channel = right.cq.channel();
    assert_eq!(channel.wait_event(Some(Duration::MAX)).unwrap(), 0);
    if !crate::device().failure_events {
        return;
    }
    let context = right.pd.context();
    let event = context.wait_async_event(Some(Duration::MAX)).unwrap();
    let cookie = right.qp.event_cookie();
    assert!(matches!(event, AsyncEvent::Qp { cookie: c, .. } if c == cookie));
}

#[test]
fn a_plain_region_cannot_be_invalidated_by_the_peer() {
    let (left, right) = pair();
    let region = right.pd.writable(64).build().unwrap();
    right.qp.post_recv(right.pd.buffer(64).unwrap(), 1).unwrap();
    let request = SendRequest::send_inline(b"revoke").invalidate(region.remote().rkey);
    left.qp.post(request).unwrap();
    let sent = left.next();
    if crate::device().exact_failures {
        assert_eq!(sent.status(), Status::RemoteAccessError);
    }
    assert_ne!(right.next().status(), Status::Success);
    // The key still serves another queue pair of the same domain.
    let context = right.pd.context().clone();
    let gid = context.loopback_gid().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    let a = right
        .pd
        .create_qp::<Rc>(&cq, &cq)
        .gid(&gid)
        .build()
        .unwrap();
    let b = right
        .pd
        .create_qp::<Rc>(&cq, &cq)
        .gid(&gid)
        .build()
        .unwrap();
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (a, _b) = (a.handshake(to_b).unwrap(), b.handshake(to_a).unwrap());
    a.post(SendRequest::write_inline(b"intact", region.remote()))
        .unwrap();
    cq.wait(PATIENCE).unwrap().ok().unwrap();
    let mut seen = [0; 6];
    region.copy_out(0, &mut seen).unwrap();
    assert_eq!(&seen, b"intact");
}

#[test]
fn failures_of_a_responder_are_told_as_events() {
    if !crate::device().failure_events {
        return;
    }
    use rnic::{AsyncEvent, QpEvent};
    let (left, right) = pair();
    let region = right.pd.writable(8).build().unwrap();
    let past_the_end = rnic::RemoteMemory {
        len: 9,
        ..region.remote()
    };
    left.qp
        .post(SendRequest::write_inline(&[1; 9], past_the_end))
        .unwrap();
    assert!(left.next().ok().is_err());
    let context = right.pd.context();
    loop {
        let event = context.wait_async_event(Some(PATIENCE)).unwrap();
        if let AsyncEvent::Qp { cookie, event } = event
            && cookie == right.qp.event_cookie()
            && event != QpEvent::CommunicationEstablished
        {
            assert_eq!(event, QpEvent::AccessError);
            break;
        }
    }
    assert_eq!(region.load_u64(0, Ordering::SeqCst).unwrap(), 0);
}

/// Eight threads wait on one queue, far longer than any of them polls: none may sleep through its
/// completion.
#[test]
fn waiting_threads_do_not_miss_completions() {
    let (left, right) = pair_with(|b| b.max_send_wr(256), |b| b.max_recv_wr(256));
    const THREADS: u64 = 8;
    const EACH: u64 = 25;
    for id in 0..THREADS * EACH {
        right.qp.post_recv_empty(id).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let got = right.cq.wait_spinning(Duration::ZERO, PATIENCE);
                    got.expect("a completion for everybody").ok().unwrap();
                }
            });
        }
        for _ in 0..THREADS * EACH / 4 {
            for _ in 0..4 {
                left.qp.post(SendRequest::send_inline(&[])).unwrap();
            }
            for _ in 0..4 {
                left.done();
            }
        }
    });
    assert!(right.cq.poll_one().unwrap().is_none());
}

#[test]
fn mistakes_are_explained() {
    let context = Context::open().unwrap();
    let gid = context.loopback_gid().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    assert!(pd.buffer(0).is_err());
    assert!(matches!(context.gid(9999), Err(Error::UnknownGid { .. })));
    assert!(
        context
            .port_attr(2)
            .unwrap_err()
            .to_string()
            .contains("ibv_query_port")
    );
    let prepared = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build().unwrap();
    let mut remote = prepared.endpoint();
    remote.gid = rnic::Gid::from(std::net::IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
    let error = prepared.handshake(remote).unwrap_err();
    assert!(matches!(error, Error::GidMismatch { .. }), "{error}");
    let too_much = pd
        .create_qp::<Rc>(&cq, &cq)
        .gid(&gid)
        .max_send_wr(u32::MAX)
        .build();
    let error = too_much.unwrap_err();
    assert!(
        error.errno().is_some() && error.to_string().starts_with("ibv_create_qp"),
        "{error}"
    );
}

#[test]
fn threads_share_a_queue_pair_and_its_completion_queue() {
    let (left, right) = pair_with(|b| b.max_send_wr(256), |b| b.max_recv_wr(256));
    const EACH: u64 = 60;
    for id in 0..4 * EACH {
        right
            .qp
            .post_recv(right.pd.buffer(64).unwrap(), id)
            .unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let left = &left;
            scope.spawn(move || {
                for i in 0..EACH {
                    let id = thread * EACH + i;
                    let bytes = id.to_be_bytes();
                    left.qp
                        .post(SendRequest::send(left.buffer(&bytes)).id(id))
                        .unwrap();
                    let done = left.done();
                    // Any thread may take any completion; buffer and id belong together.
                    assert_eq!(done.id().to_be_bytes(), done.into_buffer().unwrap()[..]);
                }
            });
        }
    });
    let mut seen: Vec<_> = (0..4 * EACH)
        .map(|id| {
            let got = right.done();
            assert_eq!(got.id(), id, "receives complete in order");
            u64::from_be_bytes(got.data().try_into().unwrap())
        })
        .collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..4 * EACH));
}

/// Several queue pairs take their receives from one queue; each completion says whose message it
/// is.
#[test]
fn a_shared_receive_queue_serves_whoever_has_a_message() {
    if !crate::device().srq {
        return;
    }
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(64).build().expect("cq");
    let srq = pd.create_srq(7).expect("srq");
    assert_eq!(srq.capacity(), 7);
    let connect = || {
        let client_cq = context.create_cq(64).build().expect("cq");
        let builder = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).gid(&gid);
        let server = builder.build().expect("qp");
        let client = pd.create_qp::<Rc>(&client_cq, &client_cq).gid(&gid);
        let client = client.build().expect("qp");
        let (to_server, to_client) = (server.endpoint(), client.endpoint());
        let client = client.handshake(to_server).expect("handshake");
        let server = server.handshake(to_client).expect("handshake");
        let refused = server.post_recv(pd.buffer(8).expect("memory"), 1);
        let refused = refused.expect_err("it has no receive queue of its own");
        assert_eq!(refused.error.errno(), Some(libc::EINVAL));
        assert_eq!(refused.buffers.len(), 1, "the buffer comes back");
        (server, client, client_cq)
    };
    let peers = [connect(), connect(), connect()];
    for id in 0..7 {
        srq.post_recv(pd.buffer(16).expect("memory"), id)
            .expect("room");
    }
    let full = srq.post_recv(pd.buffer(16).expect("memory"), 7);
    let full = full.expect_err("full");
    assert!(full.error.is_queue_full() && full.buffers.len() == 1);

    for (n, (server, client, client_cq)) in peers.iter().enumerate().rev() {
        let text = format!("from {n}");
        let message = pd.buffer_from(text.as_bytes()).expect("memory");
        client.post(SendRequest::send(message)).expect("posted");
        let received = cq.wait(PATIENCE).expect("a receive").ok().expect("success");
        assert_eq!(received.qpn(), server.qpn());
        assert_eq!(received.data(), text.as_bytes());
        assert_eq!(received.id(), 2 - n as u64, "the oldest receive first");
        client_cq
            .wait(PATIENCE)
            .expect("the send")
            .ok()
            .expect("ok");
    }

    // Four are left, fewer than the limit asks for: the event comes, once.
    if crate::device().failure_events {
        srq.arm_limit(5).expect("armed");
        let limit = AsyncEvent::SrqLimit {
            cookie: srq.event_cookie(),
        };
        let event = context.wait_async_event(Some(PATIENCE)).expect("an event");
        assert_eq!((event, srq.limit()), (limit, 0));
    }
    srq.resize(20).expect("more room");
    assert!(srq.capacity() >= 20);

    // What a queue pair took and nobody polled goes with it: the place is free, and the others go
    // on.
    let [(server, client, client_cq), rest, _] = peers;
    for _ in 0..3 {
        client
            .post(SendRequest::send_inline(b"unread"))
            .expect("posted");
        client_cq
            .wait(PATIENCE)
            .expect("the send")
            .ok()
            .expect("ok");
    }
    drop(server);
    for id in 0..30 {
        srq.post_recv_empty(100 + id).expect("only one is in use");
    }
    let (server, client, client_cq) = rest;
    client
        .post(SendRequest::send_inline(b"last"))
        .expect("posted");
    let received = cq.wait(PATIENCE).expect("a receive").ok().expect("success");
    assert_eq!((received.qpn(), received.id()), (server.qpn(), 6));
    client_cq
        .wait(PATIENCE)
        .expect("the send")
        .ok()
        .expect("ok");
}

#[test]
fn a_window_opens_its_range_until_it_is_invalidated() {
    if !crate::device().windows {
        return;
    }
    let (left, right) = pair();
    let region = right
        .pd
        .writable(4096)
        .only_through_windows()
        .build()
        .expect("memory");
    let mut window = right.pd.window().expect("a window");
    let write = WindowRights {
        write: true,
        ..WindowRights::default()
    };
    assert!(window.bind(&region, 4000..4097, write).is_err());
    assert!(window.bind(&region, 5..5, write).is_err());

    // Bound, told by the SEND behind it, written, and closed by the peer's last message.
    let (bind, lent) = window.bind(&region, 100..164, write).expect("in range");
    left.qp.post_recv(left.buffer(&[0; 64]), 1).expect("posted");
    right
        .qp
        .post_recv(right.buffer(&[0; 64]), 2)
        .expect("posted");
    right.qp.post(bind.id(3)).expect("posted");
    let told = SendRequest::send_inline(&lent.to_bytes()).id(4);
    right.qp.post(told).expect("posted");
    let heard = left.done();
    let lent = rnic::RemoteMemory::from_bytes(heard.data()).expect("a range");
    left.qp
        .post(SendRequest::write(left.buffer(&[7; 64]), lent).unsignaled())
        .expect("posted");
    left.qp
        .post(SendRequest::send_inline(b"done").invalidate(lent.rkey))
        .expect("posted");
    left.done();
    let kinds: Vec<_> = (0..3).map(|_| right.done()).collect();
    let of = |id| {
        kinds
            .iter()
            .find(|c| c.id() == id)
            .expect("completed")
            .opcode()
    };
    assert_eq!(of(3), CompletionOpcode::BindMw);
    assert_eq!(of(2), CompletionOpcode::Recv);
    let mut seen = [0; 66];
    region.copy_out(99, &mut seen).expect("in range");
    assert_eq!((seen[0], seen[1], seen[64], seen[65]), (0, 7, 7, 0));

    // Closed again by the program itself, under a new key; then nothing is reached.
    let (bind, again) = window.bind(&region, .., write).expect("in range");
    assert_ne!(again.rkey, lent.rkey);
    right.qp.post(bind).expect("posted");
    right.qp.post(window.invalidate()).expect("posted");
    right.done();
    assert_eq!(right.done().opcode(), CompletionOpcode::LocalInvalidate);
    left.qp
        .post(SendRequest::write(left.buffer(&[9; 8]), again))
        .expect("posted");
    assert_eq!(left.next().status(), Status::RemoteAccessError);
}

#[test]
fn a_bind_that_cannot_be_fails_with_its_own_status() {
    if !crate::device().windows {
        return;
    }
    let (_left, right) = pair();
    let region = right.pd.writable(64).build().expect("memory");
    let mut window = right.pd.window().expect("a window");
    let (bind, _) = window
        .bind(&region, .., WindowRights::default())
        .expect("in range");
    right.qp.post(bind).expect("posted");
    assert_eq!(right.next().status(), Status::MemoryWindowBindError);
}

/// Who sleeps on the channel in an event loop gets each message, and everything else that the loop
/// is for.
#[test]
fn a_wait_for_the_channel_or_others_ends_with_either() {
    let (a, b) = pair();
    let (mut pipe, write) = std::io::pipe().expect("a pipe");
    let channel = b.cq.channel();
    let short = Some(Duration::from_millis(5));
    b.cq.arm(false);
    let neither = channel.wait_with(&[pipe.as_fd()], short);
    assert!(!neither.expect("a wait"), "nothing came");
    for round in 0..200u32 {
        let writer = write.try_clone().expect("a descriptor");
        let text = round.to_le_bytes();
        let into = b.buffer(&[0; 4]);
        b.qp.post_recv(into, 1).expect("a receive");
        let by_pipe = round % 3 == 0;
        std::thread::scope(|scope| {
            scope.spawn(|| match by_pipe {
                true => (&writer).write_all(&text).expect("written"),
                false => {
                    a.qp.post(SendRequest::send(a.buffer(&text)))
                        .expect("posted");
                    a.done();
                }
            });
            let either = channel.wait_with(&[pipe.as_fd()], Some(PATIENCE));
            assert!(either.expect("a wait"), "something came");
            if by_pipe {
                let mut got = [0; 4];
                pipe.read_exact(&mut got).expect("read");
                assert_eq!(got, text);
                assert_eq!(channel.try_event().expect("no event"), None);
            }
        });
        if by_pipe {
            a.qp.post(SendRequest::send(a.buffer(&text)))
                .expect("posted");
            a.done();
            assert!(channel.wait_with(&[], Some(PATIENCE)).expect("a wait"));
        }
        assert!(channel.try_event().expect("an event").is_some());
        b.cq.arm(false);
        let got = b.done().into_buffer().expect("the buffer");
        assert_eq!(got[..4], text);
    }
}
