//! Which IP group an MGID means.

use super::*;

fn gid(text: &str) -> Gid {
    let ip: Ipv6Addr = text.parse().unwrap();
    Gid(ip.octets())
}

fn v4(text: &str) -> Option<IpAddr> {
    group_address(gid(text), true)
}

#[test]
fn a_mapped_ipv4_group_is_itself_and_has_no_ipv6_form() {
    assert_eq!(v4("::ffff:239.1.2.3"), Some([239, 1, 2, 3].into()));
    assert_eq!(group_address(gid("::ffff:239.1.2.3"), false), None);
}

#[test]
fn an_ipv6_group_is_itself_and_has_one_over_ipv4() {
    let named: IpAddr = "ff0e::ffff:239.1.2.3".parse().unwrap();
    assert_eq!(
        group_address(gid("ff0e::ffff:239.1.2.3"), false),
        Some(named)
    );
    assert_eq!(v4("ff0e::ffff:239.1.2.3"), Some([239, 1, 2, 3].into()));
    // perftest's own, and its neighbour.
    let own = v4("ff01:0:2:c985::").unwrap();
    let IpAddr::V4(group) = own else {
        panic!("{own}")
    };
    assert_eq!(group.octets()[0], 239);
    assert_eq!(v4("ff01:0:2:c985::"), Some(own));
    assert_ne!(v4("ff01:0:2:c985::1"), Some(own));
}

#[test]
fn unicast_is_no_group() {
    for text in ["::ffff:10.0.0.1", "fe80::1", "2001:db8::1", "::"] {
        assert_eq!(v4(text), None);
        assert_eq!(group_address(gid(text), false), None);
    }
}
