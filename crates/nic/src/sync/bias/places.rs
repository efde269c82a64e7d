//! Places: small numbers for threads. Each is one thread's at a time, from its first need to the
//! thread's end.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::PLACES;
use rnic_sys::PerThread;

/// Whose they are; 0: nobody's.
static HOLDERS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// A thread's place, given back when the thread ends. What it did by it comes before what the next
/// one does.
struct Lease(Option<usize>);

impl Lease {
    fn take() -> Lease {
        let mark = rnic_sys::thread_mark();
        let free = |holder: &AtomicUsize| {
            let taken = holder.compare_exchange(0, mark, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        Lease(HOLDERS.iter().position(free))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            HOLDERS[place].store(0, Ordering::Release);
        }
    }
}

static LEASE: PerThread<Lease> = PerThread::new();

/// This thread's place; `None`: all are taken, or there is no memory to note it.
pub(super) fn mine() -> Option<usize> {
    let place =
        |lease: &RefCell<Option<Lease>>| lease.borrow_mut().get_or_insert_with(Lease::take).0;
    LEASE.with(place).flatten()
}

/// Is it this thread's?
#[inline]
pub(super) fn is_mine(place: usize) -> bool {
    let holder = HOLDERS.get(place);
    holder.is_some_and(|holder| holder.load(Ordering::Relaxed) == rnic_sys::thread_mark())
}

#[cfg(test)]
mod tests {
    //! No two threads have the same place at a time, and what a thread had is free after it.

    use super::*;

    #[test]
    fn a_place_is_of_one_thread_and_given_back() {
        let own = mine();
        for _ in 0..4 * PLACES {
            let other = std::thread::spawn(|| {
                let place = mine();
                assert_eq!(place, mine());
                assert!(place.is_none_or(is_mine));
                place
            });
            let other = other.join().unwrap();
            assert!(own.is_none() || own != other);
            assert!(other.is_none_or(|place| !is_mine(place)));
        }
        assert!(own.is_none_or(is_mine));
        assert!(!is_mine(super::super::NOBODY));
    }
}
