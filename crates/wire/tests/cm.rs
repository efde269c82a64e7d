//! Messages of the connection manager: those of the captures of Linux (tests/captures/README.md),
//! and laws that hold for any bytes.

use crate::support::captures;
use proptest::prelude::*;
use rnic_wire::cm::{
    Addressee, Answered, IpCmError, IpCmHeader, MAD_LEN, Mad, MadError, Message, PortSpace,
    QP1_QKEY, RejectReason, Req, ServiceId, SidrStatus, Transport, private_data, timeout_ns,
};
use rnic_wire::{Gid, Packet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Capture, source and destination address, payload of each packet to QP 1.
fn mads() -> Vec<(String, IpAddr, IpAddr, Vec<u8>)> {
    let mut mads = Vec::new();
    for (name, packets) in captures() {
        for (meta, datagram) in packets {
            let bytes = &datagram[..datagram.len() - 4];
            let Ok(packet) = Packet::parse(bytes) else {
                continue;
            };
            if packet.bth.dest_qp == 1 {
                let deth = packet.ext.deth.unwrap();
                assert_eq!((deth.qkey, deth.src_qp), (QP1_QKEY, 1), "{name}");
                let payload = packet.payload.here().to_vec();
                mads.push((name.clone(), meta.flow.src, meta.flow.dst, payload));
            }
        }
    }
    mads
}

/// The messages of one capture, in order.
fn messages(capture: &str) -> Vec<Mad> {
    let mads = mads().into_iter().filter(|(name, ..)| name == capture);
    mads.map(|(.., bytes)| Mad::parse(&bytes).unwrap())
        .collect()
}

/// The header of rdma_cm in front of the private data of a request.
fn header_of(message: &Message) -> Option<Result<IpCmHeader, IpCmError>> {
    match message {
        Message::Req(req) => Some(IpCmHeader::parse(&req.private_data)),
        Message::SidrReq(req) => Some(IpCmHeader::parse(&req.private_data)),
        _ => None,
    }
}

#[test]
fn every_message_is_written_again_byte_for_byte() {
    let mut read = BTreeMap::new();
    let mut refused = Vec::new();
    for (name, _, _, bytes) in mads() {
        match Mad::parse(&bytes) {
            Ok(mad) => {
                assert_eq!(mad.emit(), *bytes, "{name}: {mad:?}");
                *read.entry(mad.message.attribute().name()).or_insert(0) += 1;
            }
            Err(error) => refused.push((name, error)),
        }
    }
    // Crafted on purpose: tests/captures/README.md, probe_cm.
    let probe = |error| ("probe_cm".to_owned(), error);
    assert_eq!(
        refused,
        [
            probe(MadError::ClassVersion(1)),
            probe(MadError::BaseVersion(2)),
            probe(MadError::Method(1)),
            probe(MadError::Length(252)),
        ]
    );
    let expected = [
        ("DREP", 23),
        ("DREQ", 25),
        ("MRA", 1),
        ("REJ", 11),
        ("REP", 26),
        ("REQ", 52),
        ("RTU", 24),
        ("SIDR_REP", 3),
        ("SIDR_REQ", 3),
    ];
    assert_eq!(read, BTreeMap::from(expected));
}

#[test]
fn every_message_is_for_the_one_that_it_answers() {
    let mut services = BTreeMap::new();
    for (name, _, dst, bytes) in mads() {
        let Ok(mad) = Mad::parse(&bytes) else {
            assert!(matches!(Addressee::of(&bytes), Addressee::Nobody), "{name}");
            continue;
        };
        let expected = match &mad.message {
            Message::Req(req) => req.service_id,
            Message::SidrReq(req) => req.service_id,
            _ => {
                assert!(
                    matches!(Addressee::of(&bytes), Addressee::Connection(id) if id != 0),
                    "{name}"
                );
                continue;
            }
        };
        let address = match Addressee::of(&bytes) {
            Addressee::Service(service, address) => {
                assert_eq!(service, expected);
                address
            }
            other => panic!("{name}: {other:?}"),
        };
        if name != "probe_cm" {
            assert_eq!(address, Some(dst), "{name}");
        }
        *services.entry(expected).or_insert(0) += 1;
    }
    let used: Vec<_> = services.keys().map(|service| service.port()).collect();
    let tcp = |port| Some((PortSpace::Tcp, port));
    let udp = |port| Some((PortSpace::Udp, port));
    assert_eq!(used, [tcp(9), tcp(7174), tcp(7471), udp(7174)]);
}

/// What rping and the Linux kernel put into a REQ (tests/captures/cm_rping_v4.pcap).
#[test]
fn what_linux_requests() {
    let messages = messages("cm_rping_v4");
    let Message::Req(req) = messages[0].message else {
        panic!("{:?}", messages[0]);
    };
    let a = Gid::from(IpAddr::from([10, 0, 0, 1]));
    let b = Gid::from(IpAddr::from([10, 0, 0, 2]));
    assert_eq!(req.local_id, 0x6643_794b);
    assert_eq!(messages[0].tid, 0x2_4b79_4366);
    assert_eq!(req.service_id, ServiceId::new(PortSpace::Tcp, 7174));
    assert_eq!(req.service_id.to_string(), "RDMA_PS_TCP port 7174");
    assert_eq!(req.ca_guid, 0x5054_00ff_fe00_0001);
    assert_eq!(req.qpn, 0x6e);
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(req.remote_response_timeout, 20);
    assert_eq!(req.local_response_timeout, 20);
    assert_eq!(req.transport, Transport::Rc);
    assert_eq!((req.max_cm_retries, req.pkey), (15, 0xffff));
    assert_eq!(req.path_mtu, 3);
    assert_eq!((req.retry_count, req.rnr_retry_count), (7, 7));
    assert_eq!((req.primary.local_gid, req.primary.remote_gid), (a, b));
    assert_eq!(req.primary.hop_limit, 64);
    assert_eq!(req.primary.ack_timeout, 19);
    assert_eq!(req.primary.local_lid, 0xffff);
    assert_eq!(req.alternate, Default::default());
    let header = IpCmHeader::parse(&req.private_data).unwrap();
    assert_eq!((header.src, header.dst), (a.ip(), b.ip()));
    let Message::Rep(rep) = messages[1].message else {
        panic!("{:?}", messages[1]);
    };
    assert_eq!((rep.local_id, rep.remote_id), (0x3b21_44cb, req.local_id));
    assert_eq!((rep.qpn, rep.starting_psn), (0x26e, 0x76_7d37));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count), (15, 7));
    assert_eq!(messages[1].tid, messages[0].tid);
    let Message::Dreq(dreq) = messages[3].message else {
        panic!("{:?}", messages[3]);
    };
    assert_eq!(dreq.remote_qpn, rep.qpn);
}

/// Resources, private data and reasons (cm_private, cm_reject, cm_rej_nolisten, cm_sidr_nolisten,
/// cm_udaddy, cm_slow_accept).
#[test]
fn what_applications_say() {
    let private = messages("cm_private_v4");
    let Message::Req(req) = private[0].message else {
        panic!("{:?}", private[0]);
    };
    assert_eq!((req.responder_resources, req.initiator_depth), (7, 2));
    assert!(req.flow_control);
    assert!(req.private_data[36..].starts_with(b"client-private\0"));
    let Message::Rep(rep) = private[1].message else {
        panic!("{:?}", private[1]);
    };
    assert_eq!((rep.responder_resources, rep.initiator_depth), (3, 5));
    assert!(rep.private_data.starts_with(b"server-private\0"));

    let Message::Rej(rej) = messages("cm_reject_v4")[1].message else {
        panic!("no REJ");
    };
    assert_eq!(rej.reason, RejectReason::CONSUMER_DEFINED);
    assert_eq!(rej.message, Answered::Req);
    assert!(rej.private_data.starts_with(b"no thanks\0"));
    for capture in ["cm_rej_nolisten_v4", "cm_rej_nolisten_v6"] {
        let Message::Rej(rej) = messages(capture)[1].message else {
            panic!("no REJ");
        };
        assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID);
        assert_eq!(rej.local_id, 0);
    }

    let Message::SidrRep(rep) = messages("cm_udaddy_v4")[1].message else {
        panic!("no SIDR_REP");
    };
    assert_eq!((rep.status, rep.qpn), (SidrStatus::VALID, 0x272));
    assert_eq!(rep.qkey, 0x0123_4567);
    let Message::SidrRep(rep) = messages("cm_sidr_nolisten_v4")[1].message else {
        panic!("no SIDR_REP");
    };
    assert_eq!(rep.status, SidrStatus::UNSUPPORTED);

    let Message::Mra(mra) = messages("cm_slow_accept_v4")[2].message else {
        panic!("no MRA");
    };
    assert_eq!((mra.message, mra.service_timeout), (Answered::Req, 24));
}

#[test]
fn timeouts_are_those_of_linux() {
    let ms = |code| timeout_ns(code) / 1_000_000;
    assert_eq!(
        [0, 8, 9, 18, 19, 20, 24, 31].map(ms),
        [1, 1, 2, 1024, 2048, 4096, 65536, 8_388_608]
    );
    // Only five bits count.
    assert_eq!(timeout_ns(32 + 20), timeout_ns(20));
}

#[test]
fn private_data_fit_or_not() {
    assert_eq!(private_data::<4>(b"ab"), Some(*b"ab\0\0"));
    assert_eq!(private_data::<4>(b"abcd"), Some(*b"abcd"));
    assert_eq!(private_data::<4>(b"abcde"), None);
}

/// Linux accepts what is longer than the message needs; a MAD has 256 bytes (IBTA 13.4.2).
#[test]
fn a_mad_has_one_length() {
    let good = messages("cm_rping_v4")[0].emit();
    assert!(Mad::parse(&good).is_ok());
    let mut longer = good.to_vec();
    longer.push(0);
    assert_eq!(Mad::parse(&longer), Err(MadError::Length(257)));
    for len in 0..MAD_LEN {
        assert_eq!(Mad::parse(&good[..len]), Err(MadError::Length(len)));
    }
}

/// A MAD of any message: what is not the header is arbitrary.
fn any_mad() -> impl Strategy<Value = [u8; MAD_LEN]> {
    (any::<[u8; MAD_LEN]>(), 0x10u8..=0x1b).prop_map(|(mut bytes, attribute)| {
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(bytes in any_mad()) {
        let Ok(mad) = Mad::parse(&bytes) else {
            prop_assert!(bytes[17] > 0x18);
            return Ok(());
        };
        let again = mad.emit();
        prop_assert_eq!(Mad::parse(&again), Ok(mad));
        prop_assert_eq!(Addressee::of(&again), Addressee::of(&bytes));
        if let Some(Ok(header)) = header_of(&mad.message) {
            let mut out = [0xee; IpCmHeader::LEN + 1];
            header.emit(&mut out);
            prop_assert_eq!(IpCmHeader::parse(&out), Ok(header));
            prop_assert_eq!(out[IpCmHeader::LEN], 0xee);
        }
        let expected = match mad.message {
            Message::Req(Req { service_id, .. }) => Addressee::Service(service_id, None),
            Message::SidrReq(req) => Addressee::Service(req.service_id, None),
            Message::Rep(rep) => Addressee::Connection(rep.remote_id),
            Message::Rtu(rtu) => Addressee::Connection(rtu.remote_id),
            Message::Mra(mra) => Addressee::Connection(mra.remote_id),
            Message::Rej(rej) => Addressee::Connection(rej.remote_id),
            Message::Dreq(dreq) => Addressee::Connection(dreq.remote_id),
            Message::Drep(drep) => Addressee::Connection(drep.remote_id),
            Message::SidrRep(rep) => Addressee::Connection(rep.request_id),
        };
        prop_assert_eq!(Addressee::of(&bytes), expected);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), attribute in 0x10u8..=0x1b) {
        let _ = Mad::parse(&bytes);
        let _ = Addressee::of(&bytes);
        let _ = IpCmHeader::parse(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= 18 {
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&[0, attribute]);
        }
        prop_assert_eq!(Mad::parse(&bytes).is_ok(), bytes.len() == MAD_LEN && attribute <= 0x18);
        let _ = Addressee::of(&bytes);
    }

    #[test]
    fn service_ids_of_ports_are_told_from_others(space in 0usize..4, port: u16, other: u64) {
        let space = PortSpace::ALL[space];
        let service = ServiceId::new(space, port);
        prop_assert_eq!(service.port(), Some((space, port)));
        prop_assert_eq!(PortSpace::from_code(space.code()), Some(space));
        if let Some((space, port)) = ServiceId(other).port() {
            prop_assert_eq!(ServiceId::new(space, port), ServiceId(other));
        }
    }
}
