//! Waiting for a lock that may never be free: a child made by a bare system call has those that
//! threads of its parent had taken.

use std::time::{Duration, Instant};

/// Tries until there is something, or that time is over.
pub fn within<T>(timeout: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    const PAUSE: Duration = Duration::from_micros(100);
    let begin = Instant::now();
    loop {
        let got = attempt();
        if got.is_some() || begin.elapsed() >= timeout {
            return got;
        }
        // Waits on nothing, for so long; interrupted, less. No cancellation point.
        drop(rnic_sys::poll(&[], Some(PAUSE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tries_once_at_least_and_again_until_there_is_something() {
        let mut tries = 0;
        let mut attempt = |most| {
            tries += 1;
            (tries >= most).then_some(tries)
        };
        assert_eq!(within(Duration::MAX, || attempt(3)), Some(3));
        assert_eq!(within(Duration::ZERO, || attempt(5)), None);
        assert_eq!(within(Duration::ZERO, || attempt(5)), Some(5));
    }
}
