//! At most one event per count or period, and none is forgotten.

use super::*;

fn moderation(count: u16, period_us: u16) -> Moderation {
    let mut moderation = Moderation::default();
    assert_eq!(moderation.set(count, period_us, 0), Verdict::Wait);
    moderation
}

#[test]
fn without_both_limits_every_completion_fires() {
    for (count, period) in [(0, 0), (4, 0), (0, 100)] {
        let mut moderation = moderation(count, period);
        for _ in 0..3 {
            assert_eq!(moderation.completed(|| 5), Verdict::Fire);
        }
    }
}

#[test]
fn the_count_fires_before_the_period() {
    let mut moderation = moderation(3, 100);
    for start in [0, 10_000] {
        let first = moderation.completed(|| start);
        assert!(matches!(first, Verdict::Remind(_) | Verdict::Wait));
        assert_eq!(moderation.completed(|| start + 1), Verdict::Wait);
        assert_eq!(moderation.completed(|| start + 2), Verdict::Fire);
    }
}

#[test]
fn the_period_counts_from_the_first_completion() {
    let mut moderation = moderation(3, 100);
    assert_eq!(moderation.completed(|| 7), Verdict::Remind(100_007));
    assert_eq!(moderation.completed(|| 60_000), Verdict::Wait);
    assert_eq!(moderation.reminded(100_007), Verdict::Fire);
}

/// A reminder left over from an event that the count fired must neither fire early nor lose the
/// later one.
#[test]
fn a_reminder_that_comes_too_early_is_renewed() {
    let mut moderation = moderation(2, 100);
    assert_eq!(moderation.completed(|| 0), Verdict::Remind(100_000));
    assert_eq!(moderation.completed(|| 1), Verdict::Fire);
    assert_eq!(moderation.completed(|| 50_000), Verdict::Wait);
    assert_eq!(moderation.reminded(100_000), Verdict::Remind(150_000));
    assert_eq!(moderation.reminded(150_000), Verdict::Fire);
    assert_eq!(moderation.reminded(200_000), Verdict::Wait);
}

#[test]
fn turning_it_off_fires_what_waits() {
    let mut moderation = moderation(9, 100);
    assert_eq!(moderation.completed(|| 0), Verdict::Remind(100_000));
    assert_eq!(moderation.set(0, 0, 10), Verdict::Fire);
    assert_eq!(moderation.completed(|| 20), Verdict::Fire);
}
