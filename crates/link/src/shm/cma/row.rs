//! Several short operations in one call: what each by itself costs is the way into the kernel, more
//! than the copy.

use std::io;

use super::{CmaWindow, MOST_SPANS, Memory, is_at_once, read_known, tail_of};
use crate::shm::grants::Request;
use rnic_sys::process::{self, Span};

/// A whole WRITE or READ, for [`CmaWindow::copy_row`].
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// What it asks for.
    pub request: Request,
    /// Pieces of local memory, which have as many bytes.
    pub pieces: usize,
}

impl Whole {
    /// Of them in a row.
    pub const MOST: usize = 16;
    /// None.
    pub const EMPTY: Whole = Whole {
        request: Request::EMPTY,
        pieces: 0,
    };
}

/// Pieces of the other side: of a WRITE two, see [`tail_of`].
const MOST_PLACES: usize = 2 * Whole::MOST;

/// What of a row is granted: where it is in the process.
struct Places {
    spans: [Span; MOST_PLACES],
    count: usize,
    /// Bytes of each operation, of which there are `operations`.
    lengths: [u64; Whole::MOST],
    operations: usize,
    /// Pieces of this side.
    pieces: usize,
}

impl Places {
    fn new() -> Places {
        Places {
            spans: [Span::EMPTY; MOST_PLACES],
            count: 0,
            lengths: [0; Whole::MOST],
            operations: 0,
            pieces: 0,
        }
    }

    fn push(&mut self, at: u64, len: u64) {
        if len > 0 {
            self.spans[self.count] = Span::new(at as usize, len as usize);
            self.count += 1;
        }
    }

    fn add(&mut self, write: bool, at: u64, len: u64, pieces: usize) {
        let tail = if !write || is_at_once(at, len) {
            len
        } else {
            tail_of(at, len)
        };
        // The kernel copies one after the other.
        self.push(at, len - tail);
        self.push(at + (len - tail), tail);
        self.lengths[self.operations] = len;
        self.operations += 1;
        self.pieces += pieces;
    }

    fn spans(&self) -> &[Span] {
        &self.spans[..self.count]
    }

    /// How many operations so many bytes are.
    fn whole(&self, mut copied: u64) -> (usize, u64) {
        let mut whole = (0, 0);
        for len in &self.lengths[..self.operations] {
            let Some(left) = copied.checked_sub(*len) else {
                break;
            };
            copied = left;
            whole = (whole.0 + 1, whole.1 + len);
        }
        whole
    }
}

impl CmaWindow {
    /// As [`CmaWindow::copy`], of several operations, one after the other: those that are whole,
    /// and short if it is to be worth it. `local` has the pieces of all. Gives how many were
    /// copied; of the next one, some bytes may be.
    ///
    /// # Safety
    /// As [`CmaWindow::copy`].
    pub unsafe fn copy_row(&self, write: bool, row: &[Whole], local: &[Span]) -> usize {
        let memory = match self.memory() {
            Some(memory) if row.len() > 1 && local.len() <= MOST_SPANS => memory,
            // SAFETY: `local` is memory for the copy, by the caller's word, and is handed on as it
            // is.
            _ => return unsafe { self.copy_each(write, row, local) },
        };
        if memory.must_go_by_file() {
            // SAFETY: `local` is memory for the copy, by the caller's word, and is handed on as it
            // is.
            return unsafe { self.copy_each(write, row, local) };
        }
        if self.is_over() {
            return 0;
        }
        let (operations, bytes) = self.in_turn(|| {
            let places = self.places(write, row, local);
            if places.operations == 0 {
                return (0, 0);
            }
            let ours = &local[..places.pieces];
            // SAFETY: `ours` is a part of `local`, which is memory for the copy, by the caller's
            // word.
            let copied = unsafe {
                if write {
                    memory.write_row(self.pid, ours, places.spans())
                } else {
                    memory.read_row(self.pid, ours, places.spans())
                }
            };
            places.whole(copied.unwrap_or(0) as u64)
        });
        self.count(write, bytes);
        operations
    }

    /// Where they are, up to the first that is not granted.
    fn places(&self, write: bool, row: &[Whole], local: &[Span]) -> Places {
        let mut places = Places::new();
        for whole in row.iter().take(Whole::MOST) {
            let pieces = local.get(places.pieces..places.pieces + whole.pieces);
            let len = pieces.map_or(0, |all| all.iter().map(|span| span.len() as u64).sum());
            if len != whole.request.len {
                break;
            }
            let Some(at) = self.table.place(&whole.request, write) else {
                break;
            };
            places.add(write, at, len, whole.pieces);
        }
        places
    }

    /// One by one.
    ///
    /// # Safety
    /// As [`CmaWindow::copy`].
    unsafe fn copy_each(&self, write: bool, row: &[Whole], mut local: &[Span]) -> usize {
        let mut copied = 0;
        for whole in row {
            let Some((ours, others)) = local.split_at_checked(whole.pieces) else {
                break;
            };
            local = others;
            // SAFETY: `ours` is a part of `local`, which is memory for the copy, by the caller's
            // word.
            if !unsafe { self.copy(&whole.request, write, 0, ours, true) } {
                break;
            }
            copied += 1;
        }
        copied
    }
}

impl Memory {
    /// # Safety
    /// As [`CmaWindow::copy`].
    unsafe fn write_row(&self, pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
        self.check_alive()?;
        // SAFETY: the call reads `local`, which the kernel may, by the caller's word.
        self.note(unsafe { process::write_to(pid, local, remote) })
    }

    /// # Safety
    /// As [`CmaWindow::copy`].
    unsafe fn read_row(&self, pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
        // SAFETY: the call writes `local`, which the kernel may, by the caller's word.
        self.note(unsafe { read_known(pid, self.nonce, remote, local) })
    }
}
