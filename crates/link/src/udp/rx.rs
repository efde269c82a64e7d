//! The receiving socket, and which process has it when we cannot.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::ROCE_PORT;

use crate::LinkError;
use rnic_sys::{self as sys, Addr, Fd};

/// Receive buffer asked for; the kernel grants twice that for its own book-keeping, or what
/// `rmem_max` allows. It takes memory only while packets wait. UC and UD from another host have no
/// flow control, and Linux's UC sends a message of 8 MiB in one go.
const WANTED_BUFFER: i32 = 32 << 20;

/// linux/in6.h, since Linux 4.20.
const IPV6_MULTICAST_ALL: i32 = 29;

/// Opens the receiving socket of port 4791.
pub(crate) fn open() -> Result<Fd, LinkError> {
    let (fd, any): (Fd, SocketAddr) = match sys::socket(libc::AF_INET6, libc::SOCK_DGRAM) {
        Ok(fd) => {
            sys::set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)
                .map_err(LinkError::io("make the socket dual-stack"))?;
            (fd, (Ipv6Addr::UNSPECIFIED, ROCE_PORT).into())
        }
        Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => return open_v4(),
        Err(e) => return Err(LinkError::io("open a UDP socket")(e)),
    };
    match prepare_and_bind(&fd, any) {
        Err(LinkError::Io { source, .. }) if source.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
            open_v4()
        }
        Err(e) => Err(e),
        Ok(()) => Ok(fd),
    }
}

fn open_v4() -> Result<Fd, LinkError> {
    let fd =
        sys::socket(libc::AF_INET, libc::SOCK_DGRAM).map_err(LinkError::io("open a UDP socket"))?;
    prepare_and_bind(&fd, (Ipv4Addr::UNSPECIFIED, ROCE_PORT).into())?;
    Ok(fd)
}

fn prepare_and_bind(fd: &Fd, addr: SocketAddr) -> Result<(), LinkError> {
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
        .map_err(LinkError::io("share the port (SO_REUSEPORT)"))?;
    if addr.is_ipv6() {
        // Over a dual-stack socket this one tells the destination of IPv4 packets too, IPv4-mapped.
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
            .map_err(LinkError::io("ask for destination addresses"))?;
        // Soft-RoCE sends checksum 0 over IPv6. Kernels that do not know the option just drop
        // those.
        let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    } else {
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
            .map_err(LinkError::io("ask for destination addresses"))?;
    }
    // What routers did to a packet, in the call that brings it: for captures and the GRH of UD. A
    // dual-stack socket is asked for both families. GRO merges only what has the same.
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1);
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    if addr.is_ipv6() {
        let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1);
        let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    }
    // Only what this process is a member of, not what any socket of the host joined.
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
    if addr.is_ipv6() {
        let _ = sys::set_option(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    }
    // Without it (before Linux 5.0) packets come one by one.
    let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, WANTED_BUFFER);
    if receive_buffer(fd) < 2 * WANTED_BUFFER as usize {
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WANTED_BUFFER);
    }
    sys::bind(fd, &Addr::inet(&addr)).map_err(|e| {
        if e.raw_os_error() == Some(libc::EADDRINUSE) {
            LinkError::PortTaken {
                owner: port_owner(),
            }
        } else {
            LinkError::io("bind to UDP port 4791")(e)
        }
    })
}

/// It receives IPv6, and IPv4 mapped.
pub(crate) fn is_dual_stack(fd: &Fd) -> bool {
    sys::local_addr(fd).is_ok_and(|addr| addr.is_ipv6())
}

/// Effective SO_RCVBUF in bytes, book-keeping included.
pub(crate) fn receive_buffer(fd: &Fd) -> usize {
    sys::get_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)
        .ok()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0)
}

fn port_owner() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let tables = [
        read("/proc/thread-self/net/udp"),
        read("/proc/thread-self/net/udp6"),
    ];
    let sockets = tables.iter().flat_map(|t| sockets_on_port(t, ROCE_PORT));
    let soft_roce = std::path::Path::new("/sys/module/rdma_rxe").exists();
    describe_owner(
        sockets,
        soft_roce,
        sys::effective_uid(),
        &read("/etc/passwd"),
    )
}

/// (uid, inode) of the sockets bound to `port` in a table of the form of /proc/net/udp.
fn sockets_on_port(table: &str, port: u16) -> impl Iterator<Item = (u32, u64)> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
        if u16::from_str_radix(local_port, 16).ok()? != port {
            return None;
        }
        // rem_address st tx:rx tr:when retrnsmt uid timeout inode
        let uid = fields.nth(5)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some((uid, inode))
    })
}

fn describe_owner(
    sockets: impl Iterator<Item = (u32, u64)>,
    soft_roce: bool,
    own_uid: u32,
    passwd: &str,
) -> String {
    let sockets: Vec<_> = sockets.collect();
    if soft_roce && (sockets.is_empty() || sockets.iter().any(|&(_, inode)| inode == 0)) {
        return "the kernel's Soft-RoCE (rdma_rxe), which owns it on all addresses of this network namespace; remove it \
                (`rdma link delete NAME`, or `rmmod rdma_rxe`) or use another network namespace"
            .into();
    }
    let name = |uid: u32| {
        let name = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
        });
        match name {
            Some(name) => format!("user {name} (uid {uid})"),
            None => format!("uid {uid}"),
        }
    };
    match sockets.iter().find(|&&(_, inode)| inode != 0) {
        Some(&(uid, _)) if uid != own_uid => format!(
            "a program of {}; only processes of one user can share it: run as that user, end that program, or use \
             another network namespace",
            name(uid)
        ),
        Some(&(uid, _)) => format!(
            "a program of {}, which is you, that does not share it; end it (`ss -ulnp sport = :4791` shows it) or use \
             another network namespace",
            name(uid)
        ),
        None if !sockets.is_empty() => {
            "the kernel itself (a tunnel or an RDMA driver); use another network namespace".into()
        }
        None => "somebody who does not show in /proc/net/udp; `ss -ulnp sport = :4791`, as root, may know".into(),
    }
}

#[cfg(test)]
mod tests;
