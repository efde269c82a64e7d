//! A simulated port's rings: the same as those of a process (`shm`), to other processes of its
//! simulated host, all of which are in this process.

use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_host::QP1;
use rnic_settings::HostPath;
use rnic_sys::process::Span;
use rnic_wire::PathMtu;

use super::membership::SimulatedMembership;
use super::{AddressVector, PathId, SimulatedPort};
use crate::shm::by_value::{MOST_BY_VALUE, Vacant};
use crate::shm::{Copies, Forgotten, Received, RingId, Room, ShmPath, ShmRoute};
use crate::shm::{SimulatedProcess, Size, Surroundings};
use crate::{CmaWindow, Grant, GrantName, LinkError};

/// Rings are looked after so often, ns.
const MAINTAINED_EVERY: u64 = 1_000_000_000;

/// All rings of a simulated process.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) shm: ShmPath,
    process: Arc<SimulatedProcess>,
    /// When they are looked after next.
    maintain_at: u64,
}

impl Rings {
    /// Those of a process; `None`: it exchanges packets only.
    pub(super) fn open(
        membership: &SimulatedMembership,
        process: &Arc<SimulatedProcess>,
        host_path: HostPath,
    ) -> Result<Option<Rings>, LinkError> {
        if host_path == HostPath::Off {
            return Ok(None);
        }
        let (dir, path) = membership.folder();
        let one_sided = host_path == HostPath::On;
        let on = Surroundings::Simulated(process.clone());
        Ok(Some(Rings {
            shm: ShmPath::open(dir, path, membership.first(), one_sided, on)?,
            process: process.clone(),
            maintain_at: 0,
        }))
    }

    /// The process is killed. Gives what is left in memory, which has to stay as long as others may
    /// look there.
    pub(super) fn die(self) -> Option<Forgotten> {
        self.process.die();
        self.shm.abandon()
    }
}

/// What only a port with rings has.
impl SimulatedPort {
    /// The way by a ring to where a new path leads.
    pub(super) fn new_route(&mut self, spec: &AddressVector) -> Option<ShmRoute> {
        let AddressVector::RoceV2(spec) = spec else {
            return None;
        };
        let (rings, membership) = (self.rings.as_mut()?, self.membership.as_ref()?);
        if spec.dest_qpn == QP1 || !self.config.addresses.contains(&spec.remote) {
            return None;
        }
        let (number, own) = membership.number_of(spec.dest_qpn)?;
        rings.shm.route(membership.folder(), number, own, spec)
    }

    #[inline]
    pub(super) fn route(&self, id: PathId) -> Option<ShmRoute> {
        self.known_path(id)?.route
    }

    /// Room for a packet, if it may go by a ring.
    pub(super) fn room_in_ring(&mut self, id: PathId, len: usize) -> Option<Room> {
        let route = self.route(id)?;
        let shm = &mut self.rings.as_mut()?.shm;
        Some(shm.room(route, Size::plain(len), self.now, &mut self.counters))
    }

    fn way(&self, id: PathId) -> Option<(&ShmPath, ShmRoute)> {
        Some((&self.rings.as_ref()?.shm, self.route(id)?))
    }

    pub(in crate::port) fn is_by_memory(&self, id: PathId) -> bool {
        self.way(id).is_some()
    }

    pub(in crate::port) fn most_by_value(&self, id: PathId) -> usize {
        match self.way(id) {
            Some((shm, route)) if shm.is_open(route) => MOST_BY_VALUE,
            _ => 0,
        }
    }

    pub(in crate::port) fn multi_psn_packet(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
    ) -> Option<&mut [u8]> {
        Some(self.multi_psn_room(path, (headers, payload), mtu)?.packet())
    }

    pub(in crate::port) fn vacant(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
        place: impl FnOnce(&Vacant<'_>) -> bool,
    ) -> Option<&mut [u8]> {
        self.multi_psn_room(path, (headers, payload), mtu)?
            .vacant(place)
    }

    fn multi_psn_room(
        &mut self,
        path: PathId,
        (front, detached): (usize, usize),
        mtu: PathMtu,
    ) -> Option<&mut ShmPath> {
        if !self.lives_on() {
            return None;
        }
        let route = self.route(path)?;
        let shm = &mut self.rings.as_mut()?.shm;
        let long = (Size { front, detached }, mtu);
        let room = shm.room_by_value(route, long, self.now, &mut self.counters);
        (self.by_ring, self.blocked) = (room == Room::Yes, self.blocked | (room == Room::Full));
        self.by_ring.then_some(shm)
    }

    pub(in crate::port) fn may_go_by_reference(&self, path: PathId) -> bool {
        self.way(path)
            .is_some_and(|(shm, route)| shm.may_go_by_reference(route))
    }

    pub(in crate::port) fn by_reference(
        &mut self,
        path: PathId,
        headers: usize,
        (qpn, mtu): (u32, PathMtu),
        pieces: &[Span],
    ) -> Option<&mut [u8]> {
        if !self.lives_on() {
            return None;
        }
        let route = self.route(path)?;
        let shm = &mut self.rings.as_mut()?.shm;
        let what = (qpn, mtu, pieces);
        let room = shm.room_by_reference(route, headers, what, self.now, &mut self.counters);
        (self.by_ring, self.blocked) = (room == Room::Yes, self.blocked | (room == Room::Full));
        self.by_ring.then(|| shm.packet())
    }

    pub(in crate::port) fn cma_window(&mut self, path: PathId) -> Option<Arc<CmaWindow>> {
        let route = self.route(path)?;
        self.rings.as_mut()?.shm.cma_window(route)
    }

    pub(in crate::port) fn is_drained(&self, path: PathId) -> bool {
        self.way(path)
            .is_some_and(|(shm, route)| shm.is_drained(route))
    }

    pub(in crate::port) fn grant(&mut self, ring: RingId, grant: &Grant) {
        if let Some(rings) = &mut self.rings {
            rings.shm.grant(ring, grant);
        }
    }

    pub(in crate::port) fn revoke(&mut self, which: impl Fn(&GrantName) -> bool) -> Copies {
        let rings = self.rings.as_mut();
        rings.map_or(Copies::default(), |rings| rings.shm.revoke(&which))
    }

    pub(in crate::port) fn expect_another(&mut self, follows: bool) {
        if let Some(rings) = &mut self.rings {
            rings.shm.expect_another(follows);
        }
    }

    pub(in crate::port) fn wake_unwoken(&mut self) {
        if self.lives_on()
            && let Some(rings) = &mut self.rings
        {
            rings.shm.wake_unwoken(&mut self.counters);
        }
    }

    pub(in crate::port) fn lose_what_stopped_peers_leave(&mut self, lose: bool) {
        if let Some(rings) = &mut self.rings {
            rings.shm.lose_what_stopped_peers_leave(lose);
        }
    }

    /// Publishes what was built for rings. False: packets wait for `flush`.
    pub(in crate::port) fn publish(&mut self) -> bool {
        self.flush_rings();
        self.staged.is_empty()
    }

    pub(super) fn flush_rings(&mut self) {
        let has_pending = self.rings.as_ref().is_some_and(|r| r.shm.has_pending());
        // Between what was put into a ring and the look whether its consumer sleeps.
        if has_pending
            && self.lives_on()
            && let Some(rings) = &mut self.rings
        {
            rings.shm.flush(&mut self.counters);
        }
    }
}

/// Sleep, and who wakes whom.
impl SimulatedPort {
    pub(in crate::port) fn set_time(&mut self, now_ns: u64) {
        self.now = now_ns;
    }

    pub(in crate::port) fn leave_to_polling(&mut self, polled: bool) {
        if let Some(rings) = &mut self.rings {
            rings.shm.set_polled(polled);
        }
    }

    pub(in crate::port) fn fall_asleep(&mut self) -> bool {
        let rings = self.rings.as_mut();
        let left = rings.is_some_and(|rings| rings.shm.fall_asleep());
        left || self.has_packets()
    }

    pub(in crate::port) fn woken(&mut self, now_ns: u64, wake_readable: bool) {
        self.now = now_ns;
        if wake_readable && let Some(rings) = &mut self.rings {
            rings.shm.heed(&mut self.counters);
        }
    }

    pub(in crate::port) fn wake_fd(&self) -> RawFd {
        let rings = self.rings.as_ref();
        rings.map_or(-1, |rings| rings.shm.wake_fd())
    }

    pub(in crate::port) fn handover_fds(&self) -> Vec<RawFd> {
        let listener = self.rings.as_ref().map(|rings| rings.shm.listener_fd());
        listener.into_iter().collect()
    }

    pub(in crate::port) fn maintain(&mut self, now_ns: u64) -> u64 {
        let Some(rings) = &mut self.rings else {
            return u64::MAX;
        };
        self.now = now_ns;
        if now_ns >= rings.maintain_at {
            rings.maintain_at = now_ns.saturating_add(MAINTAINED_EVERY);
            rings.shm.maintain();
            rings.shm.attend(&mut self.counters);
        }
        rings.maintain_at - now_ns
    }

    pub(in crate::port) fn peer_is_stopped(
        &self,
        path: PathId,
        qpn: u32,
        srq: Option<u32>,
    ) -> bool {
        let of_peer = Some(qpn).filter(|_| self.is_of_this_host(path));
        let mut numbers = of_peer.into_iter().chain(srq);
        numbers.any(|number| self.owner_is_stopped(number))
    }

    /// The process that has that QPN is another one of this host, and stopped.
    pub(in crate::port) fn owner_is_stopped(&self, qpn: u32) -> bool {
        let owner = || {
            let (number, _) = self.membership.as_ref()?.number_of(qpn)?;
            Some(self.process.as_ref()?.is_stopped(number))
        };
        owner().unwrap_or(false)
    }
}

/// Death.
impl SimulatedPort {
    /// A step that the process may not survive. False: it is dead.
    #[inline]
    pub(super) fn lives_on(&mut self) -> bool {
        let lives = self.wire.queues().lives_on();
        if !lives && !self.is_dead {
            self.abandon();
        }
        lives
    }

    /// Takes in up to about `budget` packets of the rings.
    pub(super) fn receive_from_rings(
        &mut self,
        budget: usize,
        deliver: &mut crate::shm::Deliver<'_>,
    ) -> usize {
        let SimulatedPort {
            rings: Some(rings),
            wire,
            ranges,
            counters,
            now,
            ..
        } = self
        else {
            return 0;
        };
        let budget = budget.min(wire.queues().quota);
        let owns = |qpn| super::is_within(ranges, qpn);
        // It may die before a packet is executed, and between that and its acknowledgement.
        let mut deliver = |received: &Received<'_>| {
            if !wire.queues().lives_on() {
                return std::ops::ControlFlow::Break(());
            }
            let taken = deliver(received);
            match wire.queues().lives_on() {
                true => taken,
                false => std::ops::ControlFlow::Break(()),
            }
        };
        let taken = rings
            .shm
            .receive(*now, budget, &owns, counters, &mut deliver);
        if wire.queues().is_dead {
            self.abandon();
        }
        taken
    }
}
