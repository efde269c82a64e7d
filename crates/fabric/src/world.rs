//! Hosts, events, time. `processes` has what those of one host do with each other.

mod processes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rnic_nic::{Context, Frame, Gid, Host, LinkCounters, SimulatedDevice, SimulatedHost};
use rnic_nic::{SimulatedPort, SimulatedPortConfig, Wire};

use crate::digest::Digest;
use crate::folder::Folder;
use crate::network::{Network, NetworkCounters};
use crate::program::Side;
use crate::scenario::{Fate, HostSpec, Incident, Marked, Measure, Scenario};
use crate::script;

/// The time at first, ns.
const BEGIN: u64 = 1_000_000_000;
/// A program that polls looks again so long after something came, and twice as long after each
/// look in vain, up to the second, ns.
const POLL: (u64, u64) = (2_000, 200_000);
/// How often the background thread looks after an engine that the application drives, ns.
const TICK: u64 = 1_000_000;
/// A program looks at its completion queue so long after something came, at most, ns.
const THINK: u64 = 3_000;
/// Longer than any scenario takes: whoever waits then waits for ever.
const END: u64 = 120_000_000_000;
/// Events at one moment, and no more: time stands still.
const MOST_AT_ONCE: u64 = 1_000_000;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When, ns from the start.
    pub at: u64,
    /// What, in words.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {} us: {}", self.at / 1000, self.what)
    }
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What went wrong; `None`: nothing.
    pub failure: Option<Failure>,
    /// Of each packet and completion with its time: two runs of a scenario have the same.
    pub digest: u64,
    /// Packets.
    pub network: NetworkCounters,
    /// How long it took, ns.
    pub virtual_ns: u64,
    /// Of each end of each flow: how long its signaled operations took, from the post to the moment
    /// at which the program saw the completion, ns.
    pub latencies: Vec<[Vec<u64>; 2]>,
    /// What each host's port has counted.
    pub links: Vec<LinkCounters>,
    /// What the network did to packets at random. Without chances of harm, and with these fates
    /// instead, a scenario is played in the same way.
    pub harm: Vec<Marked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet, by its place among those under way, comes to a host.
    Arrive(usize, usize),
    /// A host's device does what is due.
    Run(usize),
    /// A host's program looks.
    Look(usize),
    /// The background thread looks after a host whose program polls.
    Tick(usize),
    /// A packet comes to a process from another one of its host.
    HandOver(usize, usize),
    /// A thread that stays awake looks.
    LookAwake(usize),
    /// A restless process does otherwise.
    ChangeMood(usize),
    /// What happens to processes, by place in the list.
    Incident(usize),
    /// A process is dead now, if it was not before.
    Death(usize),
    /// A process that was stopped goes on.
    GoOn(usize),
}

struct Machine {
    spec: HostSpec,
    /// Which of the folders is its host's.
    folder: Option<usize>,
    device: SimulatedDevice,
    wire: Wire,
    sides: Vec<usize>,
    /// Its programs poll now.
    polls: bool,
    /// Until when its thread stays awake, or the process is stopped.
    awake_until: u64,
    stopped_until: u64,
    is_dead: bool,
    /// Somebody has woken it, and it does not run yet.
    is_waking: bool,
    /// How often it has done otherwise.
    moods: u32,
    /// When the device runs next, as far as an event says so.
    run_at: Option<u64>,
    look_at: Option<u64>,
    tick_at: Option<u64>,
    /// After how long a program that polls looks again.
    pause: u64,
}

struct World {
    now: u64,
    /// By time, and in the order in which they were added.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    under_way: UnderWay,
    // Queue pairs and regions go before the devices.
    sides: Vec<Side>,
    machines: Vec<Machine>,
    /// Of hosts with several processes, or with shared memory.
    folders: Vec<Folder>,
    incidents: Vec<Incident>,
    /// Deregistrations that ended with EBUSY.
    busy: u64,
    /// What is random about processes of one host.
    host_rng: fastrand::Rng,
    network: Network,
    digest: Digest,
    rng: fastrand::Rng,
    /// When everything was complete, and when the last packet arrived.
    done_at: Option<u64>,
    arrived_at: u64,
}

/// Packets under way, by place: the heap of events moves what it holds over and over.
#[derive(Default)]
struct UnderWay {
    frames: Vec<Option<Frame>>,
    free: Vec<usize>,
}

impl UnderWay {
    fn put(&mut self, frame: Frame) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[place] = Some(frame);
        place
    }

    fn take(&mut self, place: usize) -> Option<Frame> {
        self.free.push(place);
        self.frames[place].take()
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.frames.len()
    }
}

/// Plays a scenario.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut world = match World::new(scenario) {
        Ok(world) => world,
        Err(what) => {
            return Outcome {
                failure: Some(Failure { at: 0, what }),
                ..Outcome::default()
            };
        }
    };
    let ended = world.run().and_then(|()| world.check(scenario));
    Outcome {
        failure: ended.err().map(|what| Failure {
            at: world.now - BEGIN,
            what,
        }),
        digest: world.digest.value(),
        network: world.network.counters,
        harm: world.network.harm,
        virtual_ns: world.done_at.unwrap_or(world.now) - BEGIN,
        latencies: world
            .sides
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .map(|[a, b]| {
                [
                    std::mem::take(&mut a.latencies),
                    std::mem::take(&mut b.latencies),
                ]
            })
            .collect(),
        links: world
            .machines
            .iter()
            .map(|machine| machine.device.counters().0)
            .collect(),
    }
}

impl World {
    fn new(scenario: &Scenario) -> Result<World, String> {
        let mut machines = Vec::new();
        let mut contexts: Vec<Context> = Vec::new();
        let (mut network, mut folders) = (Network::new(scenario), processes::Folders::default());
        for (at, spec) in scenario.hosts.iter().enumerate() {
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
                spec: spec.clone(),
                device,
                wire,
                folder,
                sides: Vec::new(),
                polls: spec.polls,
                awake_until: 0,
                stopped_until: 0,
                is_dead: false,
                is_waking: false,
                moods: 0,
                run_at: None,
                look_at: None,
                tick_at: None,
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
        let mut sides: Vec<Side> = Vec::new();
        for (at, flow) in scenario.flows.iter().enumerate() {
            for end in 0..2 {
                let Some(context) = contexts.get(flow.hosts[end]) else {
                    return Err(format!("flow {at}: there is no host {}", flow.hosts[end]));
                };
                let seed = scenario.seed ^ ((2 * at + end) as u64) << 32;
                machines[flow.hosts[end]].sides.push(sides.len());
                sides.push(Side::new(at, end, flow, context, (seed, in_order))?);
            }
            let [a, b] = [2 * at, 2 * at + 1];
            let reachable = [sides[a].reachable(), sides[b].reachable()];
            let gid = |end: usize| Gid::from(scenario.hosts[flow.hosts[end]].address);
            sides[a].connect(flow, reachable[1], gid(1))?;
            sides[b].connect(flow, reachable[0], gid(0))?;
        }
        Ok(World {
            now: BEGIN,
            events: BinaryHeap::new(),
            sequence: 0,
            under_way: UnderWay::default(),
            sides,
            machines,
            folders: folders.all,
            incidents: scenario.incidents.clone(),
            busy: 0,
            host_rng: fastrand::Rng::with_seed(scenario.seed ^ 0x686f_7374_0000),
            network,
            digest: Digest::new(),
            rng: fastrand::Rng::with_seed(scenario.seed ^ 0x776f_726c_6400),
            done_at: None,
            arrived_at: BEGIN,
        })
    }

    fn add(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn run(&mut self) -> Result<(), String> {
        for host in 0..self.machines.len() {
            self.look_soon(host, self.now);
            if self.machines[host].polls {
                self.tick_at(host, self.now + TICK);
            }
        }
        self.begin_processes();
        let (mut moment, mut events) = (self.now, 0);
        let end = self.now + END;
        // Whoever has a packet has taken it in, and its program has looked.
        let wake = self.machines.iter().map(|machine| machine.spec.wake).max();
        let settles = wake.unwrap_or(0) + 3 * THINK;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > moment {
                (moment, events) = (at, 0);
            }
            events += 1;
            if events > MOST_AT_ONCE {
                return Err("time stands still: events go on and on at one moment".to_owned());
            }
            let arrives = matches!(event, Event::Arrive(..) | Event::HandOver(..));
            if self.done_at.is_some()
                && !arrives
                && at > self.arrived_at + settles
                && self.under_way.is_empty()
            {
                break;
            }
            self.now = self.now.max(at);
            if self.now > end {
                return Err(self.stuck());
            }
            if arrives {
                self.arrived_at = self.now;
            }
            self.happen(at, event)?;
        }
        if self.done_at.is_none() {
            return Err(self.stuck());
        }
        for side in &self.sides {
            side.check_memory()?;
        }
        self.check_memory_paths()
    }

    /// What the scenario says about the end.
    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        if let Some(marked) = self.network.unmet() {
            let line = script::fate(scenario, &marked);
            return Err(format!("`{line}`: not all of these packets were sent"));
        }
        for bound in &scenario.bounds {
            let counted = self.count(bound.measure);
            if !bound.holds(counted) {
                let line = script::bound(bound);
                let unit = if bound.measure == Measure::Time {
                    " ns"
                } else {
                    ""
                };
                return Err(format!("`{line}`: it was {counted}{unit}"));
            }
        }
        Ok(())
    }

    fn count(&self, measure: Measure) -> u64 {
        let sum = |of: fn(&Side) -> u64| self.sides.iter().map(of).sum();
        match measure {
            Measure::Time => self.done_at.unwrap_or(self.now) - BEGIN,
            Measure::Packets => self.network.counters.sent,
            Measure::Retransmissions => sum(|side| side.counters().retransmitted_packets),
            Measure::Timeouts => sum(|side| side.counters().timeouts),
            Measure::RnrNaks => sum(|side| side.counters().rnr_naks_sent),
            Measure::SequenceNaks => sum(|side| side.counters().sequence_naks_sent),
            Measure::Duplicates => sum(|side| side.counters().duplicates_received),
            Measure::Received => sum(|side| side.received() as u64),
            Measure::Rings => self.links(|link| link.tx_host_packets),
            Measure::Copied => self.links(|link| link.tx_reached_bytes + link.rx_reached_bytes),
            Measure::References => self.links(|link| link.rx_host_pointed),
            Measure::Busy => self.busy,
        }
    }

    /// Nothing is due, or nothing comes of it.
    fn stuck(&self) -> String {
        let waits = self.sides.iter().filter(|side| !side.is_done());
        let waits: Vec<String> = waits.map(Side::waits_for).collect();
        format!("everybody waits: {}", waits.join("; "))
    }

    fn happen(&mut self, at: u64, event: Event) -> Result<(), String> {
        if self.is_put_off(at, event) {
            return Ok(());
        }
        match event {
            Event::Arrive(host, place) => {
                let Some(frame) = self.under_way.take(place) else {
                    return Ok(());
                };
                self.digest.word(self.now);
                self.digest.bytes(&frame.bytes);
                let Some(host) = self.taker_of(host) else {
                    return Ok(());
                };
                self.machines[host].wire.arrive(frame);
                self.packet_wakes(host);
            }
            Event::HandOver(host, place) => {
                if let Some(frame) = self.under_way.take(place) {
                    self.machines[host].wire.hand_over(frame);
                    self.packet_wakes(host);
                }
            }
            Event::LookAwake(host) => self.look_awake(host),
            Event::ChangeMood(host) => self.change_mood(host),
            Event::Incident(nth) => self.incident(nth)?,
            Event::Death(host) => self.bury(host),
            Event::GoOn(host) => self.go_on(host),
            Event::Run(host) => {
                let machine = &mut self.machines[host];
                if machine.run_at != Some(at) {
                    return Ok(());
                }
                machine.run_at = None;
                self.device_runs(host);
                self.look_soon(host, self.now);
            }
            Event::Tick(host) => {
                let machine = &mut self.machines[host];
                if machine.tick_at != Some(at) {
                    return Ok(());
                }
                machine.tick_at = None;
                self.device_runs(host);
                self.look_soon(host, self.now);
            }
            Event::Look(host) => {
                let machine = &mut self.machines[host];
                if machine.look_at != Some(at) {
                    return Ok(());
                }
                machine.look_at = None;
                self.program_looks(host)?;
            }
        }
        Ok(())
    }

    fn device_runs(&mut self, host: usize) {
        self.set_quota(host);
        let machine = &mut self.machines[host];
        machine.is_waking = false;
        machine.device.host().set_time(self.now);
        let next = machine.device.run();
        self.carry(host);
        self.device_wants(host, next);
    }

    /// The device wants to run at that time.
    fn device_wants(&mut self, host: usize, next: Option<u64>) {
        let polls = self.machines[host].polls;
        match (polls, next) {
            (false, Some(at)) => self.run_at(host, at.max(self.now)),
            // The background thread looks once in a tick, or when a timer is due.
            (true, at) if self.done_at.is_none() => {
                let tick = self.now + TICK;
                let at = at.map_or(tick, |at| at.max(self.now + 1).min(tick));
                self.tick_at(host, at);
            }
            _ => {}
        }
    }

    fn program_looks(&mut self, host: usize) -> Result<(), String> {
        self.set_quota(host);
        self.machines[host].device.host().set_time(self.now);
        let (mut again, mut found) = (None, false);
        for at in 0..self.machines[host].sides.len() {
            let side = self.machines[host].sides[at];
            let (next, some) = self.sides[side].look(self.now, &mut self.digest)?;
            found |= some;
            again = again.into_iter().chain(next).min();
        }
        self.carry(host);
        self.note_end();
        if self.machines[host].is_dead {
            return Ok(());
        }
        if !self.machines[host].polls {
            self.program_wakes(host, found);
        } else if self.machines[host].tick_at.is_none() {
            self.tick_at(host, self.now + TICK);
        }
        if let Some(at) = again {
            self.look_soon(host, at.max(self.now));
        }
        let machine = &mut self.machines[host];
        // Programs poll until the last of them is done: a peer may need what they drive.
        if machine.polls && self.done_at.is_none() {
            machine.pause = match found {
                true => POLL.0,
                false => (2 * machine.pause).min(POLL.1),
            };
            let at = self.now + machine.pause;
            self.look_soon(host, at);
        }
        Ok(())
    }

    fn look_soon(&mut self, host: usize, at: u64) {
        let latest = at.max(self.now) + THINK;
        // Sooner than that it will in any case.
        if self.machines[host]
            .look_at
            .is_none_or(|known| known > latest)
        {
            let at = latest - self.rng.u64(..THINK);
            self.machines[host].look_at = Some(at);
            self.add(at, Event::Look(host));
        }
    }

    fn run_at(&mut self, host: usize, at: u64) {
        if self.machines[host].run_at.is_none_or(|known| at < known) {
            self.machines[host].run_at = Some(at);
            self.add(at, Event::Run(host));
        }
    }

    fn tick_at(&mut self, host: usize, at: u64) {
        if self.machines[host].tick_at.is_none_or(|known| at < known) {
            self.machines[host].tick_at = Some(at);
            self.add(at, Event::Tick(host));
        }
    }

    /// What the device has sent goes into the network.
    fn carry(&mut self, host: usize) {
        while let Some(frame) = self.machines[host].wire.take() {
            let World {
                network,
                events,
                sequence,
                under_way,
                now,
                ..
            } = self;
            network.send(*now, host, frame, |to, at, frame| {
                *sequence += 1;
                let event = Event::Arrive(to, under_way.put(frame));
                events.push(Reverse((at, *sequence, event)));
            });
        }
        if self.machines[host].folder.is_some() {
            self.see_to_others(host);
        }
    }

    fn note_end(&mut self) {
        if self.done_at.is_none() && self.sides.iter().all(Side::is_done) {
            self.done_at = Some(self.now);
        }
    }
}
