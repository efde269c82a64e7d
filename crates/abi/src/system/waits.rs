//! Waiting for descriptors of which some are completion channels'.
//!
//! A program that sleeps in `epoll_wait` until its channel is readable costs each message two
//! wake-ups: that of the background thread, which a packet wakes, and its own, when that thread has
//! found the completion. So where the calls that wait are interposed ([`crate::system::hooks`]), a
//! thread that waits for a channel looks after packets itself, as one in `ibv_get_cq_event` does
//! (`rnic_nic`'s `driving/event_wait.rs`): it first stays awake for a moment where that has paid,
//! and then sleeps on what the program waits for and on the descriptors of packets.
//!
//! What is ready is for the kernel to say: the channel's descriptor is a counter of events like any
//! other, whatever set it is in, however often it was duplicated, level- or edge-triggered. The
//! table here only tells which calls are worth the trouble. A set that it does not know of, or
//! knows by mistake, gets the same answers.

use core::ffi::{c_int, c_long};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::sigset_t;
use rnic_nic::{CompChannel, Packets, Readable, Waiting, WeakCompChannel};
use rustix_futex_sync::{RwLock, RwLockWriteGuard};
use smallvec::SmallVec;

/// How deep sets of sets are looked into, as the kernel allows (epoll_ctl(2), ELOOP).
const DEEPEST: u32 = 5;
/// While a thread stays awake for its channels, how often it looks at what else it waits for.
const OTHERS: Duration = Duration::from_micros(5);

/// Channels among what a call waits for: enough of them, that whoever waits for these drives the
/// engines of all.
pub type Channels = SmallVec<[CompChannel; 4]>;

#[derive(Default)]
struct Table {
    /// By their descriptors, in order. One may have several, made by dup(2) and its kin. As
    /// close(2) is not seen, some may be something else by now.
    channels: Vec<(RawFd, WeakCompChannel)>,
    /// Epoll sets, and a channel's descriptor or another set that each holds. In order.
    members: Vec<(RawFd, RawFd)>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    channels: Vec::new(),
    members: Vec::new(),
});
/// Channels in it.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// The process that made the last one.
static OWNER: AtomicU32 = AtomicU32::new(0);

impl Table {
    fn know(&mut self, fd: RawFd, channel: WeakCompChannel) {
        // One that was closed behind the library's back had the same number.
        self.forget_number(fd);
        let at = self.channels.partition_point(|(of, _)| *of < fd);
        self.channels.insert(at, (fd, channel));
    }

    fn forget_number(&mut self, fd: RawFd) {
        self.channels.retain(|(of, _)| *of != fd);
        self.members.retain(|(_, member)| *member != fd);
    }

    /// All numbers of a channel, and of those that are gone.
    fn forget(&mut self, channel: &CompChannel) {
        let stays = |weak: &WeakCompChannel| weak.upgrade().is_some_and(|c| c.fd() != channel.fd());
        let gone: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, weak)| !stays(weak))
            .collect();
        let is_gone = |fd: RawFd| gone.binary_search_by_key(&fd, |(of, _)| *of).is_ok();
        self.members.retain(|(_, member)| !is_gone(*member));
        self.channels.retain(|(_, weak)| stays(weak));
    }

    /// `copy` is the same as `fd` from now on.
    fn duplicate(&mut self, fd: RawFd, copy: RawFd) {
        let is_new = |(set, member): &(RawFd, RawFd)| *set != copy && *member != copy;
        self.members.retain(is_new);
        let channel = self.channel(fd).map(|channel| channel.downgrade());
        match channel {
            Some(channel) => self.know(copy, channel),
            None => self.forget_number(copy),
        }
        let members: Vec<_> = self.members.iter().filter(|(set, _)| *set == fd).collect();
        let copied: Vec<_> = members.iter().map(|(_, member)| (copy, *member)).collect();
        let at = self.members.partition_point(|(set, _)| *set < copy);
        self.members.splice(at..at, copied);
    }

    /// It has something to tell about this number.
    fn knows(&self, fd: RawFd) -> bool {
        self.channels
            .binary_search_by_key(&fd, |(of, _)| *of)
            .is_ok()
            || self
                .members
                .iter()
                .any(|(set, member)| *set == fd || *member == fd)
    }

    fn change(&mut self, set: RawFd, fd: RawFd, is_in: bool) {
        match self.members.binary_search(&(set, fd)) {
            Ok(at) if !is_in => {
                self.members.remove(at);
            }
            Err(at) if is_in && (self.channel(fd).is_some() || self.holds_something(fd)) => {
                self.members.insert(at, (set, fd));
            }
            _ => {}
        }
    }

    fn channel(&self, fd: RawFd) -> Option<CompChannel> {
        let at = self
            .channels
            .binary_search_by_key(&fd, |(of, _)| *of)
            .ok()?;
        // A parent's is not a forked child's to wait for.
        self.channels[at].1.upgrade().filter(CompChannel::is_alive)
    }

    fn holds_something(&self, set: RawFd) -> bool {
        let first = self.members.partition_point(|(of, _)| *of < set);
        self.members.get(first).is_some_and(|(of, _)| *of == set)
    }

    /// The channels that a set holds, itself or in sets in it; of those that are driven together,
    /// one. False: no other is needed.
    fn find(&self, set: RawFd, deep: u32, found: &mut Channels) -> bool {
        let first = self.members.partition_point(|(of, _)| *of < set);
        let mut of_set = self.members[first..]
            .iter()
            .take_while(|(of, _)| *of == set);
        of_set.all(|&(_, member)| self.find_in(member, deep, found))
    }

    /// The same of a descriptor, which may be a channel's or a set's.
    fn find_in(&self, fd: RawFd, deep: u32, found: &mut Channels) -> bool {
        match self.channel(fd) {
            Some(channel) if channel.is_driven_with(found) => true,
            Some(channel) => {
                found.push(channel);
                !CompChannel::are_all_driven_with(found)
            }
            None => deep >= DEEPEST || self.find(fd, deep + 1, found),
        }
    }
}

/// A fork may have left the lock taken for ever: then nothing is known of any set.
const ORPHANED_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

fn write_soon() -> Option<RwLockWriteGuard<'static, Table>> {
    rnic_nic::within(ORPHANED_LOCK_TIMEOUT, || TABLE.try_write())
}

/// A channel was made that has this descriptor.
pub fn know(fd: RawFd, channel: &CompChannel) {
    if let Some(mut table) = write_soon() {
        table.know(fd, channel.downgrade());
        OWNER.store(std::process::id(), Ordering::Relaxed);
        COUNT.store(table.channels.len() as u32, Ordering::Relaxed);
    }
}

/// It will be destroyed.
pub fn forget(channel: &CompChannel) {
    if let Some(mut table) = write_soon() {
        table.forget(channel);
        COUNT.store(table.channels.len() as u32, Ordering::Relaxed);
    }
}

/// dup(2) or one of its kin has made `copy` of `fd`. A child of vfork(2) does so to descriptors of
/// its own, and leaves its parent's table as it is.
pub fn duplicated(fd: RawFd, copy: RawFd) {
    if !are_none()
        && fd != copy
        && let Some(mut table) = write_soon()
        && (table.knows(fd) || table.knows(copy))
        && OWNER.load(Ordering::Relaxed) == std::process::id()
    {
        table.duplicate(fd, copy);
        COUNT.store(table.channels.len() as u32, Ordering::Relaxed);
    }
}

/// There is no channel.
#[inline]
pub fn are_none() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}

/// A new epoll set has this number.
pub fn set_made(set: RawFd) {
    if !are_none()
        && let Some(mut table) = write_soon()
    {
        table
            .members
            .retain(|(of, member)| *of != set && *member != set);
    }
}

/// `epoll_ctl` has put `fd` into `set`, or taken it out.
pub fn set_changed(set: RawFd, fd: RawFd, is_in: bool) {
    if !are_none()
        && let Some(mut table) = write_soon()
    {
        table.change(set, fd, is_in);
    }
}

/// The channels in an epoll set. None while a thread changes the table, as one does that a signal
/// interrupted. Threads that look do not exclude each other: one that had to wait for another would
/// sleep in the kernel, where nobody takes in its packets before the next tick.
pub fn of_set(set: RawFd) -> Channels {
    let mut found = Channels::new();
    if let Some(table) = TABLE.try_read() {
        table.find(set, 0, &mut found);
    }
    found
}

/// Those among descriptors, or in sets among them.
pub fn among(mut fds: impl Iterator<Item = RawFd>) -> Channels {
    let mut found = Channels::new();
    if let Some(table) = TABLE.try_read() {
        fds.all(|fd| table.find_in(fd, 0, &mut found));
    }
    found
}

/// When a wait ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Never,
    Now,
    At(Instant),
}

impl Until {
    pub fn millis(timeout: c_int) -> Until {
        match timeout {
            0 => Until::Now,
            1.. => Until::after(Duration::from_millis(timeout.unsigned_abs().into())),
            _ => Until::Never,
        }
    }

    pub fn after(time: Duration) -> Until {
        if time.is_zero() {
            return Until::Now;
        }
        Instant::now()
            .checked_add(time)
            .map_or(Until::Never, Until::At)
    }

    fn is_over(self, now: Instant) -> bool {
        matches!(self, Until::At(at) if at <= now)
    }

    /// What is left, for ppoll(2); `None`: no end.
    pub fn left(self) -> Option<libc::timespec> {
        let left = match self {
            Until::Never => return None,
            Until::Now => Duration::ZERO,
            Until::At(at) => at.saturating_duration_since(Instant::now()),
        };
        Some(libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: c_long::from(left.subsec_nanos()),
        })
    }

    /// The same in whole milliseconds, rounded up; -1: no end.
    pub fn left_in_millis(self) -> c_int {
        let Some(left) = self.left() else {
            return -1;
        };
        let millis = (left.tv_nsec + 999_999) / 1_000_000 + left.tv_sec.saturating_mul(1000);
        c_int::try_from(millis).unwrap_or(c_int::MAX)
    }
}

/// What a sleep was ended by.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    /// As poll(2): 0 at the end of the time, negative with errno.
    pub count: c_int,
    /// Something that the program waits for.
    pub its: bool,
    /// Those of packets.
    pub packets: Readable,
}

/// A call that waits. Nothing of it may need to be cleaned up: a thread may be cancelled in it.
pub trait Call: Copy {
    /// Channels among what it waits for.
    fn channels(&self) -> Channels;
    /// Something is ready, which this does not take.
    fn is_ready(&self) -> bool;
    /// Sleeps until something is ready, or one of the descriptors of packets is.
    fn sleep(&self, packets: &Packets, until: Until) -> Woken;
    /// Does what the program called if something is ready, or if there is nothing to wait for: what
    /// it gives then.
    fn take(&self, until: Until) -> Option<c_int>;
    /// The same with this mask, if it has none of its own.
    fn masked(self, mask: *const sigset_t) -> Self;
    fn mask(&self) -> *const sigset_t;
    /// Does what the program called.
    fn finish(&self, until: Until) -> c_int;
}

#[derive(Clone, Copy)]
enum Step {
    /// Something is ready, or the time is over.
    Finish,
    /// Others drive.
    SleepInKernel,
    TakeSignals,
    Sleep(Packets),
}

/// Does what the program called, and looks after packets meanwhile.
#[inline(always)]
pub fn wait<C: Call>(call: C, until: Until) -> c_int {
    if !has_channels(&call) {
        return call.finish(until);
    }
    let mask = hold_signals();
    if !is_usual(&mask) {
        give_signals(&mask);
        return call.finish(until);
    }
    let count = match begin(&call, until) {
        Some(seen) => wait_masked(call.masked(&raw const mask), until, seen),
        None => call.masked(&raw const mask).finish(until),
    };
    give_signals(&mask);
    count
}

/// A channel is among what it waits for.
pub fn has_channels<C: Call>(call: &C) -> bool {
    crate::export::seam::attempt(|| Some(!call.channels().is_empty())).unwrap_or(false)
}

/// Signals that a thread holds as a rule.
#[derive(Clone, Copy)]
struct Usual {
    /// None before the first wait.
    mask: Option<u64>,
    /// Waits in a row in which it held more.
    more: u8,
}

/// So many, and that is the rule from now on.
const MORE: u8 = 16;

thread_local! {
    static USUAL: Cell<Usual> = const { Cell::new(Usual { mask: None, more: 0 }) };
}

/// A handler holds the signal that it is for. It may have interrupted the thread anywhere, within
/// this library, too, where what a wait would need is in use: so a thread that holds more signals
/// than before sleeps in the kernel, and so does one in its first wait. The device's own thread
/// then brings what they wait for, within a tick at most.
fn is_usual(mask: &sigset_t) -> bool {
    // SAFETY: on Linux it begins with a word of a bit for each signal.
    let held = unsafe { *(&raw const *mask).cast::<u64>() };
    let (usual, next) = USUAL.get().judge(held);
    USUAL.set(next);
    usual
}

impl Usual {
    fn judge(self, held: u64) -> (bool, Usual) {
        let now = Usual {
            mask: Some(held),
            more: 0,
        };
        match self.mask {
            Some(usual) if held & !usual == 0 => (true, now),
            Some(usual) if self.more < MORE => {
                let more = self.more + 1;
                (
                    false,
                    Usual {
                        mask: Some(usual),
                        more,
                    },
                )
            }
            _ => (false, now),
        }
    }
}

/// Signals wait for the sleep, which they end: a handler that ran while the engine is driven would
/// end nothing. The mask before.
#[inline(always)]
fn hold_signals() -> sigset_t {
    /// They tell of what the thread does itself.
    const OWN: [c_int; 6] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
    ];
    // SAFETY: zeros are a valid value of that plain C struct, and all else are places for one.
    unsafe {
        let mut held: sigset_t = core::mem::zeroed();
        let mut before = held;
        libc::sigfillset(&mut held);
        for signal in OWN {
            libc::sigdelset(&mut held, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
        before
    }
}

/// One that this mask does not hold is there.
fn signal_came(mask: *const sigset_t) -> bool {
    // SAFETY: zeros are a valid value of that plain C struct, and a place for one; the mask is the
    // program's, or `wait`'s.
    unsafe {
        let mut pending: sigset_t = core::mem::zeroed();
        libc::sigpending(&mut pending);
        (1..=64).any(|signal| {
            libc::sigismember(&pending, signal) == 1 && libc::sigismember(mask, signal) != 1
        })
    }
}

/// Handlers of those that came since run now.
#[inline(always)]
fn give_signals(mask: &sigset_t) {
    // SAFETY: a mask. errno is left as it is.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}

#[inline(always)]
fn wait_masked<C: Call>(call: C, until: Until, mut seen: u32) -> c_int {
    if let Some(count) = call.take(until) {
        return count;
    }
    let mut woken = None;
    loop {
        match step(&call, until, seen, woken) {
            Step::Finish => {
                CompChannel::end_wait();
                seen = CompChannel::events_so_far();
                if let Some(count) = call.take(until) {
                    return count;
                }
                if until.is_over(Instant::now()) {
                    break;
                }
                // An event of a channel that this call does not wait for, or that another thread
                // took.
                woken = None;
            }
            // epoll_pwait(2), unlike ppoll(2), is also ended by those that are ignored and had been
            // held.
            step @ (Step::TakeSignals | Step::SleepInKernel) => {
                CompChannel::end_wait();
                let now = call.sleep(&Packets::NONE, Until::Now);
                if now.count < 0 {
                    return -1;
                }
                if now.its || matches!(step, Step::SleepInKernel) {
                    break;
                }
                woken = None;
            }
            Step::Sleep(packets) => {
                let now = call.sleep(&packets, until);
                if now.count < 0 {
                    crate::export::seam::keeping_errno(CompChannel::end_wait);
                    return -1;
                }
                if now.count == 0 || now.its {
                    break;
                }
                woken = Some(now.packets);
            }
        }
    }
    // It may sleep after all: another thread took what was ready, or select(2) does not count it.
    // Then others drive.
    CompChannel::end_wait();
    call.finish(until)
}

/// The events that had come before the wait; `None`: there is nothing to wait for in this way.
fn begin<C: Call>(call: &C, until: Until) -> Option<u32> {
    crate::export::seam::attempt(|| {
        if until == Until::Now {
            call.channels().iter().for_each(CompChannel::drive);
            return None;
        }
        Some(CompChannel::events_so_far())
    })
}

fn step<C: Call>(call: &C, until: Until, seen: u32, woken: Option<Readable>) -> Step {
    let step = crate::export::seam::attempt(|| {
        let channels = call.channels();
        let looked = Cell::new(Instant::now());
        let signal = Cell::new(false);
        let over = || {
            if CompChannel::events_so_far() != seen {
                return true;
            }
            if looked.get().elapsed() < OTHERS {
                return false;
            }
            let now = Instant::now();
            looked.set(now);
            signal.set(signal_came(call.mask()));
            signal.get() || until.is_over(now) || call.is_ready()
        };
        match CompChannel::wait_for_any(&channels, woken, over) {
            Ok(Some(Waiting::SleepOn(packets))) => Some(Step::Sleep(packets)),
            Ok(Some(Waiting::Over)) if signal.get() => Some(Step::TakeSignals),
            Ok(Some(Waiting::Over)) => Some(Step::Finish),
            _ => None,
        }
    });
    step.unwrap_or(Step::SleepInKernel)
}

#[cfg(test)]
mod tests {
    //! The table knows which sets hold channels, as deep as the kernel lets sets be in sets, and
    //! takes no harm from numbers that are used again.

    use super::*;

    fn members(pairs: &[(RawFd, RawFd)]) -> Table {
        let mut table = Table::default();
        for &(set, fd) in pairs {
            table.change(set, fd, true);
        }
        table
    }

    #[test]
    fn a_descriptor_that_is_no_channel_is_not_kept() {
        assert!(members(&[(5, 6), (6, 7)]).members.is_empty());
    }

    #[test]
    fn a_channel_is_found_through_sets_of_sets_and_circles_end() {
        let context = rnic_nic::Context::open().expect("a device");
        let channel = context.create_comp_channel().expect("a channel");
        let fd = channel.fd();
        let mut table = Table::default();
        table.know(fd, channel.downgrade());
        for pair in [(100, fd), (101, 100), (102, 101), (103, 102), (100, 103)] {
            table.change(pair.0, pair.1, true);
        }
        let found = |table: &Table, set| {
            let mut found = Channels::new();
            table.find(set, 0, &mut found);
            found.len()
        };
        assert!(found(&table, 100) >= 1);
        assert!(found(&table, 103) >= 1);
        let mut one = Channels::new();
        assert!(!table.find(103, 0, &mut one), "it drives the only engine");
        assert_eq!(one.len(), 1);
        table.change(100, 103, false);
        assert_eq!([100, 101, 102, 103].map(|set| found(&table, set)), [1; 4]);
        table.change(101, 100, false);
        assert_eq!([100, 101, 102].map(|set| found(&table, set)), [1, 0, 0]);
        table.forget(&channel);
        assert_eq!(found(&table, 100), 0);
        // What has its number now is another thing.
        assert!(!table.members.iter().any(|(_, member)| *member == fd));
    }

    #[test]
    fn duplicates_are_known_until_their_number_is_something_else() {
        let context = rnic_nic::Context::open().expect("a device");
        let [one, other] = [(); 2].map(|()| context.create_comp_channel().expect("a channel"));
        let mut table = Table::default();
        table.know(100, one.downgrade());
        table.know(50, other.downgrade());
        // A duplicate of a duplicate, and of a set that holds one.
        table.duplicate(100, 90);
        table.duplicate(90, 110);
        table.change(200, 90, true);
        table.duplicate(200, 150);
        let found = |table: &Table, fd| {
            let mut found = Channels::new();
            table.find_in(fd, 0, &mut found);
            found.iter().map(|channel| channel.fd()).collect::<Vec<_>>()
        };
        for fd in [90, 100, 110, 150, 200] {
            assert_eq!(found(&table, fd), [one.fd()], "{fd}");
        }
        // The original is closed and another channel's duplicate; a duplicate is what is no
        // channel.
        table.duplicate(50, 100);
        table.duplicate(7, 110);
        assert_eq!(found(&table, 100), [other.fd()]);
        assert_eq!(found(&table, 110), [0; 0]);
        assert_eq!(found(&table, 150), [one.fd()]);
        table.duplicate(7, 150);
        assert_eq!(found(&table, 150), [0; 0]);
        table.forget(&one);
        for fd in [90, 110, 150, 200] {
            assert!(!table.knows(fd), "{fd}");
        }
        assert_eq!(found(&table, 100), [other.fd()]);
        let order = |pairs: &[(RawFd, RawFd)]| pairs.is_sorted();
        assert!(order(&table.members) && table.channels.is_sorted_by_key(|(fd, _)| *fd));
    }

    #[test]
    fn a_handler_sleeps_in_the_kernel_and_a_thread_that_holds_more_from_now_on_does_not() {
        let mut usual = Usual {
            mask: None,
            more: 0,
        };
        let mut is_usual = |held| {
            let (answer, next) = usual.judge(held);
            usual = next;
            answer
        };
        assert!(!is_usual(0b1), "nothing is known yet");
        assert!(is_usual(0b1));
        assert!(!is_usual(0b101), "a handler");
        assert!(is_usual(0b1));
        assert!((0..=MORE).all(|_| !is_usual(0b11)));
        assert!(is_usual(0b11));
        assert!(is_usual(0b10), "it holds fewer");
        assert!(!is_usual(0b11));
    }

    #[test]
    fn times_are_rounded_up_so_that_nobody_wakes_early() {
        assert_eq!(Until::millis(-1).left_in_millis(), -1);
        assert_eq!(Until::millis(0).left_in_millis(), 0);
        let left = Until::after(Duration::from_micros(300)).left_in_millis();
        assert!(left <= 1);
        assert_eq!(Until::after(Duration::MAX).left_in_millis(), -1);
        assert!(Until::millis(c_int::MAX).left_in_millis() > c_int::MAX - 60_000);
    }
}
