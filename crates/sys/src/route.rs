//! The ways from this host to others, as the kernel's routes have them.

use std::io;
use std::net::SocketAddr;

use rustix::net::{SendFlags, sendto};

use crate::{Addr, Fd, bind, connect, get_option, local_addr, socket};

fn datagram_socket(peer: SocketAddr) -> io::Result<Fd> {
    let family = match peer {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    socket(family, libc::SOCK_DGRAM)
}

fn with_port(mut addr: SocketAddr, port: u16) -> Addr {
    addr.set_port(port);
    Addr::inet(&addr)
}

/// Has the kernel look for the neighbour that leads to an address: sends an empty datagram to its
/// discard port (RFC 863).
pub fn knock(source: SocketAddr, peer: SocketAddr) {
    const DISCARD: u16 = 9;
    let Ok(socket) = datagram_socket(peer) else {
        return;
    };
    let _ = bind(&socket, &with_port(source, 0));
    let _ = sendto(&socket, &[], SendFlags::DONTWAIT, &with_port(peer, DISCARD));
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Source address; with its scope if it is link-local.
    pub source: SocketAddr,
    /// What the route carries, bytes of IP packet.
    pub mtu: Option<u32>,
}

/// Asks the kernel for the way to an address and UDP port, from `source` if it is given. Nothing is
/// sent.
pub fn way_to(source: Option<SocketAddr>, peer: SocketAddr) -> io::Result<Way> {
    let (level, option) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = datagram_socket(peer)?;
    if let Some(source) = source {
        bind(&socket, &with_port(source, 0))?;
    }
    connect(&socket, &Addr::inet(&peer))?;
    let mut source = local_addr(&socket)?;
    source.set_port(0);
    let mtu = get_option(&socket, level, option).ok();
    Ok(Way {
        source,
        mtu: mtu.map(|mtu| mtu as u32),
    })
}
