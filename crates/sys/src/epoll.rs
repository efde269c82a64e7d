//! Waiting for one of many descriptors (epoll(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use super::{Fd, check};

/// A set of descriptors, readable as one when one of them is (epoll(7)).
#[derive(Debug)]
pub struct FdSet(Fd);

impl AsFd for FdSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl FdSet {
    /// An empty one.
    pub fn new() -> io::Result<FdSet> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        Ok(FdSet(Fd(fd as RawFd)))
    }

    /// The descriptor of the set.
    pub fn raw(&self) -> RawFd {
        self.0.0
    }

    /// Takes a descriptor out, before it is closed: a forked child may have a copy, and as long as any is open the kernel
    /// reports what happens to it.
    pub fn remove(&self, fd: &Fd) {
        // SAFETY: no event is read or written.
        let _ = check(unsafe {
            libc::syscall(
                libc::SYS_epoll_ctl,
                self.0.0,
                libc::EPOLL_CTL_DEL,
                fd.0,
                0usize,
            )
        });
    }

    /// Adds a descriptor, to be [removed](FdSet::remove) before it is closed. `name` is what [`FdSet::ready`] gives.
    pub fn add(&self, fd: &Fd, name: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, name)
    }

    /// Whether a descriptor that was added is reported when it is writable, too.
    pub fn set_wants_room(&self, fd: &Fd, name: u64, wants: bool) -> io::Result<()> {
        let out = if wants { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | out, name)
    }

    fn control(&self, operation: i32, fd: &Fd, events: i32, name: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: name,
        };
        // SAFETY: the kernel reads the local event.
        check(unsafe {
            libc::syscall(
                libc::SYS_epoll_ctl,
                self.0.0,
                operation,
                fd.0,
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// Waits until something happens to one of them, or the time is over. For who asks from outside, never on the packet path.
    pub fn wait(&self, milliseconds: i32) {
        super::wait_readable(&self.0, milliseconds);
    }

    /// The names of some that something happened to, or that were closed by their peers. Never blocks.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: the kernel writes at most as many events as the local array has.
        let n = check(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.0.0,
                events.as_mut_ptr(),
                events.len(),
                0,
                0usize,
                0usize,
            )
        })
        .unwrap_or(0);
        events.into_iter().take(n).map(|event| event.u64)
    }
}
