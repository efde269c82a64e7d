//! How the application's threads and the background thread agree on who looks after the engine.
//!
//! The promise: work and deadlines that an application leaves in the engine are seen to, although
//! the thread may be on its way to sleep at that very moment. It rests on the engine's lock: before
//! it sleeps the thread reads the engine and publishes until when it will sleep, both under the
//! lock; an application looks at what was published after it has let go of the lock. So either the
//! thread has seen the work, or the application sees that the thread has not. A thread that does
//! not get the lock sleeps for no longer than a tick, and looks again. The tests run all
//! interleavings of this by loom: `RUSTFLAGS="--cfg loom" cargo test -p rnic-nic --lib wakeup`.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What wakes the thread: rung once per token, silenced once per token.
pub(super) trait Bell {
    /// Adds a token.
    fn ring(&self);
    /// Takes one, if there is one.
    fn silence(&self);
}

/// State shared between the background thread and the application's threads.
pub(super) struct Wakeup<B> {
    bell: B,
    /// A token is in the bell, and the thread has not noticed it yet.
    rung: AtomicBool,
    /// When the thread wakes by itself; `u64::MAX`: never; 0: it is awake.
    sleeps_until: AtomicU64,
    /// The thread leaves the engine to the application that polls, and looks after it once a tick.
    watching: AtomicBool,
    /// It was asked to end that.
    asked: AtomicBool,
}

impl<B: Bell> Wakeup<B> {
    pub(super) fn new(bell: B) -> Wakeup<B> {
        Wakeup {
            bell,
            rung: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        }
    }

    pub(super) fn bell(&self) -> &B {
        &self.bell
    }

    /// Wakes the thread, at the price of a system call unless it was rung already.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// A token is in the bell, and the thread has not noticed it yet.
    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// The application, which has let go of the engine, left it with work or with this deadline.
    pub(super) fn hear(&self, work_left: bool, deadline: Option<u64>) {
        // A watching thread looks every tick anyhow; the application polls, or it would not be
        // watching.
        if self.is_watching() {
            return;
        }
        // While it is awake (0) it will read the engine before it sleeps.
        let due = if work_left { Some(0) } else { deadline };
        if due.is_some_and(|at| at < self.sleeps_until.load(Ordering::Acquire)) {
            self.ring();
        }
    }

    /// The application will wait for an event: packets must wake the thread from now on.
    pub(super) fn stop_watching(&self) {
        if self.watching.load(Ordering::Acquire) {
            self.asked.store(true, Ordering::Release);
            self.ring();
        }
    }

    pub(super) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// The thread, which holds the engine and has read it, will sleep until then.
    pub(super) fn will_sleep(&self, until: u64) {
        self.sleeps_until.store(until, Ordering::Release);
    }

    /// The thread woke; `rung`: the bell has a token. True: it was asked to stop watching.
    pub(super) fn woke(&self, rung: bool) -> bool {
        self.sleeps_until.store(0, Ordering::Release);
        if rung {
            // In this order: a ring from now on adds a token of its own.
            self.rung.store(false, Ordering::Release);
            self.bell.silence();
        }
        self.asked.swap(false, Ordering::AcqRel)
    }

    /// The thread begins or ends to watch; when it ends, it looks at the engine after this.
    pub(super) fn watch(&self, watching: bool) {
        self.watching.store(watching, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    //! No interleaving loses work, a deadline, or a request to stop watching.

    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    #[derive(Default)]
    struct Tokens {
        count: Mutex<u32>,
        more: Condvar,
    }

    impl Bell for Tokens {
        fn ring(&self) {
            *self.count.lock().unwrap() += 1;
            self.more.notify_one();
        }

        fn silence(&self) {
            let mut count = self.count.lock().unwrap();
            *count = count.saturating_sub(1);
        }
    }

    impl Tokens {
        /// ppoll(2) without a timeout.
        fn wait(&self) {
            let mut count = self.count.lock().unwrap();
            while *count == 0 {
                count = self.more.wait(count).unwrap();
            }
        }
    }

    const NEVER: u64 = u64::MAX;

    #[derive(Default)]
    struct Engine {
        work: u32,
        deadline: Option<u64>,
        done: u32,
    }

    struct World {
        engine: Mutex<Engine>,
        wakeup: Wakeup<Tokens>,
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            engine: Mutex::new(Engine::default()),
            wakeup: Wakeup::new(Tokens::default()),
        })
    }

    /// The background thread, until it has seen to `jobs` pieces of work. A deadline is work that
    /// comes up when the thread wakes by itself, which it does only if it knew of the deadline
    /// before it slept.
    fn background(world: &World, jobs: u32) {
        loop {
            let until = {
                let mut engine = world.engine.lock().unwrap();
                engine.done += std::mem::take(&mut engine.work);
                if engine.done == jobs {
                    return;
                }
                let until = engine.deadline.unwrap_or(NEVER);
                world.wakeup.will_sleep(until);
                until
            };
            // The watching thread's tick is as good as a deadline.
            let by_itself = until != NEVER || world.wakeup.is_watching();
            if !by_itself {
                world.wakeup.bell().wait();
            }
            world.wakeup.woke(!by_itself);
            if world.wakeup.is_watching() {
                world.wakeup.watch(false);
            }
            let mut engine = world.engine.lock().unwrap();
            if engine.deadline.take().is_some() {
                engine.done += 1;
            }
        }
    }

    #[test]
    fn work_left_behind_is_seen_to() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let thread = thread::spawn(move || background(&other, 2));
            for _ in 0..2 {
                let work_left = {
                    let mut engine = world.engine.lock().unwrap();
                    engine.work += 1;
                    engine.work > 0
                };
                world.wakeup.hear(work_left, None);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn an_earlier_deadline_wakes_the_sleeper() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let thread = thread::spawn(move || background(&other, 1));
            world.engine.lock().unwrap().deadline = Some(5);
            world.wakeup.hear(false, Some(5));
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_thread_that_begins_to_watch_still_sees_what_was_left() {
        loom::model(|| {
            let world = world();
            world.wakeup.watch(true);
            let other = world.clone();
            let thread = thread::spawn(move || background(&other, 1));
            world.engine.lock().unwrap().work += 1;
            world.wakeup.hear(true, None);
            world.wakeup.stop_watching();
            thread.join().unwrap();
        });
    }

    #[test]
    fn two_applications_and_one_bell() {
        // All interleavings of three threads take minutes; those with up to three preemptions find
        // what there is.
        let mut few = loom::model::Builder::new();
        few.preemption_bound = Some(3);
        few.check(|| {
            let world = world();
            let (first, second) = (world.clone(), world.clone());
            let thread = thread::spawn(move || background(&first, 2));
            let leave = |world: &World| {
                world.engine.lock().unwrap().work += 1;
                world.wakeup.hear(true, None);
            };
            let app = thread::spawn(move || leave(&second));
            leave(&world);
            app.join().unwrap();
            thread.join().unwrap();
        });
    }
}
