//! From a scenario to text. What is as it is without a word is left out.

mod datagrams;

use std::fmt::{self, Write};

use super::{
    AGAIN, CHANCES, GRANTS, HOST_PATHS, KINDS, MEASURES, NONE, NUMBERS, OPERATIONS, RELATIONS,
    SERVICES, STATUSES, UNITS, WINDOW_TYPES,
};
use super::{ends, word};
use crate::scenario::{
    Bound, Fate, Flow, Grant, HostSpec, Impairments, Incident, Marked, Measure, Op, Relation,
    Scenario, SharedReceives, What, Window,
};

/// The scenario as a script.
pub fn print(scenario: &Scenario) -> String {
    scenario.to_string()
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        let network = network(&self.impairments);
        if !network.is_empty() {
            writeln!(f, "network{network}")?;
        }
        for (at, spec) in self.hosts.iter().enumerate() {
            let mut before = self.hosts[..at].iter();
            let first = before.find(|other| other.address == spec.address);
            writeln!(f, "{}", host(spec, first))?;
        }
        for srq in &self.srqs {
            writeln!(f, "{}", srq_line(self, srq))?;
        }
        for endpoint in &self.endpoints {
            writeln!(f, "{}", datagrams::endpoint(self, endpoint))?;
        }
        for endpoint in &self.endpoints {
            for same in endpoint.datagrams.chunk_by(|a, b| a == b) {
                let times = or_nothing(same.len() > 1, || format!(" times {}", same.len()));
                let datagram = datagrams::datagram(self, &same[0]);
                writeln!(f, "  {} {datagram}{times}", endpoint.name)?;
            }
        }
        for flow in &self.flows {
            let names = flow.hosts.map(|host| name(self, host));
            let mut text = flow_line(flow, names);
            if flow.srqs != [None, None] {
                let name = |at: usize| self.srqs.get(at).map_or("?", |srq| &srq.name);
                let [first, second] = flow.srqs.map(|srq| srq.map_or(NONE, name));
                let _ = write!(text, " srq {first} {second}");
            }
            writeln!(f, "{text}")?;
            for (end, direction) in ends(names).iter().zip(&flow.directions) {
                for window in &direction.windows {
                    writeln!(f, "  {end} {}", window_line(window))?;
                }
                // Equal ones in one line.
                for same in direction.ops.chunk_by(|a, b| a == b) {
                    let times = or_nothing(same.len() > 1, || format!(" times {}", same.len()));
                    writeln!(f, "  {end} {}{times}", op(&same[0]))?;
                }
            }
        }
        for marked in &self.fates {
            writeln!(f, "{}", fate(self, marked))?;
        }
        for incident in &self.incidents {
            writeln!(f, "{}", incident_line(self, incident))?;
        }
        for line in &self.bounds {
            writeln!(f, "{}", bound(line))?;
        }
        Ok(())
    }
}

fn or_nothing(is: bool, text: impl FnOnce() -> String) -> String {
    if is { text() } else { String::new() }
}

fn name(scenario: &Scenario, host: usize) -> &str {
    let host = scenario.hosts.get(host);
    host.map_or("?", |host| &host.name)
}

/// In the largest unit that it is a whole number of.
fn time(ns: u64) -> String {
    let mut units = UNITS.iter();
    let unit = units.find(|(_, length)| ns != 0 && ns.is_multiple_of(*length));
    let (unit, length) = unit.unwrap_or(&("ns", 1));
    format!("{}{unit}", ns / length)
}

/// As percent. The digits are those that read as the same number again, two places further on.
fn percent(chance: f64) -> String {
    let digits = chance.to_string();
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
    let part = format!("{part:0<2}");
    let (more, rest) = part.split_at(2);
    let whole = format!("{whole}{more}");
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let rest = or_nothing(!rest.is_empty(), || format!(".{rest}"));
    format!("{whole}{rest}%")
}

fn network(impairments: &Impairments) -> String {
    let usual = Impairments::default();
    let mut is = impairments.clone();
    let mut text = String::new();
    if is.delay != usual.delay {
        let (least, most) = is.delay;
        let most = or_nothing(most != least, || format!("..{}", time(most)));
        let _ = write!(text, " delay {}{most}", time(least));
    }
    for (name, chance) in CHANCES {
        let chance = *chance(&mut is);
        if chance != 0.0 {
            let _ = write!(text, " {name} {}", percent(chance));
        }
    }
    if is.detour != usual.detour {
        let _ = write!(text, " detour {}", time(is.detour));
    }
    if let Some(most) = is.harm_per_psn {
        let _ = write!(text, " harm {most}");
    }
    text
}

/// `first`: the first process of its host, if that is another one.
fn host(spec: &HostSpec, first: Option<&HostSpec>) -> String {
    let HostSpec {
        name,
        address,
        polls,
        wake,
        takes,
        receive_buffer,
        send_queue,
        path,
        restless,
    } = spec;
    let usual = HostSpec::new(name, *address);
    let polls = if *polls { " polls" } else { "" };
    let wake = or_nothing(*wake != 0, || format!(" wake {}", time(*wake)));
    let takes = or_nothing(*takes != 0, || format!(" takes {}", time(*takes)));
    let buffer = or_nothing(*receive_buffer != usual.receive_buffer, || {
        format!(" buffer {receive_buffer}")
    });
    let queue = or_nothing(*send_queue != usual.send_queue, || {
        format!(" queue {send_queue}")
    });
    let restless = or_nothing(*restless != 0, || format!(" restless {}", time(*restless)));
    let rest = format!("{polls}{wake}{takes}{buffer}{queue}{restless}");
    if let Some(first) = first {
        return format!("process {name} {}{rest}", first.name);
    }
    let path = or_nothing(*path != usual.path, || {
        format!(" {}", word(HOST_PATHS, path))
    });
    format!("host {name} {address}{path}{rest}")
}

fn flow_line(flow: &Flow, [first, second]: [&str; 2]) -> String {
    let usual = Flow::new(flow.service, flow.hosts);
    let service = word(SERVICES, &flow.service);
    let mut text = format!("flow {service} {first} {second}");
    if flow.mtu != usual.mtu {
        let _ = write!(text, " mtu {}", flow.mtu.bytes());
    }
    for number in NUMBERS {
        let is = (number.get)(flow);
        if is != (number.get)(&usual) {
            let _ = write!(text, " {} {is}", number.name);
        }
    }
    if flow.late != usual.late {
        let _ = write!(text, " late {}", time(flow.late));
    }
    if flow.psns != usual.psns {
        let [first, second] = flow.psns;
        let _ = write!(text, " psn {first} {second}");
    }
    text
}

fn srq_line(scenario: &Scenario, srq: &SharedReceives) -> String {
    let host = name(scenario, srq.host);
    let usual = SharedReceives::new(&srq.name, srq.host);
    let receives = or_nothing(srq.receives != usual.receives, || {
        format!(" receives {}", srq.receives)
    });
    let late = or_nothing(srq.late != 0, || format!(" late {}", time(srq.late)));
    let limit = or_nothing(srq.limit != 0, || format!(" limit {}", srq.limit));
    format!("srq {} {host}{receives}{late}{limit}", srq.name)
}

fn window_line(window: &Window) -> String {
    let mw_type = word(WINDOW_TYPES, &window.mw_type);
    let grant = word(GRANTS, &window.grant);
    let range = or_nothing(window.grant != Grant::Atomic, || {
        format!(" {}..{}", window.range.0, window.range.1)
    });
    let zero_based = if window.zero_based { " zero_based" } else { "" };
    format!("window {mw_type} {grant}{range}{zero_based}")
}

fn op(op: &Op) -> String {
    let window = op
        .window
        .map_or(String::new(), |window| match op.kind.is_asked() {
            true => format!(" {}", window + 1),
            false => format!(" through {}", window + 1),
        });
    let has_len = !op.kind.is_atomic() && !op.kind.is_asked();
    let len = or_nothing(has_len, || format!(" {}", op.len));
    let unsignaled = if op.signaled { "" } else { " unsignaled" };
    let fence = if op.fence { " fence" } else { "" };
    let after = or_nothing(op.after != 0, || format!(" after {}", time(op.after)));
    let status = word(STATUSES, &op.expect);
    let status = or_nothing(status != "success", || format!(" -> {status}"));
    let kind = word(KINDS, &op.kind);
    format!("{kind}{len}{window}{unsignaled}{fence}{after}{status}")
}

/// What becomes of packets, as a line.
pub(crate) fn fate(scenario: &Scenario, marked: &Marked) -> String {
    let (verb, time) = match marked.fate {
        Fate::Drop => ("drop", String::new()),
        Fate::Corrupt => ("corrupt", String::new()),
        Fate::Duplicate(AGAIN) => ("duplicate", String::new()),
        Fate::Duplicate(ns) => ("duplicate", format!(" after {}", time(ns))),
        Fate::Delay(ns) => ("delay", format!(" by {}", time(ns))),
    };
    let (from, to) = (name(scenario, marked.from), name(scenario, marked.to));
    let operation = marked.operation.map(|is| word(OPERATIONS, &is));
    let space = if operation.is_some() { " " } else { "" };
    let operation = operation.unwrap_or_default();
    let nth = match marked.nth {
        (1, 1) if marked.operation.is_some() => String::new(),
        (first, u64::MAX) => format!(" {first}.."),
        (first, last) if first == last => format!(" {first}"),
        (first, last) => format!(" {first}..{last}"),
    };
    format!("{verb} {from} {to}{space}{operation}{nth}{time}")
}

/// What happens to a process, as a line.
fn incident_line(scenario: &Scenario, incident: &Incident) -> String {
    let (name, at) = (name(scenario, incident.host), time(incident.at));
    match incident.what {
        What::Kill(0) => format!("kill {name} at {at}"),
        What::Kill(step) => format!("kill {name} at {at} step {step}"),
        What::KillCopying => format!("kill {name} at {at} copying"),
        What::Stop(ns) => format!("stop {name} at {at} for {}", time(ns)),
        What::StopCopying(ns) => format!("stop {name} at {at} for {} copying", time(ns)),
        What::Deregister => format!("dereg {name} at {at}"),
    }
}

/// What must hold at the end, as a line.
pub(crate) fn bound(bound: &Bound) -> String {
    let Bound {
        measure,
        relation,
        value,
    } = bound;
    let value = match measure {
        Measure::Time => time(*value),
        _ => value.to_string(),
    };
    let relation = word::<Relation>(RELATIONS, relation);
    format!("expect {} {relation} {value}", word(MEASURES, measure))
}
