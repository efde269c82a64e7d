//! What the consumer of a ring lets its producer do without packets: read and write registered
//! memory.
//!
//! Behind each ring lies a *grant table*. In it the consumer's process writes *grants*: this queue
//! pair of yours may reach, by that queue pair of mine and under this key, such a range. It does so
//! only for a producer that has shown to know the key, by a request that was executed; so a grant
//! table tells nobody a key. Both processes can write the table, but each looks only at what the
//! other one writes, and a process that misuses it harms itself: what the producer reads leads it
//! to the consumer's own memory, which the kernel lets it reach or not, and what the consumer
//! reads, the busy word, makes it wait for a while.
//!
//! # Revocation
//! The producer makes its busy word odd, puts up a full fence, and then looks at the grant; the
//! consumer takes the grant away, puts up a full fence, and then looks at the busy word. So either
//! the producer sees that the grant is gone, or the consumer sees that a copy may be under way, and
//! waits until the word has changed. Loom runs all interleavings: `RUSTFLAGS="--cfg loom" cargo
//! test -p rnic-link --lib shm::grants`.
//!
//! # Changes
//! A grant is taken away by its first word, which becomes 0, before another one is written in its
//! place, and each has another first word: a producer that finds the same there before and after
//! has read one grant.

use std::io;
use std::sync::atomic::AtomicU64;

use rnic_wire::{PathMtu, pkeys_match};

use super::claim::{self, Claim, Word};
use rnic_sys::Fd;
use rnic_sys::segment::Words;

/// What a grant is for, and what it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GrantName {
    /// The queue pair that asks.
    pub src_qpn: u32,
    /// The queue pair that it is connected with.
    pub dest_qpn: u32,
    /// The key that it names.
    pub key: u32,
}

/// A whole RDMA WRITE or READ, as it would be asked for by packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which queue pair asks which, under which key.
    pub name: GrantName,
    /// The path MTU of the queue pair that asks.
    pub mtu: PathMtu,
    /// Its P_Key.
    pub pkey: u16,
    /// Where it begins.
    pub va: u64,
    /// Bytes.
    pub len: u64,
}

impl Request {
    /// Of no bytes.
    pub const EMPTY: Request = Request {
        name: GrantName {
            src_qpn: 0,
            dest_qpn: 0,
            key: 0,
        },
        mtu: PathMtu::M256,
        pkey: 0,
        va: 0,
        len: 0,
    };
}

/// What may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What it is for.
    pub name: GrantName,
    /// The path MTU of the queue pair that grants it.
    pub mtu: PathMtu,
    /// Its P_Key.
    pub pkey: u16,
    /// Address by which requests name the first byte.
    pub iova: u64,
    /// Where that is in the process that grants.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// They may be read.
    pub read: bool,
    /// They may be written.
    pub write: bool,
}

impl Grant {
    /// Where a request begins in the process that grants, if all of it may be read (`write`:
    /// written).
    fn place(&self, request: &Request, write: bool) -> Option<u64> {
        let offset = request.va.checked_sub(self.iova)?;
        let inside = offset.checked_add(request.len)? <= self.len;
        let allowed = if write { self.write } else { self.read };
        let at = self.base.checked_add(offset)?;
        // What another process wrote into the table may be a lie.
        at.checked_add(request.len)?;
        (inside && allowed && self.takes(request)).then_some(at)
    }

    /// No packet of it would be dropped for its P_Key, nor refused for its length, as both ends cut
    /// it into the same ones (IBTA vol. 1, 10.9.3; 9.7.4.1.6, 9.8.2.2.3).
    fn takes(&self, request: &Request) -> bool {
        let alike =
            self.mtu == request.mtu || request.len <= self.mtu.min(request.mtu).bytes() as u64;
        alike && pkeys_match(self.pkey, request.pkey)
    }
}

const LINE: usize = 64;
/// The producer's word: odd while a copy is under way.
const BUSY_AT: usize = 0;
/// The consumer's words: it grants nothing any more; which process it is, and that it has said so.
const SHUT_AT: usize = LINE;
const NONCE_AT: usize = LINE + 8;
const READY_AT: usize = LINE + 32;
/// The consumer's word: it takes payload [by reference](super::by_reference).
const REFERENCES_AT: usize = LINE + 40;
/// The consumer's word: what payload by value may [cost](super::costs) the producer.
const BY_VALUE_LIMIT_AT: usize = LINE + 48;
/// The producer's words: which process it is.
const INTRODUCTION_AT: usize = 2 * LINE;
const GRANTS_AT: usize = 4096;
/// Grants; in the place of one that does not fit any more it may be asked for anew.
const PLACES: usize = 1024;
/// Places that a grant may be in.
const WAYS: usize = 4;
/// The producer's counts of what was withdrawn, by queue pair: as many as there are QPNs in a
/// range.
const COUNTS_AT: usize = GRANTS_AT + PLACES * LINE;
const COUNTS: usize = 4096;
/// Bytes of a grant table.
pub(super) const LEN: usize = COUNTS_AT + COUNTS * 8;

/// The words of a grant: which, for which queue pairs, what.
const TAG: usize = 0;
const QPNS: usize = 8;
const IOVA: usize = 16;
const BASE: usize = 24;
const BYTES: usize = 32;
/// The code of a path MTU, and a P_Key.
const MTU: usize = 40;
const PKEY_SHIFT: u32 = 32;
/// In the tag, above the key.
const READ: u64 = 1 << 32;
const WRITE: u64 = 1 << 33;
const NUMBER_SHIFT: u32 = 34;

/// Producer: a copy may be under way from now on, and is over before the word changes again.
#[inline]
fn begin<W: Word>(busy: &W, turn: u64) {
    busy.store(turn);
    W::fence();
}

/// Producer: reads a grant of which it knows which words it must have; `None`: there is another
/// one, or none.
#[inline]
fn read_grant<W: Word, const N: usize>(
    tag: &W,
    is_it: impl Fn(u64) -> bool,
    words: [&W; N],
) -> Option<(u64, [u64; N])> {
    let before = tag.load();
    if !is_it(before) {
        return None;
    }
    let read = words.map(W::load);
    (tag.load() == before).then_some((before, read))
}

/// Consumer: puts a grant in the place of another, with another tag.
fn write_grant<W: Word, const N: usize>(tag: &W, value: u64, words: [(&W, u64); N]) {
    tag.store(0);
    for (word, value) in words {
        word.store(value);
    }
    tag.store(value);
}

/// Consumer: grants were taken away before this. Gives the turn of a copy that may be under way.
fn under_way<W: Word>(busy: &W) -> Option<u64> {
    W::fence();
    let turn = busy.load();
    (turn % 2 == 1).then_some(turn)
}

/// Where a process can be recognised: bytes in its private memory that no other has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonce {
    pub(super) at: u64,
    pub(super) value: [u64; 2],
}

/// The grant table of a ring.
#[derive(Debug)]
pub(super) struct GrantTable(Words);

impl GrantTable {
    /// That at `at` of a ring's file, which the ring was made of or attached to before.
    pub(super) fn map(file: &Fd, at: usize) -> io::Result<GrantTable> {
        Ok(GrantTable(Words::map(file, at, LEN)?))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.word(at)
    }

    fn entry(&self, place: u16, word: usize) -> &AtomicU64 {
        self.word(GRANTS_AT + usize::from(place) % PLACES * LINE + word)
    }

    /// Consumer: says which process it is.
    pub(super) fn welcome(&self, nonce: Nonce) {
        let words = [nonce.at, nonce.value[0], nonce.value[1]];
        for (i, value) in words.into_iter().enumerate() {
            Word::store(self.word(NONCE_AT + 8 * i), value);
        }
        Word::store(self.word(READY_AT), 1);
    }

    /// Producer: which process the consumer says it is, once it has.
    pub(super) fn nonce(&self) -> Option<Nonce> {
        let said = Word::load(self.word(READY_AT)) == 1;
        let word = |i: usize| Word::load(self.word(NONCE_AT + 8 * i));
        said.then(|| Nonce {
            at: word(0),
            value: [word(1), word(2)],
        })
    }

    /// Producer, before the consumer has the grant table: says which process it is.
    pub(super) fn introduce(&self, nonce: Nonce) {
        let words = [nonce.at, nonce.value[0], nonce.value[1]];
        for (i, value) in words.into_iter().enumerate() {
            Word::store(self.word(INTRODUCTION_AT + 8 * i), value);
        }
    }

    /// Consumer: which process the producer says it is, if it has.
    pub(super) fn introduction(&self) -> Option<Nonce> {
        let word = |i: usize| Word::load(self.word(INTRODUCTION_AT + 8 * i));
        let at = word(0);
        (at != 0).then(|| Nonce {
            at,
            value: [word(1), word(2)],
        })
    }

    /// Consumer: payload may come by reference, or may not.
    pub(super) fn take_references(&self, takes: bool) {
        Word::store(self.word(REFERENCES_AT), u64::from(takes));
    }

    /// Producer: they may.
    #[inline]
    pub(super) fn takes_references(&self) -> bool {
        Word::load(self.word(REFERENCES_AT)) == 1
    }

    /// Consumer: payload should rather come by value than by reference, if that takes the producer
    /// less, ns for 16 KiB; 0: in no case.
    pub(super) fn limit_by_value(&self, limit: u64) {
        Word::store(self.word(BY_VALUE_LIMIT_AT), limit);
    }

    /// Producer: the limit.
    #[inline]
    pub(super) fn by_value_limit(&self) -> u64 {
        Word::load(self.word(BY_VALUE_LIMIT_AT))
    }

    fn count(&self, slot: u32) -> &AtomicU64 {
        self.word(COUNTS_AT + slot as usize % COUNTS * 8)
    }

    /// Producer: what stands for a reference by a packet of that queue pair now.
    pub(super) fn claim(&self, qpn: u32) -> Claim {
        Claim {
            slot: qpn % COUNTS as u32,
            count: Word::load(self.count(qpn)),
        }
    }

    /// Producer: what that queue pair's packets refer to is not theirs any more.
    pub(super) fn withdraw(&self, qpn: u32) {
        claim::withdraw(self.count(qpn));
    }

    /// Consumer, after it copied: nothing of that claim was withdrawn before.
    pub(super) fn stands(&self, claim: Claim) -> bool {
        claim::stands(self.count(claim.slot), claim.count)
    }

    /// Consumer: nothing is granted any more, and never will be.
    pub(super) fn shut(&self) {
        Word::store(self.word(SHUT_AT), 1);
    }

    /// The places that a grant of that name may be in.
    pub(super) fn places(name: &GrantName) -> impl Iterator<Item = u16> + use<> {
        let qpns = u64::from(name.src_qpn) << 24 ^ u64::from(name.dest_qpn);
        let mixed = (qpns ^ u64::from(name.key) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (mixed >> 40) as usize % (PLACES / WAYS) * WAYS;
        (first..first + WAYS).map(|place| place as u16)
    }

    /// Consumer: puts a grant at a place. No two have the same `number`.
    pub(super) fn put(&self, place: u16, number: u64, grant: &Grant) {
        let right = |allowed, right| if allowed { right } else { 0 };
        let tag = u64::from(grant.name.key)
            | right(grant.read, READ)
            | right(grant.write, WRITE)
            | number << NUMBER_SHIFT;
        let words = [
            (self.entry(place, QPNS), qpns(&grant.name)),
            (self.entry(place, IOVA), grant.iova),
            (self.entry(place, BASE), grant.base),
            (self.entry(place, BYTES), grant.len),
            (
                self.entry(place, MTU),
                u64::from(grant.mtu.to_ibv()) | u64::from(grant.pkey) << PKEY_SHIFT,
            ),
        ];
        write_grant(self.entry(place, TAG), tag, words);
    }

    /// Consumer: takes it away.
    pub(super) fn take(&self, place: u16) {
        Word::store(self.entry(place, TAG), 0);
    }

    /// Consumer, after it took something away: the turn of a copy that may be under way.
    pub(super) fn under_way(&self) -> Option<u64> {
        under_way(self.word(BUSY_AT))
    }

    /// The copy of that turn is over.
    pub(super) fn is_past(&self, turn: u64) -> bool {
        Word::load(self.word(BUSY_AT)) != turn
    }

    /// Producer: where a request begins in the consumer's process, if all of it is granted at this
    /// moment. To be called, and the answer used, within [`GrantTable::during`].
    #[inline]
    pub(super) fn place(&self, request: &Request, write: bool) -> Option<u64> {
        let name = &request.name;
        if Word::load(self.word(SHUT_AT)) != 0 {
            return None;
        }
        let is_it = |tag: u64| tag as u32 == name.key && tag >> NUMBER_SHIFT != 0;
        GrantTable::places(name).find_map(|at| {
            let words = [
                self.entry(at, QPNS),
                self.entry(at, IOVA),
                self.entry(at, BASE),
                self.entry(at, BYTES),
                self.entry(at, MTU),
            ];
            let (tag, [said, iova, base, bytes, mtu]) =
                read_grant(self.entry(at, TAG), is_it, words)?;
            let grant = Grant {
                name: *name,
                mtu: PathMtu::from_ibv(mtu as u32)?,
                pkey: (mtu >> PKEY_SHIFT) as u16,
                iova,
                base,
                len: bytes,
                read: tag & READ != 0,
                write: tag & WRITE != 0,
            };
            (said == qpns(name)).then(|| grant.place(request, write))?
        })
    }

    /// Producer: what is found granted within `copy` stays so, or is waited for. Each `turn` is odd
    /// and another one.
    #[inline]
    pub(super) fn during<T>(&self, turn: u64, copy: impl FnOnce() -> T) -> T {
        self.begin_copy(turn);
        let done = copy();
        self.end_copy(turn.wrapping_add(1));
        done
    }

    /// Producer: a copy is under way from now on.
    #[inline]
    pub(super) fn begin_copy(&self, turn: u64) {
        begin(self.word(BUSY_AT), turn);
    }

    /// Producer: it is over; `behind`: its turn plus one.
    #[inline]
    pub(super) fn end_copy(&self, behind: u64) {
        Word::store(self.word(BUSY_AT), behind);
    }
}

fn qpns(name: &GrantName) -> u64 {
    u64::from(name.src_qpn) << 32 | u64::from(name.dest_qpn)
}

#[cfg(test)]
mod tests;
