//! The sending sockets.
//!
//! Each is bound to one local address and an ephemeral port, with IP_PMTUDISC_PROBE: packets then leave with DF and an IP
//! ID that is known beforehand, and are never fragmented. IP_PMTUDISC_DO would do that, too, but would heed what ICMP says of the
//! path MTU, which anybody can forge: with PROBE the interface's MTU counts alone, as it does for hardware. No IPv4 one is ever connected: a connected socket numbers its
//! packets by a hidden counter, and the ICRC would be wrong for every receiver that sees the ID. IPv6 has no ID, so
//! there the first [`PORTS`] paths get a connected socket each (it saves the route look-up, 0.3 to 0.5 us of about 3.5
//! per packet).
//!
//! One 4-tuple carries packets for one range of QPNs, that is for one process, as far as [`PORTS`] suffice: a network
//! card's GRO merges by 4-tuple, and what it merged is steered as one.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::LinkError;
use crate::path::PathSpec;
use crate::source_ports::SourcePorts;
use crate::sys::{self, Addr, Fd};

/// Most unconnected sockets per local address, traffic class and hop limit, and most connected ones.
pub const PORTS: usize = 16;

const SEND_BUFFER: i32 = 4 << 20;

/// How long a socket stays when no route uses it any more: a receiver of this host may not have read yet what left through it, and then
/// asks whose it was ([`SourcePorts`]).
const LINGER: Duration = Duration::from_secs(2);

/// A socket that sends.
#[derive(Debug)]
pub struct TxSocket {
    fd: Fd,
    port: u16,
    connected: bool,
    /// UDP_SEGMENT as the socket has it now.
    segment: AtomicU16,
    /// It has not taken what waits for it ([`super::waiting`]).
    full: AtomicBool,
    /// (remote address, QPN range) pairs that this socket's port stands for.
    carries: Mutex<Vec<(IpAddr, u32)>>,
}

impl TxSocket {
    /// Where it sends from, bound to that address.
    fn from(&self, local: IpAddr) -> SocketAddr {
        SocketAddr::new(local, self.port)
    }

    /// Its UDP source port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Lets the kernel cut what is sent next, `len` bytes, into datagrams of `segment` bytes; 0: not at all.
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

    fn open(spec: &PathSpec, connected: bool) -> Result<TxSocket, LinkError> {
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
    pub(super) fn of(fd: Fd, port: u16, connected: bool) -> TxSocket {
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
    fn suits(&self, remote: IpAddr, range: u32) -> bool {
        let carries = self.carries.lock().unwrap_or_else(|e| e.into_inner());
        carries.iter().all(|&(r, q)| r != remote || q == range)
    }

    fn take(&self, remote: IpAddr, range: u32) {
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

/// What sockets cannot share: local address, interface, traffic class, hop limit.
type Group = (IpAddr, u32, u8, u8);

/// A sending socket, and since when no route uses it.
struct Kept {
    group: Group,
    socket: Arc<TxSocket>,
    idle: Option<Instant>,
}

/// The sending sockets of a process; they close a while after the last route that uses them.
#[derive(Default)]
pub(crate) struct TxSockets {
    kept: Vec<Kept>,
    source_ports: Option<Arc<SourcePorts>>,
}

impl TxSockets {
    /// Whose ports are noted there.
    pub(crate) fn noted_in(source_ports: Arc<SourcePorts>) -> TxSockets {
        TxSockets {
            kept: Vec::new(),
            source_ports: Some(source_ports),
        }
    }

    /// The socket for a path (whose `dest_qpn` is the first of its range).
    pub(crate) fn choose(&mut self, spec: &PathSpec) -> Result<Arc<TxSocket>, LinkError> {
        if spec.local.is_ipv4() != spec.remote.is_ipv4() {
            return Err(LinkError::Io {
                what: "set up a path between an IPv4 and an IPv6 address",
                source: io::Error::from_raw_os_error(libc::EAFNOSUPPORT),
            });
        }
        let group = (
            spec.local,
            spec.scope_id,
            spec.traffic_class,
            spec.hop_limit,
        );
        let range = spec.dest_qpn;
        let of_group = self.kept.iter().filter(|kept| kept.group == group);
        let (connected, shared): (Vec<_>, Vec<_>) = of_group
            .map(|kept| &kept.socket)
            .partition(|socket| socket.connected());
        // A connected one has no use but for its own path.
        let connected = connected.iter().filter(|socket| is_in_use(socket)).count();
        let connect = spec.remote.is_ipv6() && connected < PORTS;
        let own = connect.then(|| TxSocket::open(spec, true)).transpose()?;
        let suits = shared.iter().find(|s| s.suits(spec.remote, range));
        let socket = match (own, suits) {
            (Some(own), _) if own.connected() => self.keep(group, own)?,
            // There is no way to the peer now. When there is one, it is the unconnected way.
            (_, Some(socket)) => Arc::clone(socket),
            (Some(own), None) if shared.len() < PORTS => self.keep(group, own)?,
            (None, None) if shared.len() < PORTS => {
                self.keep(group, TxSocket::open(spec, false)?)?
            }
            _ => shared[(range >> crate::registry::RANGE_BITS) as usize % shared.len()].clone(),
        };
        socket.take(spec.remote, range);
        Ok(socket)
    }

    fn keep(&mut self, group: Group, socket: TxSocket) -> Result<Arc<TxSocket>, LinkError> {
        if let Some(source_ports) = &self.source_ports {
            let noted = source_ports.note(&socket.from(group.0));
            noted.map_err(LinkError::io("note whose a UDP socket is"))?;
        }
        let socket = Arc::new(socket);
        self.kept.push(Kept {
            group,
            socket: socket.clone(),
            idle: None,
        });
        Ok(socket)
    }

    /// Closes sockets that no route has used for a while, and the longest unused of many.
    pub(crate) fn tidy(&mut self) {
        let mut idle = 0;
        for kept in &mut self.kept {
            match is_in_use(&kept.socket) {
                true => kept.idle = None,
                false => {
                    idle += 1;
                    kept.idle.get_or_insert_with(Instant::now);
                }
            }
        }
        if idle == 0 {
            return;
        }
        let mut too_many = usize::saturating_sub(idle, PORTS);
        // The oldest come first, as good as.
        for kept in self.kept.extract_if(.., |kept| {
            let goes = kept
                .idle
                .is_some_and(|since| too_many > 0 || since.elapsed() >= LINGER);
            too_many -= usize::from(goes && too_many > 0);
            goes
        }) {
            if let Some(source_ports) = &self.source_ports {
                source_ports.forget(&kept.socket.from(kept.group.0));
            }
        }
    }
}

/// Some route has it.
fn is_in_use(socket: &Arc<TxSocket>) -> bool {
    Arc::strong_count(socket) > 1
}

/// Multicast leaves by the interface of the source address. IPv4 finds that by the address that the socket is bound to.
fn choose_interface(fd: &Fd, spec: &PathSpec) -> Result<(), LinkError> {
    if spec.remote.is_ipv4() || !spec.remote.is_multicast() {
        return Ok(());
    }
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF);
    sys::set_option(fd, level, name, spec.scope_id as i32)
        .map_err(LinkError::io("choose the interface of multicast"))
}

/// Is the remote address one of this host's?
pub(crate) fn is_local(spec: &PathSpec) -> bool {
    is_own_address(spec.remote.to_canonical(), spec.scope_id)
}

/// Is the address, one of that interface if it is link-local, one of this host's?
pub(crate) fn is_own_address(ip: IpAddr, scope_id: u32) -> bool {
    if ip.is_multicast() || ip.is_unspecified() {
        return false;
    }
    let remote = crate::path::with_scope(ip, 0, scope_id);
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

/// Sockets may be bound to addresses of other hosts (`net.ipv4.ip_nonlocal_bind`), so that it says nothing.
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

/// `/proc/net/fib_trie`: a line `|-- ADDRESS` per prefix, and behind it `/LEN SCOPE TYPE` per route.
fn is_local_in_trie(trie: &str, ip: std::net::Ipv4Addr) -> bool {
    let mut prefix = 0;
    trie.lines().any(|line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            prefix = address.parse::<std::net::Ipv4Addr>().map_or(0, u32::from);
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

/// A way leads to the peer. The socket is connected to it, for questions only: nothing is sent from it.
pub(crate) fn way(spec: &PathSpec) -> io::Result<Fd> {
    let remote = spec.remote_socket_addr();
    let family = if remote.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let fd = sys::socket(family, libc::SOCK_DGRAM)?;
    sys::bind(&fd, &Addr::inet(&spec.local_socket_addr(0)))?;
    choose_interface(&fd, spec).map_err(io::Error::other)?;
    sys::connect(&fd, &Addr::inet(&remote))?;
    Ok(fd)
}

/// What the kernel knows of the path MTU, IP header included: no more than the interface's, and less where ICMP said so. An
/// error says nothing of the way: under qemu's user mode nobody answers this.
pub(crate) fn path_mtu(spec: &PathSpec) -> io::Result<u32> {
    let (level, option) = if spec.remote_socket_addr().is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    let mtu = sys::get_option(&way(spec)?, level, option)?;
    mtu.try_into().map_err(io::Error::other)
}

/// What the kernel has learned of the path MTU between two addresses, neither of them link-local: the longest IP packet, bytes.
pub fn learned_mtu(local: IpAddr, remote: IpAddr) -> Option<u32> {
    path_mtu(&PathSpec {
        local,
        scope_id: 0,
        remote,
        dest_qpn: 0,
        traffic_class: 0,
        hop_limit: 0,
    })
    .ok()
}
