//! When a producer has to wake the consumer.
//!
//! One flag per ring. The consumer sets it when it will not look at the ring by itself any more,
//! and looks once more after that. The producer looks at the flag after each packet; one that finds
//! it set takes it down and wakes. So either the consumer has seen the packet, or the producer sees
//! the flag: both put a full fence between their store and their look. Loom runs all interleavings:
//! `RUSTFLAGS="--cfg loom" cargo test -p rnic-link --lib shm::wake`.
//!
//! # Without the producer's fence
//! A fence after each packet waits until the packet's cache line was taken from the consumer, which
//! spins on it: a third of what a small message costs. A consumer that polls for long therefore
//! says so ([`poll`]), and before it stops it has all processors pass a barrier (membarrier(2))
//! between its store and its look ([`settle`]), one for all rings. While the flag says that, the
//! producer's store and look need nothing between them but their order in the program: if its look
//! came before that barrier, so did the packet, and the consumer sees it; if after, it sees that
//! the consumer has stopped, and goes the ordinary way. A producer whose kernel has no such
//! barriers always does.
//!
//! Only the two processes of a ring can reach its flag, so a process that misuses it harms itself
//! alone.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

use rnic_sys as sys;

/// The consumer looks by itself.
const LOOKING: u32 = 0;
/// It is to be woken.
const ASLEEP: u32 = 1;
/// The consumer looks by itself, and has others pass a barrier before it stops.
const POLLING: u32 = 2;

/// The flag, and the fence that goes with it; the tests have loom's.
pub(super) trait Flag {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    fn fence();
    /// The program's order holds, the processor's may differ.
    fn light_fence();
    /// A fence here, and in each thread that goes on after a `light_fence`.
    fn fence_everywhere();
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
    #[inline]
    fn light_fence() {
        compiler_fence(Ordering::SeqCst);
    }
    fn fence_everywhere() {
        sys::barrier_everywhere();
    }
}

/// Producer: packets were published before this. True: the consumer has to be woken. `joined`:
/// barriers of the consumer reach this process ([`sys::join_barriers`]).
#[inline]
pub(super) fn must_wake<F: Flag>(flag: &F, joined: bool) -> bool {
    if joined {
        F::light_fence();
        if flag.load() == POLLING {
            return false;
        }
    }
    F::fence();
    flag.load() == ASLEEP && flag.swap(LOOKING) == ASLEEP
}

/// Consumer: it will not look any more unless it is woken. It must [`settle`] after this.
pub(super) fn raise<F: Flag>(flag: &F) {
    flag.store(ASLEEP);
}

/// Consumer, after it has raised flags; `polled`: some of them said that it [polls](poll). It must
/// look once at each ring after this.
pub(super) fn settle<F: Flag>(polled: bool) {
    if polled {
        F::fence_everywhere();
    } else {
        F::fence();
    }
}

/// Consumer: it looks by itself from now on, and ends that as one that polled.
pub(super) fn poll<F: Flag>(flag: &F) {
    flag.store(POLLING);
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
    //!
    //! Loom knows no barrier of one thread in another. What membarrier(2) promises is that the
    //! light fence is as good as a full one, so here it is one: what is tested of [`super::poll`]
    //! is that its states and their order are right.

    use loom::sync::atomic::{AtomicU32, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::{LOOKING, POLLING};

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
        fn light_fence() {
            fence(Ordering::SeqCst);
        }
        fn fence_everywhere() {
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
            super::raise(&world.flag);
            super::settle::<AtomicU32>(false);
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

    /// As `consume`, but polls for a while after each packet.
    fn consume_polling(world: &World, all: u32) {
        let mut polling = false;
        while world.ring.load(Ordering::Acquire) < all {
            super::raise(&world.flag);
            super::settle::<AtomicU32>(polling);
            if world.ring.load(Ordering::Acquire) < all {
                let mut bytes = world.bytes.lock().unwrap();
                while *bytes == 0 {
                    bytes = world.more.wait(bytes).unwrap();
                }
                *bytes = 0;
            }
            super::poll(&world.flag);
            polling = true;
        }
    }

    #[test]
    fn no_packet_is_left_with_a_sleeper() {
        leave_no_packet(consume, false);
    }

    #[test]
    fn no_packet_is_left_with_one_that_polled() {
        leave_no_packet(consume_polling, true);
    }

    /// A producer that has not joined gives a polling consumer its full fences.
    #[test]
    fn no_packet_of_a_stranger_is_left_either() {
        leave_no_packet(consume_polling, false);
    }

    /// One barrier is enough for two rings, one of which was polled: of each the consumer sees the
    /// packet, or is woken for it.
    #[test]
    fn no_packet_is_left_in_either_of_two_rings() {
        loom::model(|| {
            let rings = Arc::new([POLLING, LOOKING].map(|flag| {
                let packets = AtomicU32::new(0);
                (AtomicU32::new(flag), packets)
            }));
            let producers = [0, 1].map(|place| {
                let rings = rings.clone();
                thread::spawn(move || {
                    let (flag, packets) = &rings[place];
                    packets.store(1, Ordering::Release);
                    super::must_wake(flag, true)
                })
            });
            for (flag, _) in rings.iter() {
                super::raise(flag);
            }
            super::settle::<AtomicU32>(true);
            let seen = [0, 1].map(|place| rings[place].1.load(Ordering::Acquire) == 1);
            let woken = producers.map(|producer| producer.join().unwrap());
            assert!(seen.iter().zip(woken).all(|(seen, woken)| *seen || woken));
        });
    }

    fn leave_no_packet(consume: fn(&World, u32), joined: bool) {
        loom::model(move || {
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
                if super::must_wake(&world.flag, joined) {
                    *world.bytes.lock().unwrap() += 1;
                    world.more.notify_one();
                }
            }
            consumer.join().unwrap();
        });
    }
}
