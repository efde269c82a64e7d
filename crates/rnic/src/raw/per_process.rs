//! What each process has once, and a forked child anew.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made at its first use in a process, and stays until the process ends. No lock is
/// taken, so that a child can be forked at any moment.
pub(crate) struct PerProcess<T: Send + Sync + 'static> {
    made: AtomicPtr<(u32, T)>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess {
            made: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// This process's value. Of two threads that make one at the same time, one value is dropped.
    pub(crate) fn get_or_make<E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = std::process::id();
        let its = |made: *mut (u32, T)| {
            // SAFETY: null, or leaked below and never freed or changed.
            let made: Option<&'static (u32, T)> = unsafe { made.as_ref() };
            made.filter(|(maker, _)| *maker == process)
        };
        let old = self.made.load(Ordering::Acquire);
        if let Some((_, value)) = its(old) {
            return Ok(value);
        }
        let new = Box::into_raw(Box::new((process, make()?)));
        let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
        match self.made.compare_exchange(old, new, order, seen) {
            // SAFETY: leaked just now.
            Ok(_) => Ok(unsafe { &(*new).1 }),
            Err(other) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                match its(other) {
                    Some((_, value)) => Ok(value),
                    None => unreachable!("threads of one process store its values alone"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many threads ask first, all of them get the same value.
    #[test]
    fn threads_share_one_value() {
        static VALUE: PerProcess<u64> = PerProcess::new();
        let gets = || VALUE.get_or_make(|| Ok::<u64, ()>(7)).expect("made");
        let addresses: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(move || std::ptr::from_ref(gets()).addr()))
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.expect("no panic")).collect()
        });
        assert!(addresses.iter().all(|address| *address == addresses[0]));
        assert_eq!(VALUE.get_or_make(|| Err("not again")), Ok(&7));
    }
}
