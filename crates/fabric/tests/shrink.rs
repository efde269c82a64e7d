//! A scenario that fails becomes small, and fails as before.

use rnic_fabric::{Bound, Measure, Relation, Scenario, Shape, run, script, shrink};
use rnic_nic::Status;

/// Nobody is killed: what fails then depends on little else.
const SHAPE: Shape = Shape {
    flows: 6,
    ops: 60,
    largest: 20_000,
    harm: 0.2,
    incidents: 0,
};

fn ops(scenario: &Scenario) -> usize {
    let ways = scenario.flows.iter().flat_map(|flow| &flow.directions);
    ways.map(|way| way.ops.len()).sum()
}

/// Without numbers.
fn kind(scenario: &Scenario) -> String {
    let failure = run(scenario).failure;
    let what = failure.map_or(String::new(), |failure| failure.what);
    what.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn random_harm_as_fates_is_the_same_run() {
    let mut harmed = 0;
    for seed in 0..20 {
        let scenario = Scenario::random(seed, &SHAPE);
        let outcome = run(&scenario);
        harmed += outcome.harm.len();
        let explicit = scenario.made_explicit(&outcome);
        let again = run(&explicit);
        assert_eq!(again.failure, None, "seed {seed}");
        assert_eq!(again.digest, outcome.digest, "seed {seed}");
        assert_eq!(again.network, outcome.network, "seed {seed}");
        assert!(again.harm.is_empty());
    }
    assert!(harmed > 1000, "{harmed} packets");
}

#[test]
fn one_that_does_not_fail_stays_as_it_is() {
    let scenario = Scenario::random(3, &SHAPE);
    assert_eq!(shrink(&scenario, 100), (scenario, 1));
}

/// The oracle is wrong about one operation in the middle.
#[test]
fn a_wrong_operation_is_what_is_left() {
    for seed in 0..6 {
        let mut scenario = Scenario::random(seed, &SHAPE);
        let mut ways = scenario
            .flows
            .iter_mut()
            .flat_map(|flow| &mut flow.directions);
        let Some(way) = ways.find(|way| way.ops.len() > 10) else {
            continue;
        };
        let nth = way.ops.len() / 2;
        way.ops[nth].signaled = true;
        way.ops[nth].expect = Status::RemoteAccessError;
        let before = ops(&scenario);
        let (small, played) = shrink(&scenario, 2_000);
        let text = script::print(&small);
        println!("{before} operations, {played} played:\n{text}");
        assert_eq!(kind(&small), kind(&scenario), "seed {seed}:\n{text}");
        assert_eq!(ops(&small), 1, "seed {seed}:\n{text}");
        assert!(small.hosts.len() <= 2 && small.flows.len() == 1, "{text}");
        assert_eq!(script::parse(&text).as_ref(), Ok(&small));
    }
}

/// It fails if a packet is harmed so that its sender waits for the ACK timeout: that packet alone
/// is left of a random network.
#[test]
fn random_harm_becomes_the_fate_of_a_packet() {
    let with_bound = |seed| {
        let mut scenario = Scenario::random(seed, &SHAPE);
        scenario.bounds.push(Bound {
            measure: Measure::Timeouts,
            relation: Relation::Exactly,
            value: 0,
        });
        scenario
    };
    let all = (0..100).map(|seed| (seed, with_bound(seed)));
    let failing = all.filter(|(_, scenario)| run(scenario).failure.is_some());
    // The third one waits for receives, and takes minutes.
    for (seed, scenario) in failing.take(2) {
        let before = ops(&scenario);
        let (small, played) = shrink(&scenario, 2_000);
        let text = script::print(&small);
        println!("{before} operations, {played} played:\n{text}");
        assert_eq!(kind(&small), kind(&scenario), "seed {seed}:\n{text}");
        // A receive that is late may need some before it.
        assert!(ops(&small) <= 6, "seed {seed}:\n{text}");
        assert_eq!(small.impairments.loss, 0.0, "seed {seed}:\n{text}");
        assert!(small.fates.len() <= 3, "seed {seed}:\n{text}");
    }
}
