//! Random scenarios: whatever the network does within its bounds, each operation completes once and
//! in order, all bytes are right, and nobody waits for ever.

use rnic_fabric::{Impairments, Scenario, Shape, run};
use rnic_nic::HostPath;

/// Plays random scenarios from `seed` on until so many packets were sent. Gives the part of them
/// that the network harmed.
fn play(seed: u64, packets: u64, shape: &Shape) -> f64 {
    let (mut sent, mut harmed, mut seed) = (0, 0, seed);
    while sent < packets {
        let outcome = run(&Scenario::random(seed, shape));
        if let Some(failure) = outcome.failure {
            panic!(
                "seed {seed} fails {failure}\n\
                 cargo run -p rnic-fabric -- seed {seed} --shrink makes it smaller"
            );
        }
        sent += outcome.network.sent;
        harmed += outcome.network.harmed();
        seed += 1;
    }
    harmed as f64 / sent as f64
}

#[test]
fn half_a_million_packets_of_random_scenarios() {
    // A tenth is lost, corrupted or overtaken, and more.
    assert!(play(0, 500_000, &Shape::default()) > 0.1);
}

/// The other half has long flows, in which windows open and PSNs wrap.
#[test]
fn half_a_million_packets_of_long_scenarios() {
    let shape = Shape {
        ops: 600,
        ..Shape::default()
    };
    assert!(play(1 << 32, 500_000, &shape) > 0.1);
}

#[test]
#[ignore = "./test full"]
fn ten_million_packets_of_random_scenarios() {
    let shape = Shape {
        ops: 600,
        ..Shape::default()
    };
    assert!(play(1 << 33, 10_000_000, &shape) > 0.1);
}

/// Short scenarios, most of them with processes that share memory: all three manners, kills, stops
/// and deregistrations have their share.
#[test]
fn a_thousand_short_scenarios() {
    let shape = Shape {
        flows: 3,
        ops: 12,
        incidents: 5,
        ..Shape::default()
    };
    let mut links = rnic_nic::LinkCounters::default();
    let mut manners = [0; 3];
    for seed in (1 << 34)..(1 << 34) + 1000 {
        let scenario = Scenario::random(seed, &shape);
        let outcome = run(&scenario);
        if let Some(failure) = outcome.failure {
            let text = rnic_fabric::script::print(&scenario);
            panic!("seed {seed} fails {failure}\n{text}");
        }
        for (spec, link) in scenario.hosts.iter().zip(outcome.links) {
            links += link;
            manners[spec.path as usize] += 1;
            // Each manner is what it says.
            let rings = link.tx_host_packets;
            let copied = link.tx_reached_bytes + link.rx_reached_bytes;
            assert!(rings == 0 || spec.path != HostPath::Off, "seed {seed}");
            let copies = copied + link.rx_host_pointed;
            assert!(copies == 0 || spec.path == HostPath::On, "seed {seed}");
        }
    }
    assert!(manners.iter().all(|count| *count > 300), "{manners:?}");
    assert!(links.tx_host_packets > 5_000, "{links:?}");
    assert_eq!(links.host_rings_wrong, 0);
    if links.host_out_of_reach == 0 {
        assert!(links.tx_reached_bytes > 100_000, "{links:?}");
        assert!(links.rx_reached_bytes > 100_000, "{links:?}");
    }
}

/// Promise: a seed says all. Or a failure could not be looked at again.
#[test]
fn the_same_scenario_gives_the_same_packets() {
    for seed in 1000..1040 {
        let scenario = Scenario::random(seed, &Shape::default());
        assert_eq!(run(&scenario), run(&scenario), "seed {seed}");
    }
}

/// Promise: another seed is another run. Or the digest would say nothing.
#[test]
fn another_network_gives_other_packets() {
    let scenario = Scenario::random(7, &Shape::default());
    let other = Scenario {
        impairments: Impairments {
            delay: (2_345, 2_345),
            ..scenario.impairments.clone()
        },
        ..scenario.clone()
    };
    assert_ne!(run(&scenario).digest, run(&other).digest);
}

/// Promise: the oracle sees what goes wrong. A peer that answers nothing is no success.
#[test]
fn a_network_that_loses_all_fails() {
    let mut scenario = Scenario::random(3, &Shape::default());
    scenario.impairments = Impairments {
        loss: 1.0,
        ..Impairments::default()
    };
    assert!(run(&scenario).failure.is_some());
}
