//! Laws that hold for any input.

use proptest::collection::vec;
use proptest::prelude::*;
use rnic_wire::ip::{IpUdp, Ipv4Header};
use rnic_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Feth, Flow, FlowIds, Gid, Grh, IcrcContext,
    IcrcError, IcrcOk, Ieth, ImmDt, Leeway, MAX_HEADER_LEN, Opcode, Operation, Packet, PeerIds,
    Psn, ROCE_PORT, Rdeth, Reth, Service, Syndrome, UdPrefix, Usual, Xrceth, header_len, icrc,
    pad_len,
};
use std::net::IpAddr;

const PSN: u32 = 0x00ff_ffff;

/// Opcodes that mean something.
fn opcodes() -> impl Strategy<Value = Opcode> {
    let all: Vec<Opcode> = (0..=255)
        .map(Opcode)
        .filter(|opcode| opcode.operation().is_some())
        .collect();
    proptest::sample::select(all)
}

fn bth(opcode: Opcode, payload_len: usize) -> impl Strategy<Value = Bth> {
    (
        any::<(bool, bool, bool, bool, bool)>(),
        any::<u16>(),
        0..=PSN,
        0..=PSN,
    )
        .prop_map(
            move |((solicited, mig_req, fecn, becn, ack_req), pkey, dest_qp, psn)| Bth {
                opcode,
                solicited,
                mig_req,
                pad: pad_len(payload_len),
                version: 0,
                pkey,
                fecn,
                becn,
                dest_qp,
                ack_req,
                psn: Psn::new(psn),
            },
        )
}

/// Exactly the headers of an opcode, by the predicates of its operation.
fn ext(opcode: Opcode) -> impl Strategy<Value = Ext> {
    let operation = opcode.operation().unwrap();
    let service = opcode.service();
    let request = operation.is_request();
    (any::<[u64; 4]>(), any::<[u32; 6]>(), any::<u8>()).prop_map(move |(long, short, byte)| Ext {
        feth: operation.has_feth().then_some(Feth {
            placement: byte & 0x0f,
            selectivity: byte >> 6,
        }),
        reth: operation.has_reth().then_some(Reth {
            va: long[0],
            rkey: short[0],
            dma_len: short[1],
        }),
        aeth: operation.has_aeth().then_some(Aeth {
            syndrome: Syndrome::from_u8(byte),
            msn: short[2] & PSN,
        }),
        atomic: operation.has_atomic_eth().then_some(AtomicEth {
            va: long[0],
            rkey: short[0],
            swap_or_add: long[1],
            compare: long[2],
        }),
        atomic_ack: operation
            .has_atomic_ack()
            .then_some(AtomicAckEth { original: long[3] }),
        imm: operation
            .has_immediate()
            .then_some(ImmDt(short[3].to_ne_bytes())),
        ieth: operation.has_ieth().then_some(Ieth { rkey: short[3] }),
        deth: (service == Service::Ud || service == Service::Rd && request).then_some(Deth {
            qkey: short[4],
            src_qp: short[5] & PSN,
        }),
        xrceth: (service == Service::Xrc && request).then_some(Xrceth {
            srqn: short[5] & PSN,
        }),
        rdeth: (service == Service::Rd).then_some(Rdeth {
            ee_context: short[1] & PSN,
        }),
    })
}

fn packets() -> impl Strategy<Value = (Bth, Ext, Vec<u8>)> {
    (opcodes(), 0usize..80).prop_flat_map(|(opcode, len)| {
        let len = if opcode.operation().unwrap().has_payload() {
            len
        } else {
            0
        };
        (bth(opcode, len), ext(opcode), vec(any::<u8>(), len))
    })
}

fn flows() -> impl Strategy<Value = Flow> {
    let ips = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst))),
    ];
    (ips, any::<u16>()).prop_map(|((src, dst), src_port)| Flow {
        src,
        dst,
        src_port,
        dst_port: ROCE_PORT,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read((bth, ext, payload) in packets()) {
        let packet = Packet { bth, ext, payload: payload.as_slice().into() };
        let mut bytes = vec![0xee; packet.wire_len() + 5];
        let len = packet.emit(&mut bytes);
        prop_assert_eq!(len, header_len(bth.opcode) + payload.len() + usize::from(bth.pad));
        prop_assert_eq!(len % 4, 0);
        prop_assert!(header_len(bth.opcode) <= MAX_HEADER_LEN);
        prop_assert_eq!(&bytes[len..], &[0xee; 5][..]);
        prop_assert_eq!(Packet::parse(&bytes[..len]), Ok(packet));
        // Any shorter, and a header or the padding is missing, or the payload is another.
        for cut in 0..len {
            prop_assert_ne!(Packet::parse(&bytes[..cut]), Ok(packet));
        }
    }

    #[test]
    fn the_usual_packets_are_what_they_are_as_any(
        operation in proptest::sample::select(vec![
            Operation::SendOnly,
            Operation::Acknowledge,
            Operation::CompareSwap,
            Operation::FetchAdd,
            Operation::AtomicAcknowledge,
        ]),
        mut bytes in vec(any::<u8>(), 0..60),
        plain in prop_oneof![3 => Just(true), 1 => Just(false)],
    ) {
        let usual = Opcode::new(Service::Rc, operation);
        let has_payload = operation == Operation::SendOnly;
        if plain && let [opcode, flags, ..] = bytes.as_mut_slice() {
            *opcode = usual.0;
            *flags &= if has_payload { 0xf0 } else { 0xc0 };
        }
        if plain && !has_payload {
            bytes.truncate(header_len(usual));
        }
        let parsed = Packet::parse(&bytes);
        match Usual::parse(&bytes) {
            Some((bth, usual)) => {
                let (ext, payload) = match usual {
                    Usual::Send(payload) => (Ext::default(), payload),
                    Usual::Acknowledge(aeth) => (Ext { aeth: Some(aeth), ..Ext::default() }, &[][..]),
                    Usual::Atomic(atomic) => (Ext { atomic: Some(atomic), ..Ext::default() }, &[][..]),
                    Usual::AtomicAcknowledge(aeth, ack) => {
                        let (aeth, atomic_ack) = (Some(aeth), Some(ack));
                        (Ext { aeth, atomic_ack, ..Ext::default() }, &[][..])
                    }
                };
                prop_assert_eq!(parsed, Ok(Packet { bth, ext, payload: payload.into() }));
            }
            // Too short, or with more pad bytes than there are.
            None if plain => prop_assert!(parsed.is_err()),
            None => {}
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..120), id: u16, flow in flows()) {
        let context = IcrcContext::new(&flow);
        let _ = context.icrc(id, true, &bytes);
        let _ = context.check(&bytes, id);
        let (mut source, mut leeway) = (PeerIds::default(), Leeway::default());
        let _ = FlowIds::default().check(&mut source, &mut leeway, &context, &bytes, 0);
        let _ = IpUdp::parse(&bytes);
        if let Some(prefix) = bytes.first_chunk() {
            let _ = UdPrefix::parse(prefix);
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert!(packet.bth.opcode.operation().is_some());
            // Written again, it is the same packet.
            let mut again = vec![0; packet.wire_len()];
            packet.emit(&mut again);
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
            prop_assert_eq!(again.len(), bytes.len());
        }
    }

    #[test]
    fn bytes_of_a_known_opcode_do_not_panic(opcode in opcodes(), mut bytes in vec(any::<u8>(), 12..80)) {
        bytes[0] = opcode.0;
        bytes[1] &= 0xf0;
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut again = vec![0; packet.wire_len()];
            packet.emit(&mut again);
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
        } else {
            prop_assert!(bytes.len() < header_len(opcode) + usize::from(bytes[1] >> 4 & 3));
        }
    }

    #[test]
    fn ip_headers_survive(flow in flows(), ip_id: u16, dont_fragment: bool, tos: u8, ttl: u8, payload in vec(any::<u8>(), 0..90)) {
        let mut meta = IpUdp { flow, ip_id, dont_fragment, traffic_class: tos, hop_limit: ttl };
        let mut bytes = vec![0; IpUdp::MAX_LEN];
        let len = meta.emit(&payload, &mut bytes);
        bytes.truncate(len);
        bytes.extend(&payload);
        if meta.header_len() == 48 {
            (meta.ip_id, meta.dont_fragment) = (0, true);
        }
        meta.flow.src = meta.flow.src.to_canonical();
        prop_assert_eq!(IpUdp::parse(&bytes), Ok((meta, &payload[..])));
    }

    #[test]
    fn grh_survives(traffic_class: u8, flow_label in 0u32..1 << 20, payload_len: u16, next_header: u8, hop_limit: u8, sgid: [u8; 16], dgid: [u8; 16]) {
        let prefix = UdPrefix::V6(Grh { traffic_class, flow_label, payload_len, next_header, hop_limit, sgid, dgid });
        let mut bytes = [0; 40];
        prefix.emit(&mut bytes);
        prop_assert_eq!(UdPrefix::parse(&bytes), Ok(prefix));
        let (src, dst) = ([sgid[0], sgid[1], sgid[2], sgid[3]].into(), [dgid[0], dgid[1], dgid[2], dgid[3]].into());
        let prefix = UdPrefix::V4(Ipv4Header {
            tos: traffic_class,
            total_len: payload_len,
            id: flow_label as u16,
            dont_fragment: hop_limit % 2 == 0,
            ttl: hop_limit,
            protocol: next_header,
            src,
            dst,
        });
        prefix.emit(&mut bytes);
        prop_assert_eq!(UdPrefix::parse(&bytes), Ok(prefix));
    }

    #[test]
    fn gids_are_addresses(bytes: [u8; 16], v4: [u8; 4]) {
        prop_assert_eq!(Gid::from(Gid(bytes).ip()), Gid(bytes));
        let ip = IpAddr::from(v4);
        prop_assert_eq!(Gid::from(ip).ip(), ip);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Each single bit of the packet and of its ICRC: flipped, it is noticed, save for those that
    /// are not under the ICRC; those change nothing.
    #[test]
    fn a_flipped_bit_is_noticed(flow in flows(), ip_id: u16, expected: u16, mut packet in vec(any::<u8>(), 16..1200)) {
        let context = IcrcContext::new(&flow);
        context.append(ip_id, true, &mut packet);
        let v4 = flow.src.is_ipv4();
        let ok = IcrcOk { ip_id: if v4 { ip_id } else { expected }, df: true };
        prop_assert_eq!(context.check(&packet, expected), Ok(ok));
        for bit in 0..packet.len() * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            let result = context.check(&packet, expected);
            if bit / 8 == 4 {
                prop_assert_eq!(result, Ok(ok));
            } else {
                prop_assert_eq!(result, Err(IcrcError::Mismatch), "bit {}", bit);
            }
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Whatever is under the ICRC besides the packet is noticed, too.
    #[test]
    fn another_flow_is_noticed(flow in flows(), bytes in vec(any::<u8>(), 12..200), bit in 0u32..16) {
        let right = icrc(&flow, 0, true, &bytes);
        let other = Flow { src_port: flow.src_port ^ 1 << bit, ..flow };
        prop_assert_ne!(icrc(&other, 0, true, &bytes), right);
        let other = Flow { dst_port: flow.dst_port ^ 1 << bit, ..flow };
        prop_assert_ne!(icrc(&other, 0, true, &bytes), right);
        let mut gid = Gid::from(flow.dst);
        gid.0[15] ^= 1 << (bit % 8);
        prop_assert_ne!(icrc(&Flow { dst: gid.ip(), ..flow }, 0, true, &bytes), right);
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_ne!(icrc(&flow, 0, true, &longer), right);
    }
}
