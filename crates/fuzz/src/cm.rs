//! A connection manager between an application that calls what it likes and a peer that says
//! anything.

use std::net::IpAddr;

use rnic_cm::{
    Accept, Address, Admission, Config, ConnId, Connect, Endpoint, Event, SidrAnswer, SidrConnect,
    SidrId, Time,
};
use rnic_wire::cm::{
    IpCmHeader, MAD_LEN, PortSpace, RejectReason, ReqPath, ServiceId, SidrStatus, Transport,
};
use rnic_wire::{Gid, PathMtu};

use crate::input::Input;

const US: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];
/// Two days: more than any repetition and time-wait takes.
const ALL_OVER_NS: u64 = 48 * 3_600_000_000_000;

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

/// Any bytes as what happens to an endpoint: no panic, no more than it may keep, and nothing is
/// left in the end.
pub(crate) fn connections(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut endpoint = Endpoint::new(Config {
        range: 3,
        seed: 7,
        max_requests: 6,
        max_time_wait: 5,
        max_replies: 4,
        ..Config::default()
    });
    endpoint.set_gids(&[gid(US)]);
    let mut now = Time(0);
    let mut ids: Vec<u32> = Vec::new();
    let mut transactions: Vec<[u8; 8]> = vec![[0; 8]];
    for _ in 0..500 {
        if input.is_empty() {
            break;
        }
        match input.u8() % 8 {
            0 => ids.push(connect(&mut input, now, &mut endpoint)),
            1..=4 => {
                let mad = message(&mut input, &ids, &transactions);
                let admission = match input.u8() % 8 {
                    0 => Admission::Drop,
                    1 => Admission::NobodyListens,
                    2 => Admission::Refuse(RejectReason::CONSUMER_DEFINED),
                    _ => Admission::Admit(0),
                };
                let from = Address::new(gid(US), gid(PEER));
                let own = input.u8() % 4 != 0;
                endpoint.handle(now, &from, &|_| own, &mad, &mut |_| admission);
            }
            5 | 6 if !ids.is_empty() => {
                let id = input.one_of(&ids);
                call(&mut input, now, &mut endpoint, id);
            }
            _ => {
                now = now.after(u64::from(input.u16()) * 100_000);
                endpoint.handle_timeout(now);
                let due = endpoint.poll_timeout();
                assert!(due.is_none_or(|at| at > now), "fired and still due");
            }
        }
        while let Some(transmit) = endpoint.poll_transmit() {
            // The peer says them again.
            transactions.push(*transmit.mad[8..].first_chunk().expect("a MAD"));
        }
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { conn, .. } => ids.push(conn.0),
                Event::SidrRequest { sidr, .. } => ids.push(sidr.0),
                _ => {}
            }
        }
        assert!(endpoint.connections() <= ids.len() + 5 + 5);
        assert!(endpoint.resolutions() <= ids.len());
    }
    for id in &ids {
        endpoint.destroy(now, ConnId(*id));
        endpoint.sidr_destroy(now, SidrId(*id));
    }
    // The application has left: it hears nothing more, and in the end nothing is left.
    let end = now.after(ALL_OVER_NS);
    while let Some(at) = endpoint.poll_timeout() {
        assert!(at < end, "it waits for ever");
        endpoint.handle_timeout(at);
        while endpoint.poll_transmit().is_some() {}
    }
    assert_eq!(endpoint.poll_event(), None);
    assert_eq!((endpoint.connections(), endpoint.resolutions()), (0, 0));
}

/// A message of the peer. Some parts are made to be about what there is, if the input says so.
fn message(input: &mut Input<'_>, ids: &[u32], transactions: &[[u8; 8]]) -> Vec<u8> {
    let choice = input.u8();
    if choice == 0 {
        return input.bytes(2 * MAD_LEN).to_vec();
    }
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[8..16].copy_from_slice(&input.one_of(transactions));
    mad[17] = 0x10 + input.u8() % 10;
    let ours = match ids {
        [] => 0,
        ids => input.one_of(ids),
    };
    let theirs = u32::from(input.u8() % 4);
    let body = input.bytes(usize::from(input.0.first().copied().unwrap_or(0)));
    let len = body.len().min(MAD_LEN - 24);
    mad[24..24 + len].copy_from_slice(&body[..len]);
    if choice & 1 == 1 {
        mad[24..28].copy_from_slice(&theirs.to_be_bytes());
        match mad[17] {
            0x10 => {
                let service = ServiceId::new(PortSpace::Tcp, 7);
                mad[32..40].copy_from_slice(&service.0.to_be_bytes());
                mad[67] &= !6;
                mad[75] &= !7;
                mad[80..96].copy_from_slice(&gid(PEER).0);
                mad[96..112].copy_from_slice(&gid(US).0);
                header().emit(&mut mad[164..]);
            }
            0x17 => {
                let service = ServiceId::new(PortSpace::Udp, 7);
                mad[32..40].copy_from_slice(&service.0.to_be_bytes());
                header().emit(&mut mad[40..]);
            }
            0x18 => mad[24..28].copy_from_slice(&ours.to_be_bytes()),
            _ => mad[28..32].copy_from_slice(&ours.to_be_bytes()),
        }
    }
    mad.to_vec()
}

fn connect(input: &mut Input<'_>, now: Time, endpoint: &mut Endpoint) -> u32 {
    let private = input.u8();
    let private_data = input.bytes(usize::from(private % 57));
    if private < 128 {
        let connect = SidrConnect {
            service: ServiceId::new(PortSpace::Udp, 7),
            ip: Some(header()),
            address: Address::new(gid(US), gid(PEER)),
            pkey: 0xffff,
            private_data,
        };
        let sidr = endpoint.sidr_connect(now, &connect);
        return sidr.expect("few enough, and short enough").0;
    }
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
        private_data,
    };
    let conn = endpoint.connect(now, &connect);
    conn.expect("few enough, and short enough").0
}

/// The application calls whatever it likes; refusals are its own fault.
fn call(input: &mut Input<'_>, now: Time, endpoint: &mut Endpoint, id: u32) {
    let (conn, sidr) = (ConnId(id), SidrId(id));
    let choice = input.u8();
    let len = usize::from(input.u8());
    let private_data = input.bytes(len);
    let accept = Accept {
        qpn: 9,
        ..Accept::default()
    };
    let answer = SidrAnswer {
        status: SidrStatus::VALID,
        qpn: 9,
        qkey: 9,
        info: &[],
        private_data,
    };
    let reason = RejectReason::CONSUMER_DEFINED;
    let _ = match choice % 10 {
        0 => endpoint.accept(now, conn, &accept),
        1 => endpoint.ready(now, conn, private_data),
        2 => endpoint.established(now, conn),
        3 => endpoint.reject(now, conn, reason, b"i", private_data),
        4 => endpoint.disconnect(now, conn, private_data),
        5 => endpoint.sidr_answer(now, sidr, &answer),
        6 => {
            endpoint.peer_died(now, conn);
            Ok(())
        }
        7 => {
            endpoint.repeat_all(now);
            Ok(())
        }
        8 => {
            endpoint.destroy(now, conn);
            Ok(())
        }
        _ => {
            endpoint.sidr_destroy(now, sidr);
            Ok(())
        }
    };
}
