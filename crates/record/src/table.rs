//! What is known of each descriptor.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rnic_sys::tally::{Carrier, Lane, carrier};

/// Descriptors beyond are not looked at. Pages of the table that nobody touches take no memory.
const MOST: usize = 1 << 16;

/// One descriptor. Threads that use one at the same time may blur what is counted of it.
#[derive(Debug)]
pub struct Entry {
    /// [`Kind`] in the lowest bits, then the flags below.
    state: AtomicU32,
    /// Bytes that went one way since something went the other way.
    bytes: AtomicU64,
    /// When the last send began, or the last receive ended, ns.
    pub at: AtomicU64,
}

const KIND: u32 = 7;
/// The process connected it.
const CONNECTED: u32 = 1 << 3;
/// The process accepted it.
const ACCEPTED: u32 = 1 << 4;
/// What went last was sent.
const SENT: u32 = 1 << 5;
/// What went last was received.
const RECEIVED: u32 = 1 << 6;

/// Nobody has looked yet.
const UNKNOWN: u32 = 0;
/// Nothing that is counted.
const OTHER: u32 = 1;
/// A lane is behind it.
const FIRST_LANE: u32 = 2;

/// What went last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    Nothing,
    Sent,
    Received,
}

static TABLE: [Entry; MOST] = [const {
    Entry {
        state: AtomicU32::new(UNKNOWN),
        bytes: AtomicU64::new(0),
        at: AtomicU64::new(0),
    }
}; MOST];

/// The entry of a descriptor.
#[inline]
pub fn entry(fd: RawFd) -> Option<&'static Entry> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The descriptors of a range that the table has.
pub fn range(first: u32, last: u32) -> &'static [Entry] {
    let end = (last as usize).saturating_add(1).min(MOST);
    TABLE.get(first as usize..end).unwrap_or(&[])
}

/// A lane, and whether the descriptor is new in it.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub lane: Lane,
    /// Its peer is on this host; `None`: this was asked before.
    pub new: Option<bool>,
}

impl Entry {
    /// Whose bytes these are; `None`: nobody's that are counted.
    #[inline]
    pub fn lane(&self, fd: RawFd) -> Option<Found> {
        let state = self.state.load(Ordering::Relaxed);
        match state & KIND {
            UNKNOWN => self.look(fd, state),
            OTHER => None,
            lane => Some(Found {
                lane: lane_of(lane),
                new: None,
            }),
        }
    }

    /// Nobody has looked yet.
    #[inline]
    pub fn is_unknown(&self) -> bool {
        self.state.load(Ordering::Relaxed) & KIND == UNKNOWN
    }

    /// The lane, if somebody has looked.
    pub fn known(&self) -> Option<Lane> {
        let kind = self.state.load(Ordering::Relaxed) & KIND;
        (kind >= FIRST_LANE).then(|| lane_of(kind))
    }

    #[cold]
    fn look(&self, fd: RawFd, state: u32) -> Option<Found> {
        let (lane, local) = match carrier(fd) {
            Carrier::Other => {
                self.state.store(OTHER, Ordering::Relaxed);
                return None;
            }
            Carrier::Unix => (Lane::Unix, true),
            Carrier::Datagrams { local } => (Lane::Datagrams, local),
            Carrier::Tcp { local, lower } => {
                // One that was inherited: servers have the lower ports.
                let serves = match state & (CONNECTED | ACCEPTED) {
                    0 => lower,
                    how => how & ACCEPTED != 0,
                };
                (if serves { Lane::Serves } else { Lane::Asks }, local)
            }
        };
        self.state
            .store(state | (FIRST_LANE + lane as u32), Ordering::Relaxed);
        Some(Found {
            lane,
            new: Some(local),
        })
    }

    /// The descriptor is something else from now on.
    pub fn forget(&self) {
        // Most were never looked at: their page stays untouched.
        if self.state.load(Ordering::Relaxed) != UNKNOWN {
            self.set(0);
        }
    }

    /// It is a new connection that the process opened, or accepted.
    pub fn is_new(&self, accepted: bool) {
        self.set(if accepted { ACCEPTED } else { CONNECTED });
    }

    fn set(&self, state: u32) {
        self.bytes.store(0, Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    /// More bytes went the way of the last ones. No locked instruction: threads that send on one
    /// socket at the same time do not know themselves whose bytes come first.
    #[inline]
    pub fn add_bytes(&self, more: u64) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.bytes
            .store(bytes.wrapping_add(more), Ordering::Relaxed);
    }

    /// The bytes that went one way, which is over.
    #[inline]
    pub fn take_bytes(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        bytes
    }

    /// What went last.
    #[inline]
    pub fn last(&self) -> Last {
        match self.state.load(Ordering::Relaxed) & (SENT | RECEIVED) {
            0 => Last::Nothing,
            way if way & SENT != 0 => Last::Sent,
            _ => Last::Received,
        }
    }

    /// The direction changes.
    #[inline]
    pub fn turn(&self, last: Last) {
        let way = match last {
            Last::Nothing => 0,
            Last::Sent => SENT,
            Last::Received => RECEIVED,
        };
        let state = self.state.load(Ordering::Relaxed) & !(SENT | RECEIVED);
        self.state.store(state | way, Ordering::Relaxed);
    }
}

fn lane_of(kind: u32) -> Lane {
    Lane::ALL[((kind - FIRST_LANE) as usize).min(Lane::ALL.len() - 1)]
}
