//! Processes of one host: who wakes whom, and what becomes of those that are stopped or killed.
//!
//! A process that sleeps runs because a packet came to it, because one of its timers is due, or
//! because a descriptor is readable that its thread waits for. Nobody else has it run: a wake-up
//! that is not asked for does not come.

use std::net::IpAddr;

use rnic_nic::{Frame, HostPath, LinkCounters, Status};

use super::{Event, Machine, POLL, TICK, World};
use crate::folder::Folder;
use crate::scenario::{Flow, HostSpec, Incident, Scenario, Service, What};

/// A process that is to be killed in the middle of its work, and has none, is killed so much later,
/// ns.
const LAST: u64 = 1_000_000;
/// A thread that stays awake looks so often, and so long, at most, ns.
const AWAKE: (u64, u64) = (1_500, 6_000);
/// After so many changes a restless process does otherwise half as often.
const CALMS_AFTER: u32 = 32;
/// A process hands a packet over in so long, at most, ns.
const HAND_OVER: u64 = 10_000;
/// Between processes that share memory, and have time, no operation takes so long, ns: it is less
/// than the shortest ACK timeout of random scenarios.
const LATE: u64 = 4_000_000;
/// A process takes nothing in for so long, at most, where a message of UC or UD waits for a receive
/// that nobody posts, ns.
const HOLD: u64 = 50_000_000;
/// A deregistration that ended with EBUSY is tried again after so long, ns.
const TRY_AGAIN: u64 = 1_000_000;

/// The folders of hosts.
#[derive(Default)]
pub(super) struct Folders {
    pub(super) all: Vec<Folder>,
    known: Vec<IpAddr>,
}

impl std::ops::Index<usize> for Folders {
    type Output = Folder;

    fn index(&self, at: usize) -> &Folder {
        &self.all[at]
    }
}

/// The folder of the host that a process is on; `None`: it is alone, and exchanges packets only.
pub(super) fn folder_of(at: usize, hosts: &[HostSpec], folders: &mut Folders) -> Option<usize> {
    let spec = &hosts[at];
    let same = hosts.iter().filter(|other| other.address == spec.address);
    if spec.path == HostPath::Off && same.count() == 1 {
        return None;
    }
    let known = folders
        .known
        .iter()
        .position(|known| *known == spec.address);
    Some(known.unwrap_or_else(|| {
        folders.known.push(spec.address);
        folders.all.push(Folder::new());
        folders.all.len() - 1
    }))
}

/// # Errors
/// What becomes of windows when a process dies or its memory goes is not known: its peer waits for
/// an answer of its program.
pub(super) fn check_incidents(scenario: &Scenario) -> Result<(), String> {
    for (at, flow) in scenario.flows.iter().enumerate() {
        let mut ways = flow.directions.iter();
        let mut incidents = scenario.incidents.iter();
        let is_harmed =
            |incident: &Incident| incident.ends_flows() && flow.hosts.contains(&incident.host);
        if ways.any(|way| !way.windows.is_empty()) && incidents.any(is_harmed) {
            return Err(format!(
                "flow {at} has memory windows, and a process of it is killed or deregisters memory"
            ));
        }
    }
    Ok(())
}

impl World {
    pub(super) fn begin_processes(&mut self) {
        for host in 0..self.machines.len() {
            // Its thread begins with a round.
            if !self.machines[host].polls {
                self.run_at(host, self.now);
            }
            self.become_restless(host);
        }
        for nth in 0..self.incidents.len() {
            let at = self.now + self.incidents[nth].at;
            self.add(at, Event::Incident(nth));
        }
    }

    /// Of a process that is dead nothing happens any more, and of one that is stopped not yet.
    pub(super) fn is_put_off(&mut self, at: u64, event: Event) -> bool {
        let host = match event {
            Event::Run(host)
            | Event::Look(host)
            | Event::Tick(host)
            | Event::LookAwake(host)
            | Event::ChangeMood(host) => host,
            Event::HandOver(host, place) => {
                let is_dead = self.machines[host].is_dead;
                if is_dead {
                    self.under_way.take(place);
                }
                return is_dead;
            }
            Event::Arrive(..) | Event::Incident(_) | Event::Death(_) | Event::GoOn(_) => {
                return false;
            }
        };
        let machine = &mut self.machines[host];
        if machine.is_dead {
            return true;
        }
        let until = machine.stopped_until;
        if until <= self.now {
            return false;
        }
        let due = match event {
            Event::Run(_) => &mut machine.run_at,
            Event::Look(_) => &mut machine.look_at,
            Event::Tick(_) => &mut machine.tick_at,
            _ => {
                self.add(until, event);
                return true;
            }
        };
        if *due == Some(at) {
            *due = Some(until);
            self.add(until, event);
        }
        true
    }

    /// The process that takes in a packet for another one of its host: as a rule it itself. The
    /// kernel gives each member of a multicast group its own copy.
    pub(super) fn taker_of(&mut self, host: usize, frame: &Frame) -> Option<usize> {
        let machine = &self.machines[host];
        if frame.dst.is_multicast() {
            return (!machine.is_dead).then_some(host);
        }
        if machine.folder.is_none() || !machine.is_dead && self.host_rng.u8(..10) < 7 {
            return Some(host);
        }
        let folder = machine.folder;
        let takers = (0..self.machines.len()).filter(|at| {
            let other = &self.machines[*at];
            other.folder == folder
                && !other.is_dead
                && (*at == host || other.stopped_until <= self.now)
        });
        let takers: Vec<usize> = takers.collect();
        match takers.len() {
            0 => None,
            count => Some(takers[self.host_rng.usize(..count)]),
        }
    }

    /// A packet came to a process.
    pub(super) fn packet_wakes(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        machine.pause = POLL.0;
        match machine.polls {
            true => self.look_soon(host, self.now),
            false => {
                let wake = machine.spec.wake;
                let late = self.rng.u64(..=wake);
                self.run_at(host, self.now + late);
            }
        }
    }

    /// A program has looked, and may have left work in its engine. If it `found` something, or has
    /// posted, it looks once more before it sleeps: what it posted may be complete.
    pub(super) fn program_wakes(&mut self, host: usize, found: bool) {
        if found {
            self.look_soon(host, self.now);
        }
        self.ring(|at, _| at == host);
    }

    /// A process has done something: others of its host may be woken by it, or may be who takes
    /// what came to it. It may also have died.
    pub(super) fn see_to_others(&mut self, host: usize) {
        while let Some((range, frame)) = self.machines[host].wire.take_handed_over() {
            let folder = self.machines[host].folder;
            let to = self.machines.iter().position(|other| {
                other.folder == folder && other.wire.first_range() == range && !other.is_dead
            });
            if let Some(to) = to {
                let at = self.now + self.host_rng.u64(..HAND_OVER);
                let place = self.under_way.put(frame);
                self.add(at, Event::HandOver(to, place));
            }
        }
        if self.machines[host].wire.is_dead() {
            self.bury(host);
        }
        let folder = self.machines[host].folder;
        self.ring(|at, machine| at != host && machine.folder == folder);
    }

    /// Those of these processes that are to wake do so before long.
    fn ring(&mut self, of: impl Fn(usize, &Machine) -> bool) {
        let World {
            machines,
            waits_for: fds,
            rung,
            ..
        } = self;
        fds.clear();
        rung.clear();
        for (at, machine) in machines.iter().enumerate() {
            if of(at, machine) && !machine.is_dead && !machine.is_waking {
                match machine.device.is_rung() {
                    true => rung.push(at),
                    false => fds.extend(machine.device.waits_for().map(|fd| (fd, at))),
                }
            }
        }
        if !fds.is_empty()
            && let Ok(readable) = rnic_sys::readable(fds.iter().map(|(fd, _)| *fd))
        {
            let woken = fds.iter().zip(readable).filter(|(_, readable)| *readable);
            rung.extend(woken.map(|((_, at), _)| *at));
            rung.sort_unstable();
            rung.dedup();
        }
        let mut rung = std::mem::take(&mut self.rung);
        rung.drain(..).for_each(|host| self.wakes(host));
        self.rung = rung;
    }

    /// A process that is to wake does so before long.
    fn wakes(&mut self, host: usize) {
        let machine = &self.machines[host];
        let late = self.host_rng.u64(..=machine.spec.wake + 500);
        let at = self.now + late;
        let machine = &mut self.machines[host];
        machine.is_waking = true;
        match machine.polls {
            true => self.tick_at(host, at),
            false => self.run_at(host, at),
        }
    }

    /// How much of its rings a process takes in at once.
    pub(super) fn set_quota(&mut self, host: usize) {
        let machine = &self.machines[host];
        if machine.spec.path != HostPath::Off {
            let quota = [1, 2, 7, usize::MAX, usize::MAX][self.host_rng.usize(..5)];
            machine.wire.set_quota(quota);
        }
    }
}

/// Restless processes.
impl World {
    fn become_restless(&mut self, host: usize) {
        let every = self.machines[host].spec.restless;
        if every > 0 && self.done_at.is_none() {
            let machine = &mut self.machines[host];
            machine.moods += 1;
            let every = every << (machine.moods / CALMS_AFTER).min(20);
            let at = self.now + self.host_rng.u64(1..=2 * every);
            self.add(at, Event::ChangeMood(host));
        }
    }

    pub(super) fn change_mood(&mut self, host: usize) {
        self.become_restless(host);
        let machine = &mut self.machines[host];
        machine.device.host().set_time(self.now);
        if !machine.spec.polls {
            if machine.awake_until <= self.now {
                machine.awake_until = self.now + self.host_rng.u64(1..AWAKE.1);
                machine.device.stay_awake(true);
                self.add(self.now, Event::LookAwake(host));
            }
            return;
        }
        machine.polls = !machine.polls;
        machine.is_waking = false;
        machine.device.leave_to_polling(machine.polls);
        match machine.polls {
            true => {
                machine.run_at = None;
                machine.pause = POLL.0;
                self.look_soon(host, self.now);
                self.tick_at(host, self.now + TICK);
                self.ring(|at, _| at == host);
            }
            false => {
                machine.tick_at = None;
                self.device_runs(host);
            }
        }
    }

    pub(super) fn look_awake(&mut self, host: usize) {
        let machine = &self.machines[host];
        machine.device.host().set_time(self.now);
        if machine.awake_until <= self.now {
            machine.device.stay_awake(false);
            self.device_runs(host);
        } else {
            self.set_quota(host);
            self.machines[host].device.look_awake();
            self.carry(host);
            let at = self.now + self.host_rng.u64(1..AWAKE.0);
            self.add(at, Event::LookAwake(host));
        }
        self.look_soon(host, self.now);
    }
}

/// What happens to processes.
impl World {
    pub(super) fn incident(&mut self, nth: usize) -> Result<(), String> {
        let incident = self.incidents[nth];
        let host = incident.host;
        let Some(machine) = self.machines.get_mut(host) else {
            return Err(format!("there is no host {host}"));
        };
        if machine.is_dead {
            return Ok(());
        }
        machine.device.host().set_time(self.now);
        let range = machine.wire.first_range();
        let folder = machine.folder.map(|at| self.folders[at].shared());
        match incident.what {
            What::Kill(0) => self.bury(host),
            What::Kill(step) => {
                machine.wire.die_after(step - 1);
                self.add(self.now + LAST, Event::Death(host));
            }
            What::KillCopying => {
                if let Some(folder) = folder {
                    folder.set_copying(range, true);
                }
                self.bury(host);
            }
            What::Stop(time) | What::StopCopying(time) => {
                machine.stopped_until = machine.stopped_until.max(self.now + time);
                if let Some(folder) = folder {
                    folder.set_stopped(range, true);
                    let copying = matches!(incident.what, What::StopCopying(_));
                    if copying {
                        folder.set_copying(range, true);
                    }
                }
                for at in &self.machines[host].endpoints {
                    self.endpoints[*at].is_lossy = true;
                }
                self.add(self.now + time, Event::GoOn(host));
            }
            What::Deregister => self.deregister(nth),
        }
        Ok(())
    }

    /// A process that was stopped goes on.
    pub(super) fn go_on(&mut self, host: usize) {
        let machine = &self.machines[host];
        if machine.is_dead || machine.stopped_until > self.now {
            return;
        }
        if let Some(folder) = machine.folder {
            let folder = self.folders[folder].shared();
            let range = machine.wire.first_range();
            folder.set_stopped(range, false);
            folder.set_copying(range, false);
        }
    }

    fn deregister(&mut self, nth: usize) {
        let host = self.incidents[nth].host;
        if self.machines[host].stopped_until > self.now {
            let at = self.machines[host].stopped_until;
            return self.add(at, Event::Incident(nth));
        }
        let mut again = false;
        for at in 0..self.machines[host].sides.len() {
            let side = self.machines[host].sides[at];
            // Its queue pair fails with the request that finds the memory gone.
            self.sides[side].may_end_with(Status::WorkRequestFlushed);
            let harmed = self.network.harms() || self.is_handed_over(side);
            let peer = &mut self.sides[side ^ 1];
            peer.may_end_with(Status::RemoteAccessError);
            if harmed {
                // The NAK may be lost, or overtake what it acknowledges, and no other one follows.
                peer.may_end_with(Status::RetryExceeded);
            }
            again |= !self.sides[side].deregister();
        }
        if again {
            self.busy += 1;
            self.add(self.now + TRY_AGAIN, Event::Incident(nth));
        }
        self.carry(host);
    }

    /// Packets between this side and its peer may come to another process of their host, which hands
    /// them over, behind later ones.
    fn is_handed_over(&self, side: usize) -> bool {
        let of = |side: usize| self.machines.iter().find(|m| m.sides.contains(&side));
        let (Some(own), Some(peer)) = (of(side), of(side ^ 1)) else {
            return false;
        };
        let shares = own.folder == peer.folder && own.spec.path != HostPath::Off;
        !shares && (own.folder.is_some() || peer.folder.is_some())
    }

    /// A process is dead. Its peers find out.
    pub(super) fn bury(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if std::mem::replace(&mut machine.is_dead, true) {
            return;
        }
        machine.device.kill();
        if let Some(folder) = machine.folder {
            let range = machine.wire.first_range();
            self.folders[folder].shared().set_stopped(range, false);
        }
        for at in 0..self.machines[host].sides.len() {
            let side = self.machines[host].sides[at];
            self.sides[side].die();
            self.sides[side ^ 1].may_end_with(Status::RetryExceeded);
        }
        for at in &self.machines[host].endpoints {
            self.endpoints[*at].die();
        }
        self.note_end();
        if self.machines[host].folder.is_some() {
            self.see_to_others(host);
        }
    }
}

/// The oracle.
impl World {
    pub(super) fn links(&self, of: impl Fn(&LinkCounters) -> u64) -> u64 {
        let links = self.machines.iter();
        links.map(|machine| of(&machine.device.counters().0)).sum()
    }

    /// Between processes that share memory nothing is lost: whoever waits for an ACK in vain was
    /// not woken, or its peer was not.
    pub(super) fn check_memory_paths(&self, scenario: &Scenario) -> Result<(), String> {
        if !self.incidents.is_empty() {
            return Ok(());
        }
        for (at, flow) in scenario.flows.iter().enumerate() {
            let [one, other] = flow.hosts.map(|host| &self.machines[host]);
            let shares = one.folder == other.folder && one.spec.path != HostPath::Off;
            for end in 0..2 {
                let side = &self.sides[2 * at + end];
                // A queue pair in ERR does not answer.
                if !shares || side.has_refusals() {
                    continue;
                }
                if side.counters().timeouts > 0 {
                    let who = side.waits_for();
                    return Err(format!("through memory, an ACK timeout: {who}"));
                }
                // One that is due has its peer's packets looked for first, and then it does not
                // count.
                let limit = LATE + waits_for_receives(scenario, (at, end));
                if let Some(ns) = side.longest().filter(|ns| *ns >= limit) {
                    let who = side.waits_for();
                    return Err(format!("through memory, an operation takes {ns} ns: {who}"));
                }
            }
        }
        Ok(())
    }
}

/// How much longer an operation of that end of a flow may take because programs look late, and post
/// receives late, ns.
fn waits_for_receives(scenario: &Scenario, (at, end): (usize, usize)) -> u64 {
    let flow = &scenario.flows[at];
    if flow.service == Service::Rc {
        return waits_for_own(scenario, (flow, end));
    }
    // A process whose queue pairs all are without acknowledgements takes nothing in while a message
    // waits for a receive, of whichever of its queue pairs.
    let taker = flow.hosts[1 - end];
    let flows = scenario.flows.iter();
    let ends = flows.flat_map(|flow| [(flow, 0), (flow, 1)]);
    let to_taker = ends.filter(|(flow, end)| flow.hosts[1 - end] == taker);
    let endpoints = scenario.endpoints.iter().filter(|e| e.host == taker);
    let datagrams = scenario.endpoints.iter().map(|from| from.datagrams.len());
    let datagrams = datagrams.sum::<usize>() as u64;
    let to_endpoints = endpoints.map(|endpoint| match endpoint.receives {
        0 => HOLD,
        _ => (endpoint.late + 2 * POLL.1) * datagrams,
    });
    let to_flows = to_taker.map(|of| waits_for_own(scenario, of));
    to_flows.chain(to_endpoints).sum()
}

/// The same, because of the receives that its own messages need: those of a queue come back in that
/// time, and what is in front of the operation takes as many rounds as it needs receives. Of UC that
/// is more than is posted: what is in a ring has completed.
fn waits_for_own(scenario: &Scenario, (flow, end): (&Flow, usize)) -> u64 {
    let (late, rounds) = match flow.srqs[1 - end] {
        None => {
            let in_front = match flow.service {
                Service::Rc => flow.depth as usize,
                Service::Uc => flow.directions[end].ops.len(),
            };
            let receives = flow.receives.max(1) as usize;
            (flow.late, in_front.div_ceil(receives) + 1)
        }
        // All that others take may be in front of it.
        Some(srq) => (scenario.srqs[srq].late, scenario.most_to(srq)),
    };
    (late + 2 * POLL.1) * rounds as u64
}
