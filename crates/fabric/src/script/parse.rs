//! From text to a scenario. What makes no sense is refused with its line and a reason.

mod datagrams;

use std::fmt;
use std::net::IpAddr;

use rnic_nic::MwType;
use rnic_wire::PathMtu;

use super::words::{self, Words, no_time, within};
use super::{
    AGAIN, CHANCES, GRANTS, HOST_PATHS, KINDS, LINES, MEASURES, NONE, NUMBERS, OPERATIONS,
    RELATIONS, SERVICES, STATUSES, WINDOW_TYPES,
};
use super::{ends, meaning};
use crate::scenario::{
    Bound, Fate, Flow, Grant, HostSpec, Impairments, Incident, Kind, Marked, Measure, Op, Scenario,
    Service, SharedReceives, What, Window,
};

/// Bytes of a work request at most: what the oracle has different bytes for.
const LARGEST: u64 = 1 << 19;
/// Work requests of a direction at most.
const MOST_OPS: usize = 200_000;
/// Windows of a direction at most.
const MOST_WINDOWS: usize = 64;
/// Bytes that receives of all flows have at most, and READs bring.
const MOST_MEMORY: u64 = 1 << 30;
/// Hosts at most, and flows.
const MOST_HOSTS: usize = 64;
const MOST_FLOWS: usize = 1024;

/// Why a text is no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The reason, in words.
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Error {}

/// The scenario that a script describes.
///
/// # Errors
/// The first line that makes no sense, and why.
pub fn parse(text: &str) -> Result<Scenario, Error> {
    let mut scenario = Scenario::default();
    let (mut flows, mut endpoints) = (Vec::new(), Vec::new());
    let mut last = 0;
    for (line, text) in (1..).zip(text.lines()) {
        last = line;
        let mut words = Words::of(text);
        let Some(first) = words.next() else { continue };
        one(&mut scenario, first, words).map_err(|why| Error { line, why })?;
        flows.resize(scenario.flows.len(), line);
        endpoints.resize(scenario.endpoints.len(), line);
    }
    let refused = |line, why: &str| {
        let why = why.to_owned();
        Err(Error { line, why })
    };
    if scenario.hosts.is_empty() {
        return refused(last.max(1), "the script ends, and has no host");
    }
    let of_flows = scenario.flows.iter().map(memory).zip(flows);
    let of_endpoints = scenario.endpoints.iter().map(|endpoint| {
        let receives = match endpoint.srq {
            Some(srq) => scenario.srqs[srq].receives,
            None => endpoint.receives,
        };
        scenario.receive_room(endpoint) as u64 * u64::from(receives)
    });
    let mut bytes = 0;
    for (more, line) in of_flows.chain(of_endpoints.zip(endpoints)) {
        bytes += more;
        if bytes > MOST_MEMORY {
            return refused(
                line,
                "up to this flow, messages need more memory than 1 GiB",
            );
        }
    }
    Ok(scenario)
}

/// One line, which begins with that word.
fn one(scenario: &mut Scenario, first: &str, mut words: Words<'_>) -> Result<(), String> {
    match first {
        "seed" => {
            scenario.seed = words.number("the seed", (0, u64::MAX))?;
            words.end()
        }
        "network" => network(&mut scenario.impairments, words),
        "host" => {
            let host = host(scenario, words)?;
            scenario.hosts.push(host);
            Ok(())
        }
        "process" => {
            let process = process(scenario, words)?;
            scenario.hosts.push(process);
            Ok(())
        }
        "kill" | "stop" | "dereg" => {
            let incident = incident(scenario, first, words)?;
            scenario.incidents.push(incident);
            Ok(())
        }
        "srq" => {
            let srq = srq(scenario, words)?;
            scenario.srqs.push(srq);
            Ok(())
        }
        "ud" => {
            let endpoint = datagrams::endpoint(scenario, words)?;
            scenario.endpoints.push(endpoint);
            Ok(())
        }
        "flow" => {
            let flow = flow(scenario, words)?;
            scenario.flows.push(flow);
            Ok(())
        }
        "expect" => {
            let bound = bound(words)?;
            scenario.bounds.push(bound);
            Ok(())
        }
        "drop" | "corrupt" | "duplicate" | "delay" => {
            let fate = fate(scenario, first, words)?;
            scenario.fates.push(fate);
            Ok(())
        }
        name => match datagrams::place(scenario, name) {
            Some(at) => datagrams::datagram(scenario, at, words),
            None => op(scenario, name, words),
        },
    }
}

fn network(impairments: &mut Impairments, mut words: Words<'_>) -> Result<(), String> {
    while let Some(word) = words.next() {
        if let Some(chance) = meaning(CHANCES, word) {
            let text = words.need(word)?;
            *chance(impairments) = words::chance(text)
                .ok_or_else(|| format!("{word} is {text:?}, not from 0% to 100%"))?;
            continue;
        }
        match word {
            "delay" => {
                let text = words.need("delay")?;
                let (least, most) = text.split_once("..").unwrap_or((text, text));
                let time = |text| words::time(text).ok_or_else(|| no_time("delay", text));
                impairments.delay = (time(least)?, time(most)?);
                if impairments.delay.0 > impairments.delay.1 {
                    return Err(format!("delay {text}: the most is less than the least"));
                }
            }
            "detour" => impairments.detour = words.time("detour")?,
            "harm" => {
                let most = words.number("harm", (0, u8::MAX.into()))?;
                impairments.harm_per_psn = Some(most as u8);
            }
            other => return Err(format!("the network has no {other:?}")),
        }
    }
    Ok(())
}

/// The name of a host or process that is new.
fn new_host<'a>(scenario: &Scenario, words: &mut Words<'a>) -> Result<&'a str, String> {
    let name = name_of("host", words)?;
    is_new(scenario, name)?;
    if scenario.hosts.len() == MOST_HOSTS {
        return Err(format!("more than {MOST_HOSTS} hosts"));
    }
    Ok(name)
}

fn host(scenario: &Scenario, mut words: Words<'_>) -> Result<HostSpec, String> {
    let name = new_host(scenario, &mut words)?;
    let address = words.need("the host's address")?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is no IP address"))?;
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(format!("{address} is not the address of a host"));
    }
    if scenario.hosts.iter().any(|host| host.address == address) {
        return Err(format!("there is a host {address} already"));
    }
    let mut host = HostSpec::new(name, address);
    if let Some(path) = words.next_if(|word| meaning(HOST_PATHS, word)) {
        host.path = path;
    }
    attributes(host, words)
}

/// Another process of a host.
fn process(scenario: &Scenario, mut words: Words<'_>) -> Result<HostSpec, String> {
    let name = new_host(scenario, &mut words)?;
    let first = &scenario.hosts[place(scenario, &mut words)?];
    let process = HostSpec {
        path: first.path,
        ..HostSpec::new(name, first.address)
    };
    attributes(process, words)
}

fn attributes(mut host: HostSpec, mut words: Words<'_>) -> Result<HostSpec, String> {
    while let Some(word) = words.next() {
        match word {
            "restless" => host.restless = words.time("restless")?,
            "polls" => host.polls = true,
            "takes" => host.takes = words.time("takes")?,
            "wake" => host.wake = words.time("wake")?,
            "buffer" => {
                host.receive_buffer = words.number("buffer", (1, u32::MAX.into()))? as usize;
            }
            "queue" => host.send_queue = words.number("queue", (1, u32::MAX.into()))? as usize,
            other => return Err(format!("a host has no {other:?}")),
        }
    }
    Ok(host)
}

/// The name of a host, an endpoint, or a shared receive queue.
fn name_of<'a>(what: &str, words: &mut Words<'a>) -> Result<&'a str, String> {
    let name = words.need(&format!("the {what}'s name"))?;
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!(
            "a {what}'s name is letters and digits, not {name:?}"
        ));
    }
    if LINES.contains(&name) {
        return Err(format!("{name:?} is no name for a {what}: lines begin so"));
    }
    Ok(name)
}

/// Nothing has that name yet.
fn is_new(scenario: &Scenario, name: &str) -> Result<(), String> {
    let hosts = scenario.hosts.iter().map(|host| &host.name);
    let endpoints = scenario.endpoints.iter().map(|endpoint| &endpoint.name);
    let srqs = scenario.srqs.iter().map(|srq| &srq.name);
    match hosts
        .chain(endpoints)
        .chain(srqs)
        .any(|known| known == name)
    {
        true => Err(format!("something has the name {name} already")),
        false => Ok(()),
    }
}

fn srq(scenario: &Scenario, mut words: Words<'_>) -> Result<SharedReceives, String> {
    if scenario.srqs.len() == MOST_FLOWS {
        return Err(format!("more than {MOST_FLOWS} shared receive queues"));
    }
    let name = name_of("shared receive queue", &mut words)?;
    is_new(scenario, name)?;
    let host = place(scenario, &mut words)?;
    let mut srq = SharedReceives::new(name, host);
    while let Some(word) = words.next() {
        match word {
            "receives" => srq.receives = words.number("receives", (1, 4096))? as u32,
            "late" => srq.late = words.time("late")?,
            "limit" => srq.limit = words.number("limit", (1, 4096))? as u32,
            other => return Err(format!("a shared receive queue has no {other:?}")),
        }
    }
    match srq.limit > srq.receives {
        true => Err(format!(
            "a limit of {}, and {} receives",
            srq.limit, srq.receives
        )),
        false => Ok(srq),
    }
}

/// The place of the shared receive queue that is named next, which is of that host, if one is.
fn srq_of(
    scenario: &Scenario,
    host: usize,
    words: &mut Words<'_>,
) -> Result<Option<usize>, String> {
    let name = words.need("a shared receive queue")?;
    if name == NONE {
        return Ok(None);
    }
    let mut srqs = scenario.srqs.iter();
    let place = srqs.position(|srq| srq.name == name && srq.host == host);
    match place {
        Some(place) => Ok(Some(place)),
        None => Err(format!(
            "host {} has no shared receive queue {name:?}",
            scenario.hosts[host].name
        )),
    }
}

/// The place of the host that is named next.
fn place(scenario: &Scenario, words: &mut Words<'_>) -> Result<usize, String> {
    let name = words.need("a host")?;
    let place = scenario.hosts.iter().position(|host| host.name == name);
    place.ok_or_else(|| format!("there is no host {name:?}"))
}

fn flow(scenario: &Scenario, mut words: Words<'_>) -> Result<Flow, String> {
    if scenario.flows.len() == MOST_FLOWS {
        return Err(format!("more than {MOST_FLOWS} flows"));
    }
    let service = words.one_of("the service", SERVICES)?;
    let hosts = [place(scenario, &mut words)?, place(scenario, &mut words)?];
    let is_ipv4 = hosts.map(|host| scenario.hosts[host].address.is_ipv4());
    if is_ipv4[0] != is_ipv4[1] {
        return Err("one host has an IPv4 address, and the other an IPv6 address".to_owned());
    }
    let mut flow = Flow::new(service, hosts);
    while let Some(word) = words.next() {
        if let Some(number) = NUMBERS.iter().find(|number| number.name == word) {
            (number.set)(&mut flow, words.number(word, number.range)?);
            continue;
        }
        match word {
            "mtu" => {
                let bytes = words.number("mtu", (256, 4096))?;
                let mut all = PathMtu::ALL.into_iter();
                let mtu = all.find(|mtu| mtu.bytes() as u64 == bytes);
                flow.mtu = mtu.ok_or_else(|| format!("there is no path MTU of {bytes} bytes"))?;
            }
            "late" => flow.late = words.time("late")?,
            "psn" => {
                for psn in &mut flow.psns {
                    *psn = words.number("a PSN", (0, 0xff_ffff))? as u32;
                }
            }
            "srq" => {
                for (host, srq) in hosts.into_iter().zip(&mut flow.srqs) {
                    *srq = srq_of(scenario, host, &mut words)?;
                }
            }
            other => return Err(format!("a flow has no {other:?}")),
        }
    }
    Ok(flow)
}

fn op(scenario: &mut Scenario, end: &str, mut words: Words<'_>) -> Result<(), String> {
    let Some(flow) = scenario.flows.last_mut() else {
        return Err(format!("unknown word {end:?}, and there is no flow yet"));
    };
    let hosts = &scenario.hosts;
    let ends = ends(flow.hosts.map(|host| hosts[host].name.as_str()));
    let Some(at) = ends.iter().position(|name| name == end) else {
        let [first, second] = ends;
        return Err(format!(
            "unknown word {end:?}: the ends of this flow are {first} and {second}"
        ));
    };
    if words
        .next_if(|word| (word == "window").then_some(()))
        .is_some()
    {
        let (window, windows) = (window(words)?, &mut flow.directions[at].windows);
        if windows.len() == MOST_WINDOWS {
            return Err(format!("more than {MOST_WINDOWS} windows of {end}"));
        }
        windows.push(window);
        return match flow.service {
            Service::Rc => Ok(()),
            Service::Uc => Err("a window is for RC".to_owned()),
        };
    }
    let windows = flow.directions[at].windows.len();
    let kind = words.one_of("the operation", KINDS)?;
    if flow.service == Service::Uc && (kind == Kind::Read || kind.is_atomic()) {
        return Err("UC has neither READ nor atomics".to_owned());
    }
    let len = match kind {
        _ if kind.is_atomic() => 8,
        Kind::Bind | Kind::Unbind => 0,
        _ => words.number("the length", (0, LARGEST))? as u32,
    };
    let mut op = Op::new(kind, len);
    if kind.is_asked() {
        op.window = Some(window_of(windows, &mut words)?);
    }
    let mut times = 1;
    while let Some(word) = words.next() {
        match word {
            "unsignaled" => op.signaled = false,
            "fence" => op.fence = true,
            "through" if !matches!(kind, Kind::Send | Kind::SendImm) && !kind.is_asked() => {
                op.window = Some(window_of(windows, &mut words)?);
            }
            "after" => op.after = words.time("after")?,
            "times" => times = words.number("times", (1, MOST_OPS as u64))? as usize,
            "->" => op.expect = words.one_of("the status", STATUSES)?,
            other => return Err(format!("an operation has no {other:?}")),
        }
    }
    if kind == Kind::SendInvalidate && op.window.is_none() {
        return Err("send_inv goes through a window, and names none".to_owned());
    }
    let ops = &mut flow.directions[at].ops;
    if ops.len() + times > MOST_OPS {
        return Err(format!("more than {MOST_OPS} operations of {end}"));
    }
    ops.extend(std::iter::repeat_n(op, times));
    Ok(())
}

/// `END window TYPE GRANT [FROM..TO] [zero_based]`
fn window(mut words: Words<'_>) -> Result<Window, String> {
    let mw_type = words.one_of("the window's type", WINDOW_TYPES)?;
    let grant = words.one_of("what it grants", GRANTS)?;
    let range = match grant {
        Grant::Atomic => (0, 0),
        _ => {
            let text = words.need("its range")?;
            let range = text.split_once("..").and_then(|(from, to)| {
                let range = (words::number(from)?, words::number(to)?);
                (range.0 < range.1 && range.1 <= LARGEST).then_some(range)
            });
            let (from, to) = range.ok_or_else(|| format!("{text:?} is no range of a window"))?;
            (from as u32, to as u32)
        }
    };
    let zero_based = words.next_if(|word| (word == "zero_based").then_some(()));
    words.end()?;
    // Only one of type 2 can be (IBTA vol. 1, 10.6.7.2.2).
    match (zero_based, mw_type) {
        (Some(()), MwType::Type1) => Err("a window of type1 is not zero_based".to_owned()),
        _ => Ok(Window {
            mw_type,
            grant,
            range,
            zero_based: zero_based.is_some(),
        }),
    }
}

/// The place of the window that is named next, by its number from 1.
fn window_of(windows: usize, words: &mut Words<'_>) -> Result<u8, String> {
    let number = words.number("the window", (1, windows as u64))?;
    Ok(number as u8 - 1)
}

/// Bytes of memory that a flow takes: its receives, and what its READs bring.
fn memory(flow: &Flow) -> u64 {
    let of = |ops: &Vec<Op>| {
        let room = ops.iter().map(|op| op.len).max().unwrap_or(0).max(64);
        let reads = ops.iter().filter(|op| op.kind == Kind::Read);
        let brought: u64 = reads.map(|op| u64::from(op.len)).sum();
        u64::from(room) * u64::from(flow.receives) + brought
    };
    flow.directions.iter().map(|way| of(&way.ops)).sum()
}

fn fate(scenario: &Scenario, verb: &str, mut words: Words<'_>) -> Result<Marked, String> {
    let from = place(scenario, &mut words)?;
    let to = place(scenario, &mut words)?;
    let operation = words.next_if(|word| meaning(OPERATIONS, word));
    let count = words.next_if(|word| {
        word.starts_with(|c: char| c.is_ascii_digit())
            .then_some(word)
    });
    let nth = match (count, operation) {
        (Some(count), _) => range(count)?,
        (None, Some(_)) => (1, 1),
        (None, None) => return Err("which packet is missing: a number, or what it does".to_owned()),
    };
    let fate = match verb {
        "drop" => Fate::Drop,
        "corrupt" => Fate::Corrupt,
        "delay" => {
            expect(&mut words, "by")?;
            Fate::Delay(words.time("the delay")?)
        }
        _ => match words.next_if(|word| (word == "after").then_some(())) {
            Some(()) => Fate::Duplicate(words.time("the time")?),
            None => Fate::Duplicate(AGAIN),
        },
    };
    words.end()?;
    Ok(Marked {
        from,
        to,
        operation,
        nth,
        fate,
    })
}

fn incident(scenario: &Scenario, verb: &str, mut words: Words<'_>) -> Result<Incident, String> {
    let host = place(scenario, &mut words)?;
    expect(&mut words, "at")?;
    let at = words.time("when")?;
    let what = match verb {
        "kill" => match words.next() {
            None => What::Kill(0),
            Some("copying") => What::KillCopying,
            Some("step") => What::Kill(words.number("the step", (1, u64::MAX))?),
            Some(word) => return Err(format!("{word:?} makes no sense here")),
        },
        "stop" => {
            expect(&mut words, "for")?;
            let time = words.time("how long")?;
            match words.next_if(|word| (word == "copying").then_some(())) {
                Some(()) => What::StopCopying(time),
                None => What::Stop(time),
            }
        }
        _ => What::Deregister,
    };
    words.end()?;
    Ok(Incident { host, at, what })
}

fn expect(words: &mut Words<'_>, what: &str) -> Result<(), String> {
    match words.need(&format!("{what:?}"))? {
        word if word == what => Ok(()),
        word => Err(format!("{word:?} is where {what:?} has to be")),
    }
}

/// `3`, `3..5` with both, or `3..`.
fn range(text: &str) -> Result<(u64, u64), String> {
    let number = |word: &str| {
        let number = words::number(word).ok_or_else(|| format!("{text:?} names no packets"))?;
        within("a packet's number", number, (1, u64::MAX - 1))
    };
    let (first, last) = match text.split_once("..") {
        None => (number(text)?, number(text)?),
        Some((first, "")) => (number(first)?, u64::MAX),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    match first <= last {
        true => Ok((first, last)),
        false => Err(format!("{text:?} names no packets")),
    }
}

fn bound(mut words: Words<'_>) -> Result<Bound, String> {
    let measure = words.one_of("what is expected", MEASURES)?;
    let relation = words.one_of("the relation", RELATIONS)?;
    let value = match measure {
        Measure::Time => words.time("the time")?,
        _ => words.number("the number", (0, u64::MAX))?,
    };
    words.end()?;
    Ok(Bound {
        measure,
        relation,
        value,
    })
}
