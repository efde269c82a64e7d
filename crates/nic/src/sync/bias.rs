//! A lock that costs next to nothing while one thread alone uses it.
//!
//! A mutex costs two locked instructions, which wait until all that was stored before is with the
//! cache: behind a message written into a ring that means until the cache line came over from the
//! peer's core. A lock that the same thread took many times in a row therefore becomes that
//! thread's own: it goes in and out by plain stores ([`protocol`]). Whoever else wants it takes the
//! mutex, takes the lock away from its owner, has all threads pass a barrier (membarrier(2)), and
//! waits until the owner is outside; from then on it is a mutex, until some thread has it to itself
//! again.
//!
//! To take it away costs microseconds. Where that happens soon after the lock was given, it is
//! given later each time. Without membarrier(2) it stays a mutex.
//!
//! # Why the `unsafe` in here is sound
//! A [`Guard`] is made only by who is inside: by the mutex, when no owner is, or as the owner. The
//! `loom` tests of [`protocol`] go through the interleavings. A guard does not leave its thread.

mod places;
mod protocol;

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

use rustix_futex_sync::{Mutex, MutexGuard};

use crate::adapt::Confidence;
use crate::sync::within::within;
use protocol::Bias;

/// Threads that may own a lock at all: with the owner's number their flags fill a cache line.
const PLACES: usize = 14;
/// No place.
const NOBODY: usize = usize::MAX;
/// Times that a thread has to take a lock in a row before it is given the lock, at first and at
/// most.
type Streak = Confidence<128, 8192>;
/// A lock that is taken away sooner was given too soon.
const SOON_NS: u64 = 30_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Biased<T> {
    bias: Bias,
    policy: Mutex<Policy>,
    value: UnsafeCell<T>,
}

// SAFETY: as for a mutex: the value goes from thread to thread, and is seen by one at a time.
unsafe impl<T: Send> Sync for Biased<T> {}

/// To whom the lock is given, and when. Guarded by the mutex.
#[derive(Debug)]
struct Policy {
    /// The owner that it was taken from last, if that may be inside still.
    former: usize,
    /// The mark of the thread that took it last, and how often it did so in a row.
    last: usize,
    streak: Streak,
    given: u64,
}

impl Policy {
    /// The lock was taken from its owner.
    fn taken_away(&mut self, owner: usize) {
        self.former = owner;
        self.streak.sign(false);
        // Whoever looks in now and then, as the background thread does, looks a few times in a row.
        let soon = rnic_sys::now_ns().saturating_sub(self.given) < SOON_NS;
        match soon {
            true => self.streak.wrong(),
            false => self.streak.forget(),
        }
    }

    /// This thread had it. The place of one that shall keep it.
    fn taken(&mut self) -> Option<usize> {
        let mark = rnic_sys::thread_mark();
        if mark != self.last {
            self.last = mark;
            self.streak.sign(false);
        }
        self.streak.sign(true);
        if !self.streak.is_sure() {
            return None;
        }
        // If it cannot, then not before as many times again.
        self.streak.sign(false);
        let place = places::mine().filter(|_| rnic_sys::has_private_barriers())?;
        self.given = rnic_sys::now_ns();
        Some(place)
    }
}

/// How the lock was taken.
#[derive(Debug)]
enum Held<'a> {
    /// By its owner.
    Own(usize),
    /// The count ends behind the mutex.
    Mutex(MutexGuard<'a, Policy>, Within),
}

thread_local! {
    /// How many mutexes of such locks this thread has, or takes, or leaves.
    static WITHIN: Cell<u32> = const { Cell::new(0) };
}

/// Counts in [`WITHIN`]; the fences are for signals, whose handlers run in the same thread.
#[derive(Debug)]
struct Within;

impl Within {
    fn enter() -> Within {
        WITHIN.set(WITHIN.get() + 1);
        compiler_fence(Ordering::SeqCst);
        Within
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        WITHIN.set(WITHIN.get().saturating_sub(1));
    }
}

/// The lock is taken.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a Biased<T>,
    held: Held<'a>,
    /// Neither goes to another thread nor is shared beyond what the value permits.
    _thread: PhantomData<*mut T>,
}

impl<T> Biased<T> {
    pub(crate) fn new(value: T) -> Biased<T> {
        Biased {
            bias: Bias::new(),
            policy: Mutex::new(Policy {
                former: NOBODY,
                last: 0,
                streak: Streak::new(),
                given: 0,
            }),
            value: UnsafeCell::new(value),
        }
    }

    /// This thread has the lock, or is about to take or to leave one of this kind: a signal's
    /// handler may have interrupted it there, and would wait for itself.
    pub(crate) fn is_entered_here(&self) -> bool {
        let own = |place| places::is_mine(place) && self.bias.is_busy(place);
        WITHIN.get() > 0 || (0..PLACES).any(own)
    }

    /// Takes the lock, waiting for it. A thread that has it already waits for ever.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.enter() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the lock unless somebody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.enter() {
            Some(guard) => Some(guard),
            None => self.try_mutex(),
        }
    }

    /// Takes the lock, waiting at most that long.
    pub(crate) fn try_lock_for(&self, timeout: Duration) -> Option<Guard<'_, T>> {
        within(timeout, || self.try_lock())
    }

    /// As the owner.
    #[inline]
    fn enter(&self) -> Option<Guard<'_, T>> {
        let owner = self.bias.owner();
        (places::is_mine(owner) && self.bias.enter(owner)).then(|| self.guard(Held::Own(owner)))
    }

    fn guard<'a>(&'a self, held: Held<'a>) -> Guard<'a, T> {
        Guard {
            lock: self,
            held,
            _thread: PhantomData,
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Guard<'_, T> {
        let within = Within::enter();
        let mut policy = self.policy.lock();
        self.revoke(&mut policy);
        if policy.former != NOBODY {
            self.bias.wait(policy.former);
            policy.former = NOBODY;
        }
        self.guard(Held::Mutex(policy, within))
    }

    #[cold]
    #[inline(never)]
    fn try_mutex(&self) -> Option<Guard<'_, T>> {
        let owner = self.bias.owner();
        // It is not taken away for nothing.
        if owner != NOBODY && self.bias.is_busy(owner) {
            return None;
        }
        let within = Within::enter();
        let mut policy = self.policy.try_lock()?;
        self.revoke(&mut policy);
        if policy.former != NOBODY {
            if self.bias.is_inside(policy.former) {
                return None;
            }
            policy.former = NOBODY;
        }
        Some(self.guard(Held::Mutex(policy, within)))
    }

    /// Takes the lock away from its owner, if it has one.
    #[inline]
    fn revoke(&self, policy: &mut Policy) {
        let owner = self.bias.revoke();
        if owner != NOBODY {
            policy.taken_away(owner);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: whoever has a guard is inside, and nobody else.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &mut self.held {
            Held::Own(place) => self.lock.bias.leave(*place),
            Held::Mutex(policy, _) => {
                if let Some(place) = policy.taken() {
                    self.lock.bias.give(place);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! One thread at a time, whoever the lock belongs to, and nobody waits for ever.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn own<T>(lock: &Biased<T>) {
        for _ in 0..256 {
            drop(lock.lock());
        }
    }

    fn is_own<T>(lock: &Biased<T>) -> bool {
        places::is_mine(lock.bias.owner())
    }

    /// Some environments have no membarrier(2), and perhaps more tests run than there are places.
    fn may_own() -> bool {
        rnic_sys::join_private_barriers();
        rnic_sys::has_private_barriers() && places::mine().is_some()
    }

    #[test]
    fn a_lock_becomes_its_only_users_own() {
        let lock = Biased::new(0);
        if may_own() {
            own(&lock);
            assert!(is_own(&lock));
        }
        *lock.lock() += 1;
        assert_eq!(*lock.try_lock().unwrap(), 1);
    }

    #[test]
    fn who_has_it_keeps_everybody_out() {
        let lock = Biased::new(());
        may_own();
        for _ in 0..2 {
            assert!(!lock.is_entered_here());
            let guard = lock.lock();
            assert!(lock.try_lock().is_none(), "the same thread");
            assert!(lock.is_entered_here());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(lock.try_lock().is_none());
                    assert!(!lock.is_entered_here());
                });
            });
            drop(guard);
            assert!(!lock.is_entered_here());
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(lock.try_lock().is_some()));
            });
            own(&lock);
        }
    }

    #[test]
    fn who_waits_for_the_owner_gets_in_after_it() {
        let lock = Arc::new(Biased::new(0));
        may_own();
        own(&lock);
        let guard = lock.lock();
        let waiting = std::thread::spawn({
            let lock = lock.clone();
            move || *lock.lock() += 1
        });
        // Long enough to fall asleep, as a rule; what is promised does not depend on it.
        while is_own(&lock) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(*guard, 0);
        drop(guard);
        waiting.join().unwrap();
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn one_thread_at_a_time_while_others_come_and_go() {
        const EACH: u64 = 300_000;
        let lock = Biased::new(0u64);
        let stop = AtomicBool::new(false);
        may_own();
        std::thread::scope(|scope| {
            let intruder = scope.spawn(|| {
                let mut taken = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..3 {
                        *lock.lock() += 1;
                        taken += 1;
                    }
                    if let Some(mut guard) = lock.try_lock() {
                        *guard += 1;
                        taken += 1;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                taken
            });
            let owners: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            *lock.lock() += 1;
                        }
                    })
                })
                .collect();
            for owner in owners {
                owner.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            let taken: u64 = intruder.join().unwrap();
            assert_eq!(*lock.lock(), 2 * EACH + taken);
        });
    }

    #[test]
    fn a_lock_that_is_taken_away_soon_is_given_later() {
        let mut policy = Policy {
            former: NOBODY,
            last: 0,
            streak: Streak::new(),
            given: rnic_sys::now_ns().saturating_add(1 << 40),
        };
        for _ in 0..40 {
            policy.taken_away(0);
        }
        let in_a_row = |streak: Streak| {
            let mut streak = streak;
            (1..).find(|_| {
                streak.sign(true);
                streak.is_sure()
            })
        };
        assert_eq!(in_a_row(policy.streak), Some(8192));
        policy.given = 0;
        policy.taken_away(0);
        assert_eq!(in_a_row(policy.streak), Some(128));
    }
}
