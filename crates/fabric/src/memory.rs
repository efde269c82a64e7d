//! Registered memory with guards around it.
//!
//! A region's addresses, as work requests and packets name them, do not depend on where it lies in
//! this process: runs can be compared.

use std::cell::Cell;

use rnic_nic::{Access, Mr, Pd, Sge};

/// Bytes on each side that nobody is granted.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// What its owner writes to memory when it was deregistered.
const REUSED: u8 = 0x99;

/// Memory, its region, and the guards.
pub(crate) struct Memory {
    /// Dropped first: then nobody touches the bytes any more.
    mr: Mr,
    bytes: Box<[Cell<u8>]>,
    /// Where in `bytes` the region begins.
    start: usize,
    len: usize,
    /// It was deregistered, and holds something else.
    is_reused: bool,
}

impl Memory {
    /// `len` bytes, which `fill` fills in, registered at the address `iova`.
    pub(crate) fn new(
        pd: &Pd,
        (iova, len): (u64, usize),
        access: Access,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Memory, rnic_nic::Error> {
        // The region's address has to lie as far in its page as the memory does in its own.
        let page = rnic_sys::page_size();
        let mut bytes = vec![GUARD_BYTE; len + 2 * GUARD + page].into_boxed_slice();
        let lies = bytes[GUARD..].as_ptr().addr() % page;
        let start = GUARD + (page + iova as usize % page - lies) % page;
        fill(&mut bytes[start..start + len]);
        let bytes = in_cells(bytes);
        let pointer = bytes[start..].as_ptr().cast_mut().cast();
        // SAFETY: `bytes` outlives the region, which is dropped before it. All access to them is by
        // cells, of one thread at a time.
        let mr = unsafe { pd.reg_mr(pointer, len, iova, access) }?;
        Ok(Memory {
            mr,
            bytes,
            start,
            len,
            is_reused: false,
        })
    }

    /// Deregisters it, and uses its bytes for something else. False: it is in use, and stays
    /// registered.
    pub(crate) fn deregister(&mut self) -> bool {
        if self.mr.try_deregister().is_err() {
            return false;
        }
        self.fill(0, self.len, REUSED);
        self.is_reused = true;
        true
    }

    /// If it was deregistered, nobody has touched it since.
    pub(crate) fn is_left_alone(&self) -> bool {
        !self.is_reused || self.differs(0, &vec![REUSED; self.len]).is_none()
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

    /// Looks at bytes. No device may run meanwhile, so `look` calls none.
    pub(crate) fn with<T>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        let cells = &self.bytes[self.start + at..self.start + at + len];
        // SAFETY: a cell of a byte is a byte. Nothing writes to it as long as this thread does not
        // call the device, which has no thread of its own.
        look(unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) })
    }

    /// Eight bytes as a number, as this machine has it.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.with(at, 8, |bytes| {
            u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
        })
    }

    pub(crate) fn fill(&self, at: usize, len: usize, byte: u8) {
        for cell in &self.bytes[self.start + at..self.start + at + len] {
            cell.set(byte);
        }
    }

    /// The first byte that is not the one of `wanted`.
    pub(crate) fn differs(&self, at: usize, wanted: &[u8]) -> Option<usize> {
        self.with(at, wanted.len(), |bytes| match bytes == wanted {
            true => None,
            false => bytes
                .iter()
                .zip(wanted)
                .position(|(is, wanted)| is != wanted),
        })
    }

    /// Nobody has written beside the region.
    pub(crate) fn guards_hold(&self) -> bool {
        let end = self.start + self.len;
        let guards = &self.bytes[self.start - GUARD..self.start];
        let guards = guards.iter().chain(&self.bytes[end..end + GUARD]);
        guards.map(Cell::get).all(|byte| byte == GUARD_BYTE)
    }
}

fn in_cells(bytes: Box<[u8]>) -> Box<[Cell<u8>]> {
    let bytes: *mut [u8] = Box::into_raw(bytes);
    // SAFETY: a cell of a byte has its layout, and the box is nobody else's.
    unsafe { Box::from_raw(bytes as *mut [Cell<u8>]) }
}
