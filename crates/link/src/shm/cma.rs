//! CMA windows (cross memory attach): the memory of another process of this host, as far as this
//! one may use it. What the other's [grants](super::grants) allow is read and written without a
//! packet, and without any of its time.
//!
//! Whether this is permitted is the kernel's to say (the rules of ptrace(2): same user, Yama, name
//! spaces), and found out by trying, once: a process that may not goes on with packets. A process's
//! number may become another one's, and its memory may become another program's. Its
//! `/proc/PID/mem` stands for the one address space that was there when it was opened; that it is
//! the right one is known from a nonce, which only that process has at that place. Short copies go
//! through that file. It copies twice, so long ones, and several at once ([`row`]), go by
//! process_vm_writev(2) and process_vm_readv(2), which take a number: right before a write the file
//! is asked whether its address space is still in use, and a read brings the nonce along. (Between
//! that question and the write the process would have to execute another program, or to end and
//! another one to get its number.)

mod row;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::claim::Claim;
use super::grants::{GrantTable, Nonce, Request};
use crate::LinkCounters;
use rnic_sys::process::{self, Span};
use rnic_sys::{self as sys, Fd};

pub use row::Whole;

/// Longest copy that goes through the file.
const SHORT: usize = 4096;
/// Most pieces of local memory in one copy, and one more for each that is cut in two.
const MOST_SPANS: usize = 32;

/// What was done without packets, to and from all processes.
#[derive(Debug, Default)]
pub(crate) struct CmaCounters {
    /// Processes whose memory the kernel does not let this one use.
    refused: AtomicU64,
    /// Bytes.
    written: AtomicU64,
    read: AtomicU64,
}

impl CmaCounters {
    pub(crate) fn add_to(&self, counters: &mut LinkCounters) {
        counters.host_out_of_reach += self.refused.load(Ordering::Relaxed);
        counters.tx_reached_bytes += self.written.load(Ordering::Relaxed);
        counters.rx_reached_bytes += self.read.load(Ordering::Relaxed);
    }
}

/// A process whose memory this one may be able to read and write.
#[derive(Debug)]
pub struct CmaWindow {
    table: GrantTable,
    /// 0: its number means nothing here.
    pid: u32,
    turn: AtomicU64,
    /// Its ring is gone.
    over: AtomicBool,
    /// Known when it was tried; `None` in it: not permitted.
    memory: OnceLock<Option<Memory>>,
    counters: Arc<CmaCounters>,
}

#[derive(Debug)]
struct Memory {
    file: Fd,
    nonce: Nonce,
    /// Calls that take a process's number are not permitted.
    only_file: AtomicBool,
}

/// Length of the part of a write that is stored last: programs spin on the end of a buffer to learn
/// that all of it came.
#[inline]
pub fn tail_of(at: u64, len: u64) -> u64 {
    let end = at.wrapping_add(len);
    match len {
        8.. if end.is_multiple_of(8) => 8,
        4.. if end.is_multiple_of(4) => 4,
        _ => len.min(1),
    }
}

/// Length of a cache line.
const LINE: u64 = 64;

/// Nobody sees the end of such a write before the rest of it, so that it needs no part that is
/// stored last: that would be another access to the process, which costs as much as the first, and
/// takes the line away once more from the process that spins on it.
///
/// On x86 stores become visible in their order. Linux copies by a string instruction, whose stores
/// may change their order between lines, or, on processors where such are slow to begin, by its
/// `memcpy_orig`, which stores front to back if it is 4 to 31 bytes; of 2 and 3 the first comes
/// last, and 32 and more may go backwards.
#[inline]
fn is_at_once(at: u64, len: u64) -> bool {
    let forward = len == 1 || (4..32).contains(&len);
    cfg!(target_arch = "x86_64") && forward && len <= LINE - at % LINE
}

impl CmaWindow {
    pub(super) fn new(table: GrantTable, pid: u32, counters: Arc<CmaCounters>) -> CmaWindow {
        CmaWindow {
            table,
            pid,
            turn: AtomicU64::new(0),
            over: AtomicBool::new(false),
            memory: OnceLock::new(),
            counters,
        }
    }

    /// Its number; 0: it has none here.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// A copy begins, and is under way until [`CmaWindow::end_copy`]: for who simulates a process
    /// that does not get to its end.
    pub(super) fn begin_copy(&self) {
        let turn = self.turn.fetch_add(2, Ordering::Relaxed) + 1;
        self.table.begin_copy(turn);
    }

    /// That copy is over.
    pub(super) fn end_copy(&self) {
        self.table.end_copy(self.turn.load(Ordering::Relaxed));
    }

    /// Payload to the process may go by reference.
    #[inline]
    pub(super) fn takes_references(&self) -> bool {
        self.table.takes_references()
    }

    /// What payload by value may cost, see [`super::costs`].
    #[inline]
    pub(super) fn by_value_limit(&self) -> u64 {
        self.table.by_value_limit()
    }

    pub(super) fn claim(&self, qpn: u32) -> Claim {
        self.table.claim(qpn)
    }

    /// To be called before memory may change that unacknowledged packets of that queue pair of this
    /// process refer to: what of them is executed from now on counts as lost.
    pub fn withdraw(&self, qpn: u32) {
        self.table.withdraw(qpn);
    }

    fn memory(&self) -> Option<&Memory> {
        if let Some(tried) = self.memory.get() {
            return tried.as_ref();
        }
        // It may not have accepted the ring yet.
        let nonce = self.table.nonce()?;
        let memory = Memory::open(self.pid, nonce);
        // That says nothing of the process: the next copy tries again.
        if memory.as_ref().is_err_and(is_own_want) {
            return None;
        }
        let tried = || {
            if memory.is_err() {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            memory.ok()
        };
        self.memory.get_or_init(tried).as_ref()
    }

    /// [`CmaWindow::copy`] of a request is granted and permitted at this moment.
    pub fn may_copy(&self, request: &Request, write: bool) -> bool {
        !self.is_over() && self.memory().is_some() && self.table.place(request, write).is_some()
    }

    /// Copies all bytes of `local` to (`write`), or from, what the process has registered under the
    /// request's name: those from byte `from` of the request on. False: the request, as a whole, is
    /// not granted, not permitted, or not all of it could be copied. Nobody sees the last bytes of
    /// a write that `ends` something before the rest. One call at a time.
    ///
    /// # Safety
    /// `local` is memory of this process that the kernel may read (`write`), or write.
    #[inline]
    pub unsafe fn copy(
        &self,
        request: &Request,
        write: bool,
        from: u64,
        local: &[Span],
        ends: bool,
    ) -> bool {
        if self.is_over() || local.len() > MOST_SPANS {
            return false;
        }
        let Some(memory) = self.memory() else {
            return false;
        };
        let len: u64 = local.iter().map(|span| span.len() as u64).sum();
        if from
            .checked_add(len)
            .is_none_or(|behind| behind > request.len)
        {
            return false;
        }
        let copied = self.in_turn(|| {
            let Some(at) = self.table.place(request, write) else {
                return false;
            };
            let at = at + from;
            // SAFETY: `local` is memory that the kernel may read (`write`) or write, by the
            // caller's word.
            let copied = unsafe {
                if write {
                    memory.write(self.pid, at, len, local, ends)
                } else {
                    memory.read(self.pid, at, len, local)
                }
            };
            copied.is_ok()
        });
        if copied {
            self.count(write, len);
        }
        copied
    }

    /// What is granted within `copy` stays so, or is waited for. One call at a time.
    #[inline]
    fn in_turn<T>(&self, copy: impl FnOnce() -> T) -> T {
        let turn = self.turn.fetch_add(2, Ordering::Relaxed) + 1;
        self.table.during(turn, copy)
    }

    #[inline]
    fn count(&self, write: bool, bytes: u64) {
        let count = if write {
            &self.counters.written
        } else {
            &self.counters.read
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// This process has no descriptor or no memory left.
fn is_own_want(error: &io::Error) -> bool {
    sys::is_out_of_descriptors(error) || error.kind() == io::ErrorKind::OutOfMemory
}

impl Memory {
    fn open(pid: u32, nonce: Nonce) -> io::Result<Memory> {
        let file = process::open_memory(pid)?;
        let mut said = [0; 2];
        process::read_words(&file, nonce.at, &mut said)?;
        if said != nonce.value {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Memory {
            file,
            nonce,
            only_file: AtomicBool::new(false),
        })
    }

    fn by_file(&self, len: u64) -> bool {
        len <= SHORT as u64 || self.must_go_by_file()
    }

    #[inline]
    fn must_go_by_file(&self) -> bool {
        self.only_file.load(Ordering::Relaxed)
    }

    /// Its address space is still in use.
    fn check_alive(&self) -> io::Result<()> {
        process::read_words(&self.file, self.nonce.at, &mut [0; 1])
    }

    /// Whatever the call said: next time another way is taken if it may not be used at all.
    fn note(&self, called: io::Result<usize>) -> io::Result<usize> {
        called.inspect_err(|e| {
            if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
                self.only_file.store(true, Ordering::Relaxed);
            }
        })
    }

    /// # Safety
    /// As [`CmaWindow::copy`].
    unsafe fn write(
        &self,
        pid: u32,
        at: u64,
        len: u64,
        local: &[Span],
        ends: bool,
    ) -> io::Result<()> {
        let tail = if !ends || is_at_once(at, len) {
            len
        } else {
            tail_of(at, len)
        };
        let body = len - tail;
        let copied = if self.by_file(len) {
            let mut spans = [Span::EMPTY; MOST_SPANS + 1];
            let count = cut(local, body as usize, &mut spans);
            // SAFETY: the spans are `local`, one of them cut in two; the call reads them, which it
            // may, by the caller's word.
            unsafe { process::write_spans(&self.file, at, &spans[..count]) }?
        } else {
            self.check_alive()?;
            // Two pieces of the other side: the kernel copies one after the other.
            let remote = [
                Span::new(at as usize, body as usize),
                Span::new((at + body) as usize, tail as usize),
            ];
            let remote = &remote[usize::from(body == 0)..];
            // SAFETY: the call reads `local`, which it may, by the caller's word.
            self.note(unsafe { process::write_to(pid, local, remote) })?
        };
        whole(copied, len)
    }

    /// # Safety
    /// As [`CmaWindow::copy`].
    unsafe fn read(&self, pid: u32, at: u64, len: u64, local: &[Span]) -> io::Result<()> {
        if self.by_file(len) {
            // SAFETY: the call writes `local`, which it may, by the caller's word.
            let copied = unsafe { process::read_spans(&self.file, at, local) }?;
            return whole(copied, len);
        }
        let remote = [Span::new(at as usize, len as usize)];
        // SAFETY: the call writes `local`, which it may, by the caller's word.
        let copied = unsafe { read_known(pid, self.nonce, &remote, local) };
        whole(self.note(copied)?, len)
    }
}

/// process_vm_readv(2) from the process that has that nonce. Gives how many bytes; an error as well
/// if it is another process.
///
/// # Safety
/// `local` is memory that may be written.
pub(super) unsafe fn read_known(
    pid: u32,
    nonce: Nonce,
    remote: &[Span],
    local: &[Span],
) -> io::Result<usize> {
    let mut said = [0; 2];
    let own = Span::of(&mut said);
    let before = |first, others: &[Span]| {
        let mut all = [Span::EMPTY; MOST_SPANS + 1];
        all[0] = first;
        let place = all.get_mut(1..=others.len());
        place
            .ok_or(io::ErrorKind::InvalidInput)?
            .copy_from_slice(others);
        Ok::<_, io::Error>(all)
    };
    let theirs = before(Span::new(nonce.at as usize, own.len()), remote)?;
    let ours = before(own, local)?;
    // SAFETY: the call writes the first `local.len() + 1` spans of `ours`: `said`, which is
    // borrowed to be written, and `local`, which may be written, by the caller's word.
    let copied =
        unsafe { process::read_from(pid, &ours[..=local.len()], &theirs[..=remote.len()]) }?;
    match copied.checked_sub(own.len()) {
        Some(copied) if said == nonce.value => Ok(copied),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn whole(copied: usize, len: u64) -> io::Result<()> {
    if copied as u64 == len {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Cuts spans in two at byte `at`; gives how many there are then.
fn cut(local: &[Span], at: usize, out: &mut [Span; MOST_SPANS + 1]) -> usize {
    let (mut left, mut count) = (at, 0);
    let mut push = |span: Span| {
        if span.len() > 0 {
            out[count] = span;
            count += 1;
        }
    };
    for span in local {
        let (front, back) = span.split_at(left.min(span.len()));
        left -= front.len();
        push(front);
        push(back);
    }
    count
}

#[cfg(test)]
mod tests;
