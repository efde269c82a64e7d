//! Packets come in the order in which they were sent, though some come by rings and some by the
//! socket.
//!
//! Behind a driver batches come, which only the socket takes apart. So that nothing overtakes
//! anything there:
//!
//! * What comes after a batch takes the socket as well, until that was found empty: the
//!   [gate](Gate) is shut. The program counts what it leaves to the socket, and the process says up
//!   to which count it has seen all. While they differ the gate is shut. A batch may still be on
//!   its way when the socket is found empty, so nothing else is taken for some milliseconds after
//!   one.
//! * What was in the rings when a batch came was sent before it. So what the socket gives is
//!   [held](Held) until they are empty.
//! * A single packet may be on its way to the socket, too, while that is found empty. What comes by
//!   a ring after it shows only once it is there, so the socket is looked at once more before the
//!   first one out of a ring.
//!
//! What is left: another batch in the moment in which such a packet is on its way, and a batch that
//! takes as long as the time. RC asks for what was overtaken then, UC loses it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_host::train::Train;
use rnic_sys::Fd;
use rnic_sys::segment::Segment;

/// So often the socket is looked at first for a packet that was on its way, whatever comes there
/// from others.
const LOOKS: u8 = 8;

/// Whether packets take the rings: two counts that the program and this process share.
#[derive(Debug)]
pub(super) struct Gate {
    words: Segment,
    /// What had been left to the socket before it was last looked at.
    before: u32,
    /// Packets lay in the rings then.
    in_rings: bool,
    /// So often the socket is still to be looked at before packets are taken out of the rings,
    /// since it was opened.
    unsure: u8,
}

impl Gate {
    /// Where the program counts what it leaves to the socket: a u32.
    pub(super) const PASSED: i16 = 0;
    /// How much of that is known to have come: a u32.
    pub(super) const SEEN: i16 = 4;
    /// When the last batch came, for the program alone: a u32.
    pub(super) const BATCH: i16 = 8;
    const LEN: usize = 16;

    /// Maps the program's table.
    pub(super) fn of(table: &Fd) -> io::Result<Gate> {
        Ok(Gate {
            words: Segment::map(table, 0, Gate::LEN)?,
            before: 0,
            in_rings: false,
            unsure: 0,
        })
    }

    /// All packets take the socket.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.passed() != self.word(Gate::SEEN).load(Ordering::Relaxed)
    }

    /// It was opened, but an earlier packet may lie in the socket than the rings have.
    #[inline]
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure > 0
    }

    #[inline]
    fn passed(&self) -> u32 {
        self.word(Gate::PASSED).load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, at: i16) -> &AtomicU32 {
        self.words.flag(at as usize)
    }

    /// The socket is about to be looked at; `in_rings`: packets lie there.
    #[inline]
    pub(super) fn is_looked_behind(&mut self, in_rings: bool) {
        self.before = self.passed();
        self.in_rings = in_rings;
        self.unsure = self.unsure.saturating_sub(in_rings.into());
    }

    /// It was empty.
    #[inline]
    pub(super) fn nothing_was_there(&mut self) {
        if self.is_shut() {
            self.word(Gate::SEEN).store(self.before, Ordering::Release);
            self.unsure = LOOKS;
        } else if self.in_rings {
            self.unsure = 0;
        }
    }
}

/// What came out of the socket and is not to be seen yet.
#[derive(Debug)]
pub(super) struct Held {
    train: Train,
    bytes: Vec<u8>,
}

impl Held {
    pub(super) fn new(train: &Train, buffer: &[u8]) -> Held {
        Held {
            train: *train,
            bytes: buffer[..train.len].to_vec(),
        }
    }

    /// Into a buffer as long as the one that it came in.
    pub(super) fn give(self, buffer: &mut [u8]) -> Train {
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
        self.train
    }
}
