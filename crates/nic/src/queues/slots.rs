//! Room in work queues as the application sees it: a slot is free again once the completion that
//! retired its work request was polled, as on hardware.

use std::sync::atomic::{AtomicU32, Ordering};

/// The places of a queue. What takes them and what frees them are counted apart, each by who has a
/// lock anyway, so that neither needs a locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Count,
    freed: Count,
}

/// A count that wraps.
#[derive(Debug, Default)]
struct Count {
    value: AtomicU32,
    /// Whoever adds may have another lock than others who do.
    shared: bool,
}

impl Count {
    #[inline]
    fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    #[inline]
    fn add(&self, count: u32) {
        if self.shared {
            self.value.fetch_add(count, Ordering::AcqRel);
        } else {
            let value = self.value.load(Ordering::Relaxed);
            self.value
                .store(value.wrapping_add(count), Ordering::Release);
        }
    }
}

impl Places {
    /// Places in use. Less than none while others post or poll what was posted.
    #[inline]
    pub(crate) fn used(&self) -> i32 {
        let freed = self.freed.get();
        self.taken.get().wrapping_sub(freed) as i32
    }

    /// Work requests were posted. The caller has the engine's lock, or they are shared.
    #[inline]
    pub(crate) fn take(&self, count: u32) {
        self.taken.add(count);
    }

    /// Posted work requests end without a completion. The caller has the engine's lock, or they are
    /// shared.
    pub(crate) fn give_back(&self, count: u32) {
        self.take(count.wrapping_neg());
    }

    /// Nothing is posted any more, and no completion will free anything. The caller has the
    /// engine's lock.
    pub(crate) fn reset(&self) {
        self.taken.value.store(0, Ordering::Release);
        self.freed.value.store(0, Ordering::Release);
    }

    /// Completions were polled. The caller has their queue's lock, which is the only one, or the
    /// places are shared.
    #[inline]
    fn free(&self, count: u32) {
        self.freed.add(count);
    }
}

/// A queue pair's places, or those of a shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) send: Places,
    pub(crate) recv: Places,
}

impl Slots {
    /// Of a shared receive queue: it has a lock of its own, and completions go to several queues.
    pub(crate) fn shared() -> Slots {
        let count = || Count {
            shared: true,
            ..Count::default()
        };
        Slots {
            send: Places::default(),
            recv: Places {
                taken: count(),
                freed: count(),
            },
        }
    }
}

/// Slots that polling a completion frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) send: u32,
    pub(crate) recv: u32,
}

impl Freed {
    #[inline]
    pub(super) fn add(&mut self, more: Freed) {
        self.send += more.send;
        self.recv += more.recv;
    }

    #[inline]
    pub(super) fn release(self, slots: &Slots) {
        if self.send != 0 {
            slots.send.free(self.send);
        }
        if self.recv != 0 {
            slots.recv.free(self.recv);
        }
    }
}
