//! The rings that this process receives from.

use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_wire::{Bth, ICRC_LEN};

use super::by_reference::{ByReference, MOST_PIECES, Pieces, Source};
use super::detached::Detached;
use super::granted::{Copies, Forgotten, Granted, Identity, Writer};
use super::grants::{Grant, GrantName, Nonce};
use super::meeting::{self, Met};
use super::places::Places;
use super::received::{Deliver, Received, RingId};
use super::ring::{self, Consumer, Kind, MAX_RECORD, Wrong};
use super::surroundings::Surroundings;
use super::{FLOWS, Flow, RINGS};
use crate::LinkCounters;
use rnic_sys::process::Span;
use rnic_sys::{self as sys, Accepted, Fd, FdSet};

/// A ring without packets for so long is cold: it is looked at only in turn, and wakes a thread
/// that does not look.
const COOL_NS: u64 = 10_000_000;
/// Most connections that have brought no ring yet.
const SILENT: usize = 64;
/// Packets from one ring, while the application polls, after which more are taken to follow.
const STREAM: u32 = 64;
/// Packets that were there at once, after which more are taken to be.
const BEHIND: usize = 4;
/// Packets taken from one ring before the next has its turn.
const TURN: usize = 64;

#[derive(Debug)]
struct Inbound {
    /// Name in the set of connections.
    name: u64,
    consumer: Consumer,
    granted: Granted,
    /// The producer's process, if payload may come by reference.
    source: Option<Source>,
    /// `None`: from this process itself.
    connection: Option<Arc<Fd>>,
    flows: Vec<Option<Flow>>,
    last: u64,
    /// The producer knows that it need not wake.
    looked_at: bool,
    /// Packets since then, as far as they are counted.
    since: u32,
    /// The producer is gone; what it left is still taken.
    over: bool,
    /// The producer wrote nonsense.
    wrong: bool,
    surroundings: Surroundings,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Inbounds {
    rings: Vec<Inbound>,
    /// Accepted, but no ring came yet.
    silent: Vec<(u64, Fd)>,
    set: FdSet,
    names: u64,
    buffer: Box<[u8]>,
    /// Those that were in use lately.
    hot: Places,
    /// Whose turn it is.
    next: usize,
    /// The application polls, and nobody need be woken while it does.
    polled: bool,
    /// Packets were left in a ring for lack of budget.
    left: bool,
    /// `None`: nothing is granted to anybody.
    identity: Option<Identity>,
    /// Something may be granted to somebody.
    grants: bool,
    /// What was granted to those whose rings were closed in the middle of a copy.
    departing: Vec<Granted>,
    surroundings: Surroundings,
}

/// Why no more is taken from a ring.
enum End {
    Empty,
    Turn,
    Break,
    Wrong,
}

impl Inbounds {
    pub(super) fn new(one_sided: bool, surroundings: Surroundings) -> std::io::Result<Inbounds> {
        Ok(Inbounds {
            rings: Vec::new(),
            silent: Vec::new(),
            set: FdSet::new()?,
            names: 0,
            buffer: vec![0; MAX_RECORD].into(),
            hot: Places::default(),
            next: 0,
            polled: false,
            left: false,
            identity: one_sided.then(Identity::new),
            grants: false,
            departing: Vec::new(),
            surroundings,
        })
    }

    /// Where this process can be recognised, if others may reach it.
    pub(super) fn nonce(&self) -> Option<Nonce> {
        self.identity.as_ref().map(Identity::nonce)
    }

    /// Nobody recognises this process any more.
    pub(super) fn abandon(self) -> Option<Forgotten> {
        self.identity.map(Identity::forget)
    }

    pub(super) fn wake_fd(&self) -> RawFd {
        self.set.raw()
    }

    /// This process's ring to itself.
    pub(super) fn add_own(&mut self, file: &Fd) -> Option<()> {
        let consumer = Consumer::attach(file).ok()?;
        let table = ring::grant_table_of(file).ok()?;
        let granted = Granted::new(table, Writer::own(), self.surroundings.clone());
        self.add(0, consumer, granted, None);
        Some(())
    }

    /// The thread that adds it looks at it soon.
    fn add(
        &mut self,
        name: u64,
        mut consumer: Consumer,
        granted: Granted,
        connection: Option<Arc<Fd>>,
    ) {
        consumer.fall_asleep();
        let mut source = None;
        if let Some(identity) = &self.identity {
            granted.welcome(identity);
            source = granted.take_references();
        }
        let ring = Inbound {
            name,
            consumer,
            granted,
            source,
            connection,
            flows: Vec::new(),
            last: 0,
            looked_at: false,
            since: 0,
            over: false,
            wrong: false,
            surroundings: self.surroundings.clone(),
        };
        if name != 0 {
            self.hot.insert(self.rings.len());
            self.rings.push(ring);
            return;
        }
        // The own one is found at the front.
        let others = (0..self.rings.len()).map(|place| self.hot.has(place));
        self.hot = std::iter::once(true).chain(others).collect();
        self.rings.insert(0, ring);
    }

    /// Accepts the processes that came. False: there is no descriptor, and the listener stays
    /// readable.
    pub(super) fn accept(&mut self, listener: &Fd, counters: &mut LinkCounters) -> bool {
        for _ in 0..=RINGS {
            let connection = match sys::accept(listener) {
                Accepted::Connection(connection) => connection,
                Accepted::Refused => continue,
                Accepted::Nobody => break,
                Accepted::NoRoom => return false,
            };
            self.names += 1;
            // Beyond that many it is closed at once, and its packets go by UDP.
            if self.rings.len() >= RINGS || self.set.add(&connection, self.names).is_err() {
                continue;
            }
            // A ring comes with the connection or right behind it, and packets may be in it by now.
            self.meet(self.names, connection, counters);
            // A process that brings none for long is not waited for.
            if self.silent.len() > SILENT {
                let (_, oldest) = self.silent.remove(0);
                self.set.remove(&oldest);
            }
        }
        true
    }

    /// Takes the ring that a connection brought, or waits for it.
    fn meet(&mut self, name: u64, connection: Fd, counters: &mut LinkCounters) {
        match meeting::meet(&connection) {
            Met::NotYet => self.silent.push((name, connection)),
            Met::Ring(consumer, table) if self.rings.len() < RINGS => {
                let connection = Arc::new(connection);
                let writer = Writer::behind(&connection);
                let granted = Granted::new(table, writer, self.surroundings.clone());
                self.add(name, consumer, granted, Some(connection));
            }
            Met::Ring(..) | Met::Nothing => self.set.remove(&connection),
            Met::Wrong => {
                self.set.remove(&connection);
                counters.host_rings_wrong += 1;
            }
        }
    }

    /// Sees to the connections on which something happened.
    pub(super) fn attend(&mut self, counters: &mut LinkCounters) {
        match self.only_connection() {
            // There is nothing to ask the set for.
            Some(place) => self.hear(place),
            None => {
                for name in self.set.ready() {
                    if let Some(place) = self.silent.iter().position(|(n, _)| *n == name) {
                        let (name, connection) = self.silent.remove(place);
                        self.meet(name, connection, counters);
                    } else if let Some(place) = self.rings.iter().position(|r| r.name == name) {
                        self.hear(place);
                    }
                }
            }
        }
        if self.rings.iter().any(|ring| ring.over) {
            self.close_those(|ring| ring.over && ring.consumer.is_empty());
        }
    }

    /// Its producer has woken this process, or is gone.
    fn hear(&mut self, place: usize) {
        let ring = &mut self.rings[place];
        let connection = ring.connection.as_deref();
        ring.over |= connection.is_none_or(is_over);
        self.hot.insert(place);
    }

    /// The ring of the only connection there is.
    fn only_connection(&self) -> Option<usize> {
        if !self.silent.is_empty() {
            return None;
        }
        match &self.rings[..] {
            [one] if one.connection.is_some() => Some(0),
            [own, _] if own.connection.is_none() => Some(1),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.rings.len()
    }

    fn close_those(&mut self, which: impl Fn(&Inbound) -> bool) {
        let set = &self.set;
        // Asked once: the other side may change what it says.
        let go: Vec<bool> = self.rings.iter().map(which).collect();
        let stay = go.iter().enumerate().filter(|(_, goes)| !**goes);
        self.hot = stay.map(|(place, _)| self.hot.has(place)).collect();
        self.departing.retain(Granted::lingers);
        let mut go = go.into_iter();
        for mut ring in self.rings.extract_if(.., |_| go.next() == Some(true)) {
            if let Some(connection) = &ring.connection {
                set.remove(connection);
            }
            if ring.granted.shut(ring.over) {
                self.departing.push(ring.granted);
            }
        }
    }

    pub(super) fn grant(&mut self, ring: RingId, grant: &Grant) {
        let ring = self.rings.iter_mut().find(|known| known.name == ring.0);
        if let Some(ring) = ring
            && self.identity.is_some()
        {
            ring.granted.grant(grant);
            self.grants = true;
        }
    }

    pub(super) fn revoke(&mut self, which: &dyn Fn(&GrantName) -> bool) -> Copies {
        let mut copies = Copies::default();
        if !std::mem::take(&mut self.grants) {
            return copies;
        }
        let known = self.rings.iter_mut().map(|ring| &mut ring.granted);
        for granted in known.chain(&mut self.departing) {
            copies.add(granted.revoke(which));
            self.grants |= !granted.is_empty();
        }
        copies
    }

    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        !self.hot.is_empty()
    }

    /// Some ring was in use lately, and nothing is in any of those.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        !self.hot.is_empty() && self.hot_are_empty()
    }

    #[inline]
    fn hot_are_empty(&self) -> bool {
        let mut hot = self.hot.all().iter();
        hot.all(|place| self.rings[*place].consumer.is_empty())
    }

    pub(super) fn has_arrivals(&self) -> bool {
        self.rings.iter().any(|ring| !ring.consumer.is_empty())
    }

    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.left
            || self
                .rings
                .first()
                .is_some_and(|ring| ring.connection.is_none() && !ring.consumer.is_empty())
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        now: u64,
        budget: usize,
        owns: &dyn Fn(u32) -> bool,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        self.left = false;
        if self.rings.is_empty() {
            return 0;
        }
        self.receive_some(now, budget, owns, counters, deliver)
    }

    fn receive_some(
        &mut self,
        now: u64,
        budget: usize,
        owns: &dyn Fn(u32) -> bool,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let rings = self.rings.len();
        // Without a division, which costs as much as a look at several of them.
        self.next += 1;
        if self.next >= rings {
            self.next = 0;
        }
        let mut delivered = 0;
        let mut wrong = false;
        // Of the cold ones one is looked at.
        if let Some(cold) = self.hot.first_without(self.next, rings)
            && !self.rings[cold].consumer.is_empty()
        {
            self.hot.insert(cold);
        }
        // One at a time: the next calls find the others.
        let mut cooled = None;
        for place in self.hot.round(self.next) {
            let ring = &mut self.rings[place];
            if ring.consumer.is_empty() {
                if !ring.stays_hot(now, self.polled) {
                    cooled = Some(place);
                }
                continue;
            }
            ring.last = now;
            let quota = TURN.min(budget.saturating_sub(delivered));
            let (taken, end) = ring.take(quota, &mut self.buffer, owns, counters, deliver);
            delivered += taken;
            ring.consumer.publish_head();
            match end {
                End::Empty => {
                    if self.polled {
                        ring.look();
                        ring.poll(taken);
                    } else if !ring.stay_asleep() {
                        self.left = true;
                    }
                }
                End::Turn => self.left = true,
                End::Break => break,
                End::Wrong => {
                    counters.host_rings_wrong += 1;
                    ring.wrong = true;
                    wrong = true;
                }
            }
        }
        if let Some(place) = cooled {
            self.hot.remove(place);
        }
        if wrong {
            // What is in a wrong ring is not looked at again.
            self.close_those(|ring| ring.wrong);
        }
        delivered
    }

    /// From now on the application polls, or does not any more.
    pub(super) fn set_polled(&mut self, polled: bool) {
        self.polled = polled;
    }

    /// Nobody will look unless woken; true: something is there already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        // The own one may have been cold when this process put something into it: nobody else
        // tells.
        let left = self.has_left();
        let (mut raised, mut polled) = (false, false);
        for place in self.hot.all() {
            let ring = &mut self.rings[*place];
            ring.forget_looks();
            if !ring.consumer.is_asleep() {
                raised = true;
                polled |= ring.consumer.raise();
            }
        }
        // One barrier for all of them.
        if raised {
            ring::settle(polled);
        }
        left || !self.hot_are_empty()
    }
}

/// The other process has closed the connection; else what it wrote to wake this one is read.
fn is_over(connection: &Fd) -> bool {
    match sys::receive_bytes(connection, &mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    }
}

impl Inbound {
    /// Nothing is there. False: for long enough, and its producer is to wake this process.
    #[inline]
    fn stays_hot(&mut self, now: u64, polled: bool) -> bool {
        if self.last == 0 {
            self.last = now;
        }
        if now.saturating_sub(self.last) > COOL_NS {
            return !self.stay_asleep();
        }
        if polled {
            self.look();
        }
        true
    }

    #[inline]
    fn look(&mut self) {
        if !self.looked_at {
            self.looked_at = true;
            self.consumer.look();
        }
    }

    /// So many packets came while it is looked at: once they are a stream, it is worth it to spare
    /// the producer its fences.
    #[inline]
    fn poll(&mut self, taken: usize) {
        if self.since < STREAM {
            self.since += taken as u32;
            if self.since >= STREAM {
                self.consumer.poll();
            }
        }
    }

    /// The producer is to wake this process; false: there is something already.
    fn stay_asleep(&mut self) -> bool {
        self.forget_looks();
        self.consumer.is_asleep() || self.consumer.fall_asleep()
    }

    fn forget_looks(&mut self) {
        self.looked_at = false;
        self.since = 0;
    }

    #[inline]
    fn take(
        &mut self,
        quota: usize,
        buffer: &mut [u8],
        owns: &dyn Fn(u32) -> bool,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> (usize, End) {
        let mut taken = 0;
        loop {
            let record = match self.consumer.front_record() {
                Ok(Some(record)) => record,
                Ok(None) => return (taken, End::Empty),
                Err(Wrong) => return (taken, End::Wrong),
            };
            if taken >= quota {
                return (taken, End::Turn);
            }
            let copied = self.consumer.copy(record, buffer);
            if taken >= BEHIND {
                self.consumer.prefetch(record);
            }
            let bytes = &buffer[..copied];
            match record.kind {
                Kind::Flow { flow } => {
                    if !self.learn(flow, bytes) {
                        return (taken, End::Wrong);
                    }
                }
                Kind::Packet { flow } | Kind::Long { flow, .. } | Kind::Reference { flow, .. } => {
                    let Some(Some(flow)) = self.flows.get(usize::from(flow)) else {
                        return (taken, End::Wrong);
                    };
                    let mut pieces: Pieces;
                    let (bytes, detached) = match record.kind {
                        Kind::Reference { mtu, .. } => {
                            let Some(source) = &self.source else {
                                return (taken, End::Wrong);
                            };
                            pieces = [Span::EMPTY; MOST_PIECES];
                            let places = (self.granted.table(), source);
                            let parsed = ByReference::parse(bytes, places, &mut pieces);
                            let Ok((payload, headers)) = parsed else {
                                return (taken, End::Wrong);
                            };
                            (headers, Some((Detached::ByReference(payload), mtu)))
                        }
                        Kind::Long { mtu, .. } => {
                            let mut payload = self.consumer.detached(record);
                            payload.costs = self.source.as_ref().map(Source::costs);
                            (bytes, Some((Detached::ByValue(payload), mtu)))
                        }
                        _ => (bytes, None),
                    };
                    let Some(dest_qpn) = Bth::dest_qpn(bytes) else {
                        return (taken, End::Wrong);
                    };
                    if owns(dest_qpn) {
                        let received = Received {
                            src: flow.src.into(),
                            dst: flow.dst.into(),
                            src_port: 0,
                            marks: None,
                            bytes,
                            detached,
                            dest_qpn,
                            ring: Some(RingId(self.name)),
                        };
                        if deliver(&received).is_break() {
                            return (taken, End::Break);
                        }
                    } else {
                        counters.rx_unknown_qpn += 1;
                    }
                    if detached.is_some()
                        && let Some(source) = &self.source
                    {
                        source.advise(self.granted.table());
                    }
                    let detached = detached.as_ref().map(|(detached, _)| detached);
                    taken += detached.map_or(0, Detached::weight);
                    let by_reference = matches!(record.kind, Kind::Reference { .. });
                    counters.rx_host_pointed += u64::from(by_reference);
                    count(counters, bytes.len() + detached.map_or(0, Detached::len));
                }
            }
            taken += 1;
            self.consumer.advance(record);
        }
    }

    /// The producer says what a flow is.
    #[cold]
    fn learn(&mut self, flow: u16, bytes: &[u8]) -> bool {
        let place = usize::from(flow);
        // This process does not lie to itself, though an address may have gone since the path was
        // opened.
        let own = self.connection.is_none();
        let said = Flow::decode(bytes).filter(|flow| own || flow.is_of(&self.surroundings));
        if place >= FLOWS || said.is_none() {
            return false;
        }
        if self.flows.len() <= place {
            self.flows.resize(place + 1, None);
        }
        self.flows[place] = said;
        true
    }
}

const _: () = assert!(Bth::LEN >= 8, "the QPN is in there");

fn count(counters: &mut LinkCounters, len: usize) {
    let len = (len + ICRC_LEN) as u64;
    counters.rx_packets += 1;
    counters.rx_bytes += len;
    counters.rx_host_packets += 1;
    counters.rx_host_bytes += len;
}
