//! Random scenarios of connections: each one ends on both sides, what was sent on it arrives, and
//! nobody waits for ever.

use rnic_fabric::{ConnectionCounts, ConnectionShape, connections};

/// Plays the scenarios of these seeds; what became of all connections.
fn play(seeds: std::ops::Range<u64>) -> ConnectionCounts {
    let mut all = ConnectionCounts::default();
    for seed in seeds {
        let outcome = connections(seed, &ConnectionShape::default());
        if let Some(failure) = outcome.failure {
            panic!("seed {seed} fails {failure}");
        }
        all += outcome.counts;
    }
    all
}

#[test]
fn two_hundred_random_scenarios() {
    let all = play(0..200);
    // All that may happen does.
    assert!(all.established > all.attempts / 4, "{all:?}");
    assert!(all.rejected > all.attempts / 20, "{all:?}");
    assert!(all.messages > all.established, "{all:?}");
    let rare = [all.unreachable, all.killed, all.handed_over, all.last_words];
    assert!(rare.iter().all(|count| *count > 0), "{all:?}");
}

#[test]
#[ignore = "./test full"]
fn ten_thousand_random_scenarios() {
    play(1_000..11_000);
}

/// Promise: a seed says all. Or a failure could not be looked at again.
#[test]
fn the_same_seed_gives_the_same_packets() {
    let shape = ConnectionShape::default();
    for seed in 10_000..10_030 {
        let outcome = connections(seed, &shape);
        assert_eq!(outcome, connections(seed, &shape), "seed {seed}");
        assert_ne!(outcome.digest, connections(seed + 1, &shape).digest);
    }
}

/// Promise: the oracle sees what goes wrong. A network that loses all connects nobody.
#[test]
fn nobody_is_connected_without_a_network() {
    let shape = ConnectionShape {
        loss: Some(1.0),
        ..ConnectionShape::default()
    };
    let failures = (0..20).filter(|seed| connections(*seed, &shape).failure.is_some());
    assert!(failures.count() > 10);
}
