//! A peer that says anything, at any time, about anything: no panic, memory within its bounds, and
//! nothing left once the application is done and time has passed.

use fastrand::Rng;
use rnic_cm::{
    Accept, Address, Admission, Config, ConnId, Connect, Endpoint, Event, SidrAnswer, SidrConnect,
    SidrId, Time,
};
use rnic_wire::cm::{
    IpCmHeader, MAD_LEN, PortSpace, RejectReason, ReqPath, ServiceId, SidrStatus, Transport,
};
use rnic_wire::{Gid, PathMtu};
use std::collections::BTreeSet;
use std::net::IpAddr;

const US: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];

fn gid(ip: [u8; 4]) -> Gid {
    Gid::from(IpAddr::from(ip))
}

fn header() -> IpCmHeader {
    IpCmHeader {
        src_port: 1,
        src: IpAddr::from(PEER),
        dst: IpAddr::from(US),
    }
}

/// A message that is likely to be understood, and to be about something that exists.
fn message(rng: &mut Rng, ids: &[u32], transactions: &[[u8; 8]]) -> Vec<u8> {
    let mut bytes = [0; MAD_LEN];
    rng.fill(&mut bytes);
    if rng.u8(0..50) == 0 {
        return bytes[..rng.usize(0..=MAD_LEN)].to_vec();
    }
    let attribute = rng.u8(0x10..=0x19);
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[16..18].copy_from_slice(&[0, attribute]);
    match rng.u8(0..4) {
        0 => {}
        1 => bytes[8..16].fill(0),
        _ => bytes[8..16].copy_from_slice(rng.choice(transactions).unwrap_or(&[0; 8])),
    }
    let theirs = u32::from(rng.u8(1..4)).to_be_bytes();
    let ours = rng.choice(ids).copied().unwrap_or(0).to_be_bytes();
    let body = &mut bytes[24..];
    // Few values, so that some agree.
    let (low, mid) = (rng.u8(0..3), rng.u8(0..3));
    match attribute {
        0x10 => {
            body[..4].copy_from_slice(&theirs);
            let service = ServiceId::new(PortSpace::Tcp, 7);
            body[8..16].copy_from_slice(&service.0.to_be_bytes());
            body[16..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, low]);
            body[32..35].copy_from_slice(&[0, 0, mid]);
            body[44..47].copy_from_slice(&[0, 0, low]);
            body[43] &= !6;
            body[51] &= !7;
            body[56..72].copy_from_slice(&gid(PEER).0);
            body[72..88].copy_from_slice(&gid(US).0);
            if rng.u8(0..10) > 0 {
                header().emit(&mut body[140..]);
            }
        }
        0x17 => {
            body[..4].copy_from_slice(&theirs);
            let service = ServiceId::new(PortSpace::Udp, 7);
            body[8..16].copy_from_slice(&service.0.to_be_bytes());
            header().emit(&mut body[16..]);
        }
        0x18 => body[..4].copy_from_slice(&ours),
        _ => {
            body[..4].copy_from_slice(&theirs);
            body[4..8].copy_from_slice(&ours);
            match attribute {
                0x13 => {
                    body[12..15].copy_from_slice(&[0, 0, mid]);
                    body[28..36].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, low]);
                }
                0x15 => body[8..11].copy_from_slice(&[0, 0, 9]),
                0x12 if rng.bool() => {
                    body[4..8].fill(0);
                    body[12..20].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, low]);
                }
                _ => {}
            }
        }
    }
    bytes.to_vec()
}

fn connect(rng: &mut Rng, now: Time, endpoint: &mut Endpoint) -> u32 {
    let connect = Connect {
        service: ServiceId::new(PortSpace::Tcp, 7),
        ip: Some(header()),
        path: ReqPath {
            local_gid: gid(US),
            remote_gid: gid(PEER),
            ..ReqPath::default()
        },
        path_mtu: PathMtu::M1024,
        pkey: 0xffff,
        transport: Transport::Rc,
        qpn: 9,
        starting_psn: 0,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: false,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        qkey: 0,
        private_data: &[],
    };
    if rng.u8(0..4) > 0 {
        return endpoint.connect(now, &connect).unwrap().0;
    }
    let connect = SidrConnect {
        service: ServiceId::new(PortSpace::Udp, 7),
        ip: Some(header()),
        address: Address::new(gid(US), gid(PEER)),
        pkey: 0xffff,
        private_data: &[],
    };
    endpoint.sidr_connect(now, &connect).unwrap().0
}

/// The application calls whatever it likes; refusals are its own fault.
fn call(rng: &mut Rng, now: Time, endpoint: &mut Endpoint, id: u32) -> bool {
    let (conn, sidr) = (ConnId(id), SidrId(id));
    let accept = Accept {
        qpn: 9,
        ..Accept::default()
    };
    let answer = SidrAnswer {
        status: SidrStatus::VALID,
        qpn: 9,
        qkey: 9,
        info: &[],
        private_data: &[],
    };
    let reason = RejectReason::CONSUMER_DEFINED;
    let _ = match rng.u8(0..12) {
        0..=2 => endpoint.accept(now, conn, &accept),
        3..=4 => endpoint.ready(now, conn, b"x"),
        5 => endpoint.established(now, conn),
        6 => endpoint.reject(now, conn, reason, b"i", b"p"),
        7 => endpoint.disconnect(now, conn, b"d"),
        8 => endpoint.sidr_answer(now, sidr, &answer),
        9 if rng.bool() => {
            endpoint.peer_died(now, conn);
            Ok(())
        }
        10 => {
            endpoint.destroy(now, conn);
            endpoint.sidr_destroy(now, sidr);
            return true;
        }
        _ => Ok(()),
    };
    false
}

#[test]
fn anything_may_be_said_at_any_time() {
    let mut reached = BTreeSet::new();
    for seed in 0..3_000 {
        let mut rng = Rng::with_seed(seed);
        let config = Config {
            range: 3,
            seed,
            guid: 0,
            max_requests: 6,
            max_time_wait: 5,
            max_replies: 4,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config);
        endpoint.set_gids(&[gid(US)]);
        let mut now = Time(0);
        let mut ids: Vec<u32> = Vec::new();
        let mut destroyed = BTreeSet::new();
        let mut transactions = Vec::new();
        for _ in 0..150 {
            let calls = 1 + ids.len();
            match rng.u8(0..20) {
                0 => ids.push(connect(&mut rng, now, &mut endpoint)),
                1..=11 => {
                    let bytes = message(&mut rng, &ids, &transactions);
                    let from = Address::new(gid(US), gid(PEER));
                    let drop = rng.u8(0..20);
                    let mut admit = |_: &_| match drop {
                        0 => Admission::Drop,
                        1 => Admission::NobodyListens,
                        _ => Admission::Admit(0),
                    };
                    endpoint.handle(now, &from, &|_| true, &bytes, &mut admit);
                }
                12..=16 => {
                    if let Some(id) = rng.choice(&ids).copied()
                        && call(&mut rng, now, &mut endpoint, id)
                    {
                        destroyed.insert(id);
                    }
                }
                _ => {
                    now = now.after(rng.u64(0..3_000_000_000));
                    endpoint.handle_timeout(now);
                }
            }
            // One call makes few messages; time makes one of each connection at most, and a few for
            // its end.
            let mut sent = 0;
            while let Some(transmit) = endpoint.poll_transmit() {
                sent += 1;
                // The peer says them again.
                transactions.push(transmit.mad[8..16].try_into().unwrap());
            }
            assert!(sent <= 4 + 3 * calls, "seed {seed}: {sent} messages");
            while let Some(event) = endpoint.poll_event() {
                let id = match &event {
                    Event::Request { conn, .. } => conn.0,
                    Event::SidrRequest { sidr, .. } => sidr.0,
                    other => {
                        let conn = other.conn().map(|conn| conn.0);
                        let id = conn.or(other.sidr().map(|sidr| sidr.0)).unwrap();
                        assert!(!destroyed.contains(&id), "seed {seed}: {other:?}");
                        continue;
                    }
                };
                ids.push(id);
            }
            reached.extend(ids.iter().filter_map(|id| {
                let state = endpoint.state(ConnId(*id))?;
                Some(state.to_string())
            }));
            // What the application knows of, what is over, and what the peer does not confirm.
            let known = ids.iter().filter(|id| !destroyed.contains(*id)).count();
            assert!(endpoint.connections() <= known + 5 + 5, "seed {seed}");
            assert!(endpoint.resolutions() <= ids.len());
        }
        for id in &ids {
            endpoint.destroy(now, ConnId(*id));
            endpoint.sidr_destroy(now, SidrId(*id));
        }
        // The application has left: it hears nothing more, and in the end nothing is left.
        let end = now.after(48 * 3_600_000_000_000);
        while let Some(at) = endpoint.poll_timeout() {
            assert!(at < end, "seed {seed}: {at:?}");
            endpoint.handle_timeout(at);
            while endpoint.poll_transmit().is_some() {}
        }
        assert_eq!(endpoint.poll_event(), None, "seed {seed}");
        assert_eq!(endpoint.connections(), 0, "seed {seed}");
        assert_eq!(endpoint.resolutions(), 0, "seed {seed}");
    }
    // The peer's nonsense has sense often enough to get everywhere.
    assert_eq!(reached.len(), 8, "{reached:?}");
}

/// A flood of requests that nobody listens for, of unanswered ones, of disconnects of what does not
/// exist.
#[test]
fn a_flood_leaves_nothing_behind() {
    let mut endpoint = Endpoint::new(Config {
        max_requests: 100,
        max_replies: 50,
        ..Config::default()
    });
    endpoint.set_gids(&[gid(US)]);
    let mut rng = Rng::with_seed(1);
    let from = Address::new(gid(US), gid(PEER));
    for i in 0..20_000u32 {
        let mut bytes = message(&mut rng, &[], &[]);
        if bytes.len() == MAD_LEN {
            bytes[24..28].copy_from_slice(&i.to_be_bytes());
            // Another GUID for each.
            bytes[40..44].copy_from_slice(&i.to_be_bytes());
        }
        let admission = match i < 10_000 {
            true => Admission::NobodyListens,
            false => Admission::Admit(0),
        };
        endpoint.handle(Time(0), &from, &|_| true, &bytes, &mut |_| admission);
        if i == 9_999 {
            assert_eq!(endpoint.connections() + endpoint.resolutions(), 0);
        }
    }
    assert_eq!(endpoint.connections() + endpoint.resolutions(), 100);
    let answers = core::iter::from_fn(|| endpoint.poll_transmit()).count();
    assert_eq!(answers, 50);
    assert!(endpoint.counters().replies_dropped > 1_000);
    assert!(endpoint.counters().dropped > 1_000);
}
