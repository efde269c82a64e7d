//! The interposed functions of libc that wait for descriptors: see [`crate::system::waits`].
//!
//! Where no channel is among the descriptors they go on to the C library at the cost of looking at
//! a counter that is 0, or of a look into a small table.

use core::ffi::{c_int, c_ulong};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};
use std::time::Duration;

use libc::{epoll_event, fd_set, pollfd, sigset_t, timespec, timeval};

use rnic_nic::{Packets, Readable};

use super::next::{call_next, hook};
use crate::system::waits::{self, Call, Channels, Until, Woken, wait};

/// Most events of a call (EP_MAX_EVENTS).
const MOST_EVENTS: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// Most descriptors of a call to poll(2) that is more than passed on.
const MOST: usize = 62;

const fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// libc's ppoll(3).
///
/// # Safety
/// As ppoll(3).
unsafe fn libc_ppoll(fds: &mut [pollfd], until: Until, mask: *const sigset_t) -> c_int {
    let left = until.left();
    let time = left.as_ref().map_or(null(), |left| &raw const *left);
    call_next!(
        c"ppoll" as fn(*mut pollfd, c_ulong, *const timespec, *const sigset_t) -> c_int,
        (fds.as_mut_ptr(), fds.len() as c_ulong, time, mask),
        -1
    )
}

/// Sleeps until one of the first `count` descriptors is ready, or one of those of packets is, for
/// which there is room behind.
///
/// # Safety
/// As ppoll(3).
#[inline(always)]
unsafe fn sleep(
    fds: &mut [pollfd],
    count: usize,
    packets: &Packets,
    until: Until,
    mask: *const sigset_t,
) -> Woken {
    let more = fds[count..].iter_mut().zip(packets.fds());
    let all = count + more.map(|(place, fd)| *place = readable(*fd)).count();
    // SAFETY: by contract.
    let ready = unsafe { libc_ppoll(&mut fds[..all], until, mask) };
    let is_ready = |fd: &pollfd| fd.revents != 0;
    Woken {
        count: ready,
        its: fds[..count].iter().any(is_ready),
        packets: Readable::new(fds[count..all].iter().map(is_ready)),
    }
}

/// libc's poll(3), for who waits inside the library.
///
/// # Safety
/// As poll(3).
pub unsafe fn libc_poll(fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int {
    call_next!(
        c"poll" as fn(*mut pollfd, c_ulong, c_int) -> c_int,
        (fds, count, timeout),
        -1
    )
}

/// Whether the kernel says that one of these is ready, without waiting. No cancellation point.
fn are_ready(fds: &mut [pollfd]) -> bool {
    !matches!(rnic_sys::poll_now(fds), Ok(0))
}

/// Which of libc's functions waits for a set.
#[derive(Clone, Copy)]
enum Epoll {
    Wait,
    Pwait,
    Pwait2,
}

/// A wait for an epoll set.
#[derive(Clone, Copy)]
struct OfSet {
    function: Epoll,
    set: RawFd,
    events: *mut epoll_event,
    most: c_int,
    mask: *const sigset_t,
}

impl Call for OfSet {
    fn channels(&self) -> Channels {
        // EINVAL otherwise.
        match (1..=MOST_EVENTS).contains(&self.most) {
            true => waits::of_set(self.set),
            false => Channels::new(),
        }
    }

    fn mask(&self) -> *const sigset_t {
        self.mask
    }

    fn masked(self, mask: *const sigset_t) -> OfSet {
        match self.function {
            Epoll::Wait => OfSet {
                function: Epoll::Pwait,
                mask,
                ..self
            },
            _ if self.mask.is_null() => OfSet { mask, ..self },
            _ => self,
        }
    }

    /// The number may not be a set's any more.
    #[inline(always)]
    fn take(&self, _: Until) -> Option<c_int> {
        let count = self.finish(Until::Now);
        (count != 0).then_some(count)
    }

    fn is_ready(&self) -> bool {
        are_ready(&mut [readable(self.set)])
    }

    #[inline(always)]
    fn sleep(&self, packets: &Packets, until: Until) -> Woken {
        let mut fds = [readable(-1); 1 + Packets::MOST];
        fds[0].fd = self.set;
        // SAFETY: the caller's mask, or NULL.
        unsafe { sleep(&mut fds, 1, packets, until, self.mask) }
    }

    #[inline(always)]
    fn finish(&self, until: Until) -> c_int {
        let OfSet {
            set,
            events,
            most,
            mask,
            ..
        } = *self;
        match self.function {
            Epoll::Wait => call_next!(
                c"epoll_wait" as fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
                (set, events, most, until.left_in_millis()),
                -1
            ),
            Epoll::Pwait => call_next!(
                c"epoll_pwait"
                    as fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
                (set, events, most, until.left_in_millis(), mask),
                -1
            ),
            Epoll::Pwait2 => {
                let left = until.left();
                let time = left.as_ref().map_or(null(), |left| &raw const *left);
                call_next!(
                    c"epoll_pwait2"
                        as fn(
                            c_int,
                            *mut epoll_event,
                            c_int,
                            *const timespec,
                            *const sigset_t,
                        ) -> c_int,
                    (set, events, most, time, mask),
                    -1
                )
            }
        }
    }
}

/// A wait for some descriptors.
#[derive(Clone, Copy)]
struct OfDescriptors {
    fds: *mut pollfd,
    count: usize,
    mask: *const sigset_t,
}

impl OfDescriptors {
    fn all(&self) -> &[pollfd] {
        // SAFETY: the program's, as many as it says; `ours` has looked that there are some.
        unsafe { std::slice::from_raw_parts(self.fds, self.count) }
    }

    /// With room for others behind.
    #[inline(always)]
    fn copied(&self) -> [pollfd; MOST + Packets::MOST] {
        let mut fds = [readable(-1); MOST + Packets::MOST];
        fds[..self.count].copy_from_slice(self.all());
        fds
    }
}

impl Call for OfDescriptors {
    fn channels(&self) -> Channels {
        let wanted = self.all().iter().filter(|fd| fd.events & libc::POLLIN != 0);
        waits::among(wanted.map(|fd| fd.fd))
    }

    fn is_ready(&self) -> bool {
        are_ready(&mut self.copied()[..self.count])
    }

    #[inline(always)]
    fn take(&self, _: Until) -> Option<c_int> {
        let count = self.finish(Until::Now);
        (count != 0).then_some(count)
    }

    fn mask(&self) -> *const sigset_t {
        self.mask
    }

    fn masked(self, mask: *const sigset_t) -> OfDescriptors {
        match self.mask.is_null() {
            true => OfDescriptors { mask, ..self },
            false => self,
        }
    }

    #[inline(always)]
    fn sleep(&self, packets: &Packets, until: Until) -> Woken {
        // SAFETY: the caller's mask, or NULL.
        unsafe { sleep(&mut self.copied(), self.count, packets, until, self.mask) }
    }

    #[inline(always)]
    fn finish(&self, until: Until) -> c_int {
        // SAFETY: the program's descriptors and mask.
        let fds = unsafe { std::slice::from_raw_parts_mut(self.fds, self.count) };
        // SAFETY: as above.
        unsafe { libc_ppoll(fds, until, self.mask) }
    }
}

/// What select(2) waits for with each of its sets, as poll(2) does.
const SELECTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

/// A wait for the descriptors of sets.
#[derive(Clone, Copy)]
struct OfBits {
    /// One more than the highest.
    end: c_int,
    sets: [*mut fd_set; 3],
    mask: *const sigset_t,
    /// select(2) tells how much time was left, pselect(2) does not.
    time: *mut timeval,
    fds: [pollfd; MOST],
    count: usize,
}

/// Whether a descriptor is in a set.
///
/// # Safety
/// NULL, or a set of as many descriptors at least.
unsafe fn is_in(set: *const fd_set, fd: c_int) -> bool {
    let (word, bit) = (fd as usize / 64, fd as usize % 64);
    // SAFETY: by contract; a set is an array of words.
    !set.is_null() && unsafe { *set.cast::<u64>().add(word) } >> bit & 1 == 1
}

impl OfBits {
    /// `None`: it is to be passed on.
    ///
    /// # Safety
    /// The arguments of pselect(2).
    unsafe fn new(
        end: c_int,
        sets: [*mut fd_set; 3],
        mask: *const sigset_t,
        time: *mut timeval,
    ) -> Option<OfBits> {
        if waits::are_none() || !(1..=libc::FD_SETSIZE as c_int).contains(&end) {
            return None;
        }
        let mut call = OfBits {
            end,
            sets,
            mask,
            time,
            fds: [readable(-1); MOST],
            count: 0,
        };
        for fd in 0..end {
            let mut events = 0;
            for (set, event) in sets.into_iter().zip(SELECTS) {
                // SAFETY: by contract.
                if unsafe { is_in(set, fd) } {
                    events |= event;
                }
            }
            if events != 0 {
                *call.fds.get_mut(call.count)? = pollfd {
                    fd,
                    events,
                    revents: 0,
                };
                call.count += 1;
            }
        }
        (call.count > 0 && waits::has_channels(&call)).then_some(call)
    }

    fn descriptors(&self) -> OfDescriptors {
        OfDescriptors {
            fds: self.fds.as_ptr().cast_mut(),
            count: self.count,
            mask: self.mask,
        }
    }
}

impl Call for OfBits {
    fn channels(&self) -> Channels {
        self.descriptors().channels()
    }

    fn is_ready(&self) -> bool {
        self.descriptors().is_ready()
    }

    /// A call that finds nothing empties the sets.
    #[inline(always)]
    fn take(&self, until: Until) -> Option<c_int> {
        self.is_ready().then(|| self.finish(until))
    }

    fn mask(&self) -> *const sigset_t {
        self.mask
    }

    fn masked(self, mask: *const sigset_t) -> OfBits {
        match self.mask.is_null() {
            true => OfBits { mask, ..self },
            false => self,
        }
    }

    #[inline(always)]
    fn sleep(&self, packets: &Packets, until: Until) -> Woken {
        self.descriptors().sleep(packets, until)
    }

    #[inline(always)]
    fn finish(&self, until: Until) -> c_int {
        let [read, write, except] = self.sets;
        let left = until.left();
        let time = left.as_ref().map_or(null(), |left| &raw const *left);
        let count = call_next!(
            c"pselect"
                as fn(
                    c_int,
                    *mut fd_set,
                    *mut fd_set,
                    *mut fd_set,
                    *const timespec,
                    *const sigset_t,
                ) -> c_int,
            (self.end, read, write, except, time, self.mask),
            -1
        );
        // SAFETY: NULL, or the program's.
        if let (Some(left), Some(time)) = (until.left(), unsafe { self.time.as_mut() }) {
            (time.tv_sec, time.tv_usec) = (left.tv_sec, left.tv_nsec / 1000);
        }
        count
    }
}

/// The wait for these, if it may be more than passed on. The others are passed on as they are
/// called: what stands in front of the C library (librspreload) may know other descriptors than the
/// kernel's, and not by each of these functions.
fn ours(fds: *mut pollfd, count: c_ulong, mask: *const sigset_t) -> Option<OfDescriptors> {
    let count = usize::try_from(count).ok()?;
    if waits::are_none() || fds.is_null() || !(1..=MOST).contains(&count) {
        return None;
    }
    let call = OfDescriptors { fds, count, mask };
    waits::has_channels(&call).then_some(call)
}

/// # Safety
/// NULL, or a time.
unsafe fn until(time: *const timespec) -> Option<Until> {
    // SAFETY: by contract.
    let Some(time) = (unsafe { time.as_ref() }) else {
        return Some(Until::Never);
    };
    let nanos = u32::try_from(time.tv_nsec)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Until::after(Duration::new(
        u64::try_from(time.tv_sec).ok()?,
        nanos,
    )))
}

/// # Safety
/// NULL, or a time.
unsafe fn until_of(time: *const timeval) -> Option<Until> {
    // SAFETY: by contract.
    let Some(time) = (unsafe { time.as_ref() }) else {
        return Some(Until::Never);
    };
    let micros = u64::try_from(time.tv_usec).ok()?;
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
    Some(Until::after(
        seconds.checked_add(Duration::from_micros(micros))?,
    ))
}

/// `copy` is a duplicate of `fd`, unless it is negative. errno stays.
fn noted(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 && !waits::are_none() {
        crate::export::seam::keeping_errno(|| waits::duplicated(fd, copy));
    }
    copy
}

/// This command of fcntl(2) makes a duplicate. The last argument is there for some commands only,
/// a word at most, and lies where a function without `...` has it.
const fn duplicates(what: c_int) -> bool {
    matches!(what, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

const fn of_set(
    function: Epoll,
    set: RawFd,
    events: *mut epoll_event,
    most: c_int,
    mask: *const sigset_t,
) -> OfSet {
    OfSet {
        function,
        set,
        events,
        most,
        mask,
    }
}

hook! {
    extern "C";
    epoll_create(size: c_int) -> c_int = {
        let set = call_next!(c"epoll_create" as fn(c_int) -> c_int, (size), -1);
        waits::set_made(set);
        set
    };
    epoll_create1(flags: c_int) -> c_int = {
        let set = call_next!(c"epoll_create1" as fn(c_int) -> c_int, (flags), -1);
        waits::set_made(set);
        set
    };
    epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int = {
        let done = call_next!(c"epoll_ctl" as fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
            (set, what, fd, event), -1);
        if done == 0 && what != libc::EPOLL_CTL_MOD {
            waits::set_changed(set, fd, what == libc::EPOLL_CTL_ADD);
        }
        done
    };

    dup(fd: c_int) -> c_int = {
        noted(fd, call_next!(c"dup" as fn(c_int) -> c_int, (fd), -1))
    };
    dup2(fd: c_int, copy: c_int) -> c_int = {
        noted(fd, call_next!(c"dup2" as fn(c_int, c_int) -> c_int, (fd, copy), -1))
    };
    dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int = {
        noted(fd, call_next!(c"dup3" as fn(c_int, c_int, c_int) -> c_int, (fd, copy, flags), -1))
    };
}

hook! {
    extern "C-unwind";
    fcntl(fd: c_int, what: c_int, word: usize) -> c_int = {
        let result = call_next!(c"fcntl" as fn(c_int, c_int, usize) -> c_int, (fd, what, word), -1);
        if duplicates(what) { noted(fd, result) } else { result }
    };
    fcntl64(fd: c_int, what: c_int, word: usize) -> c_int = {
        let result = call_next!(c"fcntl64" as fn(c_int, c_int, usize) -> c_int, (fd, what, word), -1);
        if duplicates(what) { noted(fd, result) } else { result }
    };
}

hook! {
    extern "C-unwind";
    epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int = {
        if waits::are_none() {
            return call_next!(c"epoll_wait" as fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
                (set, events, most, timeout), -1);
        }
        wait(of_set(Epoll::Wait, set, events, most, null()), Until::millis(timeout))
    };
    epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int = {
        if waits::are_none() {
            return call_next!(
                c"epoll_pwait" as fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
                (set, events, most, timeout, mask), -1);
        }
        wait(of_set(Epoll::Pwait, set, events, most, mask), Until::millis(timeout))
    };
    epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, time: *const timespec, mask: *const sigset_t) -> c_int = {
        match until(time) {
            Some(until) if !waits::are_none() => wait(of_set(Epoll::Pwait2, set, events, most, mask), until),
            _ => call_next!(
                c"epoll_pwait2" as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int,
                (set, events, most, time, mask), -1),
        }
    };

    poll(fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int = match ours(fds, count, null()) {
        Some(call) => wait(call, Until::millis(timeout)),
        None => libc_poll(fds, count, timeout),
    };
    __poll_chk(fds: *mut pollfd, count: c_ulong, timeout: c_int, room: usize) -> c_int = match ours(fds, count, null()) {
        Some(call) => wait(call, Until::millis(timeout)),
        None => call_next!(c"__poll_chk" as fn(*mut pollfd, c_ulong, c_int, usize) -> c_int, (fds, count, timeout, room), -1),
    };
    ppoll(fds: *mut pollfd, count: c_ulong, time: *const timespec, mask: *const sigset_t) -> c_int = {
        match (ours(fds, count, mask), until(time)) {
            (Some(call), Some(until)) => wait(call, until),
            _ => call_next!(c"ppoll" as fn(*mut pollfd, c_ulong, *const timespec, *const sigset_t) -> c_int,
                (fds, count, time, mask), -1),
        }
    };
    __ppoll_chk(fds: *mut pollfd, count: c_ulong, time: *const timespec, mask: *const sigset_t, room: usize) -> c_int = {
        match (ours(fds, count, mask), until(time)) {
            (Some(call), Some(until)) => wait(call, until),
            _ => call_next!(
                c"__ppoll_chk" as fn(*mut pollfd, c_ulong, *const timespec, *const sigset_t, usize) -> c_int,
                (fds, count, time, mask, room), -1),
        }
    };

    select(end: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int = {
        let sets = [read, write, except];
        match (OfBits::new(end, sets, null(), time), until_of(time)) {
            (Some(call), Some(until)) => wait(call, until),
            _ => call_next!(c"select" as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
                (end, read, write, except, time), -1),
        }
    };
    pselect(end: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec,
        mask: *const sigset_t) -> c_int = {
        match (OfBits::new(end, [read, write, except], mask, null_mut()), until(time)) {
            (Some(call), Some(until)) => wait(call, until),
            _ => call_next!(
                c"pselect" as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int,
                (end, read, write, except, time, mask), -1),
        }
    };
}
