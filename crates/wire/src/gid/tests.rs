use super::Gid;
use core::net::IpAddr;
use std::string::ToString;

#[test]
fn ipv4_is_mapped_and_printed_like_sysfs() {
    let ip: IpAddr = "127.0.0.1".parse().unwrap();
    let gid = Gid::from(ip);
    assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:7f00:0001");
    assert_eq!(gid.ip(), ip);
    assert!(!gid.is_link_local());
    assert!(!gid.is_zero());
}

#[test]
fn ipv6_is_itself() {
    let ip: IpAddr = "fe80::5054:ff:fe00:1".parse().unwrap();
    let gid = Gid::from(ip);
    assert_eq!(gid.to_string(), "fe80:0000:0000:0000:5054:00ff:fe00:0001");
    assert_eq!(IpAddr::from(gid), ip);
    assert!(gid.is_link_local());
    assert!(Gid::from("febf::1".parse::<IpAddr>().unwrap()).is_link_local());
    assert!(!Gid::from("fec0::1".parse::<IpAddr>().unwrap()).is_link_local());
    assert!(Gid::default().is_zero());
}
