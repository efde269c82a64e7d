use super::*;
use core::net::Ipv4Addr;

#[test]
fn ipv6_form() {
    let grh = Grh {
        traffic_class: 0x6a,
        flow_label: 0xf_2345,
        payload_len: 44,
        next_header: 17,
        hop_limit: 63,
        sgid: core::array::from_fn(|i| i as u8),
        dgid: [0xfd; 16],
    };
    let mut bytes = [0xee; 40];
    grh.emit(&mut bytes);
    assert_eq!(bytes[..8], [0x66, 0xaf, 0x23, 0x45, 0, 44, 17, 63]);
    assert_eq!(Grh::parse(&bytes), Ok(grh));
    assert_eq!(UdPrefix::parse(&bytes), Ok(UdPrefix::V6(grh)));
    let mut again = [0; 40];
    UdPrefix::V6(grh).emit(&mut again);
    assert_eq!(again, bytes);
}

#[test]
fn ipv4_form_lies_at_the_end() {
    // From tests/captures/ud_tclass_v4.txt, line "grh".
    let received = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        0x45, 0x6a, 0, 0x48, 0x36, 0xa3, 0x40, 0, 0x40, 0x11, 0xef, 0x95, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let header = Ipv4Header {
        tos: 0x6a,
        total_len: 72,
        id: 0x36a3,
        dont_fragment: true,
        ttl: 64,
        protocol: 17,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
    };
    let mut bytes = [0xee; 40];
    UdPrefix::V4(header).emit(&mut bytes);
    assert_eq!(bytes, received);
    assert_eq!(UdPrefix::parse(&bytes), Ok(UdPrefix::V4(header)));
    assert_eq!(UdPrefix::parse(&[0; 40]), Err(IpError::Version));
}
