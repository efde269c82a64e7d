//! Descriptors to wait for: events, timers, and waiting for several of them.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2, read, write};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::Fd;
use crate::blame;
use crate::raw::raw;

/// An eventfd in semaphore mode: one token per event, readable while tokens are left.
#[derive(Debug)]
pub struct EventFd {
    fd: Fd,
    /// Tokens so far.
    added: AtomicU64,
}

impl EventFd {
    /// One without tokens. It blocks.
    pub fn new() -> io::Result<EventFd> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        Ok(EventFd {
            fd: blame::of("eventfd", eventfd(0, flags))?.into(),
            added: AtomicU64::new(0),
        })
    }

    /// The descriptor's number.
    pub fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Tokens that were added so far.
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    /// The application has not made the descriptor non-blocking.
    pub fn blocks(&self) -> bool {
        fcntl_getfl(&self.fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
    }

    /// Nobody waits here: as if the application had made the descriptor non-blocking.
    pub fn unblock(&self) -> io::Result<()> {
        Ok(fcntl_setfl(
            &self.fd,
            fcntl_getfl(&self.fd)? | OFlags::NONBLOCK,
        )?)
    }

    /// Adds `n` tokens.
    pub fn add(&self, n: u64) {
        self.added.fetch_add(n, Ordering::Relaxed);
        let _ = write(&self.fd, &n.to_ne_bytes());
    }

    /// Takes one token, blocking unless the application made the descriptor non-blocking.
    pub fn take(&self) -> io::Result<()> {
        let mut value = [0u8; 8];
        match read(&self.fd, &mut value)? {
            8 => Ok(()),
            // The program has put another file in its place.
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Takes one token if there is one, whatever the application set on the descriptor.
    pub fn try_take(&self) -> bool {
        if !poll(&[self.fd()], Some(Duration::ZERO)).is_ok_and(|r| r[0]) {
            return false;
        }
        let mut value = [0u8; 8];
        let mut room = [IoSliceMut::new(&mut value)];
        // At the file's own position, as it were.
        match preadv2(&self.fd, &mut room, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(n) => n == 8,
            // Linux before 5.8 has no such reads of eventfds, others have none at all.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.take_unblocked(),
            Err(_) => false,
        }
    }

    /// The same by the descriptor's flag, which whoever waits there meanwhile may notice.
    #[cold]
    fn take_unblocked(&self) -> bool {
        let Ok(flags) = fcntl_getfl(&self.fd) else {
            return false;
        };
        let blocks = !flags.contains(OFlags::NONBLOCK);
        if blocks {
            let _ = fcntl_setfl(&self.fd, flags | OFlags::NONBLOCK);
        }
        let taken = self.take().is_ok();
        if blocks {
            let _ = fcntl_setfl(&self.fd, flags);
        }
        taken
    }
}

/// A timerfd on the clock of [`now_ns`](crate::now_ns).
#[derive(Debug)]
pub struct TimerFd(Fd);

impl TimerFd {
    /// One that is not set.
    pub fn new() -> io::Result<TimerFd> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let made = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(TimerFd(blame::of("timerfd_create", made)?.into()))
    }

    /// The descriptor's number.
    pub fn fd(&self) -> RawFd {
        self.0.raw()
    }

    /// Readable from `at` on, ns, and not before.
    pub fn set(&self, at: u64) {
        // Zero would be never.
        let at = at.max(1);
        let times = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (at / 1_000_000_000) as i64,
                tv_nsec: (at % 1_000_000_000) as i64,
            },
        };
        // It fails for no time that the clock could ever show.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &times);
    }
}

/// Waits until one of up to 8 descriptors is readable; says which are. `None`: for ever.
pub fn poll(fds: &[RawFd], timeout: Option<Duration>) -> io::Result<[bool; 8]> {
    let mut set = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; 8];
    let n = fds.len().min(8);
    for (slot, fd) in set.iter_mut().zip(fds) {
        slot.fd = *fd;
    }
    let mut time = timeout.map(|t| Timespec {
        tv_sec: t.as_secs() as i64,
        tv_nsec: t.subsec_nanos().into(),
    });
    let time: *mut Timespec = time
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_mask: *const u8 = std::ptr::null();
    let call = libc::SYS_ppoll;
    // SAFETY: `set` has at least `n` entries, and `time`, which the kernel may change, lives across
    // the call; no signal mask is given. By number, as the descriptors are others' numbers, of
    // which some may be closed.
    unsafe { raw!(call, set.as_mut_ptr(), n, time, no_mask, 0usize) }?;
    Ok(set.map(|s| s.revents != 0))
}

/// Which of the descriptors are readable now.
pub fn readable(fds: impl Iterator<Item = RawFd>) -> io::Result<Vec<bool>> {
    let mut set: Vec<libc::pollfd> = fds
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    poll_now(&mut set)?;
    Ok(set.iter().map(|entry| entry.revents != 0).collect())
}

/// ppoll(2) without waiting: how many entries of the set something happened to.
pub fn poll_now(set: &mut [libc::pollfd]) -> io::Result<usize> {
    let time = Timespec::default();
    let no_mask: *const u8 = std::ptr::null();
    let (call, entries) = (libc::SYS_ppoll, set.as_mut_ptr());
    // SAFETY: so many entries are lent, and the time lives across the call, which does not change
    // it where it is zero; no signal mask is given. By number, as in `poll`.
    unsafe { raw!(call, entries, set.len(), &raw const time, no_mask, 0usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on kernels that know no RWF_NOWAIT of eventfds.
    #[test]
    fn a_token_is_taken_without_waiting_by_the_flag_too() {
        let fd = EventFd::new().expect("an eventfd");
        let flags = || fcntl_getfl(&fd.fd).expect("the flags of an eventfd");
        let before = flags();
        assert!(!fd.take_unblocked(), "nothing to take, and no wait for it");
        fd.add(2);
        assert!(fd.take_unblocked());
        assert!(fd.try_take());
        assert!(!fd.try_take() && !fd.take_unblocked());
        assert_eq!(flags(), before);
    }
}
