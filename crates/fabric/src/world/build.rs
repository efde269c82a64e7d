//! A scenario's hosts, queue pairs and programs are made.

use std::collections::BinaryHeap;
use std::rc::Rc;

use rnic_nic::{Context, Cq, Gid, Host, SimulatedDevice, SimulatedHost, SimulatedPort};
use rnic_nic::{HostPath, SimulatedPortConfig, Srq};

use super::processes::{self, Folders};
use super::{BEGIN, Machine, POLL, UnderWay, World};
use crate::datagrams::{self, Everybody};
use crate::digest::Digest;
use crate::flow::{Side, Way};
use crate::network::Network;
use crate::scenario::{Fate, Scenario};
use crate::shared_receives::{Pool, User};

/// The queues of a shared receive queue, if one is meant.
fn shared(pools: &[Pool], srq: Option<usize>) -> Result<Option<(Srq, Cq)>, String> {
    let Some(srq) = srq else {
        return Ok(None);
    };
    let pool = pools.get(srq);
    let pool = pool.ok_or_else(|| format!("there is no shared receive queue {srq}"))?;
    Ok(Some(pool.queues()))
}

/// Something of the scenario is in that process. A program that has nothing does not poll: nobody
/// would take in what comes to it for others of its host.
fn has_program(scenario: &Scenario, host: usize) -> bool {
    scenario.flows.iter().any(|flow| flow.hosts.contains(&host))
        || scenario.endpoints.iter().any(|end| end.host == host)
        || scenario.srqs.iter().any(|srq| srq.host == host)
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Result<World, String> {
        let mut machines = Vec::new();
        let mut contexts: Vec<Context> = Vec::new();
        let (mut network, mut folders) = (Network::new(scenario), Folders::default());
        for (at, spec) in scenario.hosts.iter().enumerate() {
            let mut spec = spec.clone();
            spec.polls &= has_program(scenario, at);
            let host = Host::simulated(&SimulatedHost {
                seed: scenario.seed ^ (at as u64 + 1) << 48,
                now_ns: BEGIN,
                addresses: vec![spec.address],
                mtu: 4500,
            });
            let config = SimulatedPortConfig {
                addresses: vec![spec.address],
                first_range: 1 + 16 * at as u32,
                receive_buffer: spec.receive_buffer,
                send_queue: spec.send_queue,
                host_path: spec.path,
                seed: scenario.seed ^ at as u64,
                ..SimulatedPortConfig::default()
            };
            let folder = processes::folder_of(at, &scenario.hosts, &mut folders);
            let (port, wire) = match folder {
                Some(folder) => {
                    let joined = SimulatedPort::of_host(config, folders[folder].shared());
                    joined.map_err(|e| e.to_string())?
                }
                None => SimulatedPort::new(config),
            };
            if folder.is_some() {
                network.know(wire.first_range(), at);
            }
            let device = SimulatedDevice::open(host, port).map_err(|e| e.to_string())?;
            device.leave_to_polling(spec.polls);
            contexts.push(device.context().map_err(|e| e.to_string())?);
            machines.push(Machine {
                device,
                wire,
                folder,
                sides: Vec::new(),
                endpoints: Vec::new(),
                pools: Vec::new(),
                polls: spec.polls,
                spec,
                awake_until: 0,
                stopped_until: 0,
                is_dead: false,
                is_waking: false,
                moods: 0,
                run_at: None,
                look_at: None,
                tick_at: None,
                busy_until: BEGIN,
                pause: POLL.0,
            });
        }
        let impairments = &scenario.impairments;
        let in_order = impairments.duplicate == 0.0
            && impairments.reorder == 0.0
            && scenario
                .fates
                .iter()
                .all(|marked| matches!(marked.fate, Fate::Drop | Fate::Corrupt));
        processes::check_incidents(scenario)?;
        // A process hands packets over behind later ones, and rings overtake the network.
        let keeps_order = |from: &Machine, to: &Machine| {
            from.folder.is_none() && to.folder.is_none()
                || from.folder == to.folder && from.spec.path != HostPath::Off
        };
        let mut pools = Vec::new();
        for (at, spec) in scenario.srqs.iter().enumerate() {
            let Some(context) = contexts.get(spec.host) else {
                return Err(format!("{}: there is no host {}", spec.name, spec.host));
            };
            machines[spec.host].pools.push(at);
            pools.push(Pool::new(scenario, at, context)?);
        }
        let mut sides: Vec<Side> = Vec::new();
        for (at, flow) in scenario.flows.iter().enumerate() {
            let [first, second] = flow.directions.each_ref().map(Way::new);
            let of_this = |why: String| format!("flow {at}: {why}");
            let ways = [first.map_err(of_this)?, second.map_err(of_this)?];
            let ends = flow.hosts.map(|host| machines.get(host));
            let in_order = match ends {
                [Some(from), Some(to)] => in_order && keeps_order(from, to),
                _ => in_order,
            };
            for end in 0..2 {
                let Some(context) = contexts.get(flow.hosts[end]) else {
                    return Err(format!("flow {at}: there is no host {}", flow.hosts[end]));
                };
                let seed = scenario.seed ^ ((2 * at + end) as u64) << 32;
                machines[flow.hosts[end]].sides.push(sides.len());
                let queues = shared(&pools, flow.srqs[end])?;
                let with = (context, queues);
                let side = Side::new((at, end), (flow, &ways), with, (seed, in_order))?;
                if let Some(pool) = flow.srqs[end] {
                    pools[pool].add(side.reachable().0, User::Side(sides.len()));
                }
                sides.push(side);
            }
            let [a, b] = [2 * at, 2 * at + 1];
            let [of_a, of_b] = [sides[a].reachable(), sides[b].reachable()];
            let gid = |end: usize| Gid::from(scenario.hosts[flow.hosts[end]].address);
            sides[a].connect(flow, of_b, gid(1))?;
            sides[b].connect(flow, of_a, gid(0))?;
        }
        let in_order = in_order && machines.iter().all(|machine| machine.folder.is_none());
        let everybody = Rc::new(Everybody::new(scenario, in_order)?);
        let mut endpoints = Vec::new();
        for (at, spec) in scenario.endpoints.iter().enumerate() {
            let room = scenario.receive_room(spec);
            let seed = scenario.seed ^ (at as u64) << 32 ^ 0x7564;
            machines[spec.host].endpoints.push(at);
            let with = (&contexts[spec.host], shared(&pools, spec.srq)?);
            let program = datagrams::Program::new((at, room), &everybody, with, seed)?;
            if let Some(pool) = spec.srq {
                pools[pool].add(program.qpn(), User::Endpoint(at));
            }
            endpoints.push(program);
        }
        for endpoint in &mut endpoints {
            endpoint.get_ready()?;
        }
        Ok(World {
            now: BEGIN,
            events: BinaryHeap::new(),
            sequence: 0,
            under_way: UnderWay::default(),
            sides,
            endpoints,
            pools,
            contexts,
            everybody,
            machines,
            folders: folders.all,
            incidents: scenario.incidents.clone(),
            waits_for: Vec::new(),
            rung: Vec::new(),
            busy: 0,
            host_rng: fastrand::Rng::with_seed(scenario.seed ^ 0x686f_7374_0000),
            network,
            digest: Digest::new(),
            rng: fastrand::Rng::with_seed(scenario.seed ^ 0x776f_726c_6400),
            done_at: None,
            arrived_at: BEGIN,
        })
    }
}
