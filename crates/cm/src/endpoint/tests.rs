//! Two endpoints whose messages always arrive at once, and what can be said without a network.

use super::*;
use crate::{Accept, Connect, SidrAnswer, SidrConnect};
use rnic_wire::PathMtu;
use rnic_wire::cm::{PortSpace, ReqPath, SidrStatus};
use std::vec;

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

fn gid(ip: &str) -> Gid {
    Gid::from(ip.parse::<core::net::IpAddr>().unwrap())
}

fn endpoint(range: u16, ip: &str) -> Endpoint {
    let mut endpoint = Endpoint::new(Config {
        range,
        seed: range.into(),
        guid: range.into(),
        ..Config::default()
    });
    endpoint.set_gids(&[gid(ip)]);
    endpoint
}

fn header() -> IpCmHeader {
    IpCmHeader {
        src_port: 40000,
        src: A.parse().unwrap(),
        dst: B.parse().unwrap(),
    }
}

fn request(private_data: &[u8]) -> Connect<'_> {
    Connect {
        service: ServiceId::new(PortSpace::Tcp, 7471),
        ip: Some(header()),
        path: ReqPath {
            local_gid: gid(A),
            remote_gid: gid(B),
            hop_limit: 64,
            ack_timeout: 19,
            ..ReqPath::default()
        },
        path_mtu: PathMtu::M1024,
        pkey: 0xffff,
        transport: Transport::Rc,
        qpn: 0x11,
        starting_psn: 0x1234,
        responder_resources: 7,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        qkey: 0,
        private_data,
    }
}

/// Delivers all messages there are, at time `now`.
fn exchange(now: Time, a: &mut Endpoint, b: &mut Endpoint) {
    loop {
        let from_a = core::iter::from_fn(|| a.poll_transmit()).collect::<Vec<_>>();
        let from_b = core::iter::from_fn(|| b.poll_transmit()).collect::<Vec<_>>();
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        for (to, packets) in [(&mut *b, from_a), (&mut *a, from_b)] {
            for packet in packets {
                let from = Address::new(packet.address.remote_gid, packet.address.local_gid);
                to.handle(now, &from, &|_| true, &packet.mad, &mut |_| {
                    Admission::Admit(5)
                });
            }
        }
    }
}

#[test]
fn a_connection_from_begin_to_end() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    let now = Time(1_000);
    let active = a.connect(now, &request(b"hello")).unwrap();
    assert_eq!(active.0 >> 20, 1);
    exchange(now, &mut a, &mut b);
    let Some(Event::Request {
        conn: passive,
        listener: 5,
        request,
    }) = b.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(passive.0 >> 20, 2);
    assert_eq!(request.ip, Some(header()));
    assert_eq!(request.private_data().len(), 56);
    assert_eq!(request.private_data()[..6], *b"hello\0");
    assert_eq!(request.path_mtu(), Some(PathMtu::M1024));
    // What one side wants to initiate is what the other side answers.
    assert_eq!(
        (request.responder_resources(), request.initiator_depth()),
        (2, 7)
    );
    assert_eq!(request.address.local_gid, gid(B));
    let accept = Accept {
        qpn: 0x22,
        starting_psn: 0x5678,
        responder_resources: 3,
        initiator_depth: 5,
        private_data: b"welcome",
        ..Accept::default()
    };
    b.accept(now, passive, &accept).unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::Response { conn, reply }) = a.poll_event() else {
        panic!("no response");
    };
    assert_eq!(conn, active);
    assert_eq!((reply.rep.qpn, reply.rep.starting_psn), (0x22, 0x5678));
    assert_eq!(
        (reply.responder_resources(), reply.initiator_depth()),
        (5, 3)
    );
    assert_eq!(reply.rep.private_data[..8], *b"welcome\0");
    a.ready(now, active, b"go").unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::Established { private_data, .. }) = b.poll_event() else {
        panic!("not established");
    };
    assert_eq!(private_data.unwrap()[..3], *b"go\0");
    assert_eq!(b.last_words(passive).unwrap().remote_qpn, 0x11);
    a.disconnect(now, active, b"bye").unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::Disconnected {
        how: Ended::Requested(private_data),
        ..
    }) = b.poll_event()
    else {
        panic!("not disconnected");
    };
    assert_eq!(private_data[..4], *b"bye\0");
    assert_eq!(a.poll_event(), None);
    b.disconnect(now, passive, &[]).unwrap();
    exchange(now, &mut a, &mut b);
    assert!(matches!(
        a.poll_event(),
        Some(Event::Disconnected {
            how: Ended::Confirmed(_),
            ..
        })
    ));
    for (endpoint, conn) in [(&mut a, active), (&mut b, passive)] {
        let end = endpoint.poll_timeout().unwrap();
        assert_eq!(end, now.after(timeout_ns(19)));
        endpoint.handle_timeout(end);
        assert_eq!(endpoint.poll_event(), Some(Event::TimeWaitExit { conn }));
        assert_eq!(endpoint.poll_event(), None);
        assert_eq!(endpoint.connections(), 0);
        assert_eq!(endpoint.poll_timeout(), None);
    }
}

#[test]
fn a_datagram_service_is_resolved() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    let now = Time(0);
    let connect = SidrConnect {
        service: ServiceId::new(PortSpace::Udp, 7174),
        ip: Some(header()),
        address: Address::new(gid(A), gid(B)),
        pkey: 0xffff,
        private_data: b"who are you",
    };
    let asking = a.sidr_connect(now, &connect).unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::SidrRequest {
        sidr,
        listener: 5,
        request,
    }) = b.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(request.private_data().len(), 180);
    assert_eq!(request.private_data()[..12], *b"who are you\0");
    let answer = SidrAnswer {
        status: SidrStatus::VALID,
        qpn: 0x272,
        qkey: 0x0123_4567,
        info: &[],
        private_data: b"me",
    };
    b.sidr_answer(now, sidr, &answer).unwrap();
    assert_eq!(b.sidr_answer(now, sidr, &answer), Err(CmError::Unknown));
    exchange(now, &mut a, &mut b);
    let Some(Event::SidrResponse { sidr, reply }) = a.poll_event() else {
        panic!("no response");
    };
    assert_eq!(sidr, asking);
    assert_eq!((reply.rep.qpn, reply.rep.qkey), (0x272, 0x0123_4567));
    assert_eq!(reply.rep.private_data[..3], *b"me\0");
    assert_eq!(a.resolutions(), 0);
    // The answer is kept for a while, in case that it was lost.
    assert_eq!(b.resolutions(), 1);
    let end = b.poll_timeout().unwrap();
    b.handle_timeout(end);
    assert_eq!(b.resolutions(), 0);
}

#[test]
fn private_data_have_exact_limits() {
    let mut a = endpoint(1, A);
    let long = [7; 256];
    let mut connect = request(&long[..57]);
    let too_long = |max| Err(CmError::PrivateData { max });
    assert_eq!(a.connect(Time(0), &connect), too_long(56));
    connect.private_data = &long[..56];
    assert!(a.connect(Time(0), &connect).is_ok());
    connect.service = ServiceId(0x1000_0000_0000_0001);
    assert_eq!(a.connect(Time(0), &connect), Err(CmError::IpCmHeader));
    connect.ip = None;
    connect.private_data = &long[..93];
    assert_eq!(a.connect(Time(0), &connect), too_long(92));
    connect.private_data = &long[..92];
    assert!(a.connect(Time(0), &connect).is_ok());
    connect.service = ServiceId::new(PortSpace::Ib, 1);
    assert_eq!(a.connect(Time(0), &connect), Err(CmError::IpCmHeader));
}

#[test]
fn communication_ids_go_round_within_their_range() {
    let mut a = endpoint(0xfff, A);
    a.next_id = u32::MAX;
    let ids: Vec<u32> = (0..3)
        .map(|_| a.connect(Time(0), &request(&[])).unwrap().0)
        .collect();
    let secret = a.secret;
    let nth = |n| 0xfff0_0000 | disorder(secret, n);
    assert_eq!(ids, vec![nth(0xf_ffff), nth(0), nth(1)]);
    // One in use is left out.
    a.next_id = 0xfffff;
    assert_eq!(a.connect(Time(0), &request(&[])), Ok(ConnId(nth(2))));
    // No id is 0, which means "none" in a message.
    let mut first = endpoint(0, A);
    let mut counters = 0..1 << COUNTER_BITS;
    first.next_id = counters.find(|n| disorder(first.secret, *n) == 0).unwrap();
    assert_ne!(first.connect(Time(0), &request(&[])), Ok(ConnId(0)));
}

/// Whoever knows the ids of some connections cannot name the next one's, and a number rests as long
/// as it can.
#[test]
fn ids_come_in_no_order_and_each_once() {
    let mut all: Vec<u32> = (0..1 << COUNTER_BITS).map(|n| disorder(7, n)).collect();
    let near = |w: &[u32]| w[0].abs_diff(w[1]) < 16;
    let neighbours = all.windows(2).filter(|w| near(w)).count();
    assert!(neighbours < 100, "{neighbours}: 32 by chance");
    let same = all.iter().zip(0..).filter(|&(id, n)| disorder(8, n) == *id);
    assert!(same.count() < 20, "the secret counts");
    all.sort_unstable();
    assert!(all.into_iter().eq(0..1 << COUNTER_BITS));
}

/// Nobody looks for the last free id among a million others, with the engine locked.
#[test]
fn ids_run_out_before_the_last_one() {
    assert!(leaves_ids(0) && leaves_ids(900_000));
    assert!(!leaves_ids((1 << COUNTER_BITS) - 1_000));
}

#[test]
fn two_processes_do_not_begin_alike() {
    let mut ids: Vec<u32> = (0..100)
        .map(|seed| {
            let config = Config {
                seed,
                ..Config::default()
            };
            let mut endpoint = Endpoint::new(config);
            endpoint.connect(Time(0), &request(&[])).unwrap().0
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}

/// Whoever has seen a transaction of ours knows no other: the upper half is another one for each.
#[test]
fn a_transaction_does_not_tell_the_next_one() {
    let mut a = endpoint(1, A);
    let mut upper: Vec<u32> = (0..100)
        .map(|_| {
            let conn = a.connect(Time(0), &request(&[])).unwrap();
            a.connections.get(conn.0).unwrap().tid
        })
        .map(|tid| (tid >> 32) as u32)
        .collect();
    let steps: Vec<u32> = upper.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.windows(2).all(|w| w[0] != w[1]));
    upper.sort_unstable();
    upper.dedup();
    assert_eq!(upper.len(), 100);
}

/// Repeated "wait longer" and refusals that are said again push deadlines; what they leave behind
/// is swept up.
#[test]
fn superseded_deadlines_do_not_pile_up() {
    let mut a = endpoint(1, A);
    let conn = a.connect(Time(0), &request(&[])).unwrap();
    for i in 0..10_000 {
        a.arm(conn.0, Time(i));
    }
    assert!(a.timers.first().is_some());
    assert!(!a.timers.is_cluttered(a.connections()));
    assert_eq!(a.poll_timeout(), Some(Time(9_999)));
}

/// A queue pair's number has 24 bits, whatever an application says: the peer names those in its
/// DREQ.
#[test]
fn numbers_are_those_that_the_peer_reads() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    let now = Time(0);
    let mut connect = request(&[]);
    connect.qpn = 0x0100_0011;
    let active = a.connect(now, &connect).unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::Request { conn: passive, .. }) = b.poll_event() else {
        panic!("no request");
    };
    b.accept(now, passive, &Accept::default()).unwrap();
    exchange(now, &mut a, &mut b);
    assert!(matches!(a.poll_event(), Some(Event::Response { .. })));
    a.ready(now, active, &[]).unwrap();
    exchange(now, &mut a, &mut b);
    b.disconnect(now, passive, &[]).unwrap();
    exchange(now, &mut a, &mut b);
    assert!(matches!(a.poll_event(), Some(Event::Disconnected { .. })));
}

/// A peer in the same subnet may say "hop limit 0": a packet with that would never arrive.
#[test]
fn answers_have_hops_to_go() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    let mut connect = request(&[]);
    for (said, used) in [(0, 64), (7, 7)] {
        connect.path.hop_limit = said;
        connect.qpn = said.into();
        a.connect(Time(0), &connect).unwrap();
        let req = a.poll_transmit().unwrap();
        assert_eq!(req.address.hop_limit, used);
        let from = Address::new(gid(B), gid(A));
        b.handle(Time(0), &from, &|_| true, &req.mad, &mut |_| {
            Admission::Admit(0)
        });
        let Some(Event::Request { request, .. }) = b.poll_event() else {
            panic!("no request");
        };
        assert_eq!(request.req.primary.hop_limit, said);
        assert_eq!(request.address.hop_limit, used);
    }
}

/// A REQ names the host that it is from. One that came from elsewhere is no proof that this host
/// was restarted.
#[test]
fn another_host_ends_no_connection() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    let now = Time(0);
    a.connect(now, &request(&[])).unwrap();
    exchange(now, &mut a, &mut b);
    let Some(Event::Request { conn, .. }) = b.poll_event() else {
        panic!("no request");
    };
    b.accept(now, conn, &Accept::default()).unwrap();
    b.established(now, conn).unwrap();
    assert!(b.poll_event().is_some());
    while b.poll_transmit().is_some() {}
    // Of the same queue pair: from another process with its number, and in the place of the first
    // request.
    let mut other = endpoint(1, A);
    for (first_id, starting_psn) in [(conn.0 + 1, 1), (a.next_id - 1, 2)] {
        other.next_id = first_id;
        let connect = Connect {
            starting_psn,
            ..request(&[])
        };
        other.connect(now, &connect).unwrap();
        let req = other.poll_transmit().unwrap().mad;
        let hear = |b: &mut Endpoint, ip| {
            let from = Address::new(gid(B), gid(ip));
            b.handle(now, &from, &|_| true, &req, &mut |_| Admission::Admit(0));
            let rej = b.poll_transmit().unwrap();
            assert_eq!(rej.address.remote_gid, gid(ip));
        };
        hear(&mut b, "10.0.0.66");
        assert_eq!(b.poll_event(), None);
        assert_eq!(b.state(conn), Some(State::Established));
        if starting_psn == 2 {
            hear(&mut b, A);
            assert!(matches!(
                b.poll_event(),
                Some(Event::Disconnected {
                    how: Ended::Stale,
                    ..
                })
            ));
        }
    }
}

/// A REP goes where the REQ says, and is repeated: that may not be a group.
#[test]
fn no_answer_goes_to_a_group() {
    let (mut a, mut b) = (endpoint(1, A), endpoint(2, B));
    for group in ["224.0.0.1", "ff02::1", "0.0.0.0"] {
        let mut connect = request(&[]);
        connect.path.local_gid = gid(group);
        a.connect(Time(0), &connect).unwrap();
        let req = a.poll_transmit().unwrap();
        let from = Address::new(gid(B), gid(A));
        b.handle(Time(0), &from, &|_| true, &req.mad, &mut |_| {
            Admission::Admit(0)
        });
        assert_eq!(b.poll_event(), None, "{group}");
        assert_eq!(b.poll_transmit().unwrap().address.remote_gid, gid(A));
    }
}

#[test]
fn of_many_that_wait_so_many_are_said_again_at_once_as_may_be_on_the_way() {
    let mut a = endpoint(5, A);
    let window = a.config.request_window;
    let begin = Time(0);
    for _ in 0..window + 8 {
        a.connect(begin, &request(&[])).unwrap();
    }
    let step = |n: u64| begin.after(n * pacing::STEP_NS);
    let said = |a: &mut Endpoint, now: Time| {
        a.handle_timeout(now);
        core::iter::from_fn(|| a.poll_transmit()).count()
    };
    assert_eq!(said(&mut a, step(8)), window + 8, "all are sent by now");
    a.repeat_all(step(8));
    assert_eq!(said(&mut a, step(8)), window);
    assert_eq!(said(&mut a, step(9)), 1);
    assert_eq!(said(&mut a, step(16)), 7);
    assert_eq!(said(&mut a, step(100)), 0, "the rest is the timers'");
}
