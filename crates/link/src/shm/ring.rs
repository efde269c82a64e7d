//! A ring of records from one process to another.
//!
//! A record starts on (half of) a cache line with a word that says what it is and how long; zero
//! means that it is not there yet. The producer makes the word behind a record zero before it
//! publishes the record by its word, so the consumer, which waits at one word, never takes bytes of
//! an earlier lap for one: a small packet is one cache line that changes hands once, and in a
//! stream of small ones two do so together. A record does not go round the end; one that says so
//! fills what is left there.
//!
//! Each side keeps its own position to itself. What the other side wrote is checked against it, and
//! a ring whose other side writes nonsense is [`Wrong`]: it is given up.

use std::sync::atomic::{AtomicU32, Ordering};

use super::by_value::{ByValue, Vacant};
use super::grants::{self, GrantTable};
use super::wake;
use rnic_sys::segment::Segment;
use rnic_sys::{self as sys, Fd};

use rnic_wire::{MAX_HEADER_LEN, PathMtu};

/// Bytes for records.
pub(super) const DATA: usize = 512 * 1024;
/// Bytes of the segment of a ring.
pub(super) const LEN: usize = DATA + DATA_AT;
/// Where the [grant table](super::grants) of what the consumer's process grants lies in the file of
/// a ring: behind the ring, at a page, of which the largest have 64 KiB (aarch64).
const GRANT_TABLE_AT: usize = LEN.next_multiple_of(64 * 1024);
/// Bytes of the file. Those between the two are never touched, so that they are no memory.
const WHOLE: usize = GRANT_TABLE_AT + grants::LEN;
/// Largest record.
pub(super) const MAX_RECORD: usize = 64 * 1024 + 256;

const LINE: usize = 64;
const WORD: usize = 8;
/// What records are a multiple of: two small ones share a cache line.
const GRAIN: usize = LINE / 2;
/// How far behind the next record both ends fetch ahead.
const AHEAD: usize = LINE;
/// Offsets of the consumer's position and of its flag, each in a cache line of its own.
const HEAD_AT: usize = 0;
const FLAG_AT: usize = 2 * LINE;
const DATA_AT: usize = 4096;
/// How far the consumer gets before it publishes that to the producer.
const PUBLISH_EVERY: u64 = DATA as u64 / 8;

const MAGIC: u64 = 0xa7;

/// The grant table behind a ring, of a file that the ring was made of or attached to before.
pub(super) fn grant_table_of(file: &Fd) -> std::io::Result<GrantTable> {
    GrantTable::map(file, GRANT_TABLE_AT)
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A packet, BTH to pad, of this flow.
    Packet { flow: u16 },
    /// The same, longer than its sender's path MTU: its payload stays in the ring until it is
    /// copied to where it belongs.
    Long { flow: u16, mtu: PathMtu },
    /// The headers of a packet of this flow, and where its payload is ([`super::by_reference`]); as
    /// long.
    Reference { flow: u16, mtu: PathMtu },
    /// What this flow is.
    Flow { flow: u16 },
}

impl Kind {
    /// In a record's word.
    fn encode(self, size: Size) -> u64 {
        match self {
            Kind::Packet { flow } => encode(PACKET, flow, size),
            Kind::Long { flow, mtu } => encode(LONG | mtu_bits(mtu), flow, size),
            Kind::Reference { flow, mtu } => encode(REFERENCE | mtu_bits(mtu), flow, size),
            Kind::Flow { flow } => encode(FLOW, flow, size),
        }
    }
}

/// What is left up to the end is empty.
const PACKET: u64 = 1;
const FLOW: u64 = 2;
const SKIP: u64 = 3;
const REFERENCE: u64 = 4;
const LONG: u64 = 5;
/// In the kind of those that have one: the code of a path MTU.
const MTU_SHIFT: u32 = 4;

fn mtu_bits(mtu: PathMtu) -> u64 {
    u64::from(mtu.to_ibv()) << MTU_SHIFT
}

/// The lengths in a record's word: of the whole, and of its front if it has another part.
const LEN_BITS: u32 = 24;

fn encode(kind: u64, flow: u16, size: Size) -> u64 {
    let front = if size.detached == 0 { 0 } else { size.front };
    let lengths = (front << LEN_BITS | size.len()) as u64;
    MAGIC << 56 | kind << 48 | u64::from(flow) << 32 | lengths
}

/// What a record's word says; `None`: nothing that a producer writes.
#[inline]
fn decode(word: u64) -> Option<(Kind, Size)> {
    let (flow, lengths) = ((word >> 32) as u16, word as u32 as usize);
    let (front, len) = (lengths >> LEN_BITS, lengths & ((1 << LEN_BITS) - 1));
    // With another magic number some bit above those of a path MTU is set.
    let said = word >> 48 ^ (MAGIC << 8);
    let kind = match (said & ((1 << MTU_SHIFT) - 1), said >> MTU_SHIFT) {
        (PACKET, 0) => Kind::Packet { flow },
        (FLOW, 0) => Kind::Flow { flow },
        (LONG, code) => Kind::Long {
            flow,
            mtu: PathMtu::from_ibv(code as u32)?,
        },
        (REFERENCE, code) => Kind::Reference {
            flow,
            mtu: PathMtu::from_ibv(code as u32)?,
        },
        _ => return None,
    };
    let size = match kind {
        Kind::Long { .. } if (1..=MAX_HEADER_LEN).contains(&front) => Size {
            front,
            detached: len.checked_sub(front).filter(|detached| *detached > 0)?,
        },
        Kind::Long { .. } => return None,
        _ => Size::plain(lengths),
    };
    (size.len() <= MAX_RECORD).then_some((kind, size))
}

/// How many bytes a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Right behind its word.
    pub(crate) front: usize,
    /// Of a long packet's payload, which begins at a cache line.
    pub(crate) detached: usize,
}

impl Size {
    /// All of it behind the word.
    pub(crate) const fn plain(len: usize) -> Size {
        Size {
            front: len,
            detached: 0,
        }
    }

    /// Bytes.
    pub(super) const fn len(self) -> usize {
        self.front + self.detached
    }

    /// Where the detached part begins, in a record that begins at `at`.
    #[inline]
    fn detached_at(self, at: usize) -> usize {
        let behind = at + WORD + self.front;
        match self.detached {
            0 => behind,
            _ => behind.next_multiple_of(LINE),
        }
    }

    /// Bytes that a record takes that begins at `at`.
    #[inline]
    fn span(self, at: usize) -> usize {
        (self.detached_at(at) + self.detached - at).next_multiple_of(GRAIN)
    }
}

/// The other side wrote what no ring can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong;

/// The sending end.
#[derive(Debug)]
pub(super) struct Producer {
    segment: Segment,
    /// Bytes written since the beginning.
    tail: u64,
    /// The consumer's position when it was last looked at.
    head: u64,
    /// Barriers of the consumer reach this process.
    joined: bool,
}

impl Producer {
    /// A new ring, and the file for the consumer.
    pub(super) fn create() -> std::io::Result<(Producer, Fd)> {
        let (segment, file) = Segment::create(LEN, WHOLE)?;
        let producer = Producer {
            segment,
            tail: 0,
            head: 0,
            joined: sys::join_barriers(),
        };
        Ok((producer, file))
    }

    /// Is there room for a record of that size? There may be more later.
    #[inline]
    pub(super) fn has_room(&mut self, size: Size) -> Result<bool, Wrong> {
        let (skip, whole) = self.plan(size);
        // One grain stays free for the zero behind the record.
        let needed = (skip + whole + GRAIN) as u64;
        if self.tail + needed - self.head <= DATA as u64 {
            return Ok(true);
        }
        let head = self.segment.word(HEAD_AT).load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            return Err(Wrong);
        }
        self.head = head;
        Ok(self.tail + needed - head <= DATA as u64)
    }

    /// What is to be skipped before a record, and what it takes.
    #[inline]
    fn plan(&self, size: Size) -> (usize, usize) {
        let at = (self.tail % DATA as u64) as usize;
        let whole = size.span(at);
        if at + whole > DATA {
            (DATA - at, size.span(0))
        } else {
            (0, whole)
        }
    }

    /// Publishes a record that is in one piece; there must be room.
    #[inline]
    pub(super) fn push(&mut self, kind: Kind, bytes: &[u8]) {
        self.publish(kind, Size::plain(bytes.len()), bytes);
    }

    /// Where the detached part of the record goes that is published next; there must be room.
    #[inline]
    pub(super) fn vacant(&self, size: Size) -> Vacant<'_> {
        let (skip, _) = self.plan(size);
        Vacant {
            segment: &self.segment,
            at: DATA_AT + size.detached_at(self.start(skip)),
            len: size.detached,
            turns: None,
        }
    }

    /// Where a record begins before which so many bytes are skipped.
    #[inline]
    fn start(&self, skip: usize) -> usize {
        match skip {
            0 => (self.tail % DATA as u64) as usize,
            _ => 0,
        }
    }

    /// Publishes a record whose detached part, if it has one, is in its place.
    #[inline]
    pub(super) fn publish(&mut self, kind: Kind, size: Size, front: &[u8]) {
        let (skip, whole) = self.plan(size);
        let at = (self.tail % DATA as u64) as usize;
        let start = self.start(skip);
        let behind = (start + whole) % DATA;
        self.word(behind).store(0, Ordering::Relaxed);
        if behind + AHEAD < DATA {
            self.segment.prefetch_to_write(DATA_AT + behind + AHEAD);
        }
        self.segment.write(DATA_AT + start + WORD, front);
        self.word(start).store(kind.encode(size), Ordering::Release);
        if skip > 0 {
            self.word(at)
                .store(encode(SKIP, 0, Size::plain(0)), Ordering::Release);
        }
        self.tail += (skip + whole) as u64;
    }

    fn word(&self, at: usize) -> &std::sync::atomic::AtomicU64 {
        self.segment.word(DATA_AT + at)
    }

    /// The consumer is done with all that was published, and so is the code that it gave it to. (It
    /// may be done, and not have said so yet.)
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.segment.word(HEAD_AT).load(Ordering::Acquire) == self.tail
    }

    /// The consumer has been at the ring.
    pub(super) fn has_consumer(&self) -> bool {
        let head = self.segment.word(HEAD_AT).load(Ordering::Relaxed);
        head != 0 || wake::is_asleep(self.segment.flag(FLAG_AT))
    }

    /// The consumer has to be woken for what was published.
    #[inline]
    pub(super) fn must_wake(&self) -> bool {
        wake::must_wake(self.segment.flag(FLAG_AT), self.joined)
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Consumer {
    segment: Segment,
    head: u64,
    published: u64,
    /// The flag says that barriers will be passed before this end stops to look.
    polling: bool,
}

/// A record at the front of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) size: Size,
    /// Where it begins, and the bytes that it takes.
    at: usize,
    span: usize,
}

impl Consumer {
    /// The other end of a ring that is `file`.
    pub(super) fn attach(file: &Fd) -> std::io::Result<Consumer> {
        Ok(Consumer {
            segment: Segment::attach(file, LEN, WHOLE)?,
            head: 0,
            published: 0,
            polling: false,
        })
    }

    fn at(&self) -> usize {
        (self.head % DATA as u64) as usize
    }

    #[inline]
    fn front(&self) -> u64 {
        let word = self.segment.word(DATA_AT + self.at());
        word.load(Ordering::Acquire)
    }

    /// Nothing is there.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.front() == 0
    }

    /// The record at the front, if one is there. Its bytes are whatever [`Consumer::copy`] then
    /// gives.
    #[inline]
    pub(super) fn front_record(&mut self) -> Result<Option<Record>, Wrong> {
        let mut word = self.front();
        if word == 0 {
            return Ok(None);
        }
        if word >> 48 == MAGIC << 8 | SKIP {
            if self.at() == 0 {
                return Err(Wrong);
            }
            self.head += (DATA - self.at()) as u64;
            word = self.front();
        }
        let (kind, size) = decode(word).ok_or(Wrong)?;
        let at = self.at();
        let span = size.span(at);
        if at + span > DATA {
            return Err(Wrong);
        }
        Ok(Some(Record {
            kind,
            size,
            at,
            span,
        }))
    }

    /// Copies the bytes of the record at the front, without a detached part. Gives how many.
    #[inline]
    pub(super) fn copy(&self, record: Record, to: &mut [u8]) -> usize {
        let len = record.size.front;
        let at = DATA_AT + record.at + WORD;
        self.segment.read(at, &mut to[..len]);
        len
    }

    /// The detached part of the record at the front.
    #[inline]
    pub(super) fn detached(&self, record: Record) -> ByValue<'_> {
        ByValue {
            segment: &self.segment,
            at: DATA_AT + record.size.detached_at(record.at),
            len: record.size.detached,
            costs: None,
        }
    }

    /// What lies behind the record at the front is there as well, as far as can be known, and is
    /// fetched while this one is dealt with. What the producer is about to write should be left to
    /// it.
    #[inline]
    pub(super) fn prefetch(&self, record: Record) {
        let next = record.at + record.span + AHEAD;
        if next < DATA {
            self.segment.prefetch(DATA_AT + next);
        }
    }

    /// The record at the front is done with.
    #[inline]
    pub(super) fn advance(&mut self, record: Record) {
        self.head += record.span as u64;
        if self.head - self.published >= PUBLISH_EVERY {
            self.publish_head();
        }
    }

    /// Lets the producer have the room.
    #[inline]
    pub(super) fn publish_head(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            let head = self.segment.word(HEAD_AT);
            head.store(self.head, Ordering::Release);
        }
    }

    /// The producer has to wake this process from now on; false: something came meanwhile.
    pub(super) fn fall_asleep(&mut self) -> bool {
        settle(self.raise());
        self.is_empty()
    }

    /// For a thread that falls asleep over several: after it comes [`settle`], and then a look at
    /// each. True: it was polled.
    pub(super) fn raise(&mut self) -> bool {
        wake::raise(self.segment.flag(FLAG_AT));
        std::mem::take(&mut self.polling)
    }

    /// It need not.
    pub(super) fn look(&self) {
        if !self.polling {
            wake::look(self.segment.flag(FLAG_AT));
        }
    }

    /// Nor will it have to for long: to stop costs barriers everywhere.
    pub(super) fn poll(&mut self) {
        if sys::join_barriers() {
            self.polling = true;
            wake::poll(self.segment.flag(FLAG_AT));
        }
    }

    /// It has to, and has not done so since.
    pub(super) fn is_asleep(&self) -> bool {
        wake::is_asleep(self.segment.flag(FLAG_AT))
    }
}

/// Behind [`Consumer::raise`] of one or several, of which some were `polled` or none.
pub(super) fn settle(polled: bool) {
    wake::settle::<AtomicU32>(polled);
}

#[cfg(test)]
pub(super) mod tests;
