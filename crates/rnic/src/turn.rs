//! One thread at a time does something, and the others wait for their turn no longer than they were
//! told to.

use std::time::Instant;

use rustix_futex_sync::{Condvar, Mutex};

/// Whose turn it is.
#[derive(Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// It is this thread's turn until this is dropped.
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits until then, or as long as it takes.
    pub(crate) fn take(&self, deadline: Option<Instant>) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock();
        while *taken {
            taken = match deadline {
                None => self.free.wait(taken),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.free.wait_timeout(taken, left).0
                }
            };
        }
        *taken = true;
        Some(Taken(self))
    }

    /// Unless another thread has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock();
        (!std::mem::replace(&mut *taken, true)).then(|| Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    /// Waiting for a turn ends at the deadline, and a turn that ends is the next one's.
    #[test]
    fn is_waited_for_until_the_deadline() {
        let turn = Turn::default();
        let mine = turn.take(None).expect("free");
        assert!(turn.try_take().is_none());
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(turn.take(Some(soon)).is_none());
        assert!(Instant::now() >= soon);
        drop(mine);
        assert!(turn.try_take().is_some());
        assert!(turn.take(Some(soon)).is_some(), "free, however late");
    }

    /// However many threads wait, with a deadline and without: one at a time, and each in the end.
    #[test]
    fn is_one_threads_at_a_time() {
        let turn = Turn::default();
        let within = AtomicU32::new(0);
        let late = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (turn, within) = (&turn, &within);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let taken = turn.take((thread % 2 == 0).then_some(late));
                        assert_eq!(within.fetch_add(1, Ordering::Relaxed), 0);
                        std::thread::yield_now();
                        within.fetch_sub(1, Ordering::Relaxed);
                        assert!(taken.is_some());
                    }
                });
            }
        });
    }
}
