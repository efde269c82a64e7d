//! What a thread does that polls in vain.
//!
//! Spinning is right while cores are free. Where they are not, it takes the core from others,
//! perhaps from the very peer that is waited for. If more threads run than there are cores, a
//! thread offers its core after a moment: on a free one that takes a fraction of a microsecond, and
//! on a crowded one the others run. Threads that all do so share a core in turns of microseconds.
//!
//! If there are cores enough, two threads that have come to share one must not settle there: only
//! threads that go on running are spread over the cores by the scheduler.

use rnic_settings::ablation::{self, Policy};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shard::{Driven, Shard};

/// Empty polls between two looks at the clock, a power of two.
const LOOK_EVERY: u32 = 16;
/// The same once others took the core.
const LOOK_OFTEN: u32 = 4;
const _: () = assert!(LOOK_EVERY.is_power_of_two() && LOOK_OFTEN.is_power_of_two());
/// How long an application polls in vain before it offers its core, and again before it does so
/// anew.
const OFFER_NS: u64 = 10_000;
/// The same once others took it. Less would be less than a system call is worth.
const OFFER_OFTEN_NS: u64 = 2_000;
/// An offer that took so long was taken.
const TAKEN_NS: u64 = 1_500;
/// How long it is taken for true that cores are short, or not: at least, at most, and so many times
/// as long as it took to find out.
const BELIEVED_NS: std::ops::RangeInclusive<u64> = 2_000_000..=16_000_000;
const BELIEVED_FACTOR: u64 = 256;

/// What a thread's polls found lately.
#[derive(Clone, Copy, Debug, Default)]
struct Vain {
    polls: u32,
    /// Since when nothing was found, or the core was offered; 0: not looked at the clock yet.
    since: u64,
    /// The last offer was taken.
    crowded: bool,
}

impl Vain {
    /// A poll found nothing. True: it is time to offer the core.
    #[inline]
    fn offers(&mut self, clock: impl FnOnce() -> u64) -> bool {
        self.polls += 1;
        let (every, offer_ns) = match self.crowded {
            true => (LOOK_OFTEN, OFFER_OFTEN_NS),
            false => (LOOK_EVERY, OFFER_NS),
        };
        // By a mask: a division costs as much as the look.
        if self.polls & (every - 1) != 0 || ablation::is_out(Policy::Yielding) {
            return false;
        }
        let now = clock();
        if self.since == 0 {
            self.since = now;
        }
        if now - self.since < offer_ns {
            return false;
        }
        self.since = now;
        true
    }

    /// An offer took so long.
    fn offered(&mut self, took: u64) {
        self.crowded = took > TAKEN_NS;
        self.since += took;
    }
}

thread_local! {
    static VAIN: Cell<Vain> = const {
        Cell::new(Vain { polls: 0, since: 0, crowded: false })
    };
}

/// A thread that sleeps between its polls does not spin.
pub(super) fn begin_anew() {
    VAIN.with(|vain| {
        let before = vain.get();
        vain.set(Vain {
            polls: 0,
            since: 0,
            ..before
        });
    });
}

/// After each poll: one that found nothing may let others run. True: polls have been in vain for a
/// moment.
#[inline]
pub(super) fn spin_or_yield(shared: &Shard, driven: Driven, found: bool) -> bool {
    let mut vain = VAIN.get();
    if found {
        if vain.polls != 0 {
            (vain.polls, vain.since) = (0, 0);
            VAIN.set(vain);
        }
        return false;
    }
    // On a simulated host nobody else wants the core.
    if shared.host.is_simulated() {
        return false;
    }
    let in_vain = vain.offers(rnic_sys::now_ns);
    if in_vain {
        if driven == Driven::LockedOut {
            // Whoever has the engine for so long may wait for this very core.
            std::thread::yield_now();
        } else if !shared.background.contention.cores_are_short(vain.since) {
            vain.crowded = false;
        } else {
            let before = rnic_sys::now_ns();
            std::thread::yield_now();
            vain.offered(rnic_sys::now_ns() - before);
        }
    }
    VAIN.set(vain);
    in_vain
}

/// Whether more threads want to run on this machine than it has cores.
pub(super) struct CpuContention {
    loadavg: Option<File>,
    cores: usize,
    /// Until when it need not be looked at again, and in the lowest bit what was found.
    found: AtomicU64,
}

impl CpuContention {
    pub(super) fn new() -> CpuContention {
        CpuContention {
            loadavg: File::open("/proc/loadavg").ok(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            found: AtomicU64::new(0),
        }
    }

    /// Without /proc they may be.
    fn cores_are_short(&self, now: u64) -> bool {
        let found = self.found.load(Ordering::Relaxed);
        if now < found {
            return found & 1 == 1;
        }
        let mut text = [0u8; 64];
        let mut look = |file: &File| rnic_sys::uncancelled(|| file.read_at(&mut text, 0).ok());
        let read = self.loadavg.as_ref().and_then(&mut look);
        let running = read.and_then(|n| running(&text[..n]));
        let short = running.is_none_or(|running| running > self.cores);
        let took = rnic_sys::now_ns().saturating_sub(now);
        let (least, most) = (*BELIEVED_NS.start(), *BELIEVED_NS.end());
        let until = now + (BELIEVED_FACTOR * took).clamp(least, most);
        self.found
            .store(until & !1 | u64::from(short), Ordering::Relaxed);
        short
    }
}

/// The threads that run or want to: the number before the slash in /proc/loadavg (proc_loadavg(5)).
fn running(loadavg: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(loadavg).ok()?;
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    //! A core is offered after a while, and often among those that offer theirs too.

    use super::*;

    /// Polls every 500 ns in vain; an offer takes `took`. How many were made.
    fn polls(vain: &mut Vain, count: u32, took: u64) -> u32 {
        let (mut now, mut offers) = (1, 0);
        for _ in 0..count {
            now += 500;
            if vain.offers(|| now) {
                offers += 1;
                now += took;
                vain.offered(took);
            }
        }
        offers
    }

    #[test]
    fn the_number_of_running_threads_is_found() {
        assert_eq!(running(b"0.50 1.25 2.00 3/412 31337\n"), Some(3));
        assert_eq!(running(b"0.50 1.25"), None);
        assert_eq!(running(b"\xff\xff"), None);
    }

    #[test]
    fn what_is_known_of_the_cores_is_believed_for_a_while() {
        let contention = |cores| CpuContention {
            cores,
            ..CpuContention::new()
        };
        let none = contention(0);
        assert!(none.cores_are_short(rnic_sys::now_ns()), "this thread runs");
        let many = contention(1 << 20);
        let now = rnic_sys::now_ns();
        assert!(!many.cores_are_short(now));
        let until = many.found.load(Ordering::Relaxed) | 1;
        // The lowest bit is not of the time.
        assert!((*BELIEVED_NS.start()..=*BELIEVED_NS.end() + 1).contains(&(until - now)));
        many.found.store(until, Ordering::Relaxed);
        assert!(many.cores_are_short(until - 1));
        assert!(!many.cores_are_short(until + 1));
    }

    #[test]
    fn a_free_core_is_spun_on() {
        let offers = polls(&mut Vain::default(), 10_000, 300);
        assert!((200..=500).contains(&offers), "{offers} in 5 ms");
    }

    #[test]
    fn a_crowded_core_is_offered_after_each_few_polls() {
        let offers = polls(&mut Vain::default(), 10_000, 20_000);
        assert!(offers > 2_400, "{offers}");
    }
}
