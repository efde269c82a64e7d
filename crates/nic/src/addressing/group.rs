//! Which IP multicast group an MGID means.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rnic_wire::Gid;

/// The IP group of an MGID over IPv4 or IPv6; `None`: it is no MGID, or has no group over IPv6.
///
/// Over IPv4 a MGID that ends in an IPv4 group (`ff0e::ffff:239.1.2.3`) means that group. Any other
/// has one of 239.0.0.0/8 (RFC 2365), made of 24 bits of its hash: all of rnic's hosts agree on it.
pub(crate) fn group_address(mgid: Gid, v4: bool) -> Option<IpAddr> {
    match mgid.ip() {
        ip if !ip.is_multicast() => None,
        ip @ IpAddr::V4(_) => v4.then_some(ip),
        ip @ IpAddr::V6(_) if !v4 => Some(ip),
        IpAddr::V6(v6) => Some(over_ipv4(v6).into()),
    }
}

fn over_ipv4(group: Ipv6Addr) -> Ipv4Addr {
    let octets = group.octets();
    if let [.., 0xff, 0xff, a, b, c, d] = octets
        && Ipv4Addr::new(a, b, c, d).is_multicast()
    {
        return Ipv4Addr::new(a, b, c, d);
    }
    // FNV-1a.
    let hash = octets.iter().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let [x, a, b, c] = hash.to_be_bytes();
    Ipv4Addr::new(239, a ^ x, b, c)
}

#[cfg(test)]
mod tests;
