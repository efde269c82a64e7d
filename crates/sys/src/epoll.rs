//! Waiting for one of many descriptors (epoll(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::{Fd, blame};

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
        let made = epoll::create(CreateFlags::CLOEXEC);
        Ok(FdSet(blame::of("epoll_create1", made)?.into()))
    }

    /// The descriptor of the set.
    pub fn raw(&self) -> RawFd {
        self.0.0
    }

    /// Takes a descriptor out, before it is closed: a forked child may have a copy, and as long as
    /// any is open the kernel reports what happens to it.
    pub fn remove(&self, fd: &Fd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Adds a descriptor, to be [removed](FdSet::remove) before it is closed. `name` is what
    /// [`FdSet::ready`] gives.
    pub fn add(&self, fd: &Fd, name: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.0,
            fd,
            EventData::new_u64(name),
            EventFlags::IN,
        )?)
    }

    /// Whether a descriptor that was added is reported when it is writable, too.
    pub fn set_wants_room(&self, fd: &Fd, name: u64, wants: bool) -> io::Result<()> {
        let mut events = EventFlags::IN;
        events.set(EventFlags::OUT, wants);
        Ok(epoll::modify(
            &self.0,
            fd,
            EventData::new_u64(name),
            events,
        )?)
    }

    /// Waits until something happens to one of them, or the time is over. For a thread that asks
    /// from outside, never on the packet path.
    pub fn wait(&self, milliseconds: i32) {
        crate::wait_readable(&self.0, milliseconds);
    }

    /// The names of some that something happened to, or that were closed by their peers. Never
    /// blocks.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [MaybeUninit::<Event>::uninit(); 32];
        let at_once = Timespec::default();
        let found = epoll::wait(&self.0, &mut events, Some(&at_once));
        let count = found.map_or(0, |(found, _)| found.len());
        // SAFETY: the call has filled in the first `count`.
        let name = |event: MaybeUninit<Event>| unsafe { event.assume_init() }.data.u64();
        events.into_iter().take(count).map(name)
    }
}
