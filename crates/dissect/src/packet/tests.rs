use std::net::{IpAddr, Ipv4Addr};

use rnic_wire::{Flow, Opcode, Operation, Psn, Service, append_icrc};

use super::*;

fn outer(len: usize) -> Outer {
    Outer {
        flow: Flow {
            src: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            dst: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            src_port: 50_000,
            dst_port: 4791,
        },
        ip_id: 0x1234,
        dont_fragment: true,
        traffic_class: 0,
        hop_limit: 64,
        vlan: None,
        options: false,
        udp_payload: len as u32,
        outgoing: None,
        ifindex: None,
    }
}

/// A SEND with its ICRC.
fn send(operation: Operation, psn: u32, payload: usize, ip_id: u16) -> Vec<u8> {
    let mut bytes = vec![0; 12 + payload + 4];
    let bth = Bth {
        opcode: Opcode::new(Service::Rc, operation),
        pkey: 0xffff,
        dest_qp: 0x17,
        psn: Psn::new(psn),
        ..Bth::default()
    };
    bth.emit(&mut bytes);
    let outer = outer(bytes.len());
    append_icrc(&outer.flow, ip_id, true, &mut bytes);
    bytes
}

#[test]
fn the_icrc_and_the_trap_of_the_identification() {
    let verdict = |bytes: &[u8], outer: &Outer| read(1, 0, outer, bytes).unwrap().0.icrc;
    let good = send(Operation::SendOnly, 5, 100, 0x1234);
    assert_eq!(verdict(&good, &outer(good.len())), Icrc::Right);
    // Made for identification 0.
    let other = send(Operation::SendOnly, 5, 100, 0);
    let expected = Icrc::OtherIpHeader { ip_id: 0, df: true };
    assert_eq!(verdict(&other, &outer(other.len())), expected);
    let mut bad = good.clone();
    bad[20] ^= 1;
    assert!(matches!(
        verdict(&bad, &outer(bad.len())),
        Icrc::Wrong { .. }
    ));
    let with_options = Outer {
        options: true,
        ..outer(bad.len())
    };
    assert_eq!(verdict(&bad, &with_options), Icrc::Unchecked);
    let (packet, payload) = read(1, 0, &outer(good.len()), &good[..50]).unwrap();
    assert!(packet.cut);
    assert_eq!((packet.icrc, packet.payload_len), (Icrc::Unchecked, 100));
    assert_eq!(payload.len(), 38);
}

#[test]
fn what_is_no_packet() {
    let why = |bytes: &[u8]| read(1, 0, &outer(bytes.len()), bytes).unwrap_err();
    let good = send(Operation::SendOnly, 5, 100, 0);
    assert_eq!(why(&good[..15]), NoPacket::Short);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(why(&changed(1, 1)), NoPacket::Version);
    assert_eq!(why(&changed(0, 0x7f)), NoPacket::UnknownOpcode(0x7f));
    // A READ request that ends before its RETH does.
    assert_eq!(why(&changed(0, 12)[..30]), NoPacket::Short);
    let mut empty = send(Operation::SendOnly, 5, 0, 0);
    empty[1] = 0x30;
    assert_eq!(why(&empty), NoPacket::BadPad);
    assert_eq!(
        read(1, 0, &outer(116), &good[..8]).unwrap_err(),
        NoPacket::CutShort
    );
    // A CNP has 16 reserved bytes and no extension header.
    let mut cnp = send(Operation::SendOnly, 5, 16, 0);
    cnp[0] = 0x81;
    let outer = outer(cnp.len());
    let (packet, _) = read(1, 0, &outer, &cnp).unwrap();
    assert_eq!(packet.payload_len, 0);
}

#[test]
fn a_datagram_that_the_kernel_had_yet_to_cut() {
    // Numbered 0, 1, 2 by the kernel; the capture shows one IP header with an identification of its
    // own, or 0.
    let segments: Vec<_> = (0..3)
        .map(|k| send(Operation::SendMiddle, 7 + u32::from(k), 256, k))
        .chain([send(Operation::SendLast, 10, 40, 3)])
        .collect();
    let whole = segments.concat();
    let outer_of = |ip_id| Outer {
        ip_id,
        ..outer(whole.len())
    };
    for ip_id in [0, 0x1234] {
        assert_eq!(segment_len(&outer_of(ip_id), &whole), Some(12 + 256 + 4));
    }
    let one = send(Operation::SendOnly, 5, 2000, 0);
    assert_eq!(segment_len(&outer(one.len()), &one), None);
}
