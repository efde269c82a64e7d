//! The sending sockets.
//!
//! No IPv4 one is ever connected: a connected socket numbers its packets by a hidden counter, and
//! the ICRC would be wrong for every receiver that sees the ID. IPv6 has no ID, so there the first
//! [`PORTS`] paths get a connected socket each (it saves the route look-up, 0.3 to 0.5 us of about
//! 3.5 per packet).
//!
//! One 4-tuple carries packets for one range of QPNs, that is for one process, as far as [`PORTS`]
//! suffice: a network card's GRO merges by 4-tuple, and what it merged is steered as one.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::LinkError;
use crate::staging::path::PathSpec;
use crate::staging::socket::{TxSocket, choose_interface};
use rnic_host::source_ports::SourcePorts;
use rnic_sys::{self as sys, Addr, Fd};

/// Most unconnected sockets per local address, traffic class and hop limit, and most connected
/// ones.
pub const PORTS: usize = 16;

/// How long a socket stays when no route uses it any more: a receiver of this host may not have
/// read yet what left through it, and then asks which process it came from ([`SourcePorts`]).
const LINGER: Duration = Duration::from_secs(2);

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
    /// Ports are noted there as this process's.
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
            _ => shared[(range >> rnic_host::registry::RANGE_BITS) as usize % shared.len()].clone(),
        };
        socket.take(spec.remote, range);
        Ok(socket)
    }

    fn keep(&mut self, group: Group, socket: TxSocket) -> Result<Arc<TxSocket>, LinkError> {
        if let Some(source_ports) = &self.source_ports {
            let noted = source_ports.note(&socket.from(group.0));
            noted.map_err(LinkError::io("lock the file of source ports"))?;
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

/// A way leads to the peer. The socket is connected to it, for questions only: nothing is sent from
/// it.
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

/// What the kernel knows of the path MTU, IP header included: no more than the interface's, and
/// less where ICMP said so. An error says nothing of the way: under qemu's user mode nobody answers
/// this.
pub(crate) fn path_mtu(spec: &PathSpec) -> io::Result<u32> {
    let (level, option) = if spec.remote_socket_addr().is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    let mtu = sys::get_option(&way(spec)?, level, option)?;
    mtu.try_into().map_err(io::Error::other)
}

/// What the kernel has learned of the path MTU between two addresses, neither of them link-local:
/// the longest IP packet, bytes.
pub fn learned_mtu(local: IpAddr, remote: IpAddr) -> Option<u32> {
    path_mtu(&super::inquiry::between(local, remote)).ok()
}
