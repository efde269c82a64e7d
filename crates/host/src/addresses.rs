//! Addresses: with their interface, and which of them are this host's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rnic_sys::{self as sys, Addr};

/// The address of a port; a link-local one is one of that interface.
pub fn with_scope(ip: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope_id))
        }
        _ => SocketAddr::new(ip, port),
    }
}

/// An address in 64 bits, for tables by hash.
#[inline]
pub fn fold(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            bits as u64 ^ (bits >> 64) as u64
        }
    }
}

/// Is the address, one of that interface if it is link-local, one of this host's?
pub fn is_own_address(ip: IpAddr, scope_id: u32) -> bool {
    if ip.is_multicast() || ip.is_unspecified() {
        return false;
    }
    let remote = with_scope(ip, 0, scope_id);
    let family = if remote.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let any_port = match remote {
        SocketAddr::V4(v4) => SocketAddr::V4(SocketAddrV4::new(*v4.ip(), 0)),
        SocketAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(*v6.ip(), 0, 0, v6.scope_id())),
    };
    let binds = || {
        let fd = sys::socket(family, libc::SOCK_DGRAM)?;
        sys::bind(&fd, &Addr::inet(&any_port))
    };
    let is_ours = || binds().map(|()| !binds_to_anything(ip) || is_in_local_table(ip));
    let ours = match is_ours() {
        Err(e) if sys::is_out_of_descriptors(&e) => sys::with_spare(is_ours).unwrap_or(Err(e)),
        known => known,
    };
    ours.unwrap_or(false)
}

/// Sockets may be bound to addresses of other hosts (`net.ipv4.ip_nonlocal_bind`), so that it says
/// nothing.
fn binds_to_anything(ip: IpAddr) -> bool {
    let option = match ip {
        IpAddr::V4(_) => c"/proc/sys/net/ipv4/ip_nonlocal_bind",
        IpAddr::V6(_) => c"/proc/sys/net/ipv6/ip_nonlocal_bind",
    };
    // Not by the standard library: a thread that polls must not be cancelled here.
    let mut text = [0];
    let file = sys::open_at_following(option, libc::O_RDONLY, 0);
    let read = file.and_then(|file| sys::read_at(&file, &mut text, 0));
    read.is_ok_and(|n| n == 1 && text[0] != b'0')
}

/// The same by what the kernel tells of its tables.
fn is_in_local_table(ip: IpAddr) -> bool {
    let table = |name: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    };
    match ip {
        IpAddr::V4(v4) => is_local_in_trie(&table("fib_trie"), v4),
        IpAddr::V6(v6) => {
            let hex = format!("{:032x}", u128::from(v6));
            table("if_inet6").lines().any(|line| line.starts_with(&hex))
        }
    }
}

/// `/proc/net/fib_trie`: a line `|-- ADDRESS` per prefix, and behind it `/LEN SCOPE TYPE` per
/// route.
fn is_local_in_trie(trie: &str, ip: Ipv4Addr) -> bool {
    let mut prefix = 0;
    trie.lines().any(|line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            prefix = address.parse::<Ipv4Addr>().map_or(0, u32::from);
            return false;
        }
        let Some((len, "host LOCAL")) =
            line.strip_prefix('/').and_then(|rest| rest.split_once(' '))
        else {
            return false;
        };
        let len = len.parse::<u32>().unwrap_or(32).min(32);
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        u32::from(ip) & mask == prefix & mask
    })
}
