//! Clocks.

/// Monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of all threads of this process (CLOCK_PROCESS_CPUTIME_ID, clock_gettime(2)), ns.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// What the processor counts, for short times of no exact length: ticks, some thousands in a
/// microsecond, or nanoseconds where there are none. The clock costs three times as much, since it
/// waits for all loads before it.
#[inline]
pub fn ticks_or_ns() -> u64 {
    ticks().unwrap_or_else(now_ns)
}

/// The monotonic clock for whoever reads it over and over: what was read last still counts for
/// [`FRESH`] ticks of the processor's counter. The counter is read in half the time, and only ever
/// says how old a reading is; where it may stop or change its pace the clock is read each time.
#[derive(Debug, Default)]
pub struct StreamClock {
    ns: u64,
    ticks: u64,
}

/// Two microseconds where the counter runs at 2 GHz; four at 1 GHz. So much too early may a timer
/// fire that was armed by it.
const FRESH: u64 = 4000;

impl StreamClock {
    /// What was read last.
    #[inline]
    pub fn last_ns(&self) -> u64 {
        self.ns
    }

    /// The clock, or what was read last if that still counts.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        let Some(ticks) = ticks() else {
            return now_ns();
        };
        if ticks.wrapping_sub(self.ticks) >= FRESH {
            self.ns = now_ns();
            self.ticks = ticks;
        }
        self.ns
    }
}

/// A counter that neither stops nor changes its pace, of about a gigahertz or more; `None`: there
/// is none.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> Option<u64> {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::sync::atomic::{AtomicU8, Ordering};

    /// "Advanced power management": bit 8 of EDX is the invariant time stamp counter (Intel SDM,
    /// CPUID).
    const POWER: u32 = 0x8000_0007;
    static INVARIANT: AtomicU8 = AtomicU8::new(2);
    let ask = || {
        // SAFETY: every x86-64 processor has the instruction. (Newer versions of Rust know that.)
        #[allow(unused_unsafe, reason = "needed by the oldest Rust that builds this")]
        let has = unsafe { __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & 1 << 8 != 0 };
        INVARIANT.store(u8::from(has), Ordering::Relaxed);
        has
    };
    match INVARIANT.load(Ordering::Relaxed) {
        0 => return None,
        1 => {}
        _ if ask() => {}
        _ => return None,
    }
    // SAFETY: reads a register. Where the system forbids it (PR_SET_TSC), clock_gettime(2) traps as
    // well.
    Some(unsafe { _rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> Option<u64> {
    None
}

/// Nanoseconds since 1970.
pub fn now_realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid place for the answer; the clocks asked for always exist.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    (ts.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(ts.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    //! A reading that counts for a while is never far behind the clock, nor ahead of it.

    use super::*;

    #[test]
    fn the_stream_clock_is_the_clock_of_a_moment_ago() {
        let mut clock = StreamClock::default();
        let mut last = 0;
        for _ in 0..100_000 {
            let before = now_ns();
            let read = clock.now_ns();
            // As many ticks, of a gigahertz and more.
            assert!(
                read.saturating_add(FRESH + 500) >= before,
                "{read} at {before}"
            );
            assert!(read <= now_ns() && read >= last);
            last = read;
        }
    }
}
