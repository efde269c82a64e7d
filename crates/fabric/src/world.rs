//! Hosts, events, time.
//!
//! | file | duty |
//! | --- | --- |
//! | `build` | hosts, queue pairs and programs are made |
//! | `processes` | what processes of one host do with each other |
//! | `end` | what has to hold when all is over, and what was counted |

mod build;
mod end;
mod processes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::rc::Rc;

use rnic_nic::{AsyncEvent, Context, Frame, HostPath, LinkCounters, SimulatedDevice, Wire};

use crate::datagrams::{self, Everybody};
use crate::digest::Digest;
use crate::flow::Side;
use crate::folder::Folder;
use crate::network::{Network, NetworkCounters};
use crate::scenario::{HostSpec, Incident, Marked, Scenario};
use crate::shared_receives::{Pool, User};

/// The time at first, ns.
const BEGIN: u64 = 1_000_000_000;
/// A program that polls looks again so long after something came, and twice as long after each
/// look in vain, up to the second, ns.
const POLL: (u64, u64) = (2_000, 200_000);
/// How often the background thread looks after an engine that the application drives, ns.
const TICK: u64 = 1_000_000;
/// A program looks at its completion queue so long after something came, at most, ns.
const THINK: u64 = 3_000;
/// What has come is taken in so long after all is complete, at most, ns. Datagrams wait 50 ms for a
/// receive, and two queue pairs whose programs post late let a few pass each time.
const TAKEN_IN: u64 = 100_000_000_000;
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
    endpoints: Vec<usize>,
    pools: Vec<usize>,
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
    /// Until when its thread is busy with what it took in.
    busy_until: u64,
    /// After how long a program that polls looks again.
    pause: u64,
}

impl Machine {
    /// So many packets had been waiting before its thread looked just now.
    fn has_taken(&mut self, now: u64, waiting: usize) {
        let taken = waiting.saturating_sub(self.wire.waiting()) as u64;
        self.busy_until = self.busy_until.max(now) + taken * self.spec.takes;
    }
}

struct World {
    now: u64,
    /// By time, and in the order in which they were added.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    under_way: UnderWay,
    // Queue pairs and regions go before the devices.
    sides: Vec<Side>,
    endpoints: Vec<datagrams::Program>,
    pools: Vec<Pool>,
    contexts: Vec<Context>,
    everybody: Rc<Everybody>,
    machines: Vec<Machine>,
    /// Of hosts with several processes, or with shared memory.
    folders: Vec<Folder>,
    incidents: Vec<Incident>,
    /// Descriptors that processes wait for, and which process: room that is used again.
    waits_for: Vec<(RawFd, usize)>,
    /// The processes that are to wake: likewise.
    rung: Vec<usize>,
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

/// Something has happened that a device wakes for.
fn is_to_wake(device: &SimulatedDevice) -> bool {
    let is_woken = || rnic_sys::readable(device.waits_for());
    device.is_rung() || is_woken().is_ok_and(|readable| readable.contains(&true))
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
            .map(|sides| sides.each_mut().map(Side::take_latencies))
            .collect(),
        links: world
            .machines
            .iter()
            .map(|machine| machine.device.counters().0)
            .collect(),
    }
}

impl World {
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
            if let Some(done_at) = self.done_at
                && !arrives
                && self.under_way.is_empty()
            {
                // What waits for a receive is taken in later. What a killed process has left in a
                // ring may stay there.
                if at < done_at + TAKEN_IN
                    && (0..self.machines.len()).any(|host| self.has_waiting(host))
                {
                    self.arrived_at = at;
                }
                if at > self.arrived_at + settles {
                    break;
                }
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
        self.check_end()
    }

    /// Packets came that a device has not taken in, or rings that it has not.
    fn has_waiting(&self, host: usize) -> bool {
        let machine = &self.machines[host];
        let has_rings = machine.spec.path != HostPath::Off;
        !machine.is_dead
            && (machine.wire.waiting() > 0
                || has_rings && (machine.device.has_arrivals() || is_to_wake(&machine.device)))
    }

    fn is_done(&self) -> bool {
        self.sides.iter().all(Side::is_done)
            && self.endpoints.iter().all(datagrams::Program::is_done)
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
                let Some(host) = self.taker_of(host, &frame) else {
                    return Ok(());
                };
                self.comes_to(host, frame, Wire::arrive);
                self.packet_wakes(host);
            }
            Event::HandOver(host, place) => {
                if let Some(frame) = self.under_way.take(place) {
                    self.comes_to(host, frame, Wire::hand_over);
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

    /// A packet comes to a process, in a way that its port takes it.
    fn comes_to(&mut self, host: usize, frame: Frame, put: fn(&Wire, Frame) -> bool) {
        let (dst, qpn) = (frame.dst.ip(), frame.dest_qpn());
        let machine = &self.machines[host];
        if put(&machine.wire, frame)
            && !machine.endpoints.is_empty()
            && let Some(dst) = dst
        {
            for at in self.everybody.recipients(host, (dst, qpn)) {
                self.endpoints[at].arrived += 1;
            }
        }
    }

    fn device_runs(&mut self, host: usize) {
        self.set_quota(host);
        let machine = &mut self.machines[host];
        machine.is_waking = false;
        machine.device.host().set_time(self.now);
        let waiting = machine.wire.waiting();
        let next = machine.device.run();
        machine.has_taken(self.now, waiting);
        self.carry(host);
        self.device_wants(host, next);
    }

    /// The device wants to run at that time.
    fn device_wants(&mut self, host: usize, next: Option<u64>) {
        let polls = self.machines[host].polls;
        match (polls, next) {
            (false, Some(at)) => self.run_at(host, at.max(self.now)),
            // The background thread looks once in a tick, or when a timer is due.
            (true, at) if self.done_at.is_none() || self.has_waiting(host) => {
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
        let had_waiting = self.done_at.is_some() && self.has_waiting(host);
        let (mut again, mut found) = (None, false);
        // One poll takes in what is another's, who then gets an event.
        let takes_in = self.has_waiting(host);
        let waiting = self.machines[host].wire.waiting();
        if !self.machines[host].pools.is_empty() {
            (again, found) = self.shared_receives(host)?;
        }
        for at in 0..self.machines[host].sides.len() {
            let side = self.machines[host].sides[at];
            let (next, some) = self.sides[side].look(self.now, &mut self.digest)?;
            self.talk(side)?;
            found |= some;
            again = again.into_iter().chain(next).min();
        }
        for at in 0..self.machines[host].endpoints.len() {
            let endpoint = self.machines[host].endpoints[at];
            let (next, some) = self.endpoints[endpoint].look(self.now, &mut self.digest)?;
            found |= some;
            again = again.into_iter().chain(next).min();
        }
        self.machines[host].has_taken(self.now, waiting);
        self.carry(host);
        self.note_end();
        if self.machines[host].is_dead {
            return Ok(());
        }
        if !self.machines[host].polls {
            self.program_wakes(host, found || takes_in);
        } else if self.machines[host].tick_at.is_none() {
            self.tick_at(host, self.now + TICK);
        }
        if let Some(at) = again {
            self.look_soon(host, at.max(self.now));
        }
        if self.machines[host].polls {
            self.poll_again(host, found, had_waiting);
        }
        Ok(())
    }

    /// Programs poll until the last of them is done: a peer may need what they drive. What came
    /// since is taken in too, and then looked at, since one poll takes in what is another's.
    fn poll_again(&mut self, host: usize, found: bool, had_waiting: bool) {
        let has_waiting = self.done_at.is_some() && self.has_waiting(host);
        if had_waiting && !has_waiting {
            return self.look_soon(host, self.now);
        }
        let machine = &mut self.machines[host];
        if self.done_at.is_none() || has_waiting {
            machine.pause = match found {
                true => POLL.0,
                false => (2 * machine.pause).min(POLL.1),
            };
            let at = self.now + machine.pause;
            self.look_soon(host, at);
        }
    }

    /// What the program at an end has to say to that at the other end of its flow.
    fn talk(&mut self, side: usize) -> Result<(), String> {
        let other = side ^ 1;
        let (ask, answer) = (self.sides[side].take_ask(), self.sides[side].take_answer());
        if ask.is_none() && answer.is_none() {
            return Ok(());
        }
        if let Some(ask) = ask {
            self.sides[other].serve(ask);
        }
        if let Some(answer) = answer {
            self.sides[other].hear(answer)?;
        }
        let mut machines = self.machines.iter();
        if let Some(host) = machines.position(|machine| machine.sides.contains(&other)) {
            self.look_soon(host, self.now);
        }
        Ok(())
    }

    /// The look of programs at the shared receive queues of a host.
    fn shared_receives(&mut self, host: usize) -> Result<(Option<u64>, bool), String> {
        let (mut again, mut found) = (None, false);
        let World {
            machines,
            pools,
            contexts,
            sides,
            endpoints,
            digest,
            now,
            ..
        } = self;
        for at in &machines[host].pools {
            let taken = pools[*at].take(*now, |user, slot, completion, inbox| {
                digest.word(completion.wr_id ^ *now << 20);
                digest.word(u64::from(completion.byte_len) << 32 | completion.status as u64);
                match user {
                    User::Side(side) => sides[side].check_shared(slot, completion, inbox),
                    User::Endpoint(at) => endpoints[at].check_shared(slot, completion, inbox),
                }
            })?;
            found |= taken > 0;
        }
        while let Some(event) = contexts[host].next_async_event() {
            if let AsyncEvent::SrqLimit { cookie } = event {
                pools[cookie as usize].hear_event()?;
            }
        }
        for at in &machines[host].pools {
            let next = pools[*at].go_on(*now)?;
            again = again.into_iter().chain(next).min();
        }
        Ok((again, found))
    }

    fn look_soon(&mut self, host: usize, at: u64) {
        let latest = at.max(self.now).max(self.machines[host].busy_until) + THINK;
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
        let at = at.max(self.machines[host].busy_until);
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
            if frame.dst.is_multicast() {
                self.carry_to_group(host, frame);
                continue;
            }
            let World {
                network,
                endpoints,
                everybody,
                events,
                sequence,
                under_way,
                now,
                ..
            } = self;
            if !endpoints.is_empty()
                && let Some(at) = everybody.of_qpn(frame.dest_qpn())
            {
                endpoints[at].networked += 1;
            }
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
        if self.done_at.is_none() && self.is_done() {
            self.done_at = Some(self.now);
            // What came by a ring may just have been taken in, and not looked at.
            self.arrived_at = self.now;
            // Who polls does so for as long as something waits there, and once more.
            (0..self.machines.len()).for_each(|host| self.look_soon(host, self.now));
        }
    }

    #[cold]
    fn carry_to_group(&mut self, host: usize, frame: Frame) {
        let (now, group) = (self.now, frame.dst.ip());
        let members = group.map_or_else(Vec::new, |group| self.members(group));
        let mut arrivals = Vec::new();
        let network = &mut self.network;
        network.send_to_group(now, host, (frame, &members), |to, at, frame| {
            arrivals.push((to, at, frame));
        });
        for (to, at, frame) in arrivals {
            let event = Event::Arrive(to, self.under_way.put(frame));
            self.add(at, event);
        }
    }

    /// The hosts that have joined a multicast group.
    fn members(&self, group: IpAddr) -> Vec<usize> {
        let machines = self.machines.iter().enumerate();
        let members =
            machines.filter(|(_, machine)| !machine.is_dead && machine.wire.is_member(group));
        members.map(|(at, _)| at).collect()
    }
}
