//! Paths: the two ends of a flow, and what sending along it needs.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rnic_wire::ip::{IpUdp, PreparedHeaders};
use rnic_wire::{Flow, IcrcContext, ROCE_PORT};

use super::socket::TxSocket;
use rnic_host::addresses::with_scope;
use rnic_host::qp1::QP1;
use rnic_host::registry::range_of;
use rnic_sys::Addr;

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
    /// With IPv4-mapped addresses as IPv4 and the QPN cut to its range, but for QP 1: what decides
    /// where packets go, and how. Soft-RoCE's queue pairs have numbers from 17 on, in QP 1's range.
    pub(crate) fn key(&self) -> PathSpec {
        let dest_qpn = match self.dest_qpn {
            QP1 => QP1,
            qpn => range_of(qpn) << rnic_host::registry::RANGE_BITS,
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

/// Low bits of a [`PathId`]: the place; the rest: how often the place was used before, so that a
/// stale id finds nothing.
const PLACE_BITS: u32 = 20;

impl PathId {
    /// Places that there are.
    pub(crate) const PLACES: usize = 1 << PLACE_BITS;

    /// Of a place, and of what [`next_generation`](PathId::next_generation) made of it.
    pub(crate) fn new(generation: u32, place: usize) -> PathId {
        PathId(generation << PLACE_BITS | place as u32)
    }

    #[inline]
    pub(crate) fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    /// Of the place's next use; it comes round.
    pub(crate) fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << (32 - PLACE_BITS)) - 1)
    }
}

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
    /// Of the packets that leave past the network stack. Elsewhere, as what other ways need of a
    /// route is to lie close together.
    headers: OnceLock<Box<PreparedHeaders>>,
    to: Option<Addr>,
    gso: AtomicBool,
    /// Not even what is no longer than UDP_SEGMENT may leave with it.
    bare: AtomicBool,
    /// Packets that might pass the network stack were left to the socket last.
    in_rows: AtomicBool,
    /// The tap interface by which the kernel takes runs for it; 0: none, runs leave as its routes
    /// say.
    tap: AtomicU32,
}

impl Route {
    pub(crate) fn new(
        spec: &PathSpec,
        socket: Arc<TxSocket>,
        gso: bool,
        local: bool,
        for_queue_pairs: bool,
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
            headers: OnceLock::new(),
            gso: AtomicBool::new(gso),
            bare: AtomicBool::new(false),
            in_rows: AtomicBool::new(false),
            tap: AtomicU32::new(0),
        }
    }

    /// Most bytes of one run: what a UDP datagram can be.
    pub fn max_run_bytes(&self) -> usize {
        match self.flow.dst {
            IpAddr::V4(_) => 65_535 - 28,
            IpAddr::V6(_) => 65_535 - 48,
        }
    }

    /// Its packets may go past the kernel's network stack: to queue pairs of another host, by
    /// addresses that say where that is (link-local ones do not without their interface).
    #[inline]
    pub(crate) fn may_pass_network_stack(&self) -> bool {
        let link_local = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let Flow { src, dst, .. } = self.flow;
        self.for_queue_pairs && !self.local && !link_local(src) && !link_local(dst)
    }

    /// The headers of its packets where no socket writes them. `default_hop_limits`: see
    /// [`default_hop_limits`].
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

    /// The number of the tap interface by which runs of several packets leave, if they need one.
    #[inline]
    pub(crate) fn tap(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.tap.load(Ordering::Relaxed))
    }

    pub(crate) fn set_tap(&self, ifindex: Option<NonZeroU32>) {
        let ifindex = ifindex.map_or(0, NonZeroU32::get);
        self.tap.store(ifindex, Ordering::Relaxed);
    }

    /// Lone packets leave without what a run to another peer left in UDP_SEGMENT.
    pub(crate) fn leaves_bare(&self) -> bool {
        self.bare.load(Ordering::Relaxed)
    }

    /// One was refused: they are to. False: it left without, or that is known already.
    ///
    /// The kernel looks at UDP_SEGMENT even where there is nothing to cut: whether a segment fits
    /// the path's MTU (before Linux 6.14), whether the device sums up datagrams (before 6.11),
    /// whether there is IPsec.
    #[cold]
    pub(crate) fn leave_bare(&self) -> bool {
        self.socket.is_cutting() && !self.bare.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(crate) mod tests;
