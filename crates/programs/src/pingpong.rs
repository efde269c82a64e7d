//! What `ibv_rc_pingpong` prints.

use crate::pair::Outcome;

/// Checks that both sides finished well, moved `size * iterations` bytes each way, and saw the
/// peer's GID.
///
/// # Panics
/// When not.
pub fn expect_report(outcome: &Outcome, size: u64, iterations: u64) {
    outcome.expect_success();
    let bytes = format!("{} bytes in ", 2 * size * iterations);
    let rounds = format!("{iterations} iters in ");
    for side in [&outcome.server, &outcome.client] {
        let good = side.stdout.lines().any(|line| line.starts_with(&bytes))
            && side.stdout.lines().any(|line| line.starts_with(&rounds))
            && side.stdout.contains("remote address:")
            && !side.stdout.contains("invalid data")
            && !side.stderr.contains("invalid data");
        assert!(
            good,
            "did not report {bytes:?} and {rounds:?}\n{}",
            outcome.describe()
        );
    }
}
