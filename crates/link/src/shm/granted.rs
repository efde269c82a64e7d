//! What this process grants to the producers of its rings, and how it takes it back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::by_reference::Source;
use super::grants::{Grant, GrantName, GrantTable, Nonce};
use super::surroundings::Surroundings;
use rnic_sys::{self as sys, Fd};

/// Bytes in this process's memory by which others make sure that it is this one.
#[derive(Debug)]
pub(super) struct Identity(Box<[u64; 2]>);

impl Identity {
    pub(super) fn new() -> Identity {
        Identity(Box::new([sys::random_u64(), sys::random_u64()]))
    }

    pub(super) fn nonce(&self) -> Nonce {
        Nonce {
            at: self.0.as_ptr() as u64,
            value: *self.0,
        }
    }

    /// Its process is killed, on a simulated host.
    pub(super) fn forget(mut self) -> Forgotten {
        *self.0 = [0; 2];
        Forgotten { _identity: self }
    }
}

/// An identity that is nobody's any more. It is kept, since others would find there whatever comes
/// to lie in its place.
#[derive(Debug)]
pub(crate) struct Forgotten {
    _identity: Identity,
}

/// The process that writes to a ring.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    /// 0 if its number means nothing here.
    pid: u32,
    /// `None`: this process itself, or nothing can be learnt from it any more.
    connection: Option<Arc<Fd>>,
    /// It closed its connection.
    gone: bool,
}

impl Writer {
    pub(super) fn own() -> Writer {
        Writer {
            pid: std::process::id(),
            connection: None,
            gone: false,
        }
    }

    /// The one at the other end.
    pub(super) fn behind(connection: &Arc<Fd>) -> Writer {
        Writer {
            pid: sys::peer_of(connection).map_or(0, |(_, pid)| pid),
            connection: Some(connection.clone()),
            gone: false,
        }
    }

    /// That process, of which no connection tells.
    #[cfg(test)]
    pub(super) fn numbered(pid: u32) -> Writer {
        Writer {
            pid,
            ..Writer::own()
        }
    }

    /// One whose number means nothing here.
    #[cfg(test)]
    pub(super) fn unknown(connection: &Arc<Fd>) -> Writer {
        Writer {
            pid: 0,
            ..Writer::behind(connection)
        }
    }

    /// None of its copies goes on. The kernel closes a connection when the last thread has left its
    /// last system call; a number may mean nothing, may not be asked about, and may be another
    /// process's by now.
    fn has_ended(&self) -> bool {
        self.gone
            || self.connection.as_deref().is_some_and(sys::is_hung_up)
            || sys::has_ended(self.pid)
    }
}

/// What one producer was granted.
#[derive(Debug)]
pub(super) struct Granted {
    table: Arc<GrantTable>,
    writer: Writer,
    held: HashMap<u16, GrantName>,
    /// What was taken back in the middle of this turn's copy.
    lingering: Vec<(GrantName, u64)>,
    /// Grants so far.
    number: u64,
    surroundings: Surroundings,
}

impl Granted {
    pub(super) fn new(table: GrantTable, writer: Writer, surroundings: Surroundings) -> Granted {
        Granted {
            table: Arc::new(table),
            writer,
            held: HashMap::new(),
            lingering: Vec::new(),
            number: 0,
            surroundings,
        }
    }

    /// The producer may try whether it can reach this process.
    pub(super) fn welcome(&self, identity: &Identity) {
        self.table.welcome(identity.nonce());
    }

    /// Finds out whether the producer's memory can be read, and takes payload by reference then.
    pub(super) fn take_references(&self) -> Option<Source> {
        Source::try_it(&self.table, self.writer.pid, &self.surroundings)
    }

    pub(super) fn table(&self) -> &GrantTable {
        &self.table
    }

    /// Grants it unless it is granted already.
    pub(super) fn grant(&mut self, grant: &Grant) {
        let mut places = [0; 4];
        let mut free = None;
        for (slot, place) in places.iter_mut().zip(GrantTable::places(&grant.name)) {
            *slot = place;
            match self.held.get(&place) {
                Some(name) if *name == grant.name => return,
                Some(_) => {}
                None => free = free.or(Some(place)),
            }
        }
        self.number += 1;
        let place = free.unwrap_or_else(|| {
            let victim = places[(self.number % 4) as usize];
            self.displace(victim);
            victim
        });
        self.table.put(place, self.number, grant);
        self.held.insert(place, grant.name);
    }

    /// There is to be another grant in that place. A thread that takes back the one that is there
    /// still has to wait for its copy.
    fn displace(&mut self, place: u16) {
        self.table.take(place);
        let turn = self.table.under_way();
        self.lingering.retain(|(_, since)| Some(*since) == turn);
        if let (Some(name), Some(turn)) = (self.held.remove(&place), turn) {
            self.lingering.push((name, turn));
        }
    }

    /// Nothing is granted, nor is a copy under way in what was.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.lingering.is_empty()
    }

    /// Takes back what is meant. Gives the copy that may still be under way in such memory.
    pub(super) fn revoke(&mut self, which: &dyn Fn(&GrantName) -> bool) -> Option<Copying> {
        if self.is_empty() {
            return None;
        }
        let Granted {
            table,
            held,
            lingering,
            surroundings,
            ..
        } = self;
        let before = lingering.len();
        held.retain(|place, name| {
            let meant = which(name);
            if meant {
                table.take(*place);
                lingering.push((*name, 0));
            }
            !meant
        });
        let turn = table.under_way().unwrap_or(0);
        for (_, since) in &mut lingering[before..] {
            *since = turn;
        }
        lingering.retain(|(_, since)| *since == turn && turn != 0);
        let meant = lingering.iter().any(|(name, _)| which(name));
        meant.then(|| Copying {
            table: self.table.clone(),
            turn,
            writer: self.writer.clone(),
            patience: surroundings.patience(),
        })
    }

    /// Grants nothing any more, nor keeps the connection (`gone`: it was closed by the other side).
    /// True: a copy is under way, so it has to be kept for those that ask.
    pub(super) fn shut(&mut self, gone: bool) -> bool {
        self.table.shut();
        self.writer.connection = None;
        self.writer.gone |= gone;
        self.revoke(&|_| true).is_some()
    }

    /// A copy may be under way in what was taken back.
    pub(super) fn lingers(&self) -> bool {
        let past = |(_, turn): &(GrantName, u64)| self.table.is_past(*turn);
        !self.lingering.iter().all(past) && !self.writer.has_ended()
    }
}

/// A copy of another process that may be under way.
#[derive(Debug)]
pub(super) struct Copying {
    table: Arc<GrantTable>,
    turn: u64,
    writer: Writer,
    patience: Duration,
}

/// Copies that other processes may have under way in memory that was taken back from them.
#[derive(Debug, Default)]
#[must_use = "the memory is in use until they are over"]
pub struct Copies(Vec<Copying>);

impl Copies {
    pub(super) fn add(&mut self, copying: Option<Copying>) {
        self.0.extend(copying);
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those as well.
    pub fn join(&mut self, others: Copies) {
        self.0.extend(others.0);
    }

    /// Waits until they are over; to be called without locks. A process that is stopped in the
    /// middle of one is not waited for without end: false means that it may go on with its copy
    /// some day.
    pub fn wait(self) -> bool {
        let start = Instant::now();
        self.0.into_iter().all(|copying| copying.wait(start))
    }
}

impl Copying {
    fn wait(&self, start: Instant) -> bool {
        // Most are over within microseconds.
        let mut looks = 0_u32;
        while !self.table.is_past(self.turn) {
            looks += 1;
            if looks.is_multiple_of(64) {
                if self.writer.has_ended() {
                    return true;
                }
                if start.elapsed() > self.patience {
                    return false;
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        true
    }
}
