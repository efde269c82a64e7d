//! The only code that touches user memory.
//!
//! Every function takes a [`Place`] that the table granted for that many bytes ([`super::grants`]),
//! under the engine's lock, which [`super::MemoryTable::remove`] needs too: the region behind it is
//! still registered. By the contract of [`super::MemoryTable::insert`] its memory is still there. A
//! program that breaks its promise gets an error: what is reached directly is copied by
//! [`rnic_sys::guarded`], which notices, and everything else by the kernel.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use rnic_link::{Detached, Uncopied, Vacant};
use rnic_sys::guarded::{self, Word};
use rnic_transport::{AtomicOp, Misplaced};
use rnic_wire::PathMtu;

use super::fault::Fault;

/// How the bytes of a region are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// Directly: whoever registered the memory is to keep it.
    Pinned,
    /// Through the kernel, which says when a page is not there: on-demand paging.
    Paged,
    /// Nothing: reads as zeros, swallows what is written (`ibv_alloc_null_mr(3)`).
    Null,
    /// Another process's memory, which [`super::foreign`] reaches.
    Foreign,
}

/// Where a packet lies whose payload is detached ([`rnic_wire::Payload::Detached`]): in the
/// peer's memory, or in a ring.
pub(crate) trait PacketMemory {
    /// Copies bytes `from..from + len` of the packet, counted from its BTH, to `to`, the last of
    /// them last, as [`Place::write`] does.
    ///
    /// # Errors
    /// They cannot be had, or `to` is gone; part of it may be written.
    ///
    /// # Safety
    /// `[to, to + len)` is memory for [`guarded::copy`] to write. Other threads may access it
    /// meanwhile, so no reference to it may be made.
    unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) -> Result<(), Uncopied>;
}

/// A packet whose payload is detached from its headers.
pub(crate) struct DetachedPacket<'a> {
    pub(crate) payload: Detached<'a>,
    /// The path MTU of who sent it.
    pub(crate) mtu: PathMtu,
    /// Bytes of the packet before that.
    pub(crate) headers: usize,
}

impl PacketMemory for DetachedPacket<'_> {
    unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) -> Result<(), Uncopied> {
        let from = from.checked_sub(self.headers).ok_or(Uncopied::Lost)?;
        let in_ring = match &self.payload {
            // SAFETY: by contract.
            Detached::ByReference(payload) => return unsafe { payload.copy_to(from, to, len) },
            Detached::ByValue(in_ring) => in_ring,
        };
        let tail = tail_of(to as usize, len);
        let body = len - tail;
        let mut last = [0; 8];
        // SAFETY: the contract for the body; `last` is ours, and no tail is longer.
        unsafe {
            in_ring.copy_to(from, to, body)?;
            in_ring.copy_to(from + body, last.as_mut_ptr(), tail)?;
        }
        copy_in(to as usize + body, &last[..tail]).map_err(|_| Uncopied::Gone)
    }
}

/// Granted bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) backing: Backing,
}

impl Place {
    /// Copies user memory into a packet. On an error part of `out` may be filled.
    #[inline]
    pub(super) fn read(self, out: &mut [u8]) -> Result<(), Fault> {
        match self.backing {
            Backing::Pinned => return copy_out(self.at, out),
            Backing::Paged => return paged_out(self.at, out),
            Backing::Null => out.fill(0),
            Backing::Foreign => return Err(Fault::Unmapped),
        }
        Ok(())
    }

    /// Copies a packet's payload into user memory, the last bytes last. On an error part of it may
    /// be written.
    ///
    /// Programs spin on the end of a buffer to learn that an RDMA WRITE is complete; hardware
    /// writes in address order. So the tail (a whole aligned word where the end is aligned) is
    /// stored after everything before it.
    #[inline]
    pub(super) fn write(self, data: &[u8]) -> Result<(), Fault> {
        match self.backing {
            Backing::Pinned => return copy_in(self.at, data),
            Backing::Paged => return paged_in(self.at, data),
            Backing::Null => {}
            Backing::Foreign => return Err(Fault::Unmapped),
        }
        Ok(())
    }

    /// [`Place::write`] of `len` bytes that lie in `packet` from `from` on.
    pub(super) fn pull(
        self,
        packet: &dyn PacketMemory,
        from: usize,
        len: usize,
    ) -> Result<(), Misplaced<Fault>> {
        match self.backing {
            Backing::Pinned => pull_in(self.at, packet, from, len),
            Backing::Paged => paged_pull(self.at, packet, from, len),
            Backing::Null => Ok(()),
            Backing::Foreign => Err(Fault::Unmapped.into()),
        }
    }

    /// Copies `len` bytes to where the link wants them. False: they are not reached directly, or
    /// gone.
    pub(super) fn carry(self, len: usize, vacant: &Vacant<'_>, at: usize) -> bool {
        // SAFETY: the table granted `len` bytes here; see the module's contract. As in `copy_out`
        // the application may change them meanwhile.
        self.backing == Backing::Pinned
            && unsafe { vacant.write_from(at, self.at as *const u8, len) }
    }

    /// Stores 8 bytes at once.
    pub(super) fn store(self, value: [u8; 8]) -> Result<(), Fault> {
        let Some(cell) = self.cell()? else {
            return Ok(());
        };
        let word = Word::Whole(u64::from_ne_bytes(value));
        // SAFETY: see `cell`.
        there(unsafe { guarded::store(cell.cast(), word) })
    }

    /// Executes an atomic on 8 bytes and gives the value before.
    pub(super) fn atomic(self, op: AtomicOp) -> Result<u64, Fault> {
        let Some(cell) = self.cell()? else {
            return Ok(0);
        };
        // SAFETY: see `cell`.
        let before = unsafe {
            match op {
                AtomicOp::FetchAdd { add } => guarded::fetch_add(cell, add),
                AtomicOp::CompareSwap { compare, swap } => {
                    guarded::compare_swap(cell, compare, swap)
                }
            }
        };
        before.ok_or(Fault::Unmapped)
    }

    /// The next thing that any thread or process sees of this one, it sees after the writes that
    /// were done.
    pub(super) fn make_visible(self) {
        fence(Ordering::SeqCst);
    }

    /// Writes `len` bytes of a shared mapping to its file, and waits for the disk.
    pub(super) fn make_persistent(self, len: u64) -> Result<(), Fault> {
        rnic_sys::write_back(self.at, len as usize).map_err(|_| Fault::Unmapped)
    }

    /// The 8 bytes for the CPU's atomics, aligned; `None` where there is nothing. The table granted
    /// them, see the module's contract, so [`guarded`] may use them. Atomics tolerate concurrent
    /// accesses of the CPU.
    fn cell(self) -> Result<Option<*mut u64>, Fault> {
        if !self.at.is_multiple_of(8) {
            // An aligned iova over an unaligned buffer: the CPU could not do it atomically.
            return Err(Fault::OutOfRange);
        }
        match self.backing {
            Backing::Null => return Ok(None),
            // Not even by hand.
            Backing::Foreign => return Err(Fault::NoRight),
            // No system call executes a 64-bit atomic for us. The page is fetched for writing
            // first.
            Backing::Paged => rnic_sys::populate(self.at, 8, true).map_err(|_| Fault::Unmapped)?,
            Backing::Pinned => {}
        }
        Ok(Some(self.at as *mut u64))
    }
}

/// Memory that a guarded access found there, or not.
fn there(found: bool) -> Result<(), Fault> {
    found.then_some(()).ok_or(Fault::Unmapped)
}

fn copy_out(at: usize, out: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the table granted `out.len()` bytes at `at`; see the module's contract. `out` is a
    // packet buffer of the engine, which no user region can overlap usefully; the application may
    // change its bytes meanwhile, as with DMA: any mix of old and new bytes is then a valid
    // outcome, and the ICRC is taken over the copy.
    there(unsafe { guarded::copy(at as *const u8, out.as_mut_ptr(), out.len()) })
}

/// Length of the part that is stored last.
pub(super) fn tail_of(at: usize, len: usize) -> usize {
    rnic_link::tail_of(at as u64, len as u64) as usize
}

fn copy_in(at: usize, data: &[u8]) -> Result<(), Fault> {
    let Some((last, head)) = data.split_last() else {
        return Ok(());
    };
    let tail = tail_of(at, data.len());
    let body = data.len() - tail;
    let word = match tail {
        8 => Word::Whole(u64::from_ne_bytes(
            data[body..].try_into().unwrap_or_default(),
        )),
        4 => Word::Half(u32::from_ne_bytes(
            data[body..].try_into().unwrap_or_default(),
        )),
        _ => {
            debug_assert_eq!(head.len(), body);
            Word::Byte(*last)
        }
    };
    // SAFETY: the table granted `data.len()` bytes at `at`; see the module's contract (or
    // `PacketMemory::copy_to`'s). The word is aligned because the end of the range is, and lies
    // within the range because `tail <= data.len()`.
    there(unsafe {
        guarded::copy(data.as_ptr(), at as *mut u8, body) && {
            fence(Ordering::Release);
            guarded::store((at + body) as *mut u8, word)
        }
    })
}

fn pull_in(
    at: usize,
    packet: &dyn PacketMemory,
    from: usize,
    len: usize,
) -> Result<(), Misplaced<Fault>> {
    // SAFETY: the table granted `len` bytes at `at`; see the module's contract.
    unsafe { packet.copy_to(from, at as *mut u8, len) }.map_err(|why| match why {
        Uncopied::Lost => Misplaced::Lost,
        Uncopied::Gone => Fault::Unmapped.into(),
    })
}

/// Copies a part of `packet` that is `out.len()` bytes long; false: it cannot be had.
pub(crate) fn fetch(packet: &dyn PacketMemory, from: usize, out: &mut [u8]) -> bool {
    // SAFETY: `out` is ours to write.
    unsafe { packet.copy_to(from, out.as_mut_ptr(), out.len()) }.is_ok()
}

/// Copies from `packet` into memory that may not be there, by way of a buffer, in order.
fn paged_pull(
    at: usize,
    packet: &dyn PacketMemory,
    from: usize,
    len: usize,
) -> Result<(), Misplaced<Fault>> {
    let mut buffer = [0; 4096];
    let mut done = 0;
    while done < len {
        let part = &mut buffer[..(len - done).min(4096)];
        if !fetch(packet, from + done, part) {
            return Err(Misplaced::Lost);
        }
        paged_in(at + done, part)?;
        done += part.len();
    }
    Ok(())
}

/// Copies out of memory that may not be there: the kernel does it and says so.
fn paged_out(at: usize, out: &mut [u8]) -> Result<(), Fault> {
    let local = [iovec(out.as_mut_ptr() as usize, out.len())];
    let remote = [iovec(at, out.len())];
    // SAFETY: the kernel writes into `out` alone, and checks the other side, which is this
    // process's own memory.
    let copied =
        unsafe { libc::process_vm_readv(own_pid(), local.as_ptr(), 1, remote.as_ptr(), 1, 0) };
    match outcome(copied, out.len(), at, false)? {
        By::Hand => copy_out(at, out),
        By::Kernel => Ok(()),
    }
}

/// Copies into memory that may not be there.
fn paged_in(at: usize, data: &[u8]) -> Result<(), Fault> {
    let tail = tail_of(at, data.len());
    let body = data.len() - tail;
    let local = [iovec(data.as_ptr() as usize, data.len())];
    // One after the other, so the tail is stored last.
    let remote = [iovec(at, body), iovec(at.wrapping_add(body), tail)];
    // SAFETY: the kernel reads `data` alone, and checks the other side, which is this process's own
    // memory; that it may be written there is what the region's rights say.
    let copied =
        unsafe { libc::process_vm_writev(own_pid(), local.as_ptr(), 1, remote.as_ptr(), 2, 0) };
    match outcome(copied, data.len(), at, true)? {
        By::Hand => copy_in(at, data),
        By::Kernel => Ok(()),
    }
}

enum By {
    Kernel,
    /// The system call is forbidden here (seccomp): the pages were fetched, and are ours to copy.
    Hand,
}

fn outcome(copied: isize, wanted: usize, at: usize, write: bool) -> Result<By, Fault> {
    if usize::try_from(copied) == Ok(wanted) {
        return Ok(By::Kernel);
    }
    let forbidden = copied < 0
        && matches!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EPERM | libc::ENOSYS)
        );
    if forbidden && rnic_sys::populate(at, wanted, write).is_ok() {
        return Ok(By::Hand);
    }
    Err(Fault::Unmapped)
}

fn iovec(at: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: len,
    }
}

fn own_pid() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Memory of the device itself: words, so that the CPU's atomics work on it.
#[derive(Debug)]
pub(super) struct OwnMemory(Box<[AtomicU64]>);

impl OwnMemory {
    /// Zeroed; `None` if there is no memory.
    pub(super) fn new(len: usize) -> Option<OwnMemory> {
        let words = len.div_ceil(8);
        let mut memory = Vec::new();
        memory.try_reserve_exact(words).ok()?;
        memory.resize_with(words, AtomicU64::default);
        Some(OwnMemory(memory.into_boxed_slice()))
    }

    /// Where it is, for [`super::MemoryTable::insert`].
    pub(super) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The place `offset` bytes in; the caller has checked the range.
    pub(super) fn place(&self, offset: usize) -> Place {
        Place {
            at: self.address() + offset,
            backing: Backing::Pinned,
        }
    }
}
