//! Random processes of one host, and what happens to them.

use rnic_nic::HostPath;

use super::Shape;
use crate::scenario::{Flow, HostSpec, Incident, Scenario, What};

/// Makes processes of one host of some hosts, and kills or stops some.
pub(super) fn add(scenario: &mut Scenario, shape: &Shape) {
    // Drawn apart, as the rest is.
    let mut rng = fastrand::Rng::with_seed(scenario.seed ^ 0x7072_6f63_0000);
    random_processes(&mut rng, &mut scenario.hosts);
    if rng.u8(..10) < shape.incidents {
        scenario.incidents = random_incidents(&mut rng, &scenario.hosts, &scenario.flows);
    }
}

/// Some of them become processes of one host, which reach each other by packets, by rings, or in
/// any way.
fn random_processes(rng: &mut fastrand::Rng, hosts: &mut [HostSpec]) {
    for at in 0..hosts.len() {
        let (before, rest) = hosts.split_at_mut(at);
        let spec = &mut rest[0];
        spec.path = [HostPath::Off, HostPath::Rings, HostPath::On][rng.usize(..3)];
        spec.restless = [0, 20_000, 500_000][rng.usize(..3)];
        if at > 0 && rng.u8(..3) > 0 {
            let first = &before[rng.usize(..at)];
            (spec.address, spec.path) = (first.address, first.path);
        }
    }
}

/// One or two of them. Nobody is stopped for so long that a peer on another host gives up.
fn random_incidents(rng: &mut fastrand::Rng, hosts: &[HostSpec], flows: &[Flow]) -> Vec<Incident> {
    let one = |rng: &mut fastrand::Rng| {
        let host = rng.usize(..hosts.len());
        let mut peers = flows.iter().filter(|flow| flow.hosts.contains(&host));
        let stays = |peer: &usize| hosts[*peer].address == hosts[host].address;
        let longest = match peers.all(|flow| flow.hosts.iter().all(stays)) {
            true => 1_500_000_000,
            false => 5_000_000,
        };
        let what = match rng.u8(..8) {
            0 => What::Kill(0),
            1 | 2 => What::Kill(rng.u64(1..40)),
            3 => What::KillCopying,
            4 => What::Stop(rng.u64(1..longest)),
            5 => What::StopCopying(rng.u64(1..5_000_000)),
            _ => What::Deregister,
        };
        // Most scenarios are over after a few hundred microseconds.
        let latest = [20_000, 200_000, 5_000_000][rng.usize(..3)];
        let at = rng.u64(..latest);
        Incident { host, at, what }
    };
    let count = rng.usize(1..=2);
    (0..count).map(|_| one(rng)).collect()
}
