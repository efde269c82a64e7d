//! Connections: processes that listen, connect, accept, refuse, exchange a few messages, walk away
//! and are killed, while the network loses, repeats and reorders packets.
//!
//! A process is a device with an event channel and a listener. Processes of one host share its
//! address, a runtime folder (`SimulatedPort::of_host`) and the packets that come: a packet reaches
//! any of them, and is handed over. All that is random is decided by the seed.
//!
//! `programs` has what they do. `story` has the laws for what each side hears, and for what both
//! have to agree on. `queue_pair` checks that what was sent on a connection arrives.

mod programs;
mod queue_pair;
mod story;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rnic_nic::cm::{EventChannel, Id};
use rnic_nic::{Context, Frame, Host, SimulatedDevice, SimulatedHost};
use rnic_nic::{SimulatedPort, SimulatedPortConfig, Wire};

use crate::digest::Digest;
use crate::folder::Folder;
use crate::network::{Network, NetworkCounters};
use crate::scenario::{HostSpec, Impairments, Scenario};
use crate::world::Failure;
use queue_pair::{MOST_MESSAGES, QueuePair};
use story::{Story, check_pair};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// When a scenario begins.
const BEGIN: u64 = SECOND;
/// Longer than any scenario takes.
const END: u64 = 1_500 * SECOND;
/// More events than any scenario has.
const MOST_EVENTS: u64 = 1_000_000;
/// Port of the first listener.
const PORT: u16 = 5000;

/// What random scenarios are like.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionShape {
    /// Connections that are asked for, at most.
    pub attempts: u32,
    /// The sum of the probabilities of loss and reordering at most.
    pub harm: f64,
    /// So many packets are lost, instead of what the seed says.
    pub loss: Option<f64>,
    /// Processes are killed.
    pub kills: bool,
}

impl Default for ConnectionShape {
    fn default() -> ConnectionShape {
        ConnectionShape {
            attempts: 12,
            harm: 0.3,
            loss: None,
            kills: true,
        }
    }
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOutcome {
    /// What went wrong; `None`: nothing.
    pub failure: Option<Failure>,
    /// Of each packet and event with its time: two runs of a seed have the same.
    pub digest: u64,
    /// Packets.
    pub network: NetworkCounters,
    /// What became of the connections.
    pub counts: ConnectionCounts,
    /// How long it took, ns.
    pub virtual_ns: u64,
}

/// What became of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Asked for.
    pub attempts: u64,
    /// Established on the side that asked.
    pub established: u64,
    /// Refused.
    pub rejected: u64,
    /// Without an answer.
    pub unreachable: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Processes that were killed.
    pub killed: u64,
    /// Packets that one process handed over to another.
    pub handed_over: u64,
    /// Sides that heard of the death of a peer elsewhere from its last words.
    pub last_words: u64,
}

impl std::ops::AddAssign for ConnectionCounts {
    fn add_assign(&mut self, more: ConnectionCounts) {
        self.attempts += more.attempts;
        self.established += more.established;
        self.rejected += more.rejected;
        self.unreachable += more.unreachable;
        self.messages += more.messages;
        self.killed += more.killed;
        self.handed_over += more.handed_over;
        self.last_words += more.last_words;
    }
}

#[derive(Debug)]
enum Event {
    /// A packet comes to a host.
    Arrive(usize, Frame),
    /// A process gets a packet from another one of its host.
    HandOver(usize, Frame),
    /// A process's device does what is due.
    Run(usize),
    /// A process's program looks at its events and completions.
    Look(usize),
    Listen(usize),
    StopListening(usize),
    Start(u32),
    /// A side answers a request or a response.
    Decide(usize),
    /// A side that is connected has enough.
    Close(usize),
    /// It has waited too long for messages.
    LosePatience(usize),
    /// A side destroys its id, whatever it is about.
    WalkAway(usize),
    Kill(usize),
    /// A side has heard that its peer was killed.
    DeathIsKnown(usize),
}

struct Machine {
    address: IpAddr,
    folder: Folder,
}

struct Process {
    host: usize,
    /// `None`: it was killed.
    live: Option<Live>,
    wire: Wire,
    port: u16,
    backlog: i32,
    /// How long its program takes to look, at most, ns.
    lazy: u64,
    run_at: Option<u64>,
    look_at: Option<u64>,
    /// The next run is for what the program did: it need not look again.
    is_quiet: bool,
    /// There was, or will be, no listener at some time.
    stops_listening: bool,
    listens_from: u64,
}

struct Live {
    // Ids go before their channel, and that before the device.
    listener: Option<Id>,
    channel: EventChannel,
    context: Context,
    device: SimulatedDevice,
}

/// What is to come of an attempt.
struct Attempt {
    client: usize,
    server: usize,
    /// Messages of either side.
    sends: [usize; 2],
    sides: [Option<usize>; 2],
    /// The process that was to ask had been killed.
    is_void: bool,
}

/// One side of a connection.
struct Side {
    attempt: u32,
    end: usize,
    process: usize,
    id: Option<Id>,
    queue_pair: Option<QueuePair>,
    story: Story,
    closing: bool,
}

struct World {
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    sides: Vec<Side>,
    processes: Vec<Process>,
    machines: Vec<Machine>,
    attempts: Vec<Attempt>,
    network: Network,
    digest: Digest,
    rng: fastrand::Rng,
    counts: ConnectionCounts,
    seed: u64,
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

/// Plays the random scenario of a seed.
pub fn connections(seed: u64, shape: &ConnectionShape) -> ConnectionOutcome {
    let failed = |what| ConnectionOutcome {
        failure: Some(Failure { at: 0, what }),
        ..ConnectionOutcome::default()
    };
    let mut world = match World::new(seed, shape) {
        Ok(world) => world,
        Err(what) => return failed(what),
    };
    let ended = world.run();
    ConnectionOutcome {
        failure: ended.err().map(|what| Failure {
            at: world.now,
            what,
        }),
        digest: world.digest.value(),
        network: world.network.counters,
        counts: world.counts,
        virtual_ns: world.now,
    }
}

impl World {
    fn new(seed: u64, shape: &ConnectionShape) -> Result<World, String> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let machines: Vec<Machine> = (0..rng.u8(1..=3))
            .map(|at| Machine {
                address: IpAddr::from([10, 0, 0, 1 + at]),
                folder: Folder::new(),
            })
            .collect();
        let harm = match rng.u8(..4) {
            0 => 0.0,
            _ => shape.harm * rng.f64(),
        };
        let split = rng.f64();
        let least = rng.u64(MICROSECOND..100 * MICROSECOND);
        let impairments = Impairments {
            loss: shape.loss.unwrap_or((harm * split).min(0.2)),
            reorder: harm * (1.0 - split),
            duplicate: harm * rng.f64(),
            delay: (
                least,
                least + [0, 100, 10_000][rng.usize(..3)] * MICROSECOND,
            ),
            detour: [MILLISECOND, 100 * MILLISECOND, 2 * SECOND][rng.usize(..3)],
            harm_per_psn: Some(3),
            ..Impairments::default()
        };
        let spec = |machine: &Machine| HostSpec::new("", machine.address);
        let network = Network::new(&Scenario {
            seed,
            hosts: machines.iter().map(spec).collect(),
            impairments,
            ..Scenario::default()
        });
        let mut world = World {
            now: BEGIN,
            events: BTreeMap::new(),
            sequence: 0,
            sides: Vec::new(),
            processes: Vec::new(),
            machines,
            attempts: Vec::new(),
            network,
            digest: Digest::new(),
            rng,
            counts: ConnectionCounts::default(),
            seed,
        };
        for at in 0..world.rng.usize(2..=4) {
            let host = world.rng.usize(..world.machines.len());
            world.begin_process(host, PORT + at as u16)?;
        }
        let processes = world.processes.len();
        if shape.kills {
            for process in 0..processes {
                if world.rng.u8(..3) == 0 {
                    let at = BEGIN + world.rng.u64(..25 * SECOND);
                    world.add(at, Event::Kill(process));
                }
            }
        }
        for attempt in 0..world.rng.u32(1..=shape.attempts) {
            let sends = [0, 1].map(|_| world.rng.usize(..=MOST_MESSAGES));
            world.attempts.push(Attempt {
                client: world.rng.usize(..processes),
                server: world.rng.usize(..processes),
                sends,
                sides: [None, None],
                is_void: false,
            });
            // Some at once, more than a backlog takes.
            let at = BEGIN + [0, world.rng.u64(..20 * SECOND)][world.rng.usize(..2)];
            world.add(at, Event::Start(attempt));
        }
        Ok(world)
    }

    /// A process begins, with a port that it listens on.
    fn begin_process(&mut self, host: usize, port: u16) -> Result<(), String> {
        let at = self.processes.len();
        let machine = &self.machines[host];
        let addresses = vec![machine.address];
        let simulated = Host::simulated(&SimulatedHost {
            seed: self.seed ^ (at as u64 + 1) << 48,
            now_ns: self.now,
            addresses: addresses.clone(),
            mtu: 4500,
        });
        let config = SimulatedPortConfig {
            addresses,
            first_range: 1 + 16 * at as u32,
            ..SimulatedPortConfig::default()
        };
        let (link, wire) =
            SimulatedPort::of_host(config, machine.folder.shared()).map_err(in_words)?;
        let device = SimulatedDevice::open(simulated, link).map_err(in_words)?;
        let lazy = [10 * MICROSECOND, 10 * MILLISECOND, 4 * SECOND][self.rng.usize(..3)];
        let listens_from = match self.rng.u8(..4) {
            0 => self.now + self.rng.u64(..2 * SECOND),
            _ => self.now,
        };
        let stops_listening = self.rng.u8(..5) == 0;
        self.processes.push(Process {
            host,
            live: Some(Live {
                listener: None,
                channel: device.event_channel().map_err(in_words)?,
                context: device.context().map_err(in_words)?,
                device,
            }),
            wire,
            port,
            backlog: self.rng.i32(1..=4),
            lazy,
            run_at: None,
            look_at: None,
            is_quiet: false,
            stops_listening,
            listens_from,
        });
        self.add(listens_from, Event::Listen(at));
        if stops_listening {
            let stop = self.now + self.rng.u64(..20 * SECOND);
            self.add(stop.max(listens_from + 1), Event::StopListening(at));
        }
        Ok(())
    }

    fn add(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((at.max(self.now), self.sequence), event);
    }

    /// What programs take their time for.
    fn pause(&mut self) -> u64 {
        match self.rng.u8(..4) {
            0 => 0,
            1 => self.rng.u64(..MILLISECOND),
            2 => self.rng.u64(..SECOND),
            _ => self.rng.u64(..12 * SECOND),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut over = None;
        let mut events = 0;
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = self.now.max(at);
            events += 1;
            if events > MOST_EVENTS {
                return Err(format!("events go on and on: {event:?}; {}", self.waits()));
            }
            self.happen(at, event)?;
            let all_over = self
                .attempts
                .iter()
                .all(|attempt| attempt.is_over(&self.sides));
            if over.is_none() && all_over {
                over = Some(self.now);
                self.check()?;
            }
            if over.is_some() && self.nothing_is_left() {
                return Ok(());
            }
            if self.now > END {
                break;
            }
        }
        match over {
            None => Err(format!("everybody waits: {}", self.waits())),
            Some(_) => Err(format!("something is left in a device: {:?}", self.left())),
        }
    }

    fn waits(&self) -> String {
        let waits = self.sides.iter().filter(|side| !side.story.is_over());
        let waits = waits.map(|side| {
            let (attempt, end, story) = (side.attempt, side.end, &side.story);
            format!("end {end} of attempt {attempt}: {story:?}")
        });
        waits.collect::<Vec<_>>().join("; ")
    }

    fn left(&self) -> Vec<rnic_nic::Objects> {
        let live = self.processes.iter().filter_map(|p| p.live.as_ref());
        live.map(|live| live.device.objects()).collect()
    }

    /// No device has a queue pair, a region or a connection any more.
    fn nothing_is_left(&self) -> bool {
        let live = self.processes.iter().filter_map(|p| p.live.as_ref());
        live.into_iter().all(|live| {
            let objects = live.device.objects();
            let ids = usize::from(live.listener.is_some());
            objects.queue_pairs + objects.memory + objects.cm_connections == 0
                && objects.cm_ids == ids
        })
    }

    fn check(&mut self) -> Result<(), String> {
        for (at, attempt) in self.attempts.iter().enumerate() {
            self.counts.attempts += 1;
            let server = &self.processes[attempt.server];
            let story = |end: usize| attempt.sides[end].map(|side| &self.sides[side].story);
            let Some(active) = story(0) else {
                continue;
            };
            self.counts.established += u64::from(active.established);
            self.counts.rejected += u64::from(active.rejected.is_some());
            self.counts.unreachable += u64::from(active.unreachable);
            let passive = story(1);
            let received = [Some(active), passive].into_iter().flatten();
            self.counts.messages += received.map(|s| s.messages.received as u64).sum::<u64>();
            let is_missing = server.live.is_none();
            let is_deaf = is_missing || server.stops_listening || server.listens_from > BEGIN;
            check_pair(active, passive, (is_missing, is_deaf), attempt.sends)
                .map_err(|why| format!("attempt {at}: {why}"))?;
        }
        Ok(())
    }

    fn happen(&mut self, at: u64, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive(host, frame) => {
                self.digest.word(self.now);
                self.digest.bytes(&frame.bytes);
                let here = (0..self.processes.len()).filter(|at| {
                    let process = &self.processes[*at];
                    process.host == host && process.live.is_some()
                });
                let here: Vec<usize> = here.collect();
                if !here.is_empty() {
                    let process = here[self.rng.usize(..here.len())];
                    self.processes[process].wire.arrive(frame);
                    self.wake(process);
                }
            }
            Event::HandOver(process, frame) => {
                if self.processes[process].live.is_some() {
                    self.processes[process].wire.hand_over(frame);
                    self.wake(process);
                }
            }
            Event::Run(process) => {
                if self.processes[process].run_at == Some(at) {
                    self.processes[process].run_at = None;
                    self.device_runs(process);
                }
            }
            Event::Look(process) => {
                if self.processes[process].look_at == Some(at) {
                    self.processes[process].look_at = None;
                    self.look(process)?;
                }
            }
            Event::Listen(process) => self.listen(process)?,
            Event::StopListening(process) => {
                let live = self.live(process);
                drop(live.and_then(|live| live.listener.take()));
                self.after_call(process);
            }
            Event::Start(attempt) => self.start(attempt)?,
            Event::Decide(side) => self.decide(side)?,
            Event::Close(side) => self.close(side)?,
            Event::LosePatience(side) => self.lose_patience(side)?,
            Event::WalkAway(side) => self.walk_away(side)?,
            Event::Kill(process) => self.kill(process)?,
            Event::DeathIsKnown(side) => {
                let Side {
                    attempt,
                    end,
                    story,
                    ..
                } = &self.sides[side];
                if !story.is_over() && story.endings() == 0 {
                    return Err(format!(
                        "end {end} of attempt {attempt} has not heard of a death: {story:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The process, at the time that it is.
    fn live(&mut self, process: usize) -> Option<&mut Live> {
        let live = self.processes[process].live.as_mut()?;
        live.device.host().set_time(self.now);
        Some(live)
    }

    fn wake(&mut self, process: usize) {
        self.processes[process].is_quiet = false;
        let late = self.rng.u64(..20 * MICROSECOND);
        self.run_at(process, self.now + late);
    }

    fn run_at(&mut self, process: usize, at: u64) {
        let at = at.max(self.now);
        if self.processes[process]
            .run_at
            .is_none_or(|known| at < known)
        {
            self.processes[process].run_at = Some(at);
            self.add(at, Event::Run(process));
        }
    }

    fn look_soon(&mut self, process: usize) {
        let lazy = self.processes[process].lazy;
        if self.processes[process].look_at.is_none() {
            let at = self.now + self.rng.u64(..=lazy);
            self.processes[process].look_at = Some(at);
            self.add(at, Event::Look(process));
        }
    }

    fn device_runs(&mut self, process: usize) {
        let Some(live) = self.live(process) else {
            return;
        };
        let next = live.device.run();
        let channel = [live.channel.fd()];
        let has_events = rnic_sys::poll(&channel, Some(Duration::ZERO)).is_ok_and(|ready| ready[0]);
        self.carry(process);
        if let Some(next) = next {
            self.run_at(process, next);
        }
        if !std::mem::take(&mut self.processes[process].is_quiet) || has_events {
            self.look_soon(process);
        }
    }

    /// A program has called its device.
    fn after_call(&mut self, process: usize) {
        self.carry(process);
        if self.processes[process].live.is_some() {
            self.run_at(process, self.now);
        }
    }

    /// What a device has sent goes into the network, and what it hands over to its host's others.
    fn carry(&mut self, process: usize) {
        let host = self.processes[process].host;
        while let Some(frame) = self.processes[process].wire.take() {
            let (network, now) = (&mut self.network, self.now);
            let mut arrivals = Vec::new();
            network.send(now, host, frame, |to, at, frame| {
                arrivals.push((to, at, frame))
            });
            for (to, at, frame) in arrivals {
                self.add(at, Event::Arrive(to, frame));
            }
        }
        while let Some((range, frame)) = self.processes[process].wire.take_handed_over() {
            self.counts.handed_over += 1;
            let to = self.processes.iter().position(|other| {
                other.host == host && other.wire.first_range() == range && other.live.is_some()
            });
            let at = self.now + self.rng.u64(..10 * MICROSECOND);
            if let Some(to) = to {
                self.add(at, Event::HandOver(to, frame));
            }
        }
    }
}

impl Attempt {
    fn is_over(&self, sides: &[Side]) -> bool {
        let mut known = self.sides.iter().flatten();
        (self.is_void || self.sides[0].is_some()) && known.all(|side| sides[*side].story.is_over())
    }
}
