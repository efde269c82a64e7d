//! Payload by reference: instead of the payload the packet says where in the producer's memory it
//! is, and the consumer copies it from there to where it belongs, once.
//!
//! Whether the consumer may read the producer's memory is the kernel's to say, as for
//! [`super::cma`], and is tried once, when the consumer gets the ring: the producer has put into
//! the [grant table](super::grants) where it can be recognised, and the consumer says there that it
//! has read that. Without that word no payload goes by reference, and a consumer that later cannot
//! read takes it back. Each read brings those bytes along, so a process that has ended or become
//! another program is not taken for the producer. What a record names is the producer's own memory,
//! as the kernel lets it be reached: a record of nonsense harms its author alone.
//!
//! # Withdrawal
//! Nothing of the producer is written, so it need not wait for a copy to be over: what was copied
//! too late is no message. The grant table has counts, one for each of the producer's queue pairs
//! (or a few that share one); a record names one of them and its value. Before the producer's
//! application may use memory again that an unacknowledged packet refers to, the count goes on, and
//! the consumer looks at it after it has copied ([`super::claim`]).

use std::cell::Cell;

use super::by_value::Uncopied;
use super::claim::Claim;
use super::cma::{read_known, tail_of};
use super::costs::Costs;
use super::grants::{GrantTable, Nonce};
use super::ring::Wrong;
use super::surroundings::Surroundings;
use rnic_sys::process::Span;

/// Most pieces of memory that a packet refers to.
pub const MOST_PIECES: usize = 16;
/// Most bytes.
pub const MOST_BY_REFERENCE: usize = 256 * 1024;

const CLAIM_LEN: usize = 16;
const PIECE_LEN: usize = 16;

/// Bytes in front of the headers in the record of a packet that refers to so many pieces.
pub(super) fn preface_len(pieces: usize) -> usize {
    CLAIM_LEN + pieces * PIECE_LEN
}

/// Writes what is in front of the headers.
pub(super) fn write_preface(out: &mut [u8], claim: Claim, pieces: &[Span]) {
    let first = u64::from(claim.slot) << 32 | pieces.len() as u64;
    let words = [first, claim.count].into_iter();
    let places = pieces.iter().flat_map(|p| [p.at() as u64, p.len() as u64]);
    for (to, word) in out.chunks_exact_mut(8).zip(words.chain(places)) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
}

/// The process that a ring comes from, whose memory this one may read.
#[derive(Debug)]
pub(super) struct Source {
    pid: u32,
    nonce: Nonce,
    costs: Costs,
    /// What the grant table says of them.
    said: Cell<u64>,
}

impl Source {
    /// Finds out whether that process can be read; if so, the grant table says it from now on.
    pub(super) fn try_it(table: &GrantTable, pid: u32, on: &Surroundings) -> Option<Source> {
        let nonce = table.introduction().filter(|_| pid != 0)?;
        let source = Source {
            pid,
            nonce,
            costs: Costs::on(on),
            said: Cell::new(0),
        };
        // SAFETY: no memory of this process is named.
        let read = unsafe { source.read(&[Span::EMPTY], &[Span::EMPTY]) };
        (read == Some(0)).then(|| {
            table.take_references(true);
            source
        })
    }

    /// What copies take.
    pub(super) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Lets the producer know which kind of long packet is the faster one.
    #[inline]
    pub(super) fn advise(&self, table: &GrantTable) {
        let limit = self.costs.limit();
        if Costs::differ(self.said.get(), limit) {
            self.said.set(limit);
            table.limit_by_value(limit);
        }
    }

    /// Reads from the process into memory of this one. Gives how many bytes; `None`: the process is
    /// not it, or may not be read.
    ///
    /// # Safety
    /// `to` is memory that may be written.
    unsafe fn read(&self, from: &[Span], to: &[Span]) -> Option<usize> {
        // SAFETY: the call writes `to`, which it may, by the caller's word.
        unsafe { read_known(self.pid, self.nonce, from, to) }.ok()
    }
}

/// Where the payload of a packet is that goes by reference.
#[derive(Clone, Copy, Debug)]
pub struct ByReference<'a> {
    table: &'a GrantTable,
    source: &'a Source,
    claim: Claim,
    pieces: &'a [Span],
    len: usize,
}

/// The pieces of a record.
pub(super) type Pieces = [Span; MOST_PIECES];

impl<'a> ByReference<'a> {
    /// What a record says, and its headers.
    pub(super) fn parse<'r>(
        record: &'r [u8],
        (table, source): (&'a GrantTable, &'a Source),
        pieces: &'a mut Pieces,
    ) -> Result<(ByReference<'a>, &'r [u8]), Wrong> {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let (claim, rest) = record.split_at_checked(CLAIM_LEN).ok_or(Wrong)?;
        let (first, count) = (word(&claim[..8]), word(&claim[8..]));
        let known = first as u32 as usize;
        let slot = (first >> 32) as u32;
        let pieces = pieces.get_mut(..known).ok_or(Wrong)?;
        let (places, headers) = rest.split_at_checked(known * PIECE_LEN).ok_or(Wrong)?;
        let mut len = 0_usize;
        for (piece, place) in pieces.iter_mut().zip(places.chunks_exact(PIECE_LEN)) {
            *piece = Span::new(word(&place[..8]) as usize, word(&place[8..]) as usize);
            len = len.checked_add(piece.len()).ok_or(Wrong)?;
        }
        if len > MOST_BY_REFERENCE {
            return Err(Wrong);
        }
        let payload = ByReference {
            table,
            source,
            claim: Claim { slot, count },
            pieces,
            len,
        };
        Ok((payload, headers))
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes `from..from + len` of the payload to `to`, the [last of them](tail_of) last.
    ///
    /// # Errors
    /// They cannot be had any more; part of `to` may be written. So it is as well if `to` is gone:
    /// the kernel does not say which of the two it was.
    ///
    /// # Safety
    /// `[to, to + len)` is memory that may be written, or is not mapped so.
    pub unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) -> Result<(), Uncopied> {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Uncopied::Lost);
        }
        let mut remote = [Span::EMPTY; MOST_PIECES];
        let (mut skip, mut left, mut count) = (from, len, 0);
        for piece in self.pieces {
            let (before, rest) = piece.split_at(skip);
            skip -= before.len();
            let (part, _) = rest.split_at(left);
            left -= part.len();
            if part.len() > 0 {
                remote[count] = part;
                count += 1;
            }
        }
        let whole = Span::new(to as usize, len);
        let (body, tail) = whole.split_at(len - tail_of(to as u64, len as u64) as usize);
        // SAFETY: both are parts of the `len` bytes at `to`, which may be written, by the caller's
        // word.
        let copy = || unsafe { self.source.read(&remote[..count], &[body, tail]) };
        let copied = self.source.costs.of_by_reference(len, copy);
        if copied.is_none() {
            // Nor will it be possible later: what comes next need not be tried.
            self.table.take_references(false);
        }
        match copied == Some(len) && self.table.stands(self.claim) {
            true => Ok(()),
            false => Err(Uncopied::Lost),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
