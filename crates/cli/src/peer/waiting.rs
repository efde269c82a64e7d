//! How long one process waits for the other.

use std::time::Duration;

use rnic::exchange::Exchange;
use rnic::{Completion, CompletionQueue};

use crate::platform::failure::Result;

/// Nothing here takes so long unless something is wrong.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Longer than any gap in an undisturbed test: a side that waits for so long is no longer
/// measuring.
pub const SPIN: Duration = Duration::from_millis(2);

/// The next completion of the side that has nothing to do but to wait for it: as long as the other
/// side is there.
pub fn wait_for_peer<T>(
    exchange: &Exchange,
    mut wait: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    loop {
        match wait()? {
            Some(found) => return Ok(found),
            None if exchange.is_closed() => return Err(rnic::Error::Timeout(PEER_TIMEOUT).into()),
            None => {}
        }
    }
}

/// `None`: it has not come for so long that something may be wrong.
pub fn in_time<T>(waited: rnic::Result<T>) -> Result<Option<T>> {
    match waited {
        Err(rnic::Error::Timeout(_)) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Polls hard: a sleeping side measures the wake-up.
pub fn poll_hard(cq: &CompletionQueue) -> rnic::Result<Completion> {
    cq.wait_spinning(SPIN, PEER_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test of READs alone may take longer than any single wait: nothing comes before it ends.
    #[test]
    fn who_only_serves_waits_as_long_as_the_other_side_is_there() {
        let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let exchange = Exchange::over(here.try_clone().expect("a copy"), here).expect("a channel");
        let mut there = Some(there);
        let waits = |until: usize, there: &mut Option<_>, gone_at: usize| {
            let mut count = 0;
            let outcome = wait_for_peer(&exchange, || {
                count += 1;
                if count == gone_at {
                    *there = None;
                }
                match count < until {
                    true => in_time(Err(rnic::Error::Timeout(PEER_TIMEOUT))),
                    false => in_time(Ok(count)),
                }
            });
            (outcome.ok(), count)
        };
        assert_eq!(waits(5, &mut there, 9), (Some(5), 5));
        assert_eq!(waits(5, &mut there, 2), (None, 2));
    }
}
