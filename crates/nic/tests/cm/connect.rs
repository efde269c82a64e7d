//! Connections: who hears what, and when.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::cm::{
    CONNECT_PRIVATE_DATA, ConnEvent, ConnParam, Event, EventChannel, EventKind, EventParam, Id,
    PortSpace,
};
use rnic_nic::{Access, QpAttrMask as M, QpState, QpType};

use super::tools::{HOST, channel, conn, errno, expect, here, next, resolve, tcp, waits};

/// A queue pair number that no other test has: one that comes again is a stale connection.
fn qpn() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x80_0000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn param() -> ConnParam<'static> {
    ConnParam {
        responder_resources: 3,
        initiator_depth: 2,
        retry_count: 9,
        rnr_retry_count: 6,
        qp_num: qpn(),
        ..ConnParam::default()
    }
}

/// A listener on a free port of 127.0.0.1, and that port.
fn listener(channel: &EventChannel, backlog: i32) -> (Id, u16) {
    let id = tcp(channel);
    id.bind(here(0)).expect("bound");
    id.listen(backlog).expect("it listens");
    let local = id.route().expect("a route").local.expect("an address");
    (id, local.port())
}

/// An id whose request is on its way.
fn request(channel: &EventChannel, port: u16, param: &ConnParam<'_>) -> Id {
    let id = tcp(channel);
    id.set_uid(1);
    resolve(&id, channel, here(port));
    id.connect(param).expect("asked");
    id
}

/// Both sides of a connection, established.
pub fn connected(ours: &EventChannel, theirs: &EventChannel) -> (Id, Id) {
    let (listener, port) = listener(theirs, 8);
    let client = request(ours, port, &param());
    let server = expect(theirs, EventKind::ConnectRequest).id;
    server.accept(Some(&param()), 2).expect("accepted");
    expect(ours, EventKind::ConnectResponse);
    client.establish().expect("established");
    expect(theirs, EventKind::Established);
    drop(listener);
    (client, server)
}

#[test]
fn a_connection_comes_and_goes() {
    let (ours, theirs) = (channel(), channel());
    let (listener, port) = listener(&theirs, 8);
    listener.set_uid(7);
    let asked = ConnParam {
        private_data: b"who are you",
        ..param()
    };
    let client = request(&ours, port, &asked);
    let event = expect(&theirs, EventKind::ConnectRequest);
    assert_eq!((event.uid, event.id.uid()), (7, 0));
    assert_eq!(event.listener.as_ref().map(Id::uid), Some(7));
    let heard = conn(&event);
    assert_eq!(heard.private_data.len(), CONNECT_PRIVATE_DATA);
    assert!(heard.private_data.starts_with(b"who are you\0"));
    assert_eq!(heard.qp_num, asked.qp_num);
    // One's depth is the other's resources; more than 7 retries are 7.
    assert_eq!((heard.responder_resources, heard.initiator_depth), (2, 3));
    assert_eq!((heard.retry_count, heard.rnr_retry_count), (7, 6));
    let server = event.id;
    let (own, peer) = {
        let (a, b) = (
            client.route().expect("ours"),
            server.route().expect("theirs"),
        );
        assert!(b.on_device);
        assert_eq!((a.sgid, a.dgid), (b.dgid, b.sgid));
        ((a.local, a.peer), (b.peer, b.local))
    };
    assert_eq!(own, peer, "each knows the other's address and port");
    let answer = ConnParam {
        private_data: b"a server",
        ..param()
    };
    server.accept(Some(&answer), 2).expect("accepted");
    let event = expect(&ours, EventKind::ConnectResponse);
    let heard = conn(&event);
    assert_eq!(heard.private_data.len(), 196);
    assert!(heard.private_data.starts_with(b"a server\0"));
    assert_eq!(heard.qp_num, answer.qp_num);
    client.establish().expect("established");
    let event = expect(&theirs, EventKind::Established);
    assert_eq!((event.uid, event.id.uid()), (2, 2));
    client.disconnect().expect("disconnected");
    assert_eq!(expect(&theirs, EventKind::Disconnected).uid, 2);
    server.disconnect().expect("so it is");
    assert_eq!(expect(&ours, EventKind::Disconnected).uid, 1);
    assert_eq!(listener.destroy(), 1);
}

/// The sender learns which queue pair the target has, which the answer says elsewhere than for
/// other transports.
#[test]
fn xrc_names_its_target() {
    let (ours, theirs) = (channel(), channel());
    let listener = Id::new(&theirs, PortSpace::Ib, QpType::XrcRecv, 0).expect("an id");
    listener.bind(here(0)).expect("bound");
    listener.listen(1).expect("it listens");
    let port = listener.route().expect("a route").local.expect("one");
    let client = Id::new(&ours, PortSpace::Ib, QpType::XrcSend, 1).expect("an id");
    resolve(&client, &ours, port);
    client.connect(&param()).expect("asked");
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    let answer = param();
    server.accept(Some(&answer), 2).expect("accepted");
    let event = expect(&ours, EventKind::ConnectResponse);
    assert_eq!(conn(&event).qp_num, answer.qp_num);
    assert!(conn(&event).srq, "a target has one");
    let (attr, _) = client.init_qp_attr(QpState::Rtr).expect("answered");
    assert_eq!(attr.dest_qp_num, answer.qp_num);
}

#[test]
fn queue_pairs_are_told_what_was_agreed_on() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let client = tcp(&ours);
    assert_eq!(errno(client.init_qp_attr(QpState::Init)), libc::EINVAL);
    resolve(&client, &ours, here(port));
    let (attr, mask) = client.init_qp_attr(QpState::Init).expect("before it");
    assert_eq!(mask, M::STATE | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT);
    assert_eq!(
        (attr.qp_access_flags, attr.port_num),
        (Access::default(), 1)
    );
    let (asked, answer) = (param(), param());
    client.connect(&asked).expect("asked");
    assert_eq!(errno(client.init_qp_attr(QpState::Rtr)), libc::EINVAL);
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    let (passive, mask) = server.init_qp_attr(QpState::Rtr).expect("it knows all");
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    assert_eq!(mask, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER);
    assert_eq!(passive.dest_qp_num, asked.qp_num);
    assert_eq!((passive.max_dest_rd_atomic, passive.min_rnr_timer), (2, 0));
    assert_eq!(passive.ah.dgid.ip(), here(0).ip());
    server.accept(Some(&answer), 2).expect("accepted");
    expect(&ours, EventKind::ConnectResponse);
    let (active, _) = client.init_qp_attr(QpState::Rtr).expect("it knows all");
    assert_eq!(active.dest_qp_num, answer.qp_num);
    assert_eq!(active.path_mtu, passive.path_mtu);
    let (ready, mask) = client.init_qp_attr(QpState::Rts).expect("it knows all");
    let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
    assert_eq!(mask, rts | M::MAX_QP_RD_ATOMIC);
    assert_eq!(
        ready.sq_psn, passive.rq_psn,
        "it starts where the peer expects it"
    );
    assert_eq!(
        (ready.timeout, ready.retry_cnt, ready.rnr_retry),
        (19, 7, 6)
    );
    let (theirs, _) = server.init_qp_attr(QpState::Rts).expect("it knows all");
    assert_eq!(theirs.sq_psn, active.rq_psn);
    assert_eq!(errno(client.init_qp_attr(QpState::Sqd)), libc::EINVAL);
    let (_, mask) = client.init_qp_attr(QpState::Init).expect("once more");
    assert!(mask.contains(M::ACCESS_FLAGS));
}

#[test]
fn a_refusal_says_why() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let client = request(&ours, port, &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    assert_eq!(errno(server.reject(b"", 8)), libc::EINVAL, "not its reason");
    server.reject(b"too busy", 0).expect("refused");
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
    let heard = conn(&event);
    assert_eq!(heard.private_data.len(), 148);
    assert!(heard.private_data.starts_with(b"too busy\0"));
    assert_eq!(errno(server.accept(Some(&param()), 2)), libc::EINVAL);
    assert_eq!(errno(client.establish()), libc::EINVAL);
    let again = client.connect(&param());
    assert_eq!(errno(again), libc::EINVAL, "an id connects once");
}

#[test]
fn the_asker_may_refuse_the_answer() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let client = request(&ours, port, &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    server.accept(Some(&param()), 2).expect("accepted");
    expect(&ours, EventKind::ConnectResponse);
    client.reject(b"no", 0).expect("refused");
    let event = next(&theirs);
    assert_eq!(
        (event.kind, event.status, event.uid),
        (EventKind::Rejected, 28, 2)
    );
}

#[test]
fn where_nobody_listens_the_request_is_refused() {
    let ours = channel();
    let (free, port) = {
        let id = tcp(&ours);
        id.bind(here(0)).expect("bound");
        let port = id
            .route()
            .expect("a route")
            .local
            .expect("an address")
            .port();
        (id, port)
    };
    let _client = request(&ours, port, &param());
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 8));
    drop(free);
}

/// As perftest's client with -R does: it comes while its server is between two listeners on one
/// port.
#[test]
fn a_request_between_two_listeners_reaches_the_next() {
    let _alone = HOST.write();
    let (ours, theirs) = (channel(), channel());
    let held = || rnic_nic::objects().is_some_and(|objects| objects.cm_held > 0);
    // Many, since each has but the 20 ms that a request is kept, of which a busy machine may take
    // all.
    for _ in 0..1000 {
        let next_listener = tcp(&theirs);
        next_listener.bind(here(0)).expect("bound");
        let local = next_listener.route().expect("a route").local;
        let _client = request(&ours, local.expect("an address").port(), &param());
        while !held() && !waits(&ours, Duration::ZERO) {
            std::thread::yield_now();
        }
        next_listener.listen(8).expect("it listens");
        // A request that went down with another process is repeated after 6 s.
        let answered = (0..300)
            .any(|_| waits(&theirs, Duration::from_millis(100)) || waits(&ours, Duration::ZERO));
        assert!(answered, "nobody hears of it");
        if waits(&theirs, Duration::ZERO) {
            expect(&theirs, EventKind::ConnectRequest);
            return;
        }
        let event = next(&ours);
        assert_eq!((event.kind, event.status), (EventKind::Rejected, 8));
    }
    panic!("each was refused");
}

#[test]
fn a_listener_takes_only_its_service() {
    let (ours, theirs) = (channel(), channel());
    let listener = Id::new(&theirs, PortSpace::Ib, QpType::Uc, 0).expect("an id");
    listener.bind(here(0)).expect("bound");
    listener.listen(8).expect("it listens");
    let port = listener
        .route()
        .expect("a route")
        .local
        .expect("an address")
        .port();
    let reliable = Id::new(&ours, PortSpace::Ib, QpType::Rc, 1).expect("an id");
    resolve(&reliable, &ours, here(port));
    reliable.connect(&param()).expect("asked");
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
    let unreliable = Id::new(&ours, PortSpace::Ib, QpType::Uc, 1).expect("an id");
    resolve(&unreliable, &ours, here(port));
    unreliable.connect(&param()).expect("asked");
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    assert_eq!(server.qp_type(), QpType::Uc);
    let (_, mask) = server.init_qp_attr(QpState::Rts).expect("it knows all");
    assert_eq!(mask, M::STATE | M::SQ_PSN, "nothing is repeated");
}

#[test]
fn a_wildcard_listens_on_all_addresses() {
    let (ours, theirs) = (channel(), channel());
    let listener = tcp(&theirs);
    listener
        .listen(8)
        .expect("it listens, on a port of its own");
    let local = listener
        .route()
        .expect("a route")
        .local
        .expect("an address");
    assert!(local.ip().is_unspecified());
    let _client = request(&ours, local.port(), &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    let asked = server.route().expect("a route").local;
    assert_eq!(asked, Some(here(local.port())));
}

#[test]
fn too_much_private_data_is_refused_before_anything_is_sent() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let client = tcp(&ours);
    resolve(&client, &ours, here(port));
    let much = [1; CONNECT_PRIVATE_DATA + 1];
    let too_much = ConnParam {
        private_data: &much,
        ..param()
    };
    assert_eq!(errno(client.connect(&too_much)), libc::EINVAL);
    let all = ConnParam {
        private_data: &much[1..],
        ..param()
    };
    client.connect(&all).expect("asked");
    let event = expect(&theirs, EventKind::ConnectRequest);
    assert_eq!(conn(&event).private_data, much[1..]);
}

#[test]
fn requests_wait_up_to_the_backlog() {
    let _alone = HOST.read();
    let (ours, theirs, others) = (channel(), channel(), channel());
    let (_listener, port) = listener(&theirs, 1);
    let (_other, barrier) = listener(&others, 1);
    let (first, second, fourth) = (param(), param(), param());
    let _first = request(&ours, port, &first);
    let asked = Instant::now();
    let _second = request(&ours, port, &second);
    let _third = request(&ours, barrier, &param());
    // Held: an id that ends refuses its request, which would be told between the events that are
    // expected.
    let _held = expect(&others, EventKind::ConnectRequest);
    let taken = expect(&theirs, EventKind::ConnectRequest);
    assert_eq!(conn(&taken).qp_num, first.qp_num);
    // The second was dropped, and will come again after six seconds.
    let came = waits(&theirs, Duration::ZERO);
    assert!(!came || asked.elapsed() >= Duration::from_secs(6));
    let _fourth = request(&ours, port, &fourth);
    let taken = conn(&expect(&theirs, EventKind::ConnectRequest)).qp_num;
    assert!(taken == fourth.qp_num || taken == second.qp_num && asked.elapsed().as_secs() >= 6);
}

#[test]
fn an_id_that_ends_tells_its_peer() {
    let _alone = HOST.read();
    let (ours, theirs) = (channel(), channel());
    let (listener, port) = listener(&theirs, 8);
    // Asked, and gone before the answer.
    let client = request(&ours, port, &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    server.set_uid(2);
    client.destroy();
    assert_eq!(next(&theirs).kind, EventKind::Rejected);
    assert_eq!(errno(server.accept(Some(&param()), 2)), libc::EINVAL);
    // Taken, and not answered.
    let _client = request(&ours, port, &param());
    expect(&theirs, EventKind::ConnectRequest).id.destroy();
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
    // Not even taken.
    let _client = request(&ours, port, &param());
    assert!(waits(&theirs, Duration::from_secs(30)));
    listener.destroy();
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
    assert!(!waits(&theirs, Duration::ZERO), "gone with its listener");
    // Established.
    let (client, server) = connected(&ours, &theirs);
    server.destroy();
    expect(&ours, EventKind::Disconnected);
    client.disconnect().expect("it is");
    let (client, _server) = connected(&ours, &theirs);
    drop(client);
    expect(&theirs, EventKind::Disconnected);
}

#[test]
fn data_may_prove_that_the_peer_is_ready() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let _client = request(&ours, port, &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    assert_eq!(errno(server.notify_established()), libc::EINVAL);
    server.accept(Some(&param()), 2).expect("accepted");
    expect(&ours, EventKind::ConnectResponse);
    server.notify_established().expect("data have come");
    expect(&theirs, EventKind::Established);
    assert_eq!(errno(server.notify_established()), libc::EISCONN);
}

#[test]
fn events_of_a_request_move_with_its_listener() {
    let (ours, theirs, others) = (channel(), channel(), channel());
    let (listener, port) = listener(&theirs, 8);
    let client = request(&ours, port, &param());
    assert!(waits(&theirs, Duration::from_secs(30)));
    listener.migrate(&others).expect("moved");
    assert!(!waits(&theirs, Duration::ZERO));
    let server = expect(&others, EventKind::ConnectRequest).id;
    drop(theirs);
    server.accept(Some(&param()), 2).expect("accepted");
    expect(&ours, EventKind::ConnectResponse);
    client.establish().expect("established");
    expect(&others, EventKind::Established);
}

#[test]
fn a_new_id_has_no_events_before_it_has_a_mark() {
    let _alone = HOST.read();
    let (ours, theirs) = (channel(), channel());
    let (_listener, port) = listener(&theirs, 8);
    let client = request(&ours, port, &param());
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    client.destroy();
    let _barrier = request(&ours, port, &param());
    let event: Event = expect(&theirs, EventKind::ConnectRequest);
    assert!(!waits(&theirs, Duration::ZERO));
    assert!(matches!(&event.param, EventParam::Conn(ConnEvent { .. })));
    assert_eq!(errno(server.accept(Some(&param()), 2)), libc::EINVAL);
}

/// Many at once, from several threads, over one listener; nothing stays.
#[test]
fn threads_connect_and_disconnect_at_once() {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let theirs = channel();
    let (listener, port) = listener(&theirs, 1024);
    let server = std::thread::spawn({
        let theirs = theirs.clone();
        move || {
            let mut held = Vec::new();
            let mut ended = 0;
            while ended < THREADS * EACH {
                let event = next(&theirs);
                match event.kind {
                    EventKind::ConnectRequest => {
                        event.id.accept(Some(&param()), 2).expect("accepted");
                        held.push(event.id);
                    }
                    EventKind::Disconnected => {
                        event.id.disconnect().expect("so it is");
                        event.id.destroy();
                        ended += 1;
                    }
                    kind => assert_eq!((kind, event.status), (EventKind::Established, 0)),
                }
            }
        }
    });
    let clients: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(move || {
                let ours = channel();
                for _ in 0..EACH {
                    let client = request(&ours, port, &param());
                    expect(&ours, EventKind::ConnectResponse);
                    client.establish().expect("established");
                    client.disconnect().expect("disconnected");
                    expect(&ours, EventKind::Disconnected);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("no panic");
    }
    server.join().expect("no panic");
    assert_eq!(listener.destroy() as usize, THREADS * EACH);
}
