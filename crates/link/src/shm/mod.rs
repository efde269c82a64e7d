//! The host path: packets between processes of one user and host, and between queue pairs of one
//! process, go through memory.
//!
//! A process has a [`ring`] to each process that it sends to, made when the first path there is
//! opened ([`meeting`]), so a path leads through memory or through sockets from its first packet
//! on. Packets carry no ICRC: memory does not corrupt. Everything above sees the same packets as by
//! UDP, whole and in order.
//!
//! * **A full ring is no loss** but back-pressure: [`Room::Full`]. Only a consumer that runs and
//!   takes nothing for a second loses packets, as one does whose socket is full.
//! * **Receiving** costs a load per ring that was in use lately, and one for all others, which are
//!   looked at in turn. A process that does not look is woken ([`wake`]).
//! * **The other process is not trusted.** Bytes are copied before they are looked at
//!   ([`rnic_sys::segment`]), lengths are bounded, addresses must be the host's, and QPNs this
//!   process's. A ring that has nonsense in it is closed and counted; one whose process is gone is
//!   closed when what it holds was taken. What is sent then goes by UDP, or nowhere.
//! * **A long packet's payload** is copied from memory to the ring and from the ring to memory: it
//!   goes [by value](by_value).
//! * **Or once**: payload of long messages may go [by reference](by_reference), where the kernel
//!   permits it and the consumer finds it [cheaper](costs).
//! * **RDMA READ and WRITE may need no packet**: what the consumer's process [`grants`] to
//!   the producer's, that one [copies](cma) by itself, where the kernel permits it.

pub mod by_reference;
pub(crate) mod by_value;
mod claim;
pub mod cma;
mod costs;
pub(crate) mod detached;
mod granted;
pub mod grants;
mod inbound;
pub(crate) mod meeting;
mod outbound;
mod places;
mod received;
mod ring;
mod surroundings;
mod wake;

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_wire::PathMtu;

use by_value::Vacant;

use crate::staging::path::PathSpec;
use crate::{LinkCounters, LinkError};
use cma::{CmaCounters, CmaWindow};
pub use granted::Copies;
pub(crate) use granted::Forgotten;
use grants::{Grant, GrantName};
use inbound::Inbounds;
use outbound::Outbounds;
pub(crate) use outbound::{Room, ShmRoute};
pub(crate) use received::Deliver;
pub use received::{Received, RingId};
use ring::Producer;
pub(crate) use ring::Size;
use rnic_sys::process::Span;
use rnic_sys::{self as sys, Fd, FdSet};
pub(crate) use surroundings::{SimulatedProcess, SimulatedProcesses, Surroundings};

/// Most rings to others, and most from others: each takes a descriptor and half a megabyte.
const RINGS: usize = 256;
/// Most flows of a ring.
const FLOWS: usize = 256;
/// Bytes of what is said of a flow.
const FLOW_LEN: usize = 36;

/// Both ends of all packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    src: IpAddr,
    dst: IpAddr,
    /// The interface of link-local addresses.
    scope_id: u32,
}

impl Flow {
    fn of(spec: &PathSpec) -> Flow {
        Flow {
            src: spec.local.to_canonical(),
            dst: spec.remote.to_canonical(),
            scope_id: spec.scope_id,
        }
    }

    fn encode(&self) -> [u8; FLOW_LEN] {
        let v6 = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let mut out = [0; FLOW_LEN];
        out[..16].copy_from_slice(&v6(self.src));
        out[16..32].copy_from_slice(&v6(self.dst));
        out[32..].copy_from_slice(&self.scope_id.to_ne_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Flow> {
        let bytes: &[u8; FLOW_LEN] = bytes.try_into().ok()?;
        let ip = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        };
        Some(Flow {
            src: ip(0),
            dst: ip(16),
            scope_id: u32::from_ne_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]),
        })
    }

    /// Another process of this host may say that of its packets.
    fn is_of(&self, host: &Surroundings) -> bool {
        let ours = |ip| host.has_address(ip, self.scope_id);
        self.src.is_ipv4() == self.dst.is_ipv4() && ours(self.src) && ours(self.dst)
    }
}

/// All rings of a process.
#[derive(Debug)]
pub(crate) struct ShmPath {
    listener: Fd,
    /// The listener, unless `starved`.
    listening: FdSet,
    /// There was no descriptor for a process that came.
    starved: bool,
    out: Outbounds,
    inbound: Inbounds,
    cma_counters: Arc<CmaCounters>,
    surroundings: Surroundings,
}

impl ShmPath {
    /// Listens at meeting point `number` of the runtime folder.
    pub(crate) fn open(
        dir: &Fd,
        path: &std::path::Path,
        number: u32,
        one_sided: bool,
        surroundings: Surroundings,
    ) -> Result<ShmPath, LinkError> {
        let io = LinkError::io("open the host path");
        // While the process has few threads, as a rule: later it takes longer.
        sys::join_barriers();
        let open = || {
            let listener = meeting::listen(dir, path, number)?;
            let listening = FdSet::new()?;
            listening.add(&listener, 0)?;
            Ok(ShmPath {
                listener,
                listening,
                starved: false,
                out: Outbounds::on(surroundings.clone()),
                inbound: Inbounds::new(one_sided, surroundings.clone())?,
                cma_counters: Arc::default(),
                surroundings,
            })
        };
        open().map_err(io)
    }

    /// A way to the process at meeting point `number` (`own`: this one); `None`: there is none, by
    /// memory.
    pub(crate) fn route(
        &mut self,
        (dir, path): (&Fd, &std::path::Path),
        number: u32,
        own: bool,
        spec: &PathSpec,
    ) -> Option<ShmRoute> {
        if let Some(route) = self.out.find(number, Flow::of(spec)) {
            return route;
        }
        // The peer has it once it is handed out.
        if !self.out.has_place() {
            return None;
        }
        let (producer, file) = Producer::create().ok()?;
        let table = ring::grant_table_of(&file).ok()?;
        if let Some(nonce) = self.inbound.nonce() {
            table.introduce(nonce);
        }
        let (connection, pid) = if own {
            self.inbound.add_own(&file)?;
            (None, std::process::id())
        } else {
            let connection = meeting::hand_out(dir, path, number, &file).ok()?;
            let pid = sys::peer_of(&connection).map_or(0, |(_, pid)| pid);
            (Some(connection), pid)
        };
        let cma = Arc::new(CmaWindow::new(table, pid, self.cma_counters.clone()));
        self.surroundings.note(number, &cma);
        self.out.add(number, producer, connection, cma)?;
        self.out.find(number, Flow::of(spec)).flatten()
    }

    /// The route leads somewhere: its ring was not closed since.
    #[inline]
    pub(crate) fn is_open(&self, route: ShmRoute) -> bool {
        self.out.is_open(route)
    }

    /// A path that had this route is gone.
    pub(crate) fn release(&mut self, route: ShmRoute) {
        self.out.release(route);
    }

    /// The process that a route leads to.
    pub(crate) fn cma_window(&mut self, route: ShmRoute) -> Option<Arc<CmaWindow>> {
        self.out.cma_window(route)
    }

    /// See [`crate::RoceLink::is_drained`].
    #[inline]
    pub(crate) fn is_drained(&self, route: ShmRoute) -> bool {
        self.out.is_drained(route)
    }

    /// What was done without packets.
    pub(crate) fn cma_counters(&self) -> &CmaCounters {
        &self.cma_counters
    }

    /// See [`crate::RoceLink::grant`].
    pub(crate) fn grant(&mut self, ring: RingId, grant: &Grant) {
        self.inbound.grant(ring, grant);
    }

    /// See [`crate::RoceLink::revoke`].
    pub(crate) fn revoke(&mut self, which: &dyn Fn(&GrantName) -> bool) -> Copies {
        self.inbound.revoke(which)
    }

    /// Room for a packet, which [`ShmPath::packet`] then gives.
    #[inline]
    pub(crate) fn room(
        &mut self,
        route: ShmRoute,
        size: Size,
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        self.out.room(route, size, now, counters)
    }

    /// See [`crate::RoceLink::lose_what_stopped_peers_leave`].
    #[inline]
    pub(crate) fn lose_what_stopped_peers_leave(&mut self, lose: bool) {
        self.out.lossy = lose;
    }

    /// The payload of the next long packet of that route may go by reference.
    #[inline]
    pub(crate) fn may_go_by_reference(&self, route: ShmRoute) -> bool {
        self.out.may_go_by_reference(route)
    }

    /// [`ShmPath::room`] for a packet that is longer than the path MTU of its queue pair, with
    /// its payload by value.
    #[inline]
    pub(crate) fn room_by_value(
        &mut self,
        route: ShmRoute,
        long: (Size, PathMtu),
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        self.out.room_by_value(route, long, now, counters)
    }

    /// [`ShmPath::room`] for the headers of such a packet of queue pair `qpn` whose payload is at
    /// `pieces`.
    pub(crate) fn room_by_reference(
        &mut self,
        route: ShmRoute,
        headers: usize,
        what: (u32, PathMtu, &[Span]),
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        self.out
            .room_by_reference(route, headers, what, now, counters)
    }

    /// The bytes of the packet that there was room for.
    #[inline]
    pub(crate) fn packet(&mut self) -> &mut [u8] {
        self.out.packet()
    }

    /// The headers of the long packet that there was room for, and where its payload goes; `None`:
    /// it will be lost.
    pub(crate) fn vacant(&mut self, place: impl FnOnce(&Vacant<'_>) -> bool) -> Option<&mut [u8]> {
        self.out.vacant(place)
    }

    /// A short packet leaves at once; false: nothing was done.
    #[inline(always)]
    pub(crate) fn send_short(
        &mut self,
        route: ShmRoute,
        packet: &[u8],
        now: u64,
        counters: &mut LinkCounters,
    ) -> bool {
        self.out.send_short(route, packet, now, counters)
    }

    /// See [`crate::RoceLink::expect_another`].
    pub(crate) fn expect_another(&mut self, follows: bool) {
        self.out.expect_another(follows);
    }

    /// See [`crate::RoceLink::wake_unwoken`].
    pub(crate) fn wake_unwoken(&mut self, counters: &mut LinkCounters) {
        self.out.wake_unwoken(counters);
    }

    /// Takes back the packet that was given out last.
    pub(crate) fn retract(&mut self) {
        self.out.retract();
    }

    /// Publishes what was built and wakes the consumer if it has to be.
    #[inline]
    pub(crate) fn flush(&mut self, counters: &mut LinkCounters) {
        self.out.flush(counters);
    }

    /// Something was built and not published.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.out.has_pending()
    }

    /// Offers what is in the rings to `deliver`, up to about `budget` packets. Gives how many were
    /// taken.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now: u64,
        budget: usize,
        owns: &dyn Fn(u32) -> bool,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        self.inbound.receive(now, budget, owns, counters, deliver)
    }

    /// Some ring was in use lately.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.inbound.is_in_use()
    }

    /// Some ring was in use lately, and nothing is in any of those.
    #[inline]
    pub(crate) fn is_still(&self) -> bool {
        self.inbound.is_still()
    }

    /// New rings, those that wake this process, and those that are over. Takes system calls.
    pub(crate) fn attend(&mut self, counters: &mut LinkCounters) {
        if !self.starved && !self.inbound.accept(&self.listener, counters) {
            // A thread that waits for it would spin for want of a descriptor: `maintain` has it
            // looked at again.
            self.listening.remove(&self.listener);
            self.starved = true;
        }
        self.inbound.attend(counters);
    }

    /// Only those that wake this process, and those that are over.
    pub(crate) fn heed(&mut self, counters: &mut LinkCounters) {
        self.inbound.attend(counters);
    }

    /// See [`crate::RoceLink::leave_to_polling`].
    pub(crate) fn set_polled(&mut self, polled: bool) {
        self.inbound.set_polled(polled);
    }

    /// See [`crate::RoceLink::fall_asleep`].
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.inbound.fall_asleep()
    }

    /// See [`crate::RoceLink::has_arrivals`].
    pub(crate) fn has_arrivals(&self) -> bool {
        self.inbound.has_arrivals()
    }

    /// Packets that nobody will wake this process for were left: those of its own, and those beyond
    /// a budget.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.inbound.has_left()
    }

    /// Finds out which peers are gone. A process that could not be taken may be, next time.
    pub(crate) fn maintain(&mut self) {
        self.out.maintain();
        if self.starved && self.listening.add(&self.listener, 0).is_ok() {
            self.starved = false;
        }
    }

    /// The process is killed, on a simulated host: all descriptors are closed, and nothing that was
    /// built leaves. Gives what is left of it in memory, if anybody may look there.
    pub(crate) fn abandon(self) -> Option<Forgotten> {
        self.inbound.abandon()
    }

    /// Readable when a ring wakes this process.
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.inbound.wake_fd()
    }

    /// Readable when there is a new ring.
    pub(crate) fn listener_fd(&self) -> RawFd {
        self.listening.raw()
    }
}

#[cfg(test)]
mod tests;
