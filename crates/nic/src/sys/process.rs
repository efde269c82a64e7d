//! Another process's memory, and what two processes agree on about it.
//!
//! A process that lets another one reach its memory gives it a descriptor of its own
//! `/proc/self/mem`. It was opened by whom it belongs to, so nobody's permission is asked at an
//! access (as process_vm_readv(2) does, and is refused under Yama or seccomp), it stands for that
//! address space and no other whatever becomes of the process's number, and it reads nothing once
//! that is gone.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rnic_sys::Fd;

fn owned(fd: libc::c_long) -> io::Result<Fd> {
    // SAFETY: the descriptor was just made and is owned by nobody else.
    unsafe { Fd::from_call(fd) }
}

/// A file without a name that holds `bytes`, and whose length nobody changes.
pub(crate) fn memfd(bytes: &[u8]) -> io::Result<Fd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let create = |flags: libc::c_uint| {
        // SAFETY: a terminated string.
        owned(unsafe { libc::syscall(libc::SYS_memfd_create, c"rnic".as_ptr(), flags) })
    };
    // Some systems insist on the first, older ones do not know it.
    let fd = create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
    if !write_at(fd.raw(), bytes, 0) {
        return Err(io::Error::last_os_error());
    }
    let seals = SEALS | libc::F_SEAL_SEAL;
    // SAFETY: takes no pointer.
    if unsafe { libc::fcntl(fd.raw(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// A descriptor that says `bytes` to whoever [`peek`]s at it. It is a socket: unlike a file it
/// cannot be opened anew through `/proc/PID/fd` by processes that it was not sent to.
pub(crate) fn note(bytes: &[u8]) -> io::Result<Fd> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: `pair` has room for two descriptors. A raw call: under librspreload.so libc's is
    // another one.
    let made = unsafe {
        libc::syscall(
            libc::SYS_socketpair,
            libc::AF_UNIX,
            kind,
            0,
            pair.as_mut_ptr(),
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let [pen, note] = [owned(pair[0].into())?, owned(pair[1].into())?];
    if write_all(pen.raw(), bytes) {
        // The message stays in the queue of the other end, into which nobody can put a second one.
        Ok(note)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn write_all(fd: RawFd, data: &[u8]) -> bool {
    // SAFETY: `data` is only read.
    let n = unsafe { libc::syscall(libc::SYS_write, fd, data.as_ptr(), data.len()) };
    usize::try_from(n) == Ok(data.len())
}

/// What a [`note`] says, which goes on saying it; false: it is none of `out.len()` bytes. Never
/// blocks, whatever `fd` is.
pub(crate) fn peek(fd: RawFd, out: &mut [u8]) -> bool {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let nobody = std::ptr::null_mut::<libc::sockaddr>();
    let no_len = std::ptr::null_mut::<libc::socklen_t>();
    // SAFETY: the kernel writes at most `out.len()` bytes to `out`, and no address.
    let n = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd,
            out.as_mut_ptr(),
            out.len(),
            flags,
            nobody,
            no_len,
        )
    };
    usize::try_from(n) == Ok(out.len())
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// This process's memory, for somebody else.
pub(crate) fn own_memory() -> io::Result<Fd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a terminated string.
    owned(unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/mem".as_ptr(),
            flags,
        )
    })
}

/// A descriptor of procfs: not one of a file system whose server could keep a reader waiting.
pub(crate) fn is_proc(fd: RawFd) -> bool {
    // SAFETY: an all-zero statfs is a valid value of that plain C struct.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a valid place for the answer.
    unsafe { libc::fstatfs(fd, &mut stat) == 0 && stat.f_type == libc::PROC_SUPER_MAGIC }
}

/// Reads all of `out` at `at`.
pub(crate) fn read_at(fd: RawFd, out: &mut [u8], at: u64) -> bool {
    // SAFETY: the kernel writes at most `out.len()` bytes to `out`.
    let n = unsafe { libc::syscall(libc::SYS_pread64, fd, out.as_mut_ptr(), out.len(), at) };
    usize::try_from(n) == Ok(out.len())
}

/// Writes all of `data` at `at`.
pub(crate) fn write_at(fd: RawFd, data: &[u8], at: u64) -> bool {
    // SAFETY: `data` is only read.
    let n = unsafe { libc::syscall(libc::SYS_pwrite64, fd, data.as_ptr(), data.len(), at) };
    usize::try_from(n) == Ok(data.len())
}

/// A page that two processes share: the one that reaches into the other's memory says when it does,
/// the other says what may not be reached any more.
///
/// The one adds to the count of copies and then looks whether its slot is revoked; the other
/// revokes the slot and then waits for the count to be 0. In the one order of all these accesses
/// one of them comes first, so a copy is either waited for or not begun.
#[derive(Debug)]
pub(crate) struct Gate {
    words: NonNull<AtomicU32>,
    file: Fd,
}

// SAFETY: the page is mapped until the gate is dropped, and is used by atomics alone.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

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
        Gate::map(memfd(&[0; PAGE])?)
    }

    /// Somebody else's.
    pub(crate) fn open(file: Fd) -> io::Result<Gate> {
        // A page that could be taken away would end this process at its next look.
        if !rnic_sys::is_safe_memory_file(&file, PAGE) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Gate::map(file)
    }

    fn map(file: Fd) -> io::Result<Gate> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.raw(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(words) if at != libc::MAP_FAILED => Ok(Gate { words, file }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn descriptor(&self) -> io::Result<Fd> {
        self.file.duplicate()
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        let index = (index as usize).min(PAGE / 4 - 1);
        // SAFETY: within the mapped page, whose words are atomics to everybody.
        unsafe { self.words.add(index).as_ref() }
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

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    //! What is revoked is not reached; a note goes on saying what it says.

    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_note_is_read_again_and_again_but_opened_by_nobody() {
        let note = note(b"hello").unwrap();
        let mut out = [0; 5];
        for _ in 0..2 {
            assert!(peek(note.raw(), &mut out) && &out == b"hello");
        }
        assert!(!peek(note.raw(), &mut [0; 4]), "longer than that");
        assert!(!peek(note.raw(), &mut [0; 6]), "shorter");
        let path = format!("/proc/self/fd/{}", note.raw());
        assert!(std::fs::File::open(path).is_err());
        assert!(!peek(memfd(b"hello").unwrap().raw(), &mut out));
        let (silent, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!peek(silent.as_raw_fd(), &mut out));
    }

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
        // SAFETY: a terminated string.
        let plain = owned(unsafe {
            libc::syscall(
                libc::SYS_memfd_create,
                c"x".as_ptr(),
                libc::MFD_ALLOW_SEALING,
            )
        })
        .unwrap();
        assert!(write_at(plain.raw(), &[0; PAGE], 0));
        assert!(Gate::open(plain).is_err());
        // Of huge pages, for which there may be none when it is looked at.
        let flags = libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
        // SAFETY: a terminated string.
        let huge = owned(unsafe { libc::syscall(libc::SYS_memfd_create, c"x".as_ptr(), flags) });
        if let Ok(huge) = huge {
            // SAFETY: take no pointers.
            unsafe {
                assert_eq!(libc::ftruncate(huge.raw(), 2 << 20), 0);
                assert_eq!(libc::fcntl(huge.raw(), libc::F_ADD_SEALS, SEALS), 0);
            }
            assert!(Gate::open(huge).is_err());
        }
        assert!(Gate::open(memfd(&[0; 100]).unwrap()).is_err());
    }

    #[test]
    fn the_memory_of_a_process_is_read_and_written_through_its_descriptor() {
        let memory = own_memory().unwrap();
        let mut bytes = [1u8; 16];
        let at = bytes.as_mut_ptr() as u64;
        assert!(write_at(memory.raw(), &[9; 16], at));
        let mut copy = [0; 16];
        assert!(read_at(memory.raw(), &mut copy, at));
        assert_eq!((copy, std::hint::black_box(bytes)), ([9; 16], [9; 16]));
        assert!(!read_at(memory.raw(), &mut copy, 8));
    }
}
