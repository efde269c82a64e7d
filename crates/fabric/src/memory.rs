//! Registered memory with guards around it.
//!
//! A region's addresses, as work requests and packets name them, do not depend on where it lies in
//! this process: runs can be compared.

use std::cell::Cell;

use rnic_nic::{Access, Mr, Pd, Sge};

/// Bytes on each side that nobody is granted.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

/// The region's address lies as far in its page as the memory does in its own.
const PAGE: usize = 1 << 16;

/// Memory, its region, and the guards.
pub(crate) struct Memory {
    /// Dropped first: then nobody touches the bytes any more.
    mr: Mr,
    bytes: Box<[Cell<u8>]>,
    /// Where in `bytes` the region begins.
    start: usize,
    len: usize,
}

impl Memory {
    /// `len` bytes, which are what `fill` says, registered at the address `iova`.
    pub(crate) fn new(
        pd: &Pd,
        (iova, len): (u64, usize),
        access: Access,
        fill: impl Fn(usize) -> u8,
    ) -> Result<Memory, rnic_nic::Error> {
        let bytes = vec![GUARD_BYTE; len + 2 * GUARD + PAGE];
        let bytes: Box<[Cell<u8>]> = bytes.into_iter().map(Cell::new).collect();
        let lies = bytes[GUARD..].as_ptr().addr() % PAGE;
        let start = GUARD + (PAGE + iova as usize % PAGE - lies) % PAGE;
        for (at, cell) in bytes[start..start + len].iter().enumerate() {
            cell.set(fill(at));
        }
        let pointer = bytes[start..].as_ptr().cast_mut().cast();
        // SAFETY: `bytes` outlives the region, which is dropped before it, and all access to them is
        // by cells, of one thread at a time.
        let mr = unsafe { pd.reg_mr(pointer, len, iova, access) }?;
        Ok(Memory {
            mr,
            bytes,
            start,
            len,
        })
    }

    /// The key, for its owner and for peers.
    pub(crate) fn key(&self) -> u32 {
        self.mr.rkey()
    }

    /// The address of a byte.
    pub(crate) fn address(&self, at: usize) -> u64 {
        self.mr.addr() + at as u64
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        Sge {
            addr: self.address(at),
            length: len as u32,
            lkey: self.mr.lkey(),
        }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes[self.start + at].get()
    }

    /// Eight bytes as a number, as this machine has it.
    pub(crate) fn word(&self, at: usize) -> u64 {
        let bytes = std::array::from_fn(|i| self.byte(at + i));
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn fill(&self, at: usize, len: usize, byte: u8) {
        for cell in &self.bytes[self.start + at..self.start + at + len] {
            cell.set(byte);
        }
    }

    /// The first byte that is not what `wanted` says.
    pub(crate) fn differs(
        &self,
        at: usize,
        len: usize,
        wanted: impl Fn(usize) -> u8,
    ) -> Option<usize> {
        (at..at + len).find(|at| self.byte(*at) != wanted(*at))
    }

    /// Nobody has written beside the region.
    pub(crate) fn guards_hold(&self) -> bool {
        let end = self.start + self.len;
        let guards = &self.bytes[self.start - GUARD..self.start];
        let guards = guards.iter().chain(&self.bytes[end..end + GUARD]);
        guards.map(Cell::get).all(|byte| byte == GUARD_BYTE)
    }
}
