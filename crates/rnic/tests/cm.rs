//! Connections by the connection manager, over loopback: the calls that wait; and services and
//! groups, with events, too.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rnic::cm::{CmChannel, CmEvent, CmMulticast, RejectReason, UDP_QKEY};
use rnic::{
    CmConnection, CmConnector, CmError, CmListener, CompletionQueue, Connected, Context, Error,
    GidEntry, HEADER_LEN, PreparedQueuePair, ProtectionDomain, QpState, Rc, SendRequest, Status,
    Uc, Ud,
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    gid: GidEntry,
}

impl Side {
    fn new() -> Side {
        let context = Context::open().expect("the device opens");
        Side {
            pd: context.alloc_pd().expect("pd"),
            cq: context.create_cq(64).build().expect("cq"),
            gid: context.loopback_gid().expect("an address"),
        }
    }

    fn ip(&self) -> IpAddr {
        self.gid.addr
    }

    /// A queue pair with one receive of 64 bytes, id 1.
    fn prepare<T: Connected>(&self) -> PreparedQueuePair<T> {
        let qp = self.pd.create_qp::<T>(&self.cq, &self.cq).build();
        let qp = qp.expect("a queue pair");
        let buffer = self.pd.buffer(64).expect("memory");
        qp.post_recv(buffer, 1).expect("a receive");
        qp
    }

    fn completion(&self) -> rnic::Completion {
        self.cq.wait(PATIENCE).expect("a completion")
    }
}

/// Both ends of a connection to a new listener at `ip`, each with words for the other.
fn connect<T: Connected>(
    client: &Side,
    server: &Side,
    ip: IpAddr,
) -> (CmConnection<T>, CmConnection<T>) {
    let listener = CmListener::<T>::bind((ip, 0)).expect("listens");
    let addr = listener.local_addr().expect("an address");
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.request(Some(PATIENCE)).expect("a request");
            assert!(request.private_data().starts_with(b"from the client\0"));
            assert_eq!(request.local_addr().expect("ours"), addr);
            assert_eq!(request.peer_addr().expect("theirs").ip(), ip);
            let qp = server.prepare::<T>();
            request.accept_with(qp, b"from the server")
        });
        let connector = CmConnector::new(addr).expect("an address");
        let connected = connector
            .private_data(b"from the client")
            .timeout(PATIENCE)
            .connect(client.prepare::<T>());
        (
            connected.expect("connects"),
            accepted.join().expect("no panic").expect("accepts"),
        )
    })
}

fn say(side: &Side, from: &CmConnection<impl Connected>, text: &[u8]) {
    let buffer = side.pd.buffer_from(text).expect("memory");
    from.post(SendRequest::send(buffer).id(2)).expect("posts");
}

/// Talks in both directions, and ends by dropping the client's end.
fn talk<T: Connected>(ip: impl FnOnce(&Side) -> IpAddr) {
    let (left, right) = (Side::new(), Side::new());
    let ip = ip(&left);
    let (client, server) = connect::<T>(&left, &right, ip);
    assert!(client.private_data().starts_with(b"from the server\0"));
    assert!(server.private_data().starts_with(b"from the client\0"));
    assert_eq!(client.local_addr().expect("ours"), server.peer_addr());
    assert_eq!(server.local_addr().expect("ours"), client.peer_addr());
    assert_eq!(client.remote().qpn, server.qpn());
    assert_eq!(client.path_mtu(), server.path_mtu());

    say(&left, &client, b"there");
    assert_eq!(left.completion().ok().expect("sent").id(), 2);
    let received = right.completion().ok().expect("received");
    assert_eq!(received.data(), b"there");
    say(&right, &server, b"and back");
    assert_eq!(right.completion().ok().expect("sent").id(), 2);
    let received = left.completion().ok().expect("received");
    assert_eq!(received.data(), b"and back");

    assert!(!server.is_disconnected());
    server
        .post_recv(right.pd.buffer(64).expect("memory"), 3)
        .expect("a receive");
    drop(client);
    server.wait_disconnected(Some(PATIENCE)).expect("the end");
    assert!(server.is_disconnected());
    assert_eq!(server.state(), QpState::Err);
    let flushed = right.completion();
    assert_eq!(
        (flushed.id(), flushed.status()),
        (3, Status::WorkRequestFlushed)
    );
}

#[test]
fn a_reliable_connection_carries_messages_and_ends_for_both() {
    if !crate::device().connection_manager {
        return;
    }
    talk::<Rc>(Side::ip);
}

#[test]
fn an_unreliable_connection_carries_messages_and_ends_for_both() {
    if !crate::device().connection_manager_uc {
        return;
    }
    talk::<Uc>(Side::ip);
}

#[test]
fn connections_go_over_ipv6() {
    if !crate::device().connection_manager {
        return;
    }
    let context = Context::open().expect("the device opens");
    let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
    if context.gid_for(v6).is_err() {
        rnic_skip::skipped("connections_go_over_ipv6", "this host has no ::1");
        return;
    }
    talk::<Rc>(|_| v6);
}

fn rejection(result: rnic::Result<CmConnection>) -> (RejectReason, Vec<u8>) {
    match result.expect_err("no connection") {
        Error::Connect(CmError::Rejected {
            reason,
            private_data,
            ..
        }) => (reason, private_data),
        other => panic!("{other}"),
    }
}

/// No test asks for this port, and no listener gets it for 0: a port that was free a moment ago
/// another test may have.
const NOBODYS: u16 = 9;

#[test]
fn where_nobody_listens_the_refusal_says_so_at_once() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    let port = NOBODYS;
    let start = Instant::now();
    let connector = CmConnector::new((side.ip(), port)).expect("an address");
    let error = connector
        .connect(side.prepare::<Rc>())
        .expect_err("refused");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "not by a timeout"
    );
    let text = error.to_string();
    assert!(text.contains("nobody listens"), "{text}");
    assert!(text.contains(&port.to_string()), "{text}");
    let (reason, _) = rejection(connector.connect(side.prepare::<Rc>()));
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn an_application_refuses_with_its_own_words() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    let listener = CmListener::<Rc>::bind((side.ip(), 0)).expect("listens");
    let addr = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let request = listener.request(Some(PATIENCE)).expect("a request");
        request.reject(b"wrong version").expect("refuses");
        // One that is dropped is refused without words.
        drop(listener.request(Some(PATIENCE)).expect("a request"));
    });
    let connector = CmConnector::new(addr).expect("an address");
    let (reason, words) = rejection(connector.connect(side.prepare()));
    assert_eq!(reason, RejectReason::CONSUMER);
    assert!(words.starts_with(b"wrong version\0"), "{words:?}");
    let (reason, words) = rejection(connector.connect(side.prepare()));
    assert_eq!(reason, RejectReason::CONSUMER);
    assert!(words.iter().all(|byte| *byte == 0), "{words:?}");
    server.join().expect("no panic");
}

/// A request that a listener got and nobody answered before the client's patience ended is
/// withdrawn.
#[test]
fn who_is_not_answered_in_time_gives_up() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    let listener = CmListener::<Rc>::bind((side.ip(), 0)).expect("listens");
    let connector = CmConnector::new(listener.local_addr().expect("an address"));
    let connector = connector.expect("an address");
    let soon = Duration::from_millis(300);
    let result = connector.timeout(soon).connect(side.prepare::<Rc>());
    match result.expect_err("nobody accepts") {
        Error::Connect(CmError::TimedOut { after, .. }) => assert_eq!(after, soon),
        other => panic!("{other}"),
    }
}

#[test]
fn a_port_has_one_listener_and_is_free_after_it() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    let first = CmListener::<Rc>::bind((side.ip(), 0)).expect("listens");
    let addr = first.local_addr().expect("an address");
    let error = CmListener::<Rc>::bind(addr).expect_err("taken");
    assert_eq!(error.errno(), Some(libc::EADDRINUSE), "{error}");
    // Datagrams have ports of their own.
    let datagrams = CmListener::<Ud>::bind(addr).expect("another port space");
    assert_eq!(datagrams.local_addr().expect("an address"), addr);
    drop(first);
    CmListener::<Rc>::bind(addr).expect("free again");
}

#[test]
fn an_address_of_somebody_else_is_refused() {
    if !crate::device().connection_manager {
        return;
    }
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 7471));
    let error = CmListener::<Rc>::bind(elsewhere).expect_err("not ours");
    let errno = error.errno();
    assert!(
        errno == Some(libc::EADDRNOTAVAIL) || errno == Some(libc::ENODEV),
        "{error}"
    );
}

#[test]
fn too_much_private_data_is_an_error_of_the_caller() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    let listener = CmListener::<Rc>::bind((side.ip(), 0)).expect("listens");
    let connector = CmConnector::new(listener.local_addr().expect("an address"));
    let connector = connector.expect("an address").private_data(&[1; 57]);
    let error = connector
        .connect(side.prepare::<Rc>())
        .expect_err("57 bytes");
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
}

/// A server whose clients share its receives.
#[test]
fn connections_share_a_receive_queue() {
    if !crate::device().connection_manager {
        return;
    }
    let (left, right) = (Side::new(), Side::new());
    let srq = right.pd.create_srq(8).expect("srq");
    for id in 0..4 {
        let buffer = right.pd.buffer(64).expect("memory");
        srq.post_recv(buffer, id).expect("a receive");
    }
    let listener = CmListener::<Rc>::bind((left.ip(), 0)).expect("listens");
    let connector = CmConnector::new(listener.local_addr().expect("an address"));
    let connector = connector.expect("an address");
    let mut connections = Vec::new();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let request = listener.request(Some(PATIENCE)).expect("a request");
                let qp = right.pd.create_qp::<Rc>(&right.cq, &right.cq).srq(&srq);
                request.accept(qp.build().expect("a queue pair"))
            });
            let client = connector.connect(left.prepare::<Rc>());
            let server = server.join().expect("no panic").expect("accepts");
            connections.push((client.expect("connects"), server));
        });
    }
    for (n, (client, server)) in connections.iter().enumerate() {
        say(&left, client, &[n as u8]);
        left.completion().ok().expect("sent");
        let received = right.completion().ok().expect("received");
        assert_eq!(received.data(), [n as u8]);
        assert_eq!(received.qpn(), server.qpn());
    }
}

#[test]
fn many_threads_wait_on_one_listener() {
    if !crate::device().connection_manager {
        return;
    }
    const CLIENTS: usize = 12;
    let (left, right) = (Side::new(), Side::new());
    let listener = CmListener::<Rc>::bind((left.ip(), 0)).expect("listens");
    let addr = listener.local_addr().expect("an address");
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..CLIENTS / 4)
                        .map(|_| {
                            let request = listener.request(Some(PATIENCE)).expect("a request");
                            request.accept(right.prepare::<Rc>()).expect("accepts")
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let connector = CmConnector::new(addr).expect("an address");
                    connector.connect(left.prepare::<Rc>()).expect("connects")
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(|c| c.join().expect("ok")).collect();
        let servers: Vec<_> = servers
            .into_iter()
            .flat_map(|s| s.join().expect("ok"))
            .collect();
        for client in &clients {
            let ends = servers.iter().filter(|s| s.qpn() == client.remote().qpn);
            assert_eq!(ends.count(), 1);
        }
    });
}

/// Of a service.
fn qkey() -> u32 {
    match crate::device().connection_manager_qkey {
        true => 0x1234,
        false => UDP_QKEY,
    }
}

#[test]
fn datagrams_find_their_service() {
    if !crate::device().connection_manager {
        return;
    }
    let (left, right) = (Side::new(), Side::new());
    let server = right.pd.create_qp::<Ud>(&right.cq, &right.cq);
    let server = server.qkey(qkey()).build().expect("a queue pair");
    let buffer = right.pd.buffer(HEADER_LEN + 64).expect("memory");
    server.post_recv(buffer, 1).expect("a receive");
    let listener = CmListener::<Ud>::bind((left.ip(), 0)).expect("listens");
    let connector = CmConnector::new(listener.local_addr().expect("an address"));
    let connector = connector.expect("an address").private_data(b"who are you?");
    let client = left.pd.create_qp::<Ud>(&left.cq, &left.cq);
    let client = client.build().expect("a queue pair");
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.request(Some(PATIENCE)).expect("a request");
            assert!(request.private_data().starts_with(b"who are you?\0"));
            request.accept(&server, b"it's me").expect("accepts");
        });
        connector.find(&client).expect("an answer")
    });
    assert!(found.private_data.starts_with(b"it's me\0"));
    assert_eq!(found.destination.qpn, server.qpn());
    assert_eq!(found.destination.qkey, server.qkey());
    let request = SendRequest::send_inline(b"hello").unsignaled();
    client.post(request, &found.destination).expect("posts");
    let received = right.completion().ok().expect("received");
    assert_eq!(received.message(), b"hello");

    drop(listener);
    match connector.find(&client).expect_err("nobody there") {
        Error::Connect(CmError::NoService { status: 1, .. }) => {}
        other => panic!("{other}"),
    }
}

#[test]
fn a_group_is_joined_with_its_key_only() {
    if !crate::device().connection_manager {
        return;
    }
    let side = Side::new();
    if side.ip().is_ipv6() {
        return;
    }
    let group = IpAddr::from([239, 7, 7, 9]);
    let build = |qkey| {
        let qp = side.pd.create_qp::<Ud>(&side.cq, &side.cq);
        qp.qkey(qkey).build().expect("a queue pair")
    };
    let error = CmMulticast::join(&build(1), side.ip(), group).expect_err("hears nothing");
    assert!(error.to_string().contains("0x1234567"), "{error}");
    let (left, right) = (build(UDP_QKEY), build(UDP_QKEY));
    let buffer = side.pd.buffer(HEADER_LEN + 64).expect("memory");
    right.post_recv(buffer, 1).expect("a receive");
    let way = CmMulticast::join(&left, side.ip(), group).expect("joins");
    let member = CmMulticast::join(&right, side.ip(), group).expect("joins");
    let request = || SendRequest::send_inline(b"all of you").unsignaled();
    left.post(request(), way.destination()).expect("posts");
    let received = side.completion().ok().expect("received");
    assert_eq!(
        (received.qpn(), received.message()),
        (right.qpn(), &b"all of you"[..])
    );
    let again = CmMulticast::join(&right, side.ip(), group).expect("joins once more");
    drop(member);
    let buffer = side.pd.buffer(HEADER_LEN + 64).expect("memory");
    right.post_recv(buffer, 2).expect("a receive");
    left.post(request(), way.destination()).expect("posts");
    let received = side.completion().ok().expect("it is a member still");
    assert_eq!((received.qpn(), received.id()), (right.qpn(), 2));
    drop(again);
    right
        .detach(group)
        .expect_err("dropping the last one left the group");
}

#[test]
fn services_are_found_and_groups_joined_on_one_channel_by_one_thread() {
    if !crate::device().connection_manager {
        return;
    }
    const LISTENER: u64 = 0;
    const FOUND: u64 = 1;
    const LEFT: u64 = 2;
    const RIGHT: u64 = 3;
    const NOBODY: u64 = 4;
    let side = Side::new();
    let ud = |qkey| {
        let qp = side.pd.create_qp::<Ud>(&side.cq, &side.cq);
        qp.qkey(qkey).build().expect("a queue pair")
    };
    let (server, client) = (ud(qkey()), ud(0x1234));
    let channel = CmChannel::new().expect("a channel");
    let listener = CmListener::<Ud>::builder((side.ip(), 0)).expect("an address");
    let listener = listener
        .channel(&channel, LISTENER)
        .listen()
        .expect("listens");
    let addr = listener.local_addr().expect("an address");
    let connector = CmConnector::new(addr).expect("an address");
    let mut search = connector
        .start_find(&channel, FOUND, &client)
        .expect("begins");
    assert!(search.finish().is_none(), "nobody has answered yet");
    assert_eq!(search.peer_addr(), addr);
    assert_eq!(
        channel.wait_event(Some(PATIENCE)).expect("news"),
        CmEvent::Request(LISTENER)
    );
    let request = listener
        .try_request()
        .expect("no error")
        .expect("a request");
    request.accept(&server, b"it's me").expect("accepts");
    assert_eq!(
        channel.wait_event(Some(PATIENCE)).expect("news"),
        CmEvent::Connected(FOUND)
    );
    let found = search.finish().expect("an answer").expect("found");
    assert!(found.private_data.starts_with(b"it's me\0"));
    assert_eq!(
        (found.destination.qpn, found.destination.qkey),
        (server.qpn(), qkey())
    );
    assert!(search.finish().is_none(), "answers once");

    drop(listener);
    let mut search = connector
        .start_find(&channel, NOBODY, &client)
        .expect("begins");
    assert_eq!(
        channel.wait_event(Some(PATIENCE)).expect("news"),
        CmEvent::Failed(NOBODY)
    );
    match search.finish().expect("an answer") {
        Err(Error::Connect(CmError::NoService { status: 1, .. })) => {}
        other => panic!("{other:?}"),
    }

    if side.ip().is_ipv6() {
        return;
    }
    let group = IpAddr::from([239, 7, 7, 10]);
    let (deaf, member) = (ud(1), ud(UDP_QKEY));
    let mut left = CmMulticast::start(&channel, LEFT, &deaf, side.ip(), group).expect("begins");
    let mut right = CmMulticast::start(&channel, RIGHT, &member, side.ip(), group).expect("begins");
    let mut news = [(); 2].map(|()| channel.wait_event(Some(PATIENCE)).expect("news").token());
    news.sort_unstable();
    assert_eq!(news, [LEFT, RIGHT]);
    let error = left
        .finish()
        .expect("an answer")
        .expect_err("hears nothing");
    assert!(error.to_string().contains("0x1234567"), "{error}");
    let joined = right.finish().expect("an answer").expect("joins");
    assert_eq!(joined.group(), group);
    drop(joined);
    member
        .detach(group)
        .expect_err("dropping it left the group");
}
