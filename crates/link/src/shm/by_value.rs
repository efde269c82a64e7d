//! Payload by value: the producer copies it into the ring, and the consumer from there to where it
//! belongs.

use super::costs::{Costs, Turns};
#[cfg(doc)]
use rnic_sys::guarded;
use rnic_sys::segment::Segment;

/// Why payload is not where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncopied {
    /// It cannot be had (any more).
    Lost,
    /// The memory where it belongs was unmapped, or made read-only.
    Gone,
}

/// The most payload of a multi-PSN packet. A longer one keeps the consumer waiting
/// for its first byte while its last is copied, and leaves the caches before it is copied out;
/// shorter ones cost more headers.
pub const MOST_BY_VALUE: usize = 16 * 1024;
/// Bytes in a ring. Their author may change them at any time: each copy may differ.
#[derive(Clone, Copy, Debug)]
pub struct ByValue<'a> {
    pub(super) segment: &'a Segment,
    pub(super) at: usize,
    pub(super) len: usize,
    /// Where it is noted what copies take.
    pub(super) costs: Option<&'a Costs>,
}

impl ByValue<'_> {
    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes `from..from + len` to `to`, in no particular order.
    ///
    /// # Errors
    /// There are not that many, or `to` is gone.
    ///
    /// # Safety
    /// `[to, to + len)` is memory for [`guarded::copy`] to write.
    pub unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) -> Result<(), Uncopied> {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Uncopied::Lost);
        }
        // SAFETY: `to` is what the caller says. It is none of this mapping, as no mapping of a ring
        // is given out as memory.
        let copy = || unsafe { self.segment.read_to(self.at + from, to, len) };
        let copied = match self.costs {
            Some(costs) => costs.of_by_value(len, copy),
            None => copy(),
        };
        if copied { Ok(()) } else { Err(Uncopied::Gone) }
    }
}

/// Room in a ring for payload.
#[derive(Debug)]
pub struct Vacant<'a> {
    pub(super) segment: &'a Segment,
    pub(super) at: usize,
    pub(super) len: usize,
    /// Where it is noted what copies take.
    pub(super) turns: Option<&'a Turns>,
}

impl Vacant<'_> {
    /// Copies bytes to `at` and behind it.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "inside");
        self.segment.write(self.at + at, bytes);
    }

    /// The same, of bytes that may change meanwhile. False: they are gone.
    ///
    /// # Safety
    /// `[from, from + len)` is memory for [`guarded::copy`] to read.
    ///
    /// # Panics
    /// If there is no room for them.
    pub unsafe fn write_from(&self, at: usize, from: *const u8, len: usize) -> bool {
        assert!(at <= self.len && len <= self.len - at, "inside");
        // SAFETY: `from` is what the caller says. It is none of this mapping, as no mapping of a
        // ring is given out as memory.
        let copy = || unsafe { self.segment.write_from(self.at + at, from, len) };
        match self.turns {
            Some(turns) => turns.of_by_value(len, copy),
            None => copy(),
        }
    }
}
