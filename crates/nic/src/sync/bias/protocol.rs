//! How the owner gets in and out without a locked instruction, and how others keep it out. See
//! [`super`].

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::{NOBODY, PLACES};

/// How often to look before sleeping, while the owner is inside.
#[cfg(not(loom))]
const LOOKS: u32 = 200;

/// Whom the lock belongs to, and whether it is inside. All in one cache line, of which the owner
/// alone writes, as a rule.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Bias {
    owner: AtomicUsize,
    /// Of each place, written by its thread alone: it is inside, or about to look whether it may
    /// be.
    busy: [AtomicU32; PLACES],
}

impl Bias {
    pub(super) fn new() -> Bias {
        Bias {
            owner: AtomicUsize::new(NOBODY),
            busy: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Whose place it is; [`NOBODY`]'s.
    #[inline]
    pub(super) fn owner(&self) -> usize {
        self.owner.load(Ordering::Relaxed)
    }

    /// That owner is inside, as far as can be seen.
    #[inline]
    pub(super) fn is_busy(&self, place: usize) -> bool {
        self.busy[place].load(Ordering::Relaxed) != 0
    }

    /// The thread at `place` goes in; false: it is not the owner any more, or inside already.
    #[inline]
    pub(super) fn enter(&self, place: usize) -> bool {
        let busy = &self.busy[place];
        if busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        busy.store(1, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Acquire) == place {
            return true;
        }
        self.leave(place);
        false
    }

    /// It comes out.
    #[inline]
    pub(super) fn leave(&self, place: usize) {
        let busy = &self.busy[place];
        busy.store(0, Ordering::Release);
        light_fence();
        if self.owner.load(Ordering::Relaxed) != place {
            wake(busy);
        }
    }

    /// From now on nobody goes in. Gives who was the owner, and may be inside still. The caller
    /// alone does this.
    pub(super) fn revoke(&self) -> usize {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NOBODY {
            self.owner.store(NOBODY, Ordering::Relaxed);
            fence_everywhere();
        }
        owner
    }

    /// A former owner is inside. Once this was false it is not, nor will be.
    pub(super) fn is_inside(&self, former: usize) -> bool {
        self.busy[former].load(Ordering::Acquire) != 0
    }

    /// Waits until a former owner is outside.
    pub(super) fn wait(&self, former: usize) {
        #[cfg(not(loom))]
        for _ in 0..LOOKS {
            if !self.is_inside(former) {
                return;
            }
            std::hint::spin_loop();
        }
        while self.is_inside(former) {
            sleep(&self.busy[former]);
        }
    }

    /// The caller, who has the lock and let everybody come out, gives it to the thread at `place`.
    pub(super) fn give(&self, place: usize) {
        self.owner.store(place, Ordering::Release);
    }
}

/// The program's order holds, the processor's may differ.
#[cfg(not(loom))]
#[inline]
fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// A fence here, and in each thread between what it did before a [`light_fence`] and does after it.
#[cfg(not(loom))]
fn fence_everywhere() {
    rnic_sys::barrier_in_all_threads();
}

#[cfg(not(loom))]
fn sleep(busy: &AtomicU32) {
    rnic_sys::sleep_while(busy, 1);
}

#[cfg(not(loom))]
#[cold]
fn wake(busy: &AtomicU32) {
    rnic_sys::wake_all(busy);
}

// Loom knows no barrier of one thread in another. What membarrier(2) promises is that the light
// fence is as good as a full one, so here it is one.
#[cfg(loom)]
fn light_fence() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
fn fence_everywhere() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
use tests::{sleep, wake};

#[cfg(all(test, loom))]
mod tests {
    //! No interleaving has two threads inside, or leaves one asleep for ever.

    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    loom::lazy_static! {
        /// What futex(2) knows: looking and falling asleep are one step.
        static ref ASLEEP: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(super) fn sleep(busy: &AtomicU32) {
        let asleep = ASLEEP.0.lock().unwrap();
        if busy.load(Ordering::Relaxed) == 1 {
            drop(ASLEEP.1.wait(asleep).unwrap());
        }
    }

    pub(super) fn wake(_: &AtomicU32) {
        drop(ASLEEP.0.lock().unwrap());
        ASLEEP.1.notify_all();
    }

    struct World {
        bias: Bias,
        raw: Mutex<usize>,
        inside: UnsafeCell<u32>,
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                bias: Bias::new(),
                raw: Mutex::new(NOBODY),
                inside: UnsafeCell::new(0),
            })
        }

        /// As [`super::super::Biased::lock`] and the end of its guard.
        fn work(&self, place: usize, keep: bool) {
            let count = || {
                // SAFETY: loom finds out if it is not.
                self.inside.with_mut(|inside| unsafe { *inside += 1 });
            };
            if self.bias.owner() == place && self.bias.enter(place) {
                count();
                self.bias.leave(place);
                return;
            }
            let mut former = self.raw.lock().unwrap();
            let owner = self.bias.revoke();
            if owner != NOBODY {
                *former = owner;
            }
            if *former != NOBODY {
                self.bias.wait(*former);
                *former = NOBODY;
            }
            count();
            if keep {
                self.bias.give(place);
            }
        }
    }

    /// Runs each script in a thread: whether it takes the lock for its own, time after time.
    fn run(scripts: [&'static [bool]; 2], preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let world = World::new();
            let threads: Vec<_> = scripts
                .into_iter()
                .enumerate()
                .map(|(place, script)| {
                    let world = world.clone();
                    thread::spawn(move || script.iter().for_each(|keep| world.work(place, *keep)))
                })
                .collect();
            let all = scripts.iter().map(|script| script.len() as u32).sum();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            // SAFETY: as above.
            world
                .inside
                .with(|inside| assert_eq!(unsafe { *inside }, all));
        });
    }

    #[test]
    fn bias_of_one_is_taken_by_another() {
        run([&[true, true, true], &[false]], 4);
    }

    #[test]
    fn bias_goes_from_one_to_another() {
        run([&[true, true], &[true, true]], 4);
    }
}
