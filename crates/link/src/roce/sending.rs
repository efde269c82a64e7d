//! Paths, and packets that leave on them.

use rnic_wire::{ICRC_LEN, PathMtu};

use super::{Live, RoceLink};
use crate::shm::by_value::{MOST_BY_VALUE, Vacant};
use crate::shm::{Room, ShmPath, Size};
use crate::staging::path::{PathId, PathSpec, Route};
use crate::xdp::Filter;
use crate::{Gso, LinkError, next_hop, udp};
use rnic_sys::process::Span;

/// Full packets past the network stack that a queue pair builds before it lets them leave.
const PIPELINED: usize = 8;

impl RoceLink {
    /// Sets up (or finds again) a path; counted, give it back with `release_path`.
    pub fn path(&mut self, spec: &PathSpec) -> Result<PathId, LinkError> {
        let Some(live) = &mut self.live else {
            return Err(LinkError::Io {
                what: "set up a path",
                source: std::io::ErrorKind::NotConnected.into(),
            });
        };
        let gso = live.gso;
        let gso = |local| match gso {
            Gso::On => true,
            Gso::Off => false,
            Gso::LocalOnly => local,
        };
        let (membership, shm) = (&live.membership, &mut live.shm);
        let path = live.paths.open(spec, gso, |key| {
            let (number, own) = membership.number_of(key.dest_qpn)?;
            shm.as_mut()?.route(membership.folder(), number, own, key)
        })?;
        if let Some(xdp) = &mut live.xdp
            && let Some(route) = live.paths.route(path)
        {
            xdp.add_path(route, live.paths.is_new(path));
        }
        Ok(path)
    }

    /// Gives a path back.
    pub fn release_path(&mut self, path: PathId) {
        let Some(live) = &mut self.live else { return };
        if let Some(xdp) = &mut live.xdp
            && let Some(route) = live.paths.route(path)
        {
            xdp.remove_path(route);
        }
        if let Some(route) = live.paths.release(path)
            && let Some(shm) = &mut live.shm
        {
            shm.release(route);
        }
    }

    /// Packets of this path go through memory, not through a socket.
    #[inline]
    pub fn is_by_memory(&self, path: PathId) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.paths.shm(path)).is_some()
    }

    /// It leads to an address of this host.
    pub fn is_of_this_host(&self, path: PathId) -> bool {
        let route = self.live.as_ref().and_then(|live| live.paths.route(path));
        route.is_some_and(|route| route.local && !route.flow.dst.is_multicast())
    }

    /// So many bytes of packets of `len` bytes each, without their ICRCs, leave in one system call;
    /// `None` if each leaves by itself.
    #[inline]
    pub fn batch_bytes(&self, path: PathId, len: usize) -> Option<usize> {
        let live = self.live.as_ref()?;
        let ways = live.paths.get(path).filter(|ways| ways.shm.is_none())?;
        let route = &ways.route;
        if is_past_network_stack(live, route) && !leaves_rows(live, route) {
            return Some(PIPELINED * len);
        }
        let fit = route.max_run_bytes() / (len + ICRC_LEN);
        let packets = fit.min(live.link.max_segments(route));
        (packets > 1).then_some(packets * len)
    }

    /// Packets of this path go past the kernel's network stack, as long as it knows the neighbour.
    #[inline]
    pub fn is_past_network_stack(&self, path: PathId) -> bool {
        let live = self.live.as_ref();
        live.is_some_and(|live| {
            let route = live.paths.route(path);
            route.is_some_and(|route| is_past_network_stack(live, route))
        })
    }

    /// Packets of this path come to sockets of processes of this host, or (multicast) of this host
    /// too.
    #[inline]
    pub fn is_local(&self, path: PathId) -> bool {
        let Some(live) = &self.live else { return false };
        let ways = live.paths.get(path).filter(|ways| ways.route.local);
        ways.is_some_and(|ways| {
            let shm = ways.shm.zip(live.shm.as_ref());
            shm.is_none_or(|(route, shm)| !shm.is_open(route))
        })
    }

    /// Bytes that wait in the fullest receive buffer of the host's processes, of twice
    /// [`receive_buffer`] that fit; 0 if unknown. Takes some ten microseconds.
    ///
    /// [`receive_buffer`]: RoceLink::receive_buffer
    pub fn host_backlog(&mut self) -> usize {
        self.live.as_mut().map_or(0, |live| live.backlog.most())
    }

    /// A way leads to the peer.
    ///
    /// # Errors
    /// There is none, or the system is [short](crate::shortage) of something.
    pub fn has_way(&self, spec: &PathSpec) -> std::io::Result<()> {
        udp::tx::way(spec).map(drop)
    }

    /// The way to the peer takes IP packets of `len` bytes, as far as this host's interfaces and
    /// routes go.
    ///
    /// # Errors
    /// The longest that it takes, bytes.
    pub fn takes(&self, spec: &PathSpec, len: u32) -> Result<(), u32> {
        match udp::tx::path_mtu(spec) {
            Ok(known) if known < len => {
                let (local, remote) = (spec.local.to_canonical(), spec.remote.to_canonical());
                let longest = next_hop::longest_packet(local, remote, spec.scope_id);
                match longest.unwrap_or(known) {
                    longest if longest < len => Err(longest),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The most payload of one multi-PSN packet of this path; 0: there are none.
    #[inline]
    pub fn most_by_value(&self, path: PathId) -> usize {
        let Some(live) = &self.live else { return 0 };
        let route = live.paths.shm(path);
        let shm = route.zip(live.shm.as_ref());
        match shm {
            Some((route, shm)) if shm.is_open(route) => MOST_BY_VALUE,
            _ => 0,
        }
    }

    /// [`packet`](RoceLink::packet) for a multi-PSN packet, which is longer than that path
    /// MTU. `None` as well if the path takes none any more.
    pub fn multi_psn_packet(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
    ) -> Option<&mut [u8]> {
        Some(self.multi_psn_room(path, headers, payload, mtu)?.packet())
    }

    /// The same in two parts: room for the headers, and for the payload in its place. `None` as
    /// well if it would be lost.
    pub fn vacant(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
        place: impl FnOnce(&Vacant<'_>) -> bool,
    ) -> Option<&mut [u8]> {
        self.multi_psn_room(path, headers, payload, mtu)?
            .vacant(place)
    }

    fn multi_psn_room(
        &mut self,
        path: PathId,
        headers: usize,
        payload: usize,
        mtu: PathMtu,
    ) -> Option<&mut ShmPath> {
        let live = self.live.as_mut()?;
        let route = live.paths.shm(path)?;
        let shm = live.shm.as_mut()?;
        let size = Size {
            front: headers,
            detached: payload,
        };
        match shm.room_by_value(route, (size, mtu), live.now, &mut self.counters) {
            Room::Yes => {
                live.by_shm = true;
                Some(shm)
            }
            Room::Full => {
                live.blocked = true;
                None
            }
            Room::Gone => None,
        }
    }

    /// The payload of the next long packet of this path may go by reference: the packet says where
    /// it is. To be asked once for each.
    #[inline]
    pub fn may_go_by_reference(&self, path: PathId) -> bool {
        let Some(live) = &self.live else {
            return false;
        };
        let route = live.paths.shm(path);
        let shm = route.zip(live.shm.as_ref());
        shm.is_some_and(|(route, shm)| shm.may_go_by_reference(route))
    }

    /// As [`packet`](RoceLink::packet), for the headers of a packet of queue pair `qpn`, of that
    /// path MTU, whose payload the peer copies from `pieces` of this process's memory, at most
    /// [`MOST_PIECES`](crate::MOST_PIECES) and [`MOST_BY_REFERENCE`](crate::MOST_BY_REFERENCE)
    /// bytes of them. Until it is acknowledged, or [`CmaWindow::withdraw`](crate::CmaWindow) was
    /// called, that memory has to stay as it is. `None` as well if no payload of the path may go by
    /// reference any more.
    pub fn by_reference(
        &mut self,
        path: PathId,
        headers: usize,
        (qpn, mtu): (u32, PathMtu),
        pieces: &[Span],
    ) -> Option<&mut [u8]> {
        let live = self.live.as_mut()?;
        let route = live.paths.shm(path)?;
        let shm = live.shm.as_mut()?;
        let (now, counters) = (live.now, &mut self.counters);
        match shm.room_by_reference(route, headers, (qpn, mtu, pieces), now, counters) {
            Room::Yes => {
                live.by_shm = true;
                Some(shm.packet())
            }
            Room::Full => {
                live.blocked = true;
                None
            }
            Room::Gone => None,
        }
    }

    /// Room for one packet of `len` bytes (BTH .. last pad byte; the link adds the ICRC), with
    /// arbitrary content; `None`: flush first, or, if [`take_blocked`](RoceLink::take_blocked) says
    /// so, wait. A packet of a path that was given back is lost.
    #[inline]
    pub fn packet(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        let live = self.live.as_mut()?;
        let ways = live.paths.get(path);
        live.by_shm = false;
        if let Some(route) = ways.and_then(|ways| ways.shm)
            && let Some(shm) = &mut live.shm
        {
            match shm.room(route, Size::plain(len), live.now, &mut self.counters) {
                Room::Yes => {
                    live.by_shm = true;
                    return Some(shm.packet());
                }
                Room::Full => {
                    live.blocked = true;
                    return None;
                }
                Room::Gone => {}
            }
        }
        let route = ways.map(|ways| &ways.route);
        if route.is_some_and(|route| route.socket.is_full()) {
            live.blocked = true;
            return None;
        }
        let segments = route.map_or(1, |route| live.link.max_segments(route));
        live.batch.packet(route, len, segments)
    }

    /// [`packet`](RoceLink::packet) for a row of them, at most `most`, which `build` fills in one
    /// after the other, until it says false and the last is taken back; how many. Fewer than it
    /// wanted: as `None` there.
    #[inline]
    pub fn row(
        &mut self,
        path: PathId,
        len: usize,
        most: usize,
        mut build: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        for count in 0..most {
            let Some(packet) = self.packet(path, len) else {
                return count;
            };
            if !build(packet) {
                self.retract();
                return count;
            }
            if count == 0
                && let Some(live) = &mut self.live
                && !live.by_shm
            {
                // The rest of it goes the same way.
                let route = live.paths.route(path);
                let segments = route.map_or(1, |route| live.link.max_segments(route));
                return 1 + live.batch.row(route, len, segments, most - 1, build);
            }
        }
        most
    }

    /// Takes a short packet, BTH to last pad byte: through shared memory it leaves at once, by a
    /// socket with the next `flush`. False: there is no room, or it is one for
    /// [`packet`](RoceLink::packet), and nothing was done.
    #[inline(always)]
    pub fn send_short(&mut self, path: PathId, packet: &[u8]) -> bool {
        let Some(live) = &mut self.live else {
            return false;
        };
        let Some(ways) = live.paths.get(path) else {
            return false;
        };
        let route = &ways.route;
        match (ways.shm, &mut live.shm) {
            (Some(route), Some(shm)) => shm.send_short(route, packet, live.now, &mut self.counters),
            (None, _) if !route.socket.is_full() => {
                let segments = live.link.max_segments(route);
                let room = live.batch.packet(Some(route), packet.len(), segments);
                live.by_shm = false;
                room.map(|room| room.copy_from_slice(packet)).is_some()
            }
            _ => false,
        }
    }

    /// Another short packet follows right behind the next one: through shared memory its receiver
    /// is woken once for both, at the latest by [`wake_unwoken`](RoceLink::wake_unwoken), which the
    /// caller owes.
    pub fn expect_another(&mut self, follows: bool) {
        let live = self.live.as_mut();
        if let Some(shm) = live.and_then(|live| live.shm.as_mut()) {
            shm.expect_another(follows);
        }
    }

    /// Wakes the receiver of a short packet that [`expect_another`](RoceLink::expect_another) kept
    /// from waking it.
    pub fn wake_unwoken(&mut self) {
        let live = self.live.as_mut();
        if let Some(shm) = live.and_then(|live| live.shm.as_mut()) {
            shm.wake_unwoken(&mut self.counters);
        }
    }

    /// Takes back the packet given out last.
    pub fn retract(&mut self) {
        if let Some(live) = &mut self.live {
            match &mut live.shm {
                Some(shm) if live.by_shm => shm.retract(),
                _ => live.batch.retract(),
            }
        }
    }

    /// The time, for packets that are built before the next call that has one: how long a ring is
    /// full is measured by it.
    #[inline]
    pub fn set_time(&mut self, now_ns: u64) {
        if let Some(live) = &mut self.live {
            live.now = now_ns;
        }
    }

    /// Packets are waiting for `flush`.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.batch.is_empty() || shm_has_pending(live))
    }

    /// [`packet`](RoceLink::packet) gave no room since the last call because the peer's process has
    /// to take packets from its ring first, or the network has to take those that wait for a
    /// socket: flushing does not help before [`next_timeout`](RoceLink::next_timeout), and another
    /// path may well have room.
    #[inline]
    pub fn take_blocked(&mut self) -> bool {
        self.live
            .as_mut()
            .is_some_and(|live| std::mem::take(&mut live.blocked))
    }

    /// Publishes what was built for rings. False: packets for sockets wait for `flush`.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let Some(live) = &mut self.live else {
            return true;
        };
        if let Some(shm) = &mut live.shm {
            shm.flush(&mut self.counters);
        }
        live.batch.is_empty()
    }

    /// Completes ICRCs and sends all packets built since the last flush. Never blocks; for what a
    /// full socket does not take see [`take_blocked`](RoceLink::take_blocked). What the kernel
    /// refuses is counted and lost, as on a wire.
    pub fn flush(&mut self, now_ns: u64) {
        let Some(live) = &mut self.live else { return };
        live.now = now_ns;
        if let Some(shm) = &mut live.shm {
            shm.flush(&mut self.counters);
        }
        if live.batch.is_empty() && live.link.next_timeout().is_none_or(|t| t > now_ns) {
            return;
        }
        live.batch.finish();
        live.link.send(&mut live.batch, now_ns, &mut self.counters);
        live.batch.clear();
    }

    /// When `flush` must be called for packets that were held back (a full socket, fault
    /// injection's delay and reorder), or `receive` for those that wait to be handed over.
    pub fn next_timeout(&self) -> Option<u64> {
        let live = self.live.as_ref()?;
        let hand_over = live.membership.handover().next_timeout();
        match (live.link.next_timeout(), hand_over) {
            (Some(link), Some(hand_over)) => Some(link.min(hand_over)),
            (link, hand_over) => link.or(hand_over),
        }
    }
}

#[inline]
fn is_past_network_stack(live: &Live, route: &Route) -> bool {
    live.xdp.is_some() && route.may_pass_network_stack()
}

/// Long rows of its packets take the socket nevertheless.
#[inline]
fn leaves_rows(live: &Live, route: &Route) -> bool {
    route.gso() && live.xdp.as_ref().is_some_and(Filter::leaves_rows)
}

#[inline]
fn shm_has_pending(live: &Live) -> bool {
    live.shm.as_ref().is_some_and(ShmPath::has_pending)
}
