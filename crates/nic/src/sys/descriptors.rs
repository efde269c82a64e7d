//! Descriptors: tokens to wait for, which file one refers to, waiting for several.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rnic_sys::Fd;

/// An eventfd in semaphore mode: one token per event, readable while tokens are left.
#[derive(Debug)]
pub(crate) struct EventFd(Fd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        let flags = libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC;
        // SAFETY: eventfd takes no pointer. By raw system call, as it is closed: ThreadSanitizer
        // takes a descriptor whose end it did not see for the old one.
        let fd = unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) };
        // SAFETY: the descriptor was just made and is owned by nobody else.
        Ok(EventFd(unsafe { Fd::from_call(fd) }?))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.raw()
    }

    /// The application has not made the descriptor non-blocking.
    pub(crate) fn blocks(&self) -> bool {
        // SAFETY: takes no pointer.
        let flags = unsafe { libc::fcntl(self.fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK == 0
    }

    /// Adds `n` tokens.
    pub(crate) fn add(&self, n: u64) {
        let value = n.to_ne_bytes();
        // SAFETY: the pointer and length are those of `value`.
        // By raw system call: a preloaded library may have its own idea of `write`.
        unsafe { libc::syscall(libc::SYS_write, self.fd(), value.as_ptr(), value.len()) };
    }

    /// Takes one token, blocking unless the application made the descriptor non-blocking.
    pub(crate) fn take(&self) -> io::Result<()> {
        let mut value = [0u8; 8];
        // SAFETY: the pointer and length are those of `value`.
        let n =
            unsafe { libc::syscall(libc::SYS_read, self.fd(), value.as_mut_ptr(), value.len()) };
        if n == 8 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Takes one token if there is one, whatever the application set on the descriptor.
    pub(crate) fn try_take(&self) -> bool {
        if !poll(&[self.fd()], Some(Duration::ZERO)).is_ok_and(|r| r[0]) {
            return false;
        }
        let mut value = [0u8; 8];
        let iov = libc::iovec {
            iov_base: value.as_mut_ptr().cast(),
            iov_len: value.len(),
        };
        // The place is in two halves, of which the first is whole on 64 bits: none.
        let (now, at, high) = (libc::RWF_NOWAIT, -1i64, 0i64);
        // SAFETY: one iovec that describes `value`; RWF_NOWAIT never blocks. By number, as preadv2
        // came with glibc 2.26.
        let n = unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                self.fd(),
                &raw const iov,
                1i64,
                at,
                high,
                now,
            )
        };
        match n {
            8 => true,
            _ => match io::Error::last_os_error().raw_os_error() {
                // Linux before 5.8 has no such reads of eventfds, others have none at all.
                Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => self.take_unblocked(),
                _ => false,
            },
        }
    }

    /// The same by the descriptor's flag, which whoever waits there meanwhile may notice.
    #[cold]
    fn take_unblocked(&self) -> bool {
        // SAFETY: takes no pointer.
        let flags = unsafe { libc::fcntl(self.fd(), libc::F_GETFL) };
        let blocks = flags >= 0 && flags & libc::O_NONBLOCK == 0;
        if blocks {
            // SAFETY: as above.
            unsafe { libc::fcntl(self.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
        }
        let taken = flags >= 0 && self.take().is_ok();
        if blocks {
            // SAFETY: as above.
            unsafe { libc::fcntl(self.fd(), libc::F_SETFL, flags) };
        }
        taken
    }
}

/// A timerfd on the clock of [`super::now_ns`].
#[derive(Debug)]
pub(crate) struct TimerFd(Fd);

impl TimerFd {
    pub(crate) fn new() -> io::Result<TimerFd> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: timerfd_create takes no pointer.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        // SAFETY: the descriptor was just made and is owned by nobody else.
        Ok(TimerFd(unsafe { Fd::from_call(fd.into()) }?))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.raw()
    }

    /// Readable from `at` on, ns, and not before.
    pub(crate) fn set(&self, at: u64) {
        // Zero would be never.
        let at = at.max(1);
        let times = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: (at / 1_000_000_000) as libc::time_t,
                tv_nsec: (at % 1_000_000_000) as libc::c_long,
            },
        };
        // SAFETY: `times` lives across the call, and the old value is not asked for.
        // It fails for no time within a second that the clock could ever show.
        unsafe {
            libc::timerfd_settime(
                self.fd(),
                libc::TFD_TIMER_ABSTIME,
                &times,
                std::ptr::null_mut(),
            )
        };
    }
}

/// Which file a descriptor refers to. Holds on to the file, so that no other one gets its number.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    held: Fd,
    device: libc::dev_t,
    inode: libc::ino_t,
}

impl FileIdentity {
    pub(crate) fn of(fd: RawFd) -> io::Result<FileIdentity> {
        FileIdentity::of_owned(Fd::duplicate_of(fd)?)
    }

    /// Keeps the descriptor.
    pub(crate) fn of_owned(held: Fd) -> io::Result<FileIdentity> {
        // SAFETY: an all-zero stat is a valid value of that plain C struct.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is a valid place for the answer.
        if unsafe { libc::fstat(held.raw(), &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(FileIdentity {
            held,
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// One more descriptor of the file.
    pub(crate) fn descriptor(&self) -> io::Result<Fd> {
        self.held.duplicate()
    }

    /// Device and inode.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    pub(crate) fn same(&self, other: &FileIdentity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Waits until one of up to 8 descriptors is readable; says which are. `None`: for ever.
pub(crate) fn poll(fds: &[RawFd], timeout: Option<Duration>) -> io::Result<[bool; 8]> {
    let mut set = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; 8];
    let n = fds.len().min(8);
    for (slot, fd) in set.iter_mut().zip(fds) {
        slot.fd = *fd;
    }
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let ts_ptr = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` has at least `n` entries, `ts` lives across the call, no signal mask is given.
    let r = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            set.as_mut_ptr(),
            n,
            ts_ptr,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(set.map(|s| s.revents != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on kernels that know no RWF_NOWAIT of eventfds.
    #[test]
    fn a_token_is_taken_without_waiting_by_the_flag_too() {
        let fd = EventFd::new().expect("an eventfd");
        // SAFETY: takes no pointer.
        let flags = || unsafe { libc::fcntl(fd.fd(), libc::F_GETFL) };
        let before = flags();
        assert!(!fd.take_unblocked(), "nothing to take, and no wait for it");
        fd.add(2);
        assert!(fd.take_unblocked());
        assert!(fd.try_take());
        assert!(!fd.try_take() && !fd.take_unblocked());
        assert_eq!(flags(), before);
    }
}
