//! The smallest scenario that still fails in the same way.
//!
//! Parts are taken away, halves first, and what is left is made plain: numbers become what they are
//! without a word in a script, or half as large. Each candidate is played, and kept if it fails as
//! the first one did. When little random harm is left, it becomes a list of fates, which does
//! exactly the same ([`Outcome::harm`]), and of which parts can be taken away as well.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rnic_nic::HostPath;

use crate::scenario::{
    Datagram, Direction, Endpoint, Fate, Flow, HostSpec, Impairments, Kind, Marked, Op, Scenario,
    To,
};
use crate::world::{Outcome, run};

/// Packets of all candidates together: one that goes round in a circle has millions.
const MOST_PACKETS: u64 = 100_000_000;
/// Random harm becomes a list if it is no longer.
const MOST_FATES: usize = 1000;

/// Takes from a scenario that fails whatever it does not need to fail in the same way, and plays
/// `budget` candidates at most. Gives what is left, and how many were played. A scenario that does
/// not fail stays what it is.
pub fn shrink(scenario: &Scenario, budget: usize) -> (Scenario, usize) {
    let Some((kind, _)) = fails(scenario) else {
        return (scenario.clone(), 1);
    };
    let mut search = Search {
        best: scenario.clone(),
        kind,
        played: 1,
        budget,
        packets: 0,
    };
    loop {
        let before = search.best.clone();
        search.flows();
        search.ops();
        search.harm();
        search.plain();
        if search.best == before || search.is_spent() {
            break;
        }
    }
    (search.best, search.played)
}

/// In which way a scenario fails, if it does.
fn fails(scenario: &Scenario) -> Option<(String, Option<Outcome>)> {
    let played = catch_unwind(AssertUnwindSafe(|| run(scenario)));
    match played {
        Ok(outcome) => {
            let what = &outcome.failure.as_ref()?.what;
            Some((kind(what), Some(outcome)))
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some((format!("panic: {}", kind(text.unwrap_or("?"))), None))
        }
    }
}

/// The text without its numbers, and of a standstill without those who wait.
fn kind(what: &str) -> String {
    let what = match what.split_once(": ") {
        Some((waits @ "everybody waits", _)) => waits,
        _ => what,
    };
    what.chars().filter(|c| !c.is_ascii_digit()).collect()
}

struct Search {
    /// The smallest so far.
    best: Scenario,
    kind: String,
    played: usize,
    budget: usize,
    /// Of all candidates so far.
    packets: u64,
}

impl Search {
    fn is_spent(&self) -> bool {
        self.played >= self.budget || self.packets >= MOST_PACKETS
    }

    /// Plays the best one after a change, and keeps that if it still fails.
    fn try_with(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        if candidate == self.best || self.is_spent() {
            return false;
        }
        self.played += 1;
        let failed = fails(&candidate);
        if let Some((_, Some(outcome))) = &failed {
            let by_memory = outcome.links.iter().map(|link| link.tx_host_packets);
            self.packets += outcome.network.sent + by_memory.sum::<u64>();
        }
        let same = failed.is_some_and(|(kind, _)| kind == self.kind);
        if same {
            self.best = candidate;
        }
        same
    }

    /// Takes parts of a list away: all, halves, quarters, ..., single ones, from its end.
    fn fewer<T>(&mut self, list: impl Fn(&mut Scenario) -> &mut Vec<T>) {
        let mut chunk = list(&mut self.best).len();
        while chunk > 0 {
            let mut end = list(&mut self.best).len();
            while end > 0 {
                let begin = end.saturating_sub(chunk);
                let taken = self.try_with(|candidate| drop(list(candidate).drain(begin..end)));
                // Packets before a fate may have gone with it: it moves to an earlier one.
                let may_move = !taken && !self.best.fates.is_empty() && self.best.fates.len() < 4;
                let _found = (1..=2).filter(|_| may_move).any(|by| {
                    self.try_with(|candidate| {
                        drop(list(candidate).drain(begin..end));
                        candidate
                            .fates
                            .iter_mut()
                            .for_each(|marked| move_up(marked, by));
                    })
                });
                end = begin;
            }
            chunk /= 2;
        }
    }

    fn flows(&mut self) {
        self.fewer(|scenario| &mut scenario.flows);
        for at in (0..self.best.endpoints.len()).rev() {
            self.try_with(|candidate| without_endpoint(candidate, at));
        }
        for at in (0..self.best.srqs.len()).rev() {
            self.try_with(|candidate| without_srq(candidate, at));
        }
        for host in (0..self.best.hosts.len()).rev() {
            let mut flows = self.best.flows.iter();
            let mut fates = self.best.fates.iter();
            let mut endpoints = self.best.endpoints.iter();
            let mut srqs = self.best.srqs.iter();
            let mut incidents = self.best.incidents.iter();
            let is_used = flows.any(|flow| flow.hosts.contains(&host))
                || endpoints.any(|endpoint| endpoint.host == host)
                || srqs.any(|srq| srq.host == host)
                || incidents.any(|incident| incident.host == host)
                || fates.any(|marked| [marked.from, marked.to].contains(&host));
            // A scenario without a host is none.
            if !is_used && self.best.hosts.len() > 1 {
                self.try_with(|candidate| without_host(candidate, host));
            }
        }
    }

    fn ops(&mut self) {
        for flow in 0..self.best.flows.len() {
            for end in 0..2 {
                self.try_with(|scenario| {
                    let direction = &mut scenario.flows[flow].directions[end];
                    direction.without_windows();
                });
                self.fewer(|scenario| &mut scenario.flows[flow].directions[end].ops);
            }
        }
        for at in 0..self.best.endpoints.len() {
            self.fewer(|scenario| &mut scenario.endpoints[at].datagrams);
            self.fewer(|scenario| &mut scenario.endpoints[at].groups);
        }
    }

    fn harm(&mut self) {
        self.fewer(|scenario| &mut scenario.bounds);
        self.fewer(|scenario| &mut scenario.incidents);
        self.try_with(|candidate| {
            candidate.impairments = Impairments::default();
            candidate.fates.clear();
        });
        self.try_with(|candidate| candidate.impairments.corrupt = 0.0);
        self.try_with(|candidate| candidate.impairments.duplicate = 0.0);
        self.try_with(|candidate| candidate.impairments.reorder = 0.0);
        self.try_with(|candidate| candidate.impairments.loss = 0.0);
        self.explicit();
        self.fewer(|scenario| &mut scenario.fates);
        let usual = Impairments::default();
        self.try_with(|candidate| candidate.impairments.delay = usual.delay);
        self.try_with(|candidate| candidate.impairments.delay.1 = candidate.impairments.delay.0);
        self.try_with(|candidate| candidate.impairments.detour = usual.detour);
        self.try_with(|candidate| candidate.impairments.harm_per_psn = None);
        for at in 0..self.best.fates.len() {
            self.try_with(|candidate| candidate.fates[at].fate = Fate::Drop);
            self.halve(0, |candidate| match &mut candidate.fates[at].fate {
                Fate::Delay(ns) | Fate::Duplicate(ns) => Some(ns),
                Fate::Drop | Fate::Corrupt => None,
            });
        }
    }

    /// Random harm becomes fates.
    fn explicit(&mut self) {
        let Impairments {
            loss,
            corrupt,
            duplicate,
            reorder,
            ..
        } = self.best.impairments;
        if [loss, corrupt, duplicate, reorder] == [0.0; 4] {
            return;
        }
        // A panic does not tell what was harmed.
        let Some((_, Some(outcome))) = fails(&self.best) else {
            return;
        };
        if outcome.harm.len() <= MOST_FATES {
            self.try_with(|candidate| *candidate = candidate.made_explicit(&outcome));
        }
    }

    /// Halves a number as long as that fails, and not below the least.
    fn halve(&mut self, least: u64, number: impl Fn(&mut Scenario) -> Option<&mut u64>) {
        loop {
            let smaller = self.try_with(|candidate| {
                if let Some(number) = number(candidate) {
                    *number = (*number / 2).max(least);
                }
            });
            if !smaller {
                return;
            }
        }
    }

    /// What is left becomes plain.
    fn plain(&mut self) {
        self.try_with(|candidate| {
            each_op(candidate, |op| {
                (op.after, op.signaled, op.fence) = (0, true, false)
            });
        });
        while self.try_with(|candidate| each_op(candidate, |op| op.len = shorter(op))) {}
        for at in 0..self.best.endpoints.len() {
            self.plain_endpoint(at);
        }
        for at in 0..self.best.srqs.len() {
            self.try_with(|candidate| candidate.srqs[at].limit = 0);
            self.try_with(|candidate| candidate.srqs[at].late = 0);
            while self.try_with(|candidate| {
                let srq = &mut candidate.srqs[at];
                halved(&mut srq.receives);
                srq.limit = srq.limit.min(srq.receives);
            }) {}
        }
        for host in 0..self.best.hosts.len() {
            self.try_with(|candidate| candidate.hosts[host].polls = false);
            self.try_with(|candidate| candidate.hosts[host].wake = 0);
            self.halve(0, |candidate| Some(&mut candidate.hosts[host].wake));
            self.try_with(|candidate| candidate.hosts[host].takes = 0);
            self.try_with(|candidate| candidate.hosts[host].send_queue = usize::MAX);
            self.try_with(|candidate| candidate.hosts[host].restless = 0);
            // All processes of a host reach each other in one way.
            self.try_with(|candidate| with_path(candidate, host, HostPath::Off));
            self.try_with(|candidate| with_path(candidate, host, HostPath::Rings));
            let spec = &self.best.hosts[host];
            let usual = HostSpec::new(&spec.name, spec.address).receive_buffer;
            self.try_with(|candidate| candidate.hosts[host].receive_buffer = usual);
        }
        for flow in 0..self.best.flows.len() {
            self.plain_flow(flow);
            for end in 0..2 {
                for op in 0..self.best.flows[flow].directions[end].ops.len() {
                    self.plain_op(|scenario| &mut scenario.flows[flow].directions[end].ops[op]);
                }
            }
        }
    }

    fn plain_endpoint(&mut self, at: usize) {
        let endpoint = &self.best.endpoints[at];
        let usual = Endpoint::new(&endpoint.name, endpoint.host);
        self.try_with(|candidate| {
            let endpoint = &mut candidate.endpoints[at];
            *endpoint = Endpoint {
                groups: std::mem::take(&mut endpoint.groups),
                datagrams: std::mem::take(&mut endpoint.datagrams),
                ..usual.clone()
            };
        });
        self.try_with(|candidate| candidate.endpoints[at].srq = None);
        self.try_with(|candidate| candidate.endpoints[at].depth = usual.depth);
        self.try_with(|candidate| candidate.endpoints[at].receives = usual.receives);
        self.try_with(|candidate| candidate.endpoints[at].qkey = usual.qkey);
        self.try_with(|candidate| candidate.endpoints[at].psn = 0);
        self.try_with(|candidate| candidate.endpoints[at].late = 0);
        self.halve(0, |candidate| Some(&mut candidate.endpoints[at].late));
        for nth in 0..self.best.endpoints[at].datagrams.len() {
            let plain = |change: fn(&mut Datagram)| {
                move |candidate: &mut Scenario| change(&mut candidate.endpoints[at].datagrams[nth])
            };
            self.try_with(plain(|datagram| datagram.after = 0));
            self.try_with(plain(|datagram| datagram.signaled = true));
            self.try_with(plain(|datagram| datagram.imm = false));
            self.try_with(plain(|datagram| datagram.qkey = None));
            self.try_with(plain(|datagram| datagram.len = 0));
            while self.try_with(plain(|datagram| datagram.len /= 2)) {}
        }
    }

    fn plain_flow(&mut self, at: usize) {
        let flow = &self.best.flows[at];
        let usual = Flow::new(flow.service, flow.hosts);
        self.try_with(|candidate| {
            let flow = &mut candidate.flows[at];
            let directions: [Direction; 2] = std::mem::take(&mut flow.directions);
            *flow = Flow {
                directions,
                ..usual.clone()
            };
        });
        self.try_with(|candidate| candidate.flows[at].depth = usual.depth);
        self.try_with(|candidate| candidate.flows[at].receives = usual.receives);
        self.try_with(|candidate| candidate.flows[at].late = 0);
        self.try_with(|candidate| candidate.flows[at].timeout = usual.timeout);
        self.try_with(|candidate| candidate.flows[at].mtu = usual.mtu);
        self.try_with(|candidate| candidate.flows[at].psns = [0, 0]);
        for end in 0..2 {
            self.try_with(|candidate| candidate.flows[at].srqs[end] = None);
        }
        self.halve(0, |candidate| Some(&mut candidate.flows[at].late));
        // What is not usual has a word in the script, and is as small as it can be.
        if self.best.flows[at].depth != usual.depth {
            while self.try_with(|candidate| halved(&mut candidate.flows[at].depth)) {}
        }
        if self.best.flows[at].receives != usual.receives {
            while self.try_with(|candidate| halved(&mut candidate.flows[at].receives)) {}
        }
    }

    fn plain_op(&mut self, op: impl Fn(&mut Scenario) -> &mut Op) {
        self.try_with(|candidate| op(candidate).signaled = true);
        self.try_with(|candidate| op(candidate).fence = false);
        self.try_with(|candidate| op(candidate).after = 0);
        self.halve(0, |candidate| Some(&mut op(candidate).after));
        self.try_with(|candidate| {
            let op = op(candidate);
            op.len = if op.kind.is_atomic() { op.len } else { 0 };
        });
        while self.try_with(|candidate| op(candidate).len = shorter(op(candidate))) {}
    }
}

fn move_up(marked: &mut Marked, by: u64) {
    let (first, last) = marked.nth;
    if first > by && last != u64::MAX {
        marked.nth = (first - by, last - by);
    }
}

fn halved(number: &mut u32) {
    *number = (*number / 2).max(1);
}

fn shorter(op: &Op) -> u32 {
    match op.kind.is_atomic() {
        true => op.len,
        false => op.len / 2,
    }
}

fn each_op(scenario: &mut Scenario, mut change: impl FnMut(&mut Op)) {
    for flow in &mut scenario.flows {
        for direction in &mut flow.directions {
            direction.ops.iter_mut().for_each(&mut change);
        }
    }
}

fn with_path(scenario: &mut Scenario, host: usize, path: HostPath) {
    let address = scenario.hosts[host].address;
    let its = scenario.hosts.iter_mut();
    its.filter(|other| other.address == address && other.path != HostPath::Off)
        .for_each(|other| other.path = path);
}

impl Direction {
    /// What goes through windows goes directly, and nothing else is done with them.
    fn without_windows(&mut self) {
        self.windows.clear();
        let is_about_one = |op: &Op| op.kind.is_asked() || op.kind == Kind::SendInvalidate;
        self.ops.retain(|op| !is_about_one(op));
        self.ops.iter_mut().for_each(|op| op.window = None);
    }
}

/// Without a queue pair of UD, and without what is sent to it.
fn without_endpoint(scenario: &mut Scenario, gone: usize) {
    scenario.endpoints.remove(gone);
    for endpoint in &mut scenario.endpoints {
        let datagrams = &mut endpoint.datagrams;
        datagrams.retain(|datagram| datagram.to != To::Endpoint(gone));
        for datagram in datagrams {
            if let To::Endpoint(to) = &mut datagram.to {
                *to -= usize::from(*to > gone);
            }
        }
    }
}

/// Without a shared receive queue: its queue pairs have receives of their own.
fn without_srq(scenario: &mut Scenario, gone: usize) {
    scenario.srqs.remove(gone);
    let of_flows = scenario.flows.iter_mut().flat_map(|flow| &mut flow.srqs);
    let of_endpoints = scenario
        .endpoints
        .iter_mut()
        .map(|endpoint| &mut endpoint.srq);
    for srq in of_flows.chain(of_endpoints) {
        *srq = srq.filter(|at| *at != gone);
        *srq = srq.map(|at| at - usize::from(at > gone));
    }
}

/// Those behind a host that is gone move up.
fn without_host(scenario: &mut Scenario, gone: usize) {
    scenario.hosts.remove(gone);
    let move_up = |host: &mut usize| *host -= usize::from(*host > gone);
    for endpoint in &mut scenario.endpoints {
        move_up(&mut endpoint.host);
    }
    for srq in &mut scenario.srqs {
        move_up(&mut srq.host);
    }
    for flow in &mut scenario.flows {
        flow.hosts.iter_mut().for_each(move_up);
    }
    for marked in &mut scenario.fates {
        move_up(&mut marked.from);
        move_up(&mut marked.to);
    }
    for incident in &mut scenario.incidents {
        move_up(&mut incident.host);
    }
}

impl Scenario {
    /// The same without chance: what the network did to packets at random when this one was played,
    /// it does as fates. It is played in the same way.
    pub fn made_explicit(&self, outcome: &Outcome) -> Scenario {
        let impairments = Impairments {
            loss: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            ..self.impairments.clone()
        };
        let fates = self.fates.iter().chain(&outcome.harm).copied().collect();
        Scenario {
            impairments,
            fates,
            ..self.clone()
        }
    }
}
