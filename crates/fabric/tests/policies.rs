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

#[test]
fn probe() {
    for polls in [false, true] {
        for kind in [Kind::Send, Kind::Write, Kind::Read] {
            for (after, len) in [(1000 * US, 64), (20 * US, 64), (0, 64), (0, 4096)] {
                let o = play(&scenario(
                    hosts(2, polls),
                    vec![flow([0, 1], vec![op(kind, len, after); 500])],
                ));
                let mut l = o.latencies[0][0].clone();
                l.sort();
                println!(
                    "{polls} {kind:?} after {} len {len}: median {} max {} packets {} time {}",
                    after / US,
                    l[l.len() / 2],
                    l[l.len() - 1],
                    o.network.sent,
                    o.virtual_ns
                );
            }
        }
    }
    for polls in [false, true] {
        let bulk = flow([0, 1], vec![op(Kind::Write, 1 << 20, 0); 200]);
        let short = flow([0, 1], vec![op(Kind::Send, 64, 50 * US); 100]);
        let o = play(&scenario(hosts(2, polls), vec![bulk, short]));
        let mut l = o.latencies[1][0].clone();
        l.sort();
        println!(
            "{polls} short beside bulk: median {} max {} time {}",
            l[l.len() / 2],
            l[l.len() - 1],
            o.virtual_ns
        );
    }
    for n in [4, 16, 64] {
        let mut h = hosts(n + 1, false);
        h[0].receive_buffer = 200_000;
        h[0].wake = 5 * US;
        let flows = (0..n)
            .map(|at| flow([at + 1, 0], vec![op(Kind::Write, 100_000, 0); 20]))
            .collect();
        let o = play(&scenario(h, flows));
        println!(
            "incast {n}: time {} overrun {} packets {}",
            o.virtual_ns, o.links[0].rx_overrun, o.network.sent
        );
    }
    let mut h = hosts(2, false);
    h[0].send_queue = 8;
    let o = play(&scenario(
        h,
        vec![flow([0, 1], vec![op(Kind::Write, 100_000, 0); 200])],
    ));
    println!(
        "full queue: time {} errors {} packets {}",
        o.virtual_ns, o.links[0].tx_errors, o.network.sent
    );
}
