//! The rings that this process sends through.

use std::io;
use std::sync::Arc;

use super::by_reference::{self, MOST_BY_REFERENCE, MOST_PIECES};
use super::by_value::Vacant;
use super::cma::CmaWindow;
use super::costs::Turns;
use super::ring::{Kind, MAX_RECORD, Producer, Size, Wrong};
use super::surroundings::Surroundings;
use super::{FLOW_LEN, FLOWS, Flow, RINGS};
use crate::LinkCounters;
use rnic_sys::process::Span;
use rnic_sys::{self as sys, Fd};

use rnic_wire::{ICRC_LEN, PathMtu};

/// A consumer that takes nothing for so long loses packets, unless it is stopped and what is sent
/// to it is to wait.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How often a peer whose ring is full is asked whether it lives.
const ASK_NS: u64 = 1_000_000;
/// The same of one whose ring is in use and has room.
const LOOK_NS: u64 = 10_000_000;

/// Where packets of a path go: place and generation of the ring, and the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmRoute {
    place: u16,
    flow: u16,
    generation: u32,
}

/// Whether a packet can be built now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Yes.
    Yes,
    /// Later: the consumer has not taken enough.
    Full,
    /// That ring is gone.
    Gone,
}

#[derive(Debug)]
struct Outbound {
    peer: u32,
    producer: Producer,
    /// What its process grants.
    cma: Arc<CmaWindow>,
    /// Which long packets go by reference.
    turns: Turns,
    /// `None`: to this process itself.
    connection: Option<Fd>,
    flows: Vec<Flow>,
    /// So many of them, the first, were told.
    announced: usize,
    /// Paths.
    users: usize,
    full: Option<Full>,
    /// Something was published since the last look at the flag.
    published: bool,
    /// When to ask next whether the peer lives while packets leave.
    look_at: u64,
    /// The consumer has it: until then the connection is looked at, since it may be refused.
    taken: bool,
    surroundings: Surroundings,
}

/// A ring has no room.
#[derive(Clone, Copy, Debug)]
struct Full {
    since: u64,
    /// When to ask next whether the peer lives.
    ask_at: u64,
    /// When the peer was last found stopped.
    stopped: Option<u64>,
}

/// A packet that is being built.
#[derive(Clone, Copy, Debug)]
struct Pending {
    route: ShmRoute,
    size: Size,
    /// The sender's path MTU, if its payload lies apart or goes by reference.
    mtu: Option<PathMtu>,
    /// Of its front, what is in front of the headers of a packet by reference, and how many bytes
    /// it refers to.
    preface: usize,
    referenced: usize,
    /// Its detached part is in its place.
    placed: bool,
    lost: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    ring: Option<Outbound>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Outbounds {
    slots: Vec<Slot>,
    buffer: Box<[u8]>,
    pending: Option<Pending>,
    /// Places with something published.
    published: Vec<usize>,
    /// What a stopped consumer has no room for is lost after a while, too.
    pub(super) lossy: bool,
    /// A short packet wakes nobody: another follows right behind it.
    another_follows: bool,
    /// The place of the ring whose consumer was not woken for that reason.
    unwoken: Option<usize>,
    surroundings: Surroundings,
}

impl Outbounds {
    pub(super) fn on(surroundings: Surroundings) -> Outbounds {
        Outbounds {
            slots: Vec::new(),
            buffer: vec![0; MAX_RECORD].into(),
            pending: None,
            published: Vec::new(),
            lossy: false,
            another_follows: false,
            unwoken: None,
            surroundings,
        }
    }

    /// The way to a peer: `None`: there is no ring yet; `Some(None)`: it has no room for more
    /// flows.
    pub(super) fn find(&mut self, peer: u32, flow: Flow) -> Option<Option<ShmRoute>> {
        let (place, slot) = self
            .slots
            .iter_mut()
            .enumerate()
            .find(|(_, slot)| slot.ring.as_ref().is_some_and(|ring| ring.peer == peer))?;
        let generation = slot.generation;
        let ring = slot.ring.as_mut()?;
        if ring.is_over() {
            self.close(place);
            return None;
        }
        let known = ring.flows.iter().position(|f| *f == flow);
        let flow = match known {
            Some(known) => known,
            None if ring.flows.len() < FLOWS => {
                ring.flows.push(flow);
                ring.flows.len() - 1
            }
            None => return Some(None),
        };
        ring.users += 1;
        Some(Some(ShmRoute {
            place: place as u16,
            flow: flow as u16,
            generation,
        }))
    }

    /// There is a place for one more ring.
    pub(super) fn has_place(&self) -> bool {
        let is_free = |slot: &Slot| slot.ring.as_ref().is_none_or(Outbound::is_unused);
        self.slots.len() < RINGS || self.slots.iter().any(is_free)
    }

    /// Adds a ring; `None`: there are too many in use.
    pub(super) fn add(
        &mut self,
        peer: u32,
        producer: Producer,
        connection: Option<Fd>,
        cma: Arc<CmaWindow>,
    ) -> Option<()> {
        let unused = |slot: &Slot| slot.ring.as_ref().is_some_and(Outbound::is_unused);
        let free = self.slots.iter().position(|slot| slot.ring.is_none());
        let place = match free {
            Some(place) => place,
            None if self.slots.len() < RINGS => {
                self.slots.push(Slot {
                    generation: 0,
                    ring: None,
                });
                self.slots.len() - 1
            }
            None => {
                // What it holds is still taken from it.
                let place = self.slots.iter().position(unused)?;
                self.close(place);
                place
            }
        };
        self.slots[place].ring = Some(Outbound {
            peer,
            producer,
            cma,
            turns: Turns::on(&self.surroundings),
            connection,
            flows: Vec::new(),
            announced: 0,
            users: 0,
            full: None,
            look_at: 0,
            published: false,
            taken: false,
            surroundings: self.surroundings.clone(),
        });
        Some(())
    }

    fn close(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        slot.ring = None;
        slot.generation = slot.generation.wrapping_add(1);
    }

    #[inline]
    fn get(&mut self, route: ShmRoute) -> Option<&mut Outbound> {
        let slot = self.slots.get_mut(usize::from(route.place))?;
        let ring = slot.ring.as_mut()?;
        (slot.generation == route.generation).then_some(ring)
    }

    pub(super) fn cma_window(&mut self, route: ShmRoute) -> Option<Arc<CmaWindow>> {
        self.get(route).map(|ring| ring.cma.clone())
    }

    #[inline]
    pub(super) fn is_open(&self, route: ShmRoute) -> bool {
        let slot = self.slots.get(usize::from(route.place));
        slot.is_some_and(|slot| slot.generation == route.generation && slot.ring.is_some())
    }

    /// All that was put into the ring of this route was delivered.
    #[inline]
    pub(super) fn is_drained(&self, route: ShmRoute) -> bool {
        let slot = self.slots.get(usize::from(route.place));
        self.pending.is_none()
            && slot
                .filter(|slot| slot.generation == route.generation)
                .and_then(|slot| slot.ring.as_ref())
                .is_some_and(|ring| ring.producer.is_drained())
    }

    pub(super) fn release(&mut self, route: ShmRoute) {
        if let Some(ring) = self.get(route) {
            ring.users = ring.users.saturating_sub(1);
        }
    }

    #[inline]
    pub(super) fn room(
        &mut self,
        route: ShmRoute,
        size: Size,
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        self.commit(counters);
        if size.len() > MAX_RECORD {
            return Room::Gone;
        }
        let lossy = self.lossy;
        let Some(ring) = self.get(route) else {
            return Room::Gone;
        };
        // A consumer that has closed the ring takes nothing more from it, and does not say so to
        // a producer that need not wake it.
        let closed = now >= ring.look_at && {
            ring.look_at = now.saturating_add(LOOK_NS);
            ring.is_over()
        };
        if closed || !ring.taken && !ring.published && ring.is_refused() {
            self.close(usize::from(route.place));
            return Room::Gone;
        }
        let lost = match ring.make_room(route.flow, size) {
            Ok(true) => {
                ring.full = None;
                false
            }
            Ok(false) => match ring.wait(now, lossy) {
                Ok(lost) => lost,
                Err(Wrong) => {
                    self.close(usize::from(route.place));
                    return Room::Gone;
                }
            },
            Err(Wrong) => {
                counters.host_rings_wrong += 1;
                self.close(usize::from(route.place));
                return Room::Gone;
            }
        };
        // The consumer may sleep and not know of what fills its ring.
        if !lost && ring.full.is_some() {
            self.flush(counters);
            return Room::Full;
        }
        self.pending = Some(Pending {
            route,
            size,
            mtu: None,
            preface: 0,
            referenced: 0,
            placed: false,
            lost,
        });
        Room::Yes
    }

    /// The payload of the next long packet may go by reference: to be asked once for each.
    #[inline]
    pub(super) fn may_go_by_reference(&self, route: ShmRoute) -> bool {
        let slot = self.slots.get(usize::from(route.place));
        slot.filter(|slot| slot.generation == route.generation)
            .and_then(|slot| slot.ring.as_ref())
            .is_some_and(|ring| {
                ring.cma.takes_references() && ring.turns.by_reference(ring.cma.by_value_limit())
            })
    }

    /// [`Outbounds::room`] for a long packet with its payload by value.
    #[inline]
    pub(super) fn room_by_value(
        &mut self,
        route: ShmRoute,
        (size, mtu): (Size, PathMtu),
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        let room = self.room(route, size, now, counters);
        if let Some(pending) = self.pending.as_mut().filter(|_| room == Room::Yes) {
            pending.mtu = Some(mtu);
        }
        room
    }

    pub(super) fn room_by_reference(
        &mut self,
        route: ShmRoute,
        headers: usize,
        (qpn, mtu, pieces): (u32, PathMtu, &[Span]),
        now: u64,
        counters: &mut LinkCounters,
    ) -> Room {
        let referenced = pieces.iter().map(Span::len).sum();
        if pieces.len() > MOST_PIECES || referenced > MOST_BY_REFERENCE {
            return Room::Gone;
        }
        let preface = by_reference::preface_len(pieces.len());
        let size = Size::plain(preface + headers);
        let room = self.room(route, size, now, counters);
        if room != Room::Yes {
            return room;
        }
        let Some(claim) = self.get(route).map(|ring| ring.cma.claim(qpn)) else {
            self.retract();
            return Room::Gone;
        };
        by_reference::write_preface(&mut self.buffer[..preface], claim, pieces);
        if let Some(pending) = &mut self.pending {
            (pending.preface, pending.referenced) = (preface, referenced);
            pending.mtu = Some(mtu);
        }
        Room::Yes
    }

    #[inline]
    pub(super) fn packet(&mut self) -> &mut [u8] {
        let range = |pending: Pending| pending.preface..pending.size.len();
        &mut self.buffer[self.pending.map_or(0..0, range)]
    }

    /// Has the payload of the long packet that there was room for placed, and gives the room for
    /// its headers. `None`: it will be lost, or there is no such packet any more as `place` gave
    /// false.
    pub(super) fn vacant(&mut self, place: impl FnOnce(&Vacant<'_>) -> bool) -> Option<&mut [u8]> {
        let pending = self.pending.as_mut().filter(|pending| !pending.lost)?;
        let slot = self.slots.get(usize::from(pending.route.place))?;
        let ring = slot.ring.as_ref()?;
        pending.placed = true;
        let front = pending.size.front;
        if !place(&ring.vacant(pending.size)) {
            self.retract();
            return None;
        }
        Some(&mut self.buffer[..front])
    }

    pub(super) fn retract(&mut self) {
        self.pending = None;
    }

    /// Publishes a short packet and wakes the consumer if it has to be, if its ring has room and
    /// nothing else is to be seen to. False: nothing was done, [`Outbounds::room`] sees to it.
    #[inline(always)]
    pub(super) fn send_short(
        &mut self,
        route: ShmRoute,
        packet: &[u8],
        now: u64,
        counters: &mut LinkCounters,
    ) -> bool {
        if self.has_pending() {
            return false;
        }
        let another_follows = self.another_follows;
        let Some(ring) = self.get(route) else {
            return false;
        };
        let plain = now < ring.look_at
            && ring.taken
            && ring.full.is_none()
            && ring.announced > usize::from(route.flow);
        if !plain || ring.producer.has_room(Size::plain(packet.len())) != Ok(true) {
            return false;
        }
        ring.producer
            .push(Kind::Packet { flow: route.flow }, packet);
        count(counters, packet.len());
        let place = usize::from(route.place);
        if another_follows {
            self.unwoken = Some(place);
            return true;
        }
        if ring.producer.must_wake() {
            self.wake(place, counters);
        }
        true
    }

    /// The next short packet is the first of two: its consumer is woken with the second, or by
    /// [`Outbounds::wake_unwoken`].
    pub(super) fn expect_another(&mut self, follows: bool) {
        self.another_follows = follows;
    }

    /// The second has left, or does not come.
    pub(super) fn wake_unwoken(&mut self, counters: &mut LinkCounters) {
        let Some(place) = self.unwoken.take() else {
            return;
        };
        let ring = self
            .slots
            .get_mut(place)
            .and_then(|slot| slot.ring.as_mut());
        if ring.is_some_and(|ring| ring.producer.must_wake()) {
            self.wake(place, counters);
        }
    }

    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some() || !self.published.is_empty()
    }

    /// The packet that was built goes into its ring.
    #[inline]
    fn commit(&mut self, counters: &mut LinkCounters) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let place = usize::from(pending.route.place);
        // Its ring may have been closed meanwhile, and another one be in its place, which knows
        // nothing of the flow.
        let ring = match self.slots.get_mut(place) {
            Some(slot) if slot.generation == pending.route.generation => slot.ring.as_mut(),
            _ => None,
        };
        let Some(ring) = ring.filter(|_| !pending.lost) else {
            counters.tx_errors += 1;
            return;
        };
        let flow = pending.route.flow;
        let kind = match (pending.mtu, pending.preface) {
            (None, _) => Kind::Packet { flow },
            (Some(mtu), 0) => Kind::Long { flow, mtu },
            (Some(mtu), _) => Kind::Reference { flow, mtu },
        };
        let size = pending.size;
        let (front, detached) = self.buffer[..size.len()].split_at(size.front);
        if !pending.placed && size.detached > 0 {
            ring.vacant(size).write(0, detached);
        }
        ring.producer.publish(kind, size, front);
        if !ring.published {
            ring.published = true;
            self.published.push(place);
        }
        count(counters, size.len() - pending.preface + pending.referenced);
    }

    #[inline]
    pub(super) fn flush(&mut self, counters: &mut LinkCounters) {
        self.commit(counters);
        while let Some(place) = self.published.pop() {
            let Some(ring) = self.slots[place].ring.as_mut() else {
                continue;
            };
            ring.published = false;
            if ring.producer.must_wake() {
                self.wake(place, counters);
            }
        }
    }

    #[cold]
    fn wake(&mut self, place: usize, counters: &mut LinkCounters) {
        counters.tx_syscalls += 1;
        let ring = self.slots[place].ring.as_ref();
        if !ring.is_none_or(Outbound::wake) {
            self.close(place);
        }
    }

    pub(super) fn maintain(&mut self) {
        for place in 0..self.slots.len() {
            let ring = self.slots[place].ring.as_ref();
            if ring.is_some_and(Outbound::is_over) {
                self.close(place);
            }
        }
    }
}

#[inline]
fn count(counters: &mut LinkCounters, len: usize) {
    let len = (len + ICRC_LEN) as u64;
    counters.tx_packets += 1;
    counters.tx_bytes += len;
    counters.tx_host_packets += 1;
    counters.tx_host_bytes += len;
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.cma.end();
    }
}

impl Outbound {
    /// Is there room for a packet of that flow? The consumer is told of the flow before its first
    /// one.
    #[inline]
    fn make_room(&mut self, flow: u16, size: Size) -> Result<bool, Wrong> {
        while self.announced <= usize::from(flow) {
            if !self.producer.has_room(Size::plain(FLOW_LEN))? {
                return Ok(false);
            }
            let kind = Kind::Flow {
                flow: self.announced as u16,
            };
            self.producer
                .push(kind, &self.flows[self.announced].encode());
            self.announced += 1;
        }
        self.producer.has_room(size)
    }

    fn vacant(&self, size: Size) -> Vacant<'_> {
        Vacant {
            turns: Some(&self.turns),
            ..self.producer.vacant(size)
        }
    }

    /// No path leads through it, so another may have its place. The one to this process itself
    /// stays: its other end would not notice.
    fn is_unused(&self) -> bool {
        self.users == 0 && self.connection.is_some()
    }

    /// There is no room. True: the packet is lost; an error: the peer is gone.
    #[cold]
    fn wait(&mut self, now: u64, lossy: bool) -> Result<bool, Wrong> {
        let mut full = self.full.unwrap_or(Full {
            since: now,
            ask_at: now.saturating_add(ASK_NS),
            stopped: None,
        });
        let is_late = |since: u64| now.saturating_sub(since) > PATIENCE_NS;
        if now >= full.ask_at {
            if self.is_over() {
                return Err(Wrong);
            }
            full.ask_at = now.saturating_add(ASK_NS);
            // Asked only once it matters; after it has gone on it has a second, as others have.
            if is_late(full.since) && self.surroundings.is_stopped(self.peer, self.cma.pid()) {
                full.stopped = Some(now);
                full.ask_at = now.saturating_add(LOOK_NS);
            }
        }
        self.full = Some(full);
        let since = match full.stopped {
            Some(stopped) if !lossy => stopped,
            _ => full.since,
        };
        Ok(is_late(since))
    }

    /// The consumer has not shown that it has the ring, and has closed the connection.
    #[cold]
    fn is_refused(&mut self) -> bool {
        self.taken = self.connection.is_none() || self.producer.has_consumer();
        !self.taken && self.is_over()
    }

    /// The other process has closed the connection. Nothing else ever comes through it.
    fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            !sys::receive_bytes(connection, &mut [0; 8])
                .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        })
    }

    /// Wakes the consumer; false: it is gone. This process itself knows.
    #[cold]
    fn wake(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| {
            match sys::send_to(connection, &[0], None) {
                Ok(_) => true,
                // As many bytes as fit will wake it.
                Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            }
        })
    }
}
