//! What the engine's policies promise, in virtual time. Each policy holds something back so that it
//! leaves with more; each promise is a bound for what that may cost, and what it has to bring.
//!
//! The network takes a microsecond each way at 100 Gbit/s, and a program sees what came at most
//! three microseconds later.

use rnic_fabric::{
    Direction, Flow, HostSpec, Impairments, Kind, Op, Outcome, Scenario, Service, run,
};
use rnic_nic::PathMtu;

const US: u64 = 1_000;

fn hosts(count: usize, polls: bool) -> Vec<HostSpec> {
    let host = |at: usize| HostSpec {
        polls,
        ..HostSpec::new(&format!("h{at}"), [10, 0, 0, 1 + at as u8].into())
    };
    (0..count).map(host).collect()
}

fn flow(hosts: [usize; 2], ops: Vec<Op>) -> Flow {
    Flow {
        service: Service::Rc,
        hosts,
        mtu: PathMtu::M4096,
        depth: 64,
        receives: 64,
        late: 0,
        timeout: 14,
        retry: 7,
        rnr_retry: 7,
        psns: [0, 0],
        directions: [Direction { ops }, Direction::default()],
    }
}

fn scenario(hosts: Vec<HostSpec>, flows: Vec<Flow>) -> Scenario {
    Scenario {
        seed: 1,
        hosts,
        flows,
        impairments: Impairments::default(),
        fates: Vec::new(),
        incidents: Vec::new(),
        bounds: Vec::new(),
    }
}

fn play(scenario: &Scenario) -> Outcome {
    let outcome = run(scenario);
    assert_eq!(outcome.failure, None);
    outcome
}

fn op(kind: Kind, len: u32, after: u64) -> Op {
    Op {
        after,
        ..Op::new(kind, len)
    }
}

/// Posts of one kind, so far apart; the latencies of those that complete, sorted, and all of the
/// rest.
fn latencies(polls: bool, kind: Kind, (len, after): (u32, u64)) -> (Vec<u64>, Outcome) {
    let ops = vec![op(kind, len, after); 500];
    let mut outcome = play(&scenario(hosts(2, polls), vec![flow([0, 1], ops)]));
    let mut latencies = std::mem::take(&mut outcome.latencies[0][0]);
    latencies.sort_unstable();
    (latencies, outcome)
}

/// Promise: a message that is alone waits for nobody. Neither doorbell batching nor a delayed ACK
/// holds up a program that sleeps.
#[test]
fn a_program_that_sleeps_waits_for_the_network_alone() {
    for kind in [Kind::Send, Kind::Write, Kind::Read] {
        for after in [20 * US, 1_000 * US] {
            let (latencies, _) = latencies(false, kind, (64, after));
            let worst = latencies[latencies.len() - 1];
            assert!(worst < 6 * US, "{kind:?} each {after} ns: {worst} ns");
        }
    }
}

/// Promise: a receiver that polls holds an ACK for as long as its peer goes on sending, and for
/// twenty microseconds of silence; it leaves at the next look then. (It looks again after 40 us at
/// most in this stream.)
#[test]
fn an_ack_of_a_program_that_polls_leaves_soon() {
    let (latencies, _) = latencies(true, Kind::Write, (64, 100 * US));
    let median = latencies[latencies.len() / 2];
    assert!(median < 100 * US, "median {median} ns");
}

/// Promise: where messages follow each other, they share ACKs: few packets more than messages.
#[test]
fn messages_to_a_program_that_polls_share_acks() {
    for kind in [Kind::Send, Kind::Write] {
        let (_, outcome) = latencies(true, kind, (64, 0));
        assert!(
            outcome.network.sent < 600,
            "{} packets",
            outcome.network.sent
        );
    }
}

/// Promise: what is left to the background thread while the program polls leaves within a tick of a
/// millisecond, whatever the program does.
#[test]
fn nothing_waits_for_longer_than_a_tick() {
    for kind in [Kind::Send, Kind::Write, Kind::Read] {
        for (len, after) in [(64, 0), (64, 20 * US), (64, 1_000 * US), (4096, 0)] {
            let (latencies, _) = latencies(true, kind, (len, after));
            let worst = latencies[latencies.len() - 1];
            assert!(
                worst < 1_010 * US,
                "{kind:?} {len} each {after} ns: {worst} ns"
            );
        }
    }
}

/// Promise: a short message does not wait behind all that another queue pair has to send. In the
/// network it waits behind what is under way: that is up to a megabyte, or 85 us, at the worst.
#[test]
fn a_short_message_passes_bulk() {
    for polls in [false, true] {
        let bulk = flow([0, 1], vec![op(Kind::Write, 1 << 20, 0); 100]);
        let short = flow([0, 1], vec![op(Kind::Send, 64, 50 * US); 100]);
        let outcome = play(&scenario(hosts(2, polls), vec![bulk, short]));
        let mut latencies = outcome.latencies[1][0].clone();
        latencies.sort_unstable();
        let (median, worst) = (latencies[50], latencies[99]);
        assert!(median < 50 * US, "median {median} ns");
        assert!(worst < 130 * US, "worst {worst} ns");
    }
}

/// Promise: many that write to one host that is slow to take packets in end well, and their packets
/// are repeated, not theirs and everybody's over and over. Without turns among them all are under
/// way at once, and most are lost.
#[test]
fn many_writers_to_one_host_end_well() {
    const WRITERS: usize = 32;
    let mut machines = hosts(WRITERS + 1, false);
    machines[0].receive_buffer = 200_000;
    machines[0].wake = 5 * US;
    let writer = |at| flow([at + 1, 0], vec![op(Kind::Write, 100_000, 0); 20]);
    let outcome = play(&scenario(machines, (0..WRITERS).map(writer).collect()));
    let needed = WRITERS * 20 * 25;
    let sent = outcome.network.sent as usize;
    assert!(sent < 3 * needed, "{sent} packets, {needed} carry the data");
}

/// Promise: what a full socket does not take waits, and nothing is lost nor repeated.
#[test]
fn what_the_port_does_not_take_waits() {
    let mut machines = hosts(2, false);
    machines[0].send_queue = 8;
    let ops = vec![op(Kind::Write, 100_000, 0); 100];
    let outcome = play(&scenario(machines, vec![flow([0, 1], ops)]));
    assert_eq!(outcome.links[0].tx_errors, 0);
    // 25 packets each, and some ACKs.
    assert!(
        outcome.network.sent < 3_000,
        "{} packets",
        outcome.network.sent
    );
}

/// Promise: a receive that comes late costs the peer an RNR NAK, and no more than the time that it
/// asks for.
#[test]
fn a_late_receive_costs_its_lateness() {
    let mut one = flow([0, 1], vec![op(Kind::Send, 64, 0); 50]);
    one.receives = 1;
    one.late = 300 * US;
    let outcome = play(&scenario(hosts(2, false), vec![one]));
    // Half of 300 us on average, and a wait of 10 us of the RNR timer on top.
    assert!(
        outcome.virtual_ns < 50 * 400 * US,
        "{} ns",
        outcome.virtual_ns
    );
}
