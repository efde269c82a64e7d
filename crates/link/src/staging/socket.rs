//! A socket that sends.
//!
//! It is bound to one local address and an ephemeral port, with IP_PMTUDISC_PROBE: packets then
//! leave with DF and an IP ID that is known beforehand, and are never fragmented. IP_PMTUDISC_DO
//! would do that, too, but would heed what ICMP says of the path MTU, which anybody can forge: with
//! PROBE the interface's MTU counts alone, as it does for hardware. Which paths share one, and
//! which get a connected one, is decided in [`crate::udp::tx`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use super::path::PathSpec;
use crate::LinkError;
use rnic_sys::{self as sys, Addr, Fd};

const SEND_BUFFER: i32 = 4 << 20;

/// A socket that sends.
#[derive(Debug)]
pub struct TxSocket {
    fd: Fd,
    port: u16,
    connected: bool,
    /// UDP_SEGMENT as the socket has it now.
    segment: AtomicU16,
    /// It has not taken what waits for it ([`crate::udp::waiting`]).
    full: AtomicBool,
    /// (remote address, QPN range) pairs that this socket's port stands for.
    carries: Mutex<Vec<(IpAddr, u32)>>,
}

impl TxSocket {
    /// Where it sends from, bound to that address.
    pub(crate) fn from(&self, local: IpAddr) -> SocketAddr {
        SocketAddr::new(local, self.port)
    }

    /// Its UDP source port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Lets the kernel cut what is sent next, `len` bytes, into datagrams of `segment` bytes; 0:
    /// not at all.
    pub(crate) fn cut_into(&self, segment: u16, len: usize) -> io::Result<()> {
        let set = self.segment.load(Ordering::Relaxed);
        // What is no longer than a segment is not cut.
        if set == segment || segment == 0 && len <= usize::from(set) {
            return Ok(());
        }
        let option = i32::from(segment);
        sys::set_option(&self.fd, libc::SOL_UDP, libc::UDP_SEGMENT, option)
            // Kernels that know no segmentation say so as those do whose device cannot.
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        self.segment.store(segment, Ordering::Relaxed);
        Ok(())
    }

    /// Something was left in UDP_SEGMENT.
    pub(crate) fn is_cutting(&self) -> bool {
        self.segment.load(Ordering::Relaxed) != 0
    }

    /// Packets wait for room in its send buffer.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// It has one destination.
    pub fn connected(&self) -> bool {
        self.connected
    }

    /// Opens one for this path; `connected`: to its destination, if there is a way there now.
    pub(crate) fn open(spec: &PathSpec, connected: bool) -> Result<TxSocket, LinkError> {
        let v4 = spec.local.is_ipv4();
        let family = if v4 { libc::AF_INET } else { libc::AF_INET6 };
        let fd =
            sys::socket(family, libc::SOCK_DGRAM).map_err(LinkError::io("open a UDP socket"))?;
        let set = |level, name, value, what| {
            sys::set_option(&fd, level, name, value).map_err(LinkError::io(what))
        };
        let (tos, ttl) = (i32::from(spec.traffic_class), i32::from(spec.hop_limit));
        if v4 {
            let (ip, path_mtu) = (libc::IPPROTO_IP, "forbid fragmentation");
            set(ip, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, path_mtu)?;
            if tos != 0 {
                set(ip, libc::IP_TOS, tos, "set the type of service")?;
            }
            if ttl != 0 {
                set(ip, libc::IP_TTL, ttl, "set the time to live")?;
                let what = "set the time to live of multicast";
                set(ip, libc::IP_MULTICAST_TTL, ttl, what)?;
            }
        } else {
            let (ip, path_mtu) = (libc::IPPROTO_IPV6, "forbid fragmentation");
            set(ip, libc::IPV6_V6ONLY, 1, "make the socket IPv6-only")?;
            set(
                ip,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
                path_mtu,
            )?;
            if tos != 0 {
                set(ip, libc::IPV6_TCLASS, tos, "set the traffic class")?;
            }
            if ttl != 0 {
                set(ip, libc::IPV6_UNICAST_HOPS, ttl, "set the hop limit")?;
                let what = "set the hop limit of multicast";
                set(ip, libc::IPV6_MULTICAST_HOPS, ttl, what)?;
            }
        }
        choose_interface(&fd, spec)?;
        let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
        // Nothing is ever read from it; whatever somebody sends to its port may take no memory.
        let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0);
        sys::bind(&fd, &Addr::inet(&spec.local_socket_addr(0)))
            .map_err(LinkError::io("bind to the source address"))?;
        // A destination that cannot be reached now may be later: then by the unconnected way.
        let connected =
            connected && sys::connect(&fd, &Addr::inet(&spec.remote_socket_addr())).is_ok();
        let port = sys::local_addr(&fd)
            .map_err(LinkError::io("read the source port"))?
            .port();
        Ok(TxSocket::of(fd, port, connected))
    }

    /// A socket that is set up already.
    pub(crate) fn of(fd: Fd, port: u16, connected: bool) -> TxSocket {
        TxSocket {
            fd,
            port,
            connected,
            segment: AtomicU16::new(0),
            full: AtomicBool::new(false),
            carries: Mutex::new(Vec::new()),
        }
    }

    /// Nothing else for `remote` than what is for `range` goes through this socket.
    pub(crate) fn suits(&self, remote: IpAddr, range: u32) -> bool {
        let carries = self.carries.lock().unwrap_or_else(|e| e.into_inner());
        carries.iter().all(|&(r, q)| r != remote || q == range)
    }

    pub(crate) fn take(&self, remote: IpAddr, range: u32) {
        let mut carries = self.carries.lock().unwrap_or_else(|e| e.into_inner());
        if !carries.contains(&(remote, range)) {
            carries.push((remote, range));
        }
    }

    /// The path of this key (there is one per socket, remote address and range) is gone.
    pub(crate) fn drop_from(&self, key: &PathSpec) {
        let mut carries = self.carries.lock().unwrap_or_else(|e| e.into_inner());
        carries.retain(|&c| c != (key.remote, key.dest_qpn));
    }
}

/// Multicast leaves by the interface of the source address. IPv4 finds that by the address that the
/// socket is bound to.
pub(crate) fn choose_interface(fd: &Fd, spec: &PathSpec) -> Result<(), LinkError> {
    if spec.remote.is_ipv4() || !spec.remote.is_multicast() {
        return Ok(());
    }
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF);
    sys::set_option(fd, level, name, spec.scope_id as i32)
        .map_err(LinkError::io("choose the interface of multicast"))
}
