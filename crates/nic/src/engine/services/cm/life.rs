//! Peers of this host that die: a killed process says nothing, but the kernel lets go of its QPN
//! ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rnic_cm::{ConnId, State, Time};
use rnic_host::last_words::LastWordsId;
use rnic_host::qp1::range_of_id;
use rnic_link::Port;

use super::entry::{Connection, Number};
use super::slab::Key;
use super::state::Cm;
use crate::engine::Engine;
use crate::observe;

/// How often the peers are looked after: a killed one is noticed within a second, with plenty of
/// time to spare.
const PERIOD: u64 = 250_000_000;

/// How often the end of a connection is told at the end of the process, and how long each time an
/// answer is waited for.
const FAREWELLS: usize = 3;
const FAREWELL: Duration = Duration::from_millis(16);

/// The processes of this host that connections lead to.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// By their first range.
    peers: BTreeMap<u32, BTreeSet<Key>>,
    /// When to look next; meaningless without peers.
    next: u64,
    /// The QPN ranges of the host's processes as they were last seen while something had no answer;
    /// when to look again.
    census: Vec<u32>,
    next_census: u64,
}

/// Connections whose ids are gone, and their last words.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    connections: Vec<(ConnId, Option<LastWordsId>)>,
    /// Some of them have last words.
    last_words: bool,
    /// How many there may be before those that are over are looked for again.
    enough: usize,
}

/// So few are never worth the look.
const FEW: usize = 64;

impl Life {
    pub(crate) fn deadline(&self) -> Option<u64> {
        let peers = (!self.peers.is_empty()).then_some(self.next);
        let census = (!self.census.is_empty()).then_some(self.next_census);
        peers.into_iter().chain(census).min()
    }
}

impl Cm {
    /// The id of a connection is gone; what the peer still has to confirm is kept in mind.
    pub(crate) fn leave_connection(&mut self, conn: ConnId, last_words: Option<LastWordsId>) {
        match self.endpoint.last_words(conn) {
            Some(_) => {
                self.leaving.last_words |= last_words.is_some();
                self.leaving.connections.push((conn, last_words));
            }
            None => self.remove_last_words(last_words),
        }
        if self.leaving.connections.len() > self.leaving.enough {
            self.is_leaving();
            // Looked at so seldom that each costs little.
            self.leaving.enough = FEW.max(2 * self.leaving.connections.len());
        }
    }

    /// There are last words of connections whose ids are gone.
    pub(crate) fn leaves_last_words(&self) -> bool {
        self.leaving.last_words
    }

    /// Some peer has not confirmed that a connection is over.
    pub(crate) fn is_leaving(&mut self) -> bool {
        let Cm {
            leaving,
            endpoint,
            last_words,
            ..
        } = self;
        leaving.last_words = false;
        leaving.connections.retain(|(conn, id)| {
            let goes_on = endpoint.last_words(*conn).is_some();
            if goes_on {
                leaving.last_words |= id.is_some();
            } else {
                last_words.remove(*id);
            }
            goes_on
        });
        !leaving.connections.is_empty()
    }

    /// Tells those peers again.
    fn repeat_farewells(&mut self, now: u64) {
        for (conn, _) in &self.leaving.connections {
            if let Some(last_words) = self.endpoint.last_words(*conn) {
                self.endpoint.send_last_words(Time(now), &last_words);
            }
        }
    }

    /// Watches the process of a peer, whose communication id is known now, if it is another one of
    /// this host.
    pub(crate) fn watch(&mut self, key: Key, remote_id: u32, now: u64) {
        let range = range_of_id(remote_id);
        if range == u32::from(self.endpoint.config().range) {
            return;
        }
        let Some(entry) = self.ids.get_mut(key) else {
            return;
        };
        let Some(connection) = &mut entry.connection else {
            return;
        };
        let remote = connection.terms.ah.dgid;
        if !self.table.iter().any(|row| row.gid == remote) {
            return;
        }
        if self.life.peers.is_empty() {
            self.life.next = now.saturating_add(PERIOD);
        }
        connection.peer_range = Some(range);
        self.life.peers.entry(range).or_default().insert(key);
    }

    pub(crate) fn unwatch(&mut self, key: Key, connection: &Connection) {
        let Some(range) = connection.peer_range else {
            return;
        };
        if let Some(keys) = self.life.peers.get_mut(&range) {
            keys.remove(&key);
            if keys.is_empty() {
                self.life.peers.remove(&range);
            }
        }
    }

    /// Ends what there was with processes that are dead.
    pub(crate) fn look_after_peers(&mut self, link: &mut Port, now: u64) {
        if self.life.peers.is_empty() || self.life.next > now {
            return;
        }
        self.life.next = now.saturating_add(PERIOD);
        let Some(ports) = self.ports.clone() else {
            return;
        };
        let ranges: Vec<u32> = self.life.peers.keys().copied().collect();
        for range in ranges {
            if ports.range_is_alive(range) {
                self.look_for_stopped(range, link, now);
                continue;
            }
            for key in self.life.peers.remove(&range).into_iter().flatten() {
                let connection = self.ids.get(key).and_then(|entry| entry.connection);
                if let Some(Number::Conn(conn)) = connection.map(|c| c.number) {
                    self.note(Some(key), observe::cm::peer_died);
                    self.endpoint.peer_died(Time(now), conn);
                }
            }
        }
    }
}

impl Cm {
    /// Disconnecting does not wait for a process that is stopped.
    fn look_for_stopped(&mut self, range: u32, link: &mut Port, now: u64) {
        let keys = self.life.peers.get(&range).into_iter().flatten();
        let conn = |key: &Key| match self.ids.get(*key)?.connection?.number {
            Number::Conn(conn) => Some(conn),
            Number::Sidr(_) => None,
        };
        let leaving = |conn: &ConnId| self.endpoint.state(*conn) == Some(State::DreqSent);
        let leaving: Vec<ConnId> = keys.filter_map(conn).filter(leaving).collect();
        if !leaving.is_empty() && link.owner_is_stopped(range, now) {
            for conn in leaving {
                self.endpoint.peer_stopped(conn);
            }
        }
    }

    /// Something was said that waits for an answer: from now on it matters who of this host is
    /// there.
    pub(crate) fn begin_census(&mut self, link: &Port, now: u64) {
        if self.life.census.is_empty() {
            self.life.census = link.live_ranges();
            self.life.next_census = now.saturating_add(PERIOD);
        }
    }

    /// With a process that is gone (killed, perhaps) went what waited in its socket, which may have
    /// been for, or from, any process of this host: what has no answer yet is said once more,
    /// without waiting for the timers.
    pub(crate) fn look_for_deaths(&mut self, link: &Port, now: u64) {
        if self.life.census.is_empty() || self.life.next_census > now {
            return;
        }
        if !self.endpoint.is_waiting() {
            self.life.census.clear();
            return;
        }
        let there = link.live_ranges();
        let before = std::mem::replace(&mut self.life.census, there);
        self.life.next_census = now.saturating_add(PERIOD);
        let there = &self.life.census;
        if before.iter().any(|range| !there.contains(range)) {
            self.endpoint.repeat_all(Time(now));
        }
    }
}

impl Engine {
    /// The process ends, or its NIC: what peers think of as connected is over, and they are told.
    /// Takes 50 ms at most.
    pub(crate) fn close_cm(&mut self) {
        self.cm.let_go(self.common.host.now_ns());
        self.cm.note_waits(self.common.host.now_ns());
        self.cm.is_closing = true;
        for key in self.cm.ids.keys() {
            self.cm.destroy(key, self.common.host.now_ns());
        }
        self.send_cm(self.common.host.now_ns());
        if self.common.host.is_simulated() {
            // Nothing comes as long as this waits.
            return;
        }
        let mut fds = vec![self.link.rx_fd()];
        fds.extend(self.link.handover_fds());
        for attempt in 1..=FAREWELLS {
            let until = self.common.host.now_ns() + FAREWELL.as_nanos() as u64;
            while self.cm.is_leaving() {
                let Some(left) = until.checked_sub(self.common.host.now_ns()) else {
                    break;
                };
                let _ = rnic_sys::poll(&fds, Some(Duration::from_nanos(left)));
                self.round(true);
            }
            if !self.cm.is_leaving() {
                return;
            }
            if attempt < FAREWELLS {
                self.cm.repeat_farewells(self.common.host.now_ns());
                self.send_cm(self.common.host.now_ns());
            }
        }
    }
}
