//! The lines of UD.

use std::net::IpAddr;

use super::{LARGEST, MOST_FLOWS, MOST_OPS, is_new, name_of, srq_of};
use crate::scenario::{Datagram, Endpoint, Scenario, To};
use crate::script::STATUSES;
use crate::script::words::Words;

/// The place of the endpoint of that name.
pub(super) fn place(scenario: &Scenario, name: &str) -> Option<usize> {
    let mut endpoints = scenario.endpoints.iter();
    endpoints.position(|endpoint| endpoint.name == name)
}

/// `ud NAME HOST ...`
pub(super) fn endpoint(scenario: &Scenario, mut words: Words<'_>) -> Result<Endpoint, String> {
    if scenario.endpoints.len() == MOST_FLOWS {
        return Err(format!("more than {MOST_FLOWS} queue pairs of UD"));
    }
    let name = name_of("queue pair", &mut words)?;
    is_new(scenario, name)?;
    let host = super::place(scenario, &mut words)?;
    let mut endpoint = Endpoint::new(name, host);
    while let Some(word) = words.next() {
        let mut number = |range| words.number(word, range);
        match word {
            "qkey" => endpoint.qkey = number((0, u32::MAX.into()))? as u32,
            "depth" => endpoint.depth = number((1, 4096))? as u32,
            "receives" => endpoint.receives = number((0, 4096))? as u32,
            "room" => endpoint.room = Some(number((1, 1 << 16))? as u32),
            "psn" => endpoint.psn = number((0, 0xff_ffff))? as u32,
            "late" => endpoint.late = words.time("late")?,
            "srq" => endpoint.srq = srq_of(scenario, host, &mut words)?,
            "joins" => {
                let text = words.need("a group")?;
                let group = group(scenario, host, text)?;
                endpoint.groups.push(group);
            }
            other => return Err(format!("a queue pair of UD has no {other:?}")),
        }
    }
    Ok(endpoint)
}

/// A multicast group that a host can send to.
fn group(scenario: &Scenario, host: usize, text: &str) -> Result<IpAddr, String> {
    let address: Option<IpAddr> = text.parse().ok();
    let Some(group) = address.filter(IpAddr::is_multicast) else {
        return Err(format!("{text:?} is no multicast group"));
    };
    match group.is_ipv4() == scenario.hosts[host].address.is_ipv4() {
        true => Ok(group),
        false => Err(format!(
            "{group} is of another family than the address of {}",
            scenario.hosts[host].name
        )),
    }
}

/// `NAME send BYTES to ...`
pub(super) fn datagram(
    scenario: &mut Scenario,
    at: usize,
    mut words: Words<'_>,
) -> Result<(), String> {
    let imm = match words.need("the operation")? {
        "send" => false,
        "send_imm" => true,
        other => return Err(format!("UD has send and send_imm, not {other:?}")),
    };
    let len = words.number("the length", (0, LARGEST))? as u32;
    super::expect(&mut words, "to")?;
    let to = destination(scenario, at, words.need("where it goes")?)?;
    let mut datagram = Datagram {
        imm,
        ..Datagram::new(to, len)
    };
    let mut times = 1;
    while let Some(word) = words.next() {
        match word {
            "qkey" => {
                let qkey = words.number("the Q_Key", (0, u32::MAX.into()))?;
                datagram.qkey = Some(qkey as u32);
            }
            "unsignaled" => datagram.signaled = false,
            "after" => datagram.after = words.time("after")?,
            "times" => times = words.number("times", (1, MOST_OPS as u64))? as usize,
            "->" => datagram.expect = words.one_of("the status", STATUSES)?,
            other => return Err(format!("a datagram has no {other:?}")),
        }
    }
    let endpoint = &mut scenario.endpoints[at];
    if endpoint.datagrams.len() + times > MOST_OPS {
        return Err(format!(
            "more than {MOST_OPS} datagrams of {}",
            endpoint.name
        ));
    }
    let all = std::iter::repeat_n(datagram, times);
    endpoint.datagrams.extend(all);
    Ok(())
}

fn destination(scenario: &Scenario, from: usize, name: &str) -> Result<To, String> {
    let from = &scenario.endpoints[from];
    let Some(to) = place(scenario, name) else {
        return match name.parse::<IpAddr>() {
            Ok(_) => group(scenario, from.host, name).map(To::Group),
            Err(_) => Err(format!("there is no queue pair of UD {name:?}")),
        };
    };
    let hosts = [from.host, scenario.endpoints[to].host];
    let [here, there] = hosts.map(|host| scenario.hosts[host].address.is_ipv4());
    match here == there {
        true => Ok(To::Endpoint(to)),
        false => Err(format!("{name} has an address of another family")),
    }
}
