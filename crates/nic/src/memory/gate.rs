//! Another process's memory, and what two processes agree on about it.
//!
//! A process that lets another one reach its memory gives it a descriptor of its own
//! `/proc/self/mem`. It was opened by whom it belongs to, so nobody's permission is asked at an
//! access (as process_vm_readv(2) does, and is refused under Yama or seccomp), it stands for that
//! address space and no other whatever becomes of the process's number, and it reads nothing once
//! that is gone.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rnic_sys::Fd;
use rnic_sys::segment::Words;

/// A page that two processes share: the one that reaches into the other's memory says when it does,
/// the other says what may not be reached any more.
///
/// The one adds to the count of copies and then looks whether its slot is revoked; the other
/// revokes the slot and then waits for the count to be 0. In the one order of all these accesses
/// one of them comes first, so a copy is either waited for or not begun.
#[derive(Debug)]
pub(crate) struct Gate {
    words: Words,
    file: Fd,
}

/// Bytes of the page.
const PAGE: usize = 4096;
/// Slots of a gate; there is no slot 0, whose word is the count of copies.
pub(crate) const SLOTS: u32 = (PAGE / 4 - 1) as u32;
/// The slot beside them: device memory, which is taken away all at once or not at all.
pub(crate) const DEVICE_SLOT: u32 = SLOTS;
/// How long a copy of a process is waited for that may be stopped.
const PATIENCE: Duration = Duration::from_secs(1);

impl Gate {
    /// A new one, nothing revoked.
    pub(crate) fn new() -> io::Result<Gate> {
        let (words, file) = Words::create(PAGE)?;
        Ok(Gate { words, file })
    }

    /// Somebody else's. It is refused unless nobody can take its page away: that would end this
    /// process at its next look.
    pub(crate) fn open(file: Fd) -> io::Result<Gate> {
        let words = Words::attach(&file, PAGE)?;
        Ok(Gate { words, file })
    }

    pub(crate) fn descriptor(&self) -> io::Result<Fd> {
        self.file.duplicate()
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        self.words.flag((index as usize).min(PAGE / 4 - 1) * 4)
    }

    fn copies(&self) -> &AtomicU32 {
        self.word(0)
    }

    /// Runs `copy` unless the slot is revoked; `None`: it is.
    pub(crate) fn pass<T>(&self, slot: u32, copy: impl FnOnce() -> T) -> Option<T> {
        self.copies().fetch_add(1, Ordering::SeqCst);
        let open = slot != 0 && self.word(slot).load(Ordering::SeqCst) == 0;
        let done = open.then(copy);
        self.copies().fetch_sub(1, Ordering::SeqCst);
        done
    }

    pub(crate) fn revoke(&self, slot: u32) {
        self.word(slot).store(1, Ordering::SeqCst);
    }

    /// Nothing passes any more.
    pub(crate) fn revoke_all(&self) {
        for slot in 1..=DEVICE_SLOT {
            self.revoke(slot);
        }
    }

    /// A copy of process `pid` may be under way.
    pub(crate) fn is_busy(&self, pid: u32) -> bool {
        self.copies().load(Ordering::SeqCst) != 0 && !rnic_sys::process::has_ended(pid)
    }

    pub(crate) fn allow(&self, slot: u32) {
        self.word(slot).store(0, Ordering::SeqCst);
    }

    /// Waits until no copy of process `pid` is under way that began before. One that is stopped in
    /// the middle is not waited for without end: false means that it may go on with its copy some
    /// day.
    pub(crate) fn wait(&self, pid: u32) -> bool {
        let start = Instant::now();
        while self.is_busy(pid) {
            if start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    //! What is revoked is not reached.

    use super::*;

    #[test]
    fn a_revoked_slot_lets_nothing_through_and_others_stay_open() {
        let gate = Gate::new().unwrap();
        let other = Gate::open(gate.descriptor().unwrap()).unwrap();
        assert_eq!(other.pass(3, || 7), Some(7));
        gate.revoke(3);
        assert_eq!(other.pass(3, || 7), None);
        assert_eq!(other.pass(4, || 7), Some(7));
        assert!(gate.wait(std::process::id()));
        gate.allow(3);
        assert_eq!(other.pass(3, || 7), Some(7));
        assert_eq!(other.pass(DEVICE_SLOT, || 7), Some(7));
        gate.revoke_all();
        assert_eq!(other.pass(3, || 7), None);
        assert_eq!(other.pass(DEVICE_SLOT, || 7), None);
        assert!(!gate.is_busy(std::process::id()));
    }

    #[test]
    fn a_copy_that_has_begun_is_waited_for() {
        let gate = Gate::new().unwrap();
        let other = Gate::open(gate.descriptor().unwrap()).unwrap();
        let (begun, end) = (std::sync::Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                other.pass(1, || {
                    begun.wait();
                    std::thread::sleep(Duration::from_millis(20));
                    end.store(1, Ordering::SeqCst);
                })
            });
            begun.wait();
            gate.revoke(1);
            // It has a second, which a thread without a processor exceeds.
            while !gate.wait(std::process::id()) {}
            assert_eq!(end.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn who_is_stopped_in_a_copy_is_not_waited_for_without_end_and_is_not_forgotten() {
        let gate = Gate::new().unwrap();
        let other = Gate::open(gate.descriptor().unwrap()).unwrap();
        let over = other.pass(1, || {
            gate.revoke(1);
            gate.wait(std::process::id())
        });
        assert_eq!(over, Some(false));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // Its parent has not taken notice: a zombie copies nothing.
        let over = other.pass(2, || gate.wait(child.id()));
        assert_eq!(over, Some(true));
        child.wait().unwrap();
    }

    #[test]
    fn a_page_that_could_be_taken_away_is_no_gate() {
        let folder = std::env::temp_dir().join(format!("rnic-gate-{}", std::process::id()));
        std::fs::write(&folder, [0; PAGE]).unwrap();
        let plain = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&folder)
            .unwrap();
        std::fs::remove_file(&folder).unwrap();
        assert!(Gate::open(std::os::fd::OwnedFd::from(plain).into()).is_err());
        assert!(Gate::open(rnic_sys::memory_file(100).unwrap()).is_err());
    }
}
