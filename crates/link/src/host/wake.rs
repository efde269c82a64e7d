//! When a producer has to wake the consumer.
//!
//! One flag per ring. The consumer sets it when it will not look at the ring by itself any more, and looks once more
//! after that. The producer looks at the flag after each packet; who finds it set takes it down and wakes. So either the
//! consumer has seen the packet, or the producer sees the flag: both put a full fence between their store and their
//! look. Loom runs all interleavings: `RUSTFLAGS="--cfg loom" cargo test -p rnic-link --lib host::wake`.
//!
//! Only the two processes of a ring can reach its flag, so whoever misuses it harms himself alone.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The consumer looks by itself.
const LOOKING: u32 = 0;
/// It is to be woken.
const ASLEEP: u32 = 1;

/// The flag, and the fence that goes with it; the tests have loom's.
pub(super) trait Flag {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    fn fence();
}

impl Flag for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        AtomicU32::load(self, Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, value: u32) {
        AtomicU32::store(self, value, Ordering::Relaxed);
    }
    #[inline]
    fn swap(&self, value: u32) -> u32 {
        AtomicU32::swap(self, value, Ordering::Relaxed)
    }
    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Producer: packets were published before this. True: the consumer has to be woken.
#[inline]
pub(super) fn must_wake<F: Flag>(flag: &F) -> bool {
    F::fence();
    flag.load() == ASLEEP && flag.swap(LOOKING) == ASLEEP
}

/// Consumer: it will not look any more unless it is woken. It must look once after this.
pub(super) fn fall_asleep<F: Flag>(flag: &F) {
    flag.store(ASLEEP);
    F::fence();
}

/// Consumer: it looks by itself from now on.
pub(super) fn look<F: Flag>(flag: &F) {
    flag.store(LOOKING);
}

/// Consumer: the flag is up.
#[inline]
pub(super) fn is_asleep<F: Flag>(flag: &F) -> bool {
    flag.load() == ASLEEP
}

#[cfg(all(test, loom))]
mod tests {
    //! No interleaving leaves a packet in the ring while the consumer sleeps.

    use loom::sync::atomic::{AtomicU32, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    impl super::Flag for AtomicU32 {
        fn load(&self) -> u32 {
            AtomicU32::load(self, Ordering::Relaxed)
        }
        fn store(&self, value: u32) {
            AtomicU32::store(self, value, Ordering::Relaxed);
        }
        fn swap(&self, value: u32) -> u32 {
            AtomicU32::swap(self, value, Ordering::Relaxed)
        }
        fn fence() {
            fence(Ordering::SeqCst);
        }
    }

    struct World {
        flag: AtomicU32,
        /// Packets published.
        ring: AtomicU32,
        /// Bytes in the connection.
        bytes: Mutex<u32>,
        more: Condvar,
    }

    /// Takes packets until it has `all`, asleep in between.
    fn consume(world: &World, all: u32) {
        while world.ring.load(Ordering::Acquire) < all {
            super::fall_asleep(&world.flag);
            if world.ring.load(Ordering::Acquire) < all {
                let mut bytes = world.bytes.lock().unwrap();
                while *bytes == 0 {
                    bytes = world.more.wait(bytes).unwrap();
                }
                *bytes = 0;
            }
            super::look(&world.flag);
        }
    }

    #[test]
    fn no_packet_is_left_with_a_sleeper() {
        loom::model(|| {
            let world = Arc::new(World {
                flag: AtomicU32::new(0),
                ring: AtomicU32::new(0),
                bytes: Mutex::new(0),
                more: Condvar::new(),
            });
            let other = world.clone();
            let consumer = thread::spawn(move || consume(&other, 2));
            for packet in 1..=2 {
                world.ring.store(packet, Ordering::Release);
                if super::must_wake(&world.flag) {
                    *world.bytes.lock().unwrap() += 1;
                    world.more.notify_one();
                }
            }
            consumer.join().unwrap();
        });
    }
}
