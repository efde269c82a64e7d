//! The sender's address out of the 40 bytes in front of a datagram.

use super::*;
use rnic_wire::Grh;
use rnic_wire::ip::Ipv4Header;

fn table() -> Vec<GidEntry> {
    ["10.0.0.1", "fd00::1"]
        .into_iter()
        .enumerate()
        .map(|(index, addr)| {
            let addr: IpAddr = addr.parse().unwrap();
            GidEntry {
                index: index as u32,
                gid: Gid::from(addr),
                addr,
                ifindex: 2,
                ifname: "eth0".into(),
                netdev_mtu: 1500,
                scope_id: 0,
                loopback: false,
                running: true,
            }
        })
        .collect()
}

fn v4(src: [u8; 4], dst: [u8; 4]) -> [u8; 40] {
    let mut bytes = [0; 40];
    UdPrefix::V4(Ipv4Header {
        tos: 8,
        total_len: 60,
        id: 0,
        dont_fragment: true,
        ttl: 63,
        protocol: 17,
        src: src.into(),
        dst: dst.into(),
    })
    .emit(&mut bytes);
    bytes
}

fn v6(src: &str, dst: &str) -> [u8; 40] {
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut bytes = [0; 40];
    UdPrefix::V6(Grh {
        traffic_class: 9,
        flow_label: 0x12345,
        payload_len: 40,
        next_header: 17,
        hop_limit: 62,
        sgid: octets(src),
        dgid: octets(dst),
    })
    .emit(&mut bytes);
    bytes
}

#[test]
fn the_sender_becomes_the_destination_and_our_gid_the_source() {
    let attr = ah_attr_from_header_of(&v4([10, 0, 0, 2], [10, 0, 0, 1]), 1, &table()).unwrap();
    assert_eq!(attr.dgid, Gid::from(IpAddr::from([10, 0, 0, 2])));
    assert_eq!(
        (attr.sgid_index, attr.hop_limit, attr.traffic_class),
        (0, 63, 8)
    );
    assert!(attr.is_global);
    let attr = ah_attr_from_header_of(&v6("fd00::2", "fd00::1"), 1, &table()).unwrap();
    assert_eq!(attr.dgid.ip(), "fd00::2".parse::<IpAddr>().unwrap());
    assert_eq!(
        (attr.sgid_index, attr.hop_limit, attr.traffic_class),
        (1, 62, 9)
    );
    assert_eq!((attr.flow_label, attr.port_num), (0x12345, 1));
}

#[test]
fn what_did_not_come_to_a_gid_of_ours_is_refused() {
    for header in [
        v4([10, 0, 0, 2], [10, 0, 0, 9]),
        v4([10, 0, 0, 2], [239, 1, 2, 3]),
        v6("fd00::2", "ff0e::1"),
        [0; 40],
        [0xff; 40],
    ] {
        let error = ah_attr_from_header_of(&header, 1, &table()).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
    }
}
