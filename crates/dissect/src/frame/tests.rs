use super::*;

const PAYLOAD: &[u8] = b"a packet of twenty...";

fn udp(port: u16) -> Vec<u8> {
    let len = (PAYLOAD.len() + 8) as u16;
    let mut out = [55_555u16, port, len, 0].map(u16::to_be_bytes).concat();
    out.extend(PAYLOAD);
    out
}

fn v4(options: usize, flags: u16, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut out = vec![0x40 | (header / 4) as u8, 0x6a];
    out.extend(((header + rest.len()) as u16).to_be_bytes());
    out.extend([0x12, 0x34]);
    out.extend(flags.to_be_bytes());
    out.extend([63, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    out.resize(header, 1);
    out.extend(rest);
    out
}

fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0x61, 0x20, 0, 0];
    out.extend((rest.len() as u16).to_be_bytes());
    out.extend([next, 60]);
    out.extend([0xfd; 16]);
    out.extend([0xfe; 16]);
    out.extend(rest);
    out
}

fn ethernet(tags: &[[u8; 4]], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 12];
    out.extend(tags.concat());
    out.extend(kind.to_be_bytes());
    out.extend(rest);
    out
}

fn opened(link: u16, bytes: &[u8]) -> (Outer, Vec<u8>) {
    let (outer, payload) = open(link, bytes).unwrap();
    (outer, payload.to_vec())
}

#[test]
fn every_link_layer() {
    let ip = v4(0, 0x4000, 17, &udp(4791));
    let sll = |kind: u16| [&[0, 4][..], &[0; 12], &kind.to_be_bytes(), &ip].concat();
    let sll2 = |kind: u16| [&kind.to_be_bytes()[..], &[0; 8], &[4], &[0; 9], &ip].concat();
    let all = [
        (1, ethernet(&[], 0x0800, &ip), None, None),
        (
            1,
            ethernet(&[[0x81, 0, 0x20, 5]], 0x0800, &ip),
            Some(5),
            None,
        ),
        (
            1,
            ethernet(&[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 9]], 0x0800, &ip),
            Some(9),
            None,
        ),
        (0, [&[2, 0, 0, 0][..], &ip].concat(), None, None),
        (108, [&[0, 0, 0, 2][..], &ip].concat(), None, None),
        (101, ip.clone(), None, None),
        (228, ip.clone(), None, None),
        (113, sll(0x0800), None, Some(true)),
        (276, sll2(0x0800), None, Some(true)),
    ];
    for (link, bytes, vlan, outgoing) in all {
        let (outer, payload) = opened(link, &bytes);
        assert_eq!(payload, PAYLOAD, "{link}");
        assert_eq!((outer.vlan, outer.outgoing), (vlan, outgoing), "{link}");
        assert_eq!((outer.ip_id, outer.dont_fragment), (0x1234, true));
        assert_eq!((outer.traffic_class, outer.hop_limit), (0x6a, 63));
        assert_eq!(outer.flow.src_port, 55_555);
        // However much is missing: no panic, and no packet that is none.
        for len in 0..bytes.len() {
            if let Ok((_, payload)) = open(link, &bytes[..len]) {
                assert!(PAYLOAD.starts_with(payload));
            }
        }
    }
    assert_eq!(open(9, &ip).unwrap_err(), Skip::LinkType(9));
    assert_eq!(
        open(1, &ethernet(&[], 0x8915, &ip)).unwrap_err(),
        Skip::RoceV1
    );
    assert_eq!(
        open(1, &ethernet(&[], 0x0806, &ip)).unwrap_err(),
        Skip::NotIp
    );
}

#[test]
fn ethernet_padding_is_no_payload() {
    let mut ip = v4(0, 0, 17, &udp(4791));
    ip.extend([0; 30]);
    assert_eq!(opened(101, &ip).1, PAYLOAD);
}

#[test]
fn ipv4_options_and_fragments() {
    let (outer, payload) = opened(101, &v4(8, 0, 17, &udp(4791)));
    assert_eq!(payload, PAYLOAD);
    assert!(outer.options);
    let skip = |bytes: &[u8]| open(101, bytes).unwrap_err();
    assert_eq!(skip(&v4(0, 0x2000, 17, &udp(4791))), Skip::RoceFragment);
    assert_eq!(skip(&v4(0, 0x2000, 17, &udp(53))), Skip::OtherPort);
    assert_eq!(skip(&v4(0, 0x0010, 17, &udp(4791))), Skip::Fragment);
    assert_eq!(skip(&v4(0, 0, 6, &udp(4791))), Skip::NotUdp);
    let mut short = v4(0, 0, 17, &udp(4791));
    short[3] = 10;
    assert_eq!(skip(&short), Skip::BadLength);
}

#[test]
fn ipv6_extension_headers() {
    let (outer, payload) = opened(101, &v6(17, &udp(4791)));
    assert_eq!(payload, PAYLOAD);
    assert!(!outer.options && outer.dont_fragment);
    assert_eq!((outer.traffic_class, outer.hop_limit), (0x12, 60));
    // Hop by hop, then destination options of 16 bytes.
    let hop = [
        &[60, 0, 0, 0, 0, 0, 0, 0][..],
        &[17, 1],
        &[0; 14],
        &udp(4791),
    ]
    .concat();
    let (outer, payload) = opened(101, &v6(0, &hop));
    assert_eq!(payload, PAYLOAD);
    assert!(outer.options);
    let fragment = |offset: u16| {
        let header = [&[17, 0][..], &offset.to_be_bytes(), &[0; 4]].concat();
        v6(44, &[header, udp(4791)].concat())
    };
    assert_eq!(open(101, &fragment(1)).unwrap_err(), Skip::RoceFragment);
    assert_eq!(open(101, &fragment(8)).unwrap_err(), Skip::Fragment);
    // A fragment of its own: whole.
    assert_eq!(opened(101, &fragment(0)).1, PAYLOAD);
    assert_eq!(open(101, &v6(58, &[0; 8])).unwrap_err(), Skip::NotUdp);
}
