//! Random scenarios from a seed.

mod datagrams;
mod processes;
mod windows;

use rnic_wire::PathMtu;

use super::{Direction, Flow, HostSpec, Impairments, Kind, Op, Scenario, Service, SharedReceives};

/// What random scenarios are like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Flows at most.
    pub flows: usize,
    /// Work requests of a direction at most.
    pub ops: usize,
    /// Bytes of a work request at most.
    pub largest: u32,
    /// The sum of all probabilities of harm at most.
    pub harm: f64,
    /// So often, of ten times, processes are killed, stopped, and lose memory.
    pub incidents: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            flows: 6,
            ops: 60,
            largest: 20_000,
            harm: 0.2,
            incidents: 3,
        }
    }
}

impl Scenario {
    /// The random one of this seed.
    pub fn random(seed: u64, shape: &Shape) -> Scenario {
        let mut rng = fastrand::Rng::with_seed(seed);
        let hosts: Vec<HostSpec> = (0..rng.usize(1..=4))
            .map(|at| HostSpec {
                polls: rng.bool(),
                wake: [0, 2_000, 20_000][rng.usize(..3)],
                send_queue: [8, 100, usize::MAX, usize::MAX][rng.usize(..4)],
                ..HostSpec::new(["a", "b", "c", "d"][at], [10, 0, 0, 1 + at as u8].into())
            })
            .collect();
        let harm = match rng.u8(..5) {
            0 => 0.0,
            1 => shape.harm * rng.f64(),
            _ => shape.harm * (0.7 + 0.3 * rng.f64()),
        };
        let mut parts = [rng.f64(), rng.f64(), rng.f64()];
        let whole: f64 = parts.iter().sum();
        // Numbers that a person can read.
        let rounded = |part: f64| (part * 1000.0).floor() / 1000.0;
        parts
            .iter_mut()
            .for_each(|part| *part = rounded(*part * harm / whole));
        let [loss, corrupt, reorder] = parts;
        let least = rng.u64(200..5_000);
        let impairments = Impairments {
            loss,
            corrupt,
            reorder,
            duplicate: rounded(harm * rng.f64() / 4.0),
            delay: (least, least + [0, 100, 20_000][rng.usize(..3)]),
            detour: [5_000, 50_000, 2_000_000][rng.usize(..3)],
            harm_per_psn: Some(3),
        };
        let count = rng.usize(1..=shape.flows.max(1));
        let flows = (0..count)
            .map(|_| random_flow(&mut rng, hosts.len(), shape))
            .collect();
        let mut scenario = Scenario {
            seed,
            hosts,
            flows,
            impairments,
            ..Scenario::default()
        };
        // Drawn apart, so that what is drawn here changes nothing of the rest.
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x6d6f_7265_0000);
        processes::add(&mut scenario, shape);
        if rng.u8(..3) == 0 {
            datagrams::add(&mut rng, &mut scenario, shape);
        }
        if rng.u8(..3) == 0 {
            share_receives(&mut rng, &mut scenario);
        }
        let ends = scenario.incidents.iter().filter(|what| what.ends_flows());
        let ends: Vec<usize> = ends.map(|incident| incident.host).collect();
        for flow in &mut scenario.flows {
            // The oracle does not know what becomes of windows when a process dies, or its memory
            // goes.
            let ends = flow.hosts.iter().any(|host| ends.contains(host));
            if flow.service == Service::Rc && rng.u8(..5) == 0 && !ends {
                windows::add(&mut rng, flow);
            }
        }
        scenario
    }
}

/// Some hosts get a shared receive queue, which some of their queue pairs take receives from.
fn share_receives(rng: &mut fastrand::Rng, scenario: &mut Scenario) {
    for host in 0..scenario.hosts.len() {
        if rng.bool() {
            continue;
        }
        let receives = rng.u32(1..=32);
        scenario.srqs.push(SharedReceives {
            receives,
            late: [0, 0, 300_000][rng.usize(..3)],
            limit: [0, rng.u32(1..=receives)][rng.usize(..2)],
            ..SharedReceives::new(["s", "t", "u", "v"][host], host)
        });
        let srq = Some(scenario.srqs.len() - 1);
        for flow in &mut scenario.flows {
            for end in 0..2 {
                if flow.hosts[end] == host && rng.u8(..4) != 0 {
                    flow.srqs[end] = srq;
                }
            }
        }
        for endpoint in &mut scenario.endpoints {
            if endpoint.host == host && rng.bool() {
                endpoint.srq = srq;
            }
        }
        // A queue pair of UC keeps the receive of a message whose end was lost, until the next one
        // comes. If those hold all there are, others wait for ever, as they would on hardware.
        let uc = scenario.flows.iter().filter(|it| it.service == Service::Uc);
        let held = uc
            .flat_map(|flow| flow.srqs)
            .filter(|it| *it == srq)
            .count() as u32;
        if let Some(srq) = scenario.srqs.last_mut() {
            srq.receives = srq.receives.max(held + 1);
        }
    }
}

fn random_flow(rng: &mut fastrand::Rng, hosts: usize, shape: &Shape) -> Flow {
    let service = match rng.u8(..5) {
        0 => Service::Uc,
        _ => Service::Rc,
    };
    let mtu = PathMtu::ALL[rng.usize(..PathMtu::ALL.len())];
    let psn = |rng: &mut fastrand::Rng| match rng.u8(..3) {
        0 => 0,
        // Wraps soon.
        1 => 0xff_ffff - rng.u32(..64),
        _ => rng.u32(..1 << 24),
    };
    let psns = [psn(rng), psn(rng)];
    let mut direction = || {
        let ops = (0..rng.usize(..=shape.ops)).map(|_| {
            let kind = match service {
                Service::Rc => Kind::ALL[rng.usize(..Kind::ALL.len())],
                Service::Uc => [Kind::Send, Kind::SendImm][rng.usize(..2)],
            };
            let len = match rng.u8(..8) {
                _ if kind.is_atomic() => 8,
                0 => 0,
                1..=3 => rng.u32(1..=64),
                4..=6 => (mtu.bytes() as u32 * rng.u32(1..=4) + rng.u32(..3)).saturating_sub(1),
                _ => rng.u32(..=shape.largest),
            };
            Op {
                after: [0, 0, 0, 1_000, 100_000][rng.usize(..5)],
                signaled: rng.bool(),
                fence: rng.u8(..10) == 0,
                ..Op::new(kind, len.min(shape.largest.max(8)))
            }
        });
        Direction {
            ops: ops.collect(),
            ..Direction::default()
        }
    };
    let directions = [direction(), direction()];
    Flow {
        service,
        hosts: [rng.usize(..hosts), rng.usize(..hosts)],
        mtu,
        depth: rng.u32(2..=32),
        receives: rng.u32(1..=16),
        late: [0, 0, 300_000][rng.usize(..3)],
        timeout: rng.u8(10..=14),
        retry: 7,
        rnr_retry: 7,
        psns,
        directions,
        ..Flow::new(service, [0, 0])
    }
}
