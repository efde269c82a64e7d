//! What was dropped without a word to the peer, said once for each process and cause.

use super::Report;
use super::record::{Dropped, Ends, Unheard};
use super::story::seconds;
use crate::text::count;

/// A sentence for each process and cause.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut sentences = of_drops(report);
    sentences.extend(of_unheard(report));
    sentences.extend(of_other_services(report));
    sentences.extend(of_requests_in_vain(report));
    sentences
}

/// Packets of another service than the queue pair's.
fn of_other_services(report: &Report) -> impl Iterator<Item = String> {
    let others = report.unheard.iter();
    let others = others.filter(|unheard| unheard.cause == "other service");
    others.take(MOST).map(|unheard| {
        format!(
            "{}: QP {:#x} is of type {}, and dropped what came from {} by another service: both ends need the same qp_type",
            report.process(unheard.process),
            unheard.ends.qpn,
            unheard.state.as_deref().unwrap_or_default(),
            unheard.from
        )
    })
}

/// Packets for queue pairs that were never connected: their senders hear nothing of it. For one that
/// was, they came too early or too late, and were repeated or of no use.
fn of_unheard(report: &Report) -> impl Iterator<Item = String> {
    let early = report.unheard.iter().filter(|unheard| {
        unheard.cause == "not ready" && matches!(unheard.state.as_deref(), Some("RESET" | "INIT"))
    });
    let never = early.filter(|unheard| {
        let of_it = |process: u64, qpn: u32| (process, qpn) == (unheard.process, unheard.ends.qpn);
        let mut connected = report.connected.iter();
        !connected.any(|c| of_it(c.process, c.ends.qpn))
    });
    never.take(MOST).map(|unheard| {
        format!(
            "{}: QP {:#x} took no packet from {}: it was in {}, and was never moved to RTR",
            report.process(unheard.process),
            unheard.ends.qpn,
            unheard.from,
            unheard.state.as_deref().unwrap_or_default()
        )
    })
}

/// Requests for a queue pair that the program had taken back, or never had: their sender repeats
/// them, and is told nothing.
fn of_requests_in_vain(report: &Report) -> impl Iterator<Item = String> {
    let requests = report.unheard.iter().filter(|unheard| unheard.request);
    let told = requests.filter_map(|unheard| {
        let why = why_in_vain(report, unheard)?;
        Some(format!(
            "{}: QP {:#x} took no request from {}: {why}",
            report.process(unheard.process),
            unheard.ends.qpn,
            unheard.from
        ))
    });
    told.take(MOST)
}

fn why_in_vain(report: &Report, unheard: &Unheard) -> Option<String> {
    let of_it = |process: u64, ends: &Ends, ns: u64| {
        (process, ends.qpn) == (unheard.process, unheard.ends.qpn) && ns <= unheard.ns
    };
    let lives = report.connected.iter();
    let lives = lives.filter(|life| of_it(life.process, &life.ends, life.ns));
    let begun = lives.map(|life| life.ns).max();
    let left = report.left.iter();
    let left = left.filter(|left| of_it(left.process, &left.ends, left.ns));
    // ERR, and destroyed after it: from then on nothing was taken.
    let left = left
        .filter(|left| begun.is_none_or(|begun| begun <= left.ns))
        .min_by_key(|left| left.ns);
    if let Some(left) = left {
        let ago = seconds(unheard.ns.saturating_sub(left.ns));
        return match left.how.as_str() {
            "destroyed" => Some(format!("the program had destroyed it, {ago} before")),
            state @ ("RESET" | "ERR") => {
                Some(format!("the program had moved it to {state}, {ago} before"))
            }
            _ => None,
        };
    }
    match unheard.cause.as_str() {
        "unknown qpn" => Some("no queue pair of this process has that number".to_owned()),
        "other address" => {
            let peer = unheard.ends.peer.as_deref()?;
            Some(format!("it is connected with {peer}"))
        }
        _ => None,
    }
}

/// Queue pairs of which that is said.
const MOST: usize = 4;

fn of_drops(report: &Report) -> Vec<String> {
    let mut groups: Vec<(&Dropped, u64, usize)> = Vec::new();
    for dropped in &report.dropped {
        let alike = |(first, ..): &&mut (&Dropped, u64, usize)| {
            (first.process, &first.cause) == (dropped.process, &dropped.cause)
        };
        match groups.iter_mut().find(alike) {
            Some((_, sum, queue_pairs)) => {
                *sum = sum.saturating_add(dropped.count);
                *queue_pairs += 1;
            }
            None => groups.push((dropped, dropped.count, 1)),
        }
    }
    groups
        .into_iter()
        .map(|(first, sum, queue_pairs)| {
            let whose = match queue_pairs {
                1 => format!("QP {:#x}", first.ends.qpn),
                n => format!(
                    "{} (QP {:#x} was the first)",
                    count(n as u64, "queue pair"),
                    first.ends.qpn
                ),
            };
            let process = report.process(first.process);
            format!("{process}: {whose} {}", what(first, sum))
        })
        .collect()
}

/// What the queue pair did with so many messages, and why.
fn what(first: &Dropped, sum: u64) -> String {
    let dropped = |what: &str| format!("dropped {} without a word to the sender", count(sum, what));
    let or = |value: Option<u64>| value.unwrap_or(0);
    match first.cause.as_str() {
        "wrong q_key" => format!(
            "{}: Q_Key {:#x} of QP {:#x} is not the queue pair's, {:#x}",
            dropped("datagram"),
            first.qkey.unwrap_or(0),
            first.src_qpn.unwrap_or(0),
            first.own_qkey.unwrap_or(0)
        ),
        "no receive" => format!(
            "{}: no receive was posted (UD and UC have no RNR NAK: post receives in time, and enough)",
            dropped("message")
        ),
        "too long" => format!(
            "{}: the receive has room for {}, the message is longer: {} or more",
            dropped("message"),
            count(or(first.room), "byte"),
            count(or(first.length), "byte")
        ),
        "access" => format!(
            "{}: access flags, key, range or right of the memory do not allow the RDMA WRITE",
            dropped("message")
        ),
        "incomplete" => format!(
            "{}: packets of it were lost or overtaken on the way, and UC repairs nothing",
            dropped("message")
        ),
        "packet length" => format!(
            "{}: a packet of {} of payload came{}: the sender has another path_mtu",
            dropped("message"),
            count(or(first.length), "byte"),
            match first.path_mtu {
                Some(mtu) => format!(", and path_mtu here is {mtu}"),
                None => String::new(),
            }
        ),
        "start psn" => format!(
            "took no request at all: {} came with another PSN than the first one expected ({:#x} instead of {:#x}). Its rq_psn \
             must be the sq_psn of the peer",
            count(sum, "request"),
            first.psn.unwrap_or(0),
            first.expected_psn.unwrap_or(0)
        ),
        _ => format!("{}: opcode or length out of place", dropped("message")),
    }
}
