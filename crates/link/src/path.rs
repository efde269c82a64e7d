//! Paths: the two ends of a flow, and what sending along it needs.

use std::collections::{HashMap, TryReserveError};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rnic_wire::ip::{IpUdp, PreparedHeaders};
use rnic_wire::{Flow, IcrcContext, ROCE_PORT};

use crate::LinkError;
use crate::host::HostRoute;
use crate::qp1::QP1;
use crate::registry::range_of;
use crate::source_ports::SourcePorts;
use crate::sys::Addr;
use crate::udp::tx::{self, TxSocket, TxSockets};

/// The two ends of a path and what goes into its IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathSpec {
    /// Source address (that of the GID in use).
    pub local: IpAddr,
    /// Interface of `local` when it is IPv6 link-local or `remote` an IPv6 multicast group, else 0.
    pub scope_id: u32,
    /// Destination address.
    pub remote: IpAddr,
    /// The peer's QPN: its process slot decides the UDP source port.
    pub dest_qpn: u32,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0: the system's default.
    pub hop_limit: u8,
}

impl PathSpec {
    /// With IPv4-mapped addresses as IPv4 and the QPN cut to its range, but for QP 1: what decides where packets go, and how. Soft-RoCE's
    /// queue pairs have numbers from 17 on, in QP 1's range.
    fn key(&self) -> PathSpec {
        let dest_qpn = match self.dest_qpn {
            QP1 => QP1,
            qpn => range_of(qpn) << crate::registry::RANGE_BITS,
        };
        PathSpec {
            local: self.local.to_canonical(),
            remote: self.remote.to_canonical(),
            dest_qpn,
            ..*self
        }
    }

    /// Address of the local end with this port.
    pub(crate) fn local_socket_addr(&self, port: u16) -> SocketAddr {
        with_scope(self.local.to_canonical(), port, self.scope_id)
    }

    /// Address of the remote end, port 4791.
    pub(crate) fn remote_socket_addr(&self) -> SocketAddr {
        with_scope(self.remote.to_canonical(), ROCE_PORT, self.scope_id)
    }
}

pub(crate) fn with_scope(ip: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope_id))
        }
        _ => SocketAddr::new(ip, port),
    }
}

/// An address in 64 bits, for tables by hash.
#[inline]
pub(crate) fn fold(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            bits as u64 ^ (bits >> 64) as u64
        }
    }
}

/// The system's own TTL and hop limit.
pub(crate) fn default_hop_limits() -> [u8; 2] {
    let read = |path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(64)
    };
    [
        read("/proc/sys/net/ipv4/ip_default_ttl"),
        read("/proc/sys/net/ipv6/conf/default/hop_limit"),
    ]
}

/// A path set up by [`crate::RoceLink::path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(pub u32);

/// A path resolved: socket, destination and the constant part of the ICRC.
#[derive(Debug)]
pub struct Route {
    /// Addresses and ports.
    pub flow: Flow,
    /// What the ICRC of each of its packets starts from.
    pub icrc: IcrcContext,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0: the system's default.
    pub hop_limit: u8,
    pub(crate) socket: Arc<TxSocket>,
    /// Its packets come to processes of this host, or of this host too.
    pub(crate) local: bool,
    /// They are for queue pairs, not for QP 1.
    pub(crate) for_queue_pairs: bool,
    /// They go through memory.
    pub(crate) host: Option<HostRoute>,
    /// Of the packets that leave past the network stack. Elsewhere, as what other ways need of a route is to lie close together.
    headers: OnceLock<Box<PreparedHeaders>>,
    to: Option<Addr>,
    gso: AtomicBool,
    /// Not even what is no longer than UDP_SEGMENT may leave with it.
    bare: AtomicBool,
    /// Packets that might pass the network stack were left to the socket last.
    in_rows: AtomicBool,
    /// The interface by which the kernel takes runs for it; 0: the one that its routes say.
    detour: AtomicU32,
}

impl Route {
    pub(crate) fn new(
        spec: &PathSpec,
        socket: Arc<TxSocket>,
        gso: bool,
        local: bool,
        for_queue_pairs: bool,
        host: Option<HostRoute>,
    ) -> Route {
        let flow = Flow {
            src: spec.local.to_canonical(),
            dst: spec.remote.to_canonical(),
            src_port: socket.port(),
            dst_port: ROCE_PORT,
        };
        Route {
            flow,
            icrc: IcrcContext::new(&flow),
            traffic_class: spec.traffic_class,
            hop_limit: spec.hop_limit,
            to: (!socket.connected()).then(|| Addr::inet(&spec.remote_socket_addr())),
            socket,
            local,
            for_queue_pairs,
            host,
            headers: OnceLock::new(),
            gso: AtomicBool::new(gso),
            bare: AtomicBool::new(false),
            in_rows: AtomicBool::new(false),
            detour: AtomicU32::new(0),
        }
    }

    /// Most bytes of one run: what a UDP datagram can be.
    pub fn max_run_bytes(&self) -> usize {
        match self.flow.dst {
            IpAddr::V4(_) => 65_535 - 28,
            IpAddr::V6(_) => 65_535 - 48,
        }
    }

    /// Its packets may go past the kernel's network stack: to queue pairs of another host, by addresses that say where that is
    /// (link-local ones do not without their interface).
    #[inline]
    pub(crate) fn may_pass_network_stack(&self) -> bool {
        let link_local = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let Flow { src, dst, .. } = self.flow;
        self.for_queue_pairs && !self.local && !link_local(src) && !link_local(dst)
    }

    /// The headers of its packets where no socket writes them. `default_hop_limits`: see [`default_hop_limits`].
    #[inline]
    pub(crate) fn headers(&self, default_hop_limits: [u8; 2]) -> &PreparedHeaders {
        self.headers.get_or_init(|| {
            let [v4, v6] = default_hop_limits;
            let hop_limit = match (self.hop_limit, self.flow.dst) {
                (0, IpAddr::V4(_)) => v4,
                (0, IpAddr::V6(_)) => v6,
                (limit, _) => limit,
            };
            Box::new(PreparedHeaders::new(&IpUdp {
                flow: self.flow,
                ip_id: 0,
                dont_fragment: true,
                traffic_class: self.traffic_class,
                hop_limit,
            }))
        })
    }

    /// The destination, unless the socket knows it.
    pub(crate) fn to(&self) -> Option<&Addr> {
        self.to.as_ref()
    }

    /// The kernel cuts runs towards this route.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// The kernel refused to.
    pub(crate) fn refuse_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// Packets that might pass the network stack were left to the socket last, in long rows.
    #[inline]
    pub(crate) fn goes_in_rows(&self) -> bool {
        self.in_rows.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_rows(&self, in_rows: bool) {
        self.in_rows.store(in_rows, Ordering::Relaxed);
    }

    /// The number of the interface by which runs of several packets leave, where it is not the one that the kernel's routes say.
    #[inline]
    pub(crate) fn detour(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.detour.load(Ordering::Relaxed))
    }

    pub(crate) fn set_detour(&self, ifindex: Option<NonZeroU32>) {
        let ifindex = ifindex.map_or(0, NonZeroU32::get);
        self.detour.store(ifindex, Ordering::Relaxed);
    }

    /// Lone packets leave without what a run to another peer left in UDP_SEGMENT.
    pub(crate) fn leaves_bare(&self) -> bool {
        self.bare.load(Ordering::Relaxed)
    }

    /// One was refused: they are to. False: it left without, or that is known already.
    ///
    /// The kernel looks at UDP_SEGMENT even where there is nothing to cut: whether a segment fits the path's MTU (before Linux 6.14),
    /// whether the device sums up datagrams (before 6.11), whether there is IPsec.
    #[cold]
    pub(crate) fn leave_bare(&self) -> bool {
        self.socket.is_cutting() && !self.bare.swap(true, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Addr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_inet().fmt(f)
    }
}

struct Entry {
    route: Arc<Route>,
    key: PathSpec,
    users: usize,
}

/// All paths in use, counted.
#[derive(Default)]
pub(crate) struct Paths {
    entries: Vec<(u32, Option<Entry>)>,
    free: Vec<usize>,
    by_key: HashMap<PathSpec, usize>,
    sockets: TxSockets,
}

/// Low bits of a [`PathId`]: the place; the rest: how often the place was used before, so that a stale id finds nothing.
const PLACE_BITS: u32 = 20;

impl Paths {
    /// Whose sockets are noted there.
    pub(crate) fn noted_in(source_ports: Arc<SourcePorts>) -> Paths {
        Paths {
            sockets: TxSockets::noted_in(source_ports),
            ..Paths::default()
        }
    }

    /// Closes what was not used for long.
    pub(crate) fn tidy(&mut self) {
        self.sockets.tidy();
    }

    #[inline]
    fn entry(&self, id: PathId) -> Option<&Entry> {
        let place = (id.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let (generation, entry) = self.entries.get(place)?;
        entry.as_ref().filter(|_| *generation == id.0 >> PLACE_BITS)
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Arc<Route>> {
        self.entry(id).map(|entry| &entry.route)
    }

    /// It was opened once only.
    pub(crate) fn is_new(&self, id: PathId) -> bool {
        self.entry(id).is_some_and(|entry| entry.users == 1)
    }

    /// `gso(local)`: may the kernel cut runs for it? `local`: it leads to an address of this host; `host` may then know a way
    /// through memory.
    pub(crate) fn open(
        &mut self,
        spec: &PathSpec,
        gso: impl FnOnce(bool) -> bool,
        host: impl FnOnce(&PathSpec) -> Option<HostRoute>,
    ) -> Result<PathId, LinkError> {
        let key = spec.key();
        if let Some(&place) = self.by_key.get(&key) {
            let (generation, entry) = &mut self.entries[place];
            if let Some(entry) = entry {
                entry.users += 1;
                return Ok(PathId(*generation << PLACE_BITS | place as u32));
            }
        }
        if self.by_key.len() >= 1 << PLACE_BITS {
            return Err(LinkError::Io {
                what: "set up a path",
                source: std::io::Error::from_raw_os_error(libc::ENOMEM),
            });
        }
        self.reserve_one().map_err(|_| LinkError::Io {
            what: "set up a path",
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
        })?;
        let socket = self.sockets.choose(&key)?;
        let (local, multicast) = (tx::is_local(&key), key.remote.is_multicast());
        // What the kernel cuts is steered as one, and each message to QP 1 may be for another process.
        let for_queue_pairs = key.dest_qpn != QP1;
        let gso = gso(local) && for_queue_pairs;
        let host = if local && for_queue_pairs {
            host(&key)
        } else {
            None
        };
        let entry = Entry {
            route: Arc::new(Route::new(
                &key,
                socket,
                gso,
                local || multicast,
                for_queue_pairs,
                host,
            )),
            key,
            users: 1,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() - 1
        });
        self.entries[place].1 = Some(entry);
        self.by_key.insert(key, place);
        Ok(PathId(self.entries[place].0 << PLACE_BITS | place as u32))
    }

    /// Makes room for one path more.
    fn reserve_one(&mut self) -> Result<(), TryReserveError> {
        let all = self.entries.len() + 1;
        self.entries.try_reserve(1)?;
        let more = all.saturating_sub(self.free.len());
        self.free.try_reserve(more)?;
        self.by_key.try_reserve(1)
    }

    /// Gives the way through memory that it had, if it is gone now.
    pub(crate) fn release(&mut self, id: PathId) -> Option<HostRoute> {
        let place = (id.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let (generation, slot) = self.entries.get_mut(place)?;
        let entry = slot
            .as_mut()
            .filter(|_| *generation == id.0 >> PLACE_BITS)?;
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let host = entry.route.host;
        self.by_key.remove(&entry.key);
        entry.route.socket.drop_from(&entry.key);
        *slot = None;
        *generation = (*generation + 1) & ((1 << (32 - PLACE_BITS)) - 1);
        self.free.push(place);
        self.sockets.tidy();
        host
    }
}

#[cfg(test)]
pub(crate) mod tests;
