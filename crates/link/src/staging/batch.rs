//! The staging buffer: packets are built here one behind the other, and leave in runs.
//!
//! A run is a row of packets of one route and one length (the last may be shorter): what one
//! `sendmsg` with UDP_SEGMENT takes. Packets are always copied here, so that the ICRC and the bytes
//! sent cannot disagree when the application or an inbound WRITE changes its buffer meanwhile, and
//! a run of small packets is one contiguous copy.
//!
//! A packet gets its ICRC when the next one is begun, while it is still in the nearest cache. The
//! kernel numbers the packets of a run from 0 (see [`crate::staging::framing`]), so its place in
//! the run is its IP identification.

use std::sync::Arc;

use rnic_wire::ICRC_LEN;

use crate::staging::path::Route;

/// Bytes of a staging buffer: four full GSO batches.
pub const CAPACITY: usize = 256 * 1024;

/// A row of packets of one route, in the buffer of its [`TxBatch`].
#[derive(Clone, Debug)]
pub struct Run {
    /// Where they go; `None`: the path was unknown, they are lost.
    pub route: Option<Arc<Route>>,
    /// Offset of the first packet.
    pub start: usize,
    /// Bytes of all packets.
    pub len: usize,
    /// Length of each packet but the last, including the ICRC.
    pub segment: usize,
    /// Packets.
    pub count: usize,
}

impl Run {
    fn takes(&self, route: Option<&Arc<Route>>, len: usize, max_segments: usize) -> bool {
        let same = match (&self.route, route) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) && self.len + len <= b.max_run_bytes(),
            _ => false,
        };
        same && self.count < max_segments
            && len <= self.segment
            && self.len == self.segment * self.count
    }
}

/// Packets on their way to the link.
#[derive(Debug)]
pub struct TxBatch {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    last_len: Option<usize>,
    /// The packet given out last has no ICRC yet.
    open: bool,
}

impl Default for TxBatch {
    fn default() -> TxBatch {
        TxBatch::with_capacity(CAPACITY)
    }
}

impl TxBatch {
    /// An empty batch with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> TxBatch {
        TxBatch {
            bytes: vec![0; capacity].into(),
            used: 0,
            runs: Vec::with_capacity(64),
            last_len: None,
            open: false,
        }
    }

    /// Room for a packet of `len` bytes and, behind it, its ICRC; the slice is the `len` bytes,
    /// with arbitrary content, which count as filled in at the next call. `None`: no room is left.
    /// `max_segments`: longest run that the link can take for this route.
    pub fn packet(
        &mut self,
        route: Option<&Arc<Route>>,
        len: usize,
        max_segments: usize,
    ) -> Option<&mut [u8]> {
        self.finish();
        let whole = len.checked_add(ICRC_LEN)?;
        let start = self.used;
        let end = start.checked_add(whole)?;
        if end > self.bytes.len() {
            return None;
        }
        match self.runs.last_mut() {
            Some(run) if run.takes(route, whole, max_segments) => {
                run.len += whole;
                run.count += 1;
            }
            _ => self.runs.push(Run {
                route: route.cloned(),
                start,
                len: whole,
                segment: whole,
                count: 1,
            }),
        }
        self.used = end;
        self.last_len = Some(whole);
        self.open = true;
        Some(&mut self.bytes[start..start + len])
    }

    /// As [`packet`](TxBatch::packet), one after the other, at most `most`, each of which `build`
    /// fills in, until it says false and the last is taken back; how many.
    #[inline]
    pub fn row(
        &mut self,
        route: Option<&Arc<Route>>,
        len: usize,
        max_segments: usize,
        most: usize,
        mut build: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        for count in 0..most {
            let Some(packet) = self.packet(route, len, max_segments) else {
                return count;
            };
            if !build(packet) {
                self.retract();
                return count;
            }
        }
        most
    }

    /// All packets given out are filled in: all have their ICRCs from now on.
    #[inline]
    pub fn finish(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        if let (Some(len), Some(run)) = (self.last_len, self.runs.last())
            && let Some(route) = &run.route
        {
            let packet = &mut self.bytes[self.used - len..self.used];
            route.icrc.append((run.count - 1) as u16, true, packet);
        }
    }

    /// Takes back the packet given out last; does nothing if that was already done.
    pub fn retract(&mut self) {
        let (Some(len), Some(run)) = (self.last_len.take(), self.runs.last_mut()) else {
            return;
        };
        self.open = false;
        self.used -= len;
        run.len -= len;
        run.count -= 1;
        if run.count == 0 {
            self.runs.pop();
        }
    }

    /// Appends a packet that already has its ICRC as a run of its own; false: no room.
    pub fn push_sealed(&mut self, route: &Arc<Route>, packet: &[u8]) -> bool {
        let Some(len) = packet.len().checked_sub(ICRC_LEN) else {
            return true;
        };
        if self.packet(Some(route), len, 1).is_none() {
            return false;
        }
        self.open = false;
        let start = self.used - packet.len();
        self.bytes[start..self.used].copy_from_slice(packet);
        true
    }

    /// No packet is staged.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
        self.last_len = None;
        self.open = false;
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of a run.
    pub fn bytes(&self, run: &Run) -> &[u8] {
        &self.bytes[run.start..run.start + run.len]
    }

    /// The runs and the buffer that they point into.
    pub fn parts_mut(&mut self) -> (&[Run], &mut [u8]) {
        (&self.runs, &mut self.bytes)
    }
}

#[cfg(test)]
mod tests;
