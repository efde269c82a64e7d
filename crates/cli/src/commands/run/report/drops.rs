//! What was dropped without a word to the peer, said once for each process and cause.

use super::Report;
use super::partitions::partitions_differ;
use super::record::{Dropped, Ends, Partition, Unheard};
use super::story::seconds;
use crate::text::count;

/// A sentence for each process and cause.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut sentences = of_receivers(report);
    sentences.extend(of_strangers(report));
    sentences.extend(of_other_mtus(report));
    // What failed has the peer's side in its own words.
    if let Some(others) = report
        .others
        .as_deref()
        .filter(|_| report.failures.is_empty())
    {
        let theirs = of_receivers(others);
        sentences.extend(
            theirs
                .into_iter()
                .map(|told| format!("at the peer: {told}")),
        );
    }
    sentences
}

/// What those dropped for which it was.
fn of_receivers(report: &Report) -> Vec<String> {
    let mut sentences = of_drops(report);
    sentences.extend(of_unheard(report));
    sentences.extend(of_other_services(report));
    sentences.extend(of_requests_in_vain(report));
    sentences.extend(of_partitions(report));
    sentences
}

/// Requests of queue pairs that are no peers, as their own runs tell. A packet of RC does not name its
/// sender (IBTA 9.2), so that the queue pair here answers the one that it takes for its peer.
fn of_strangers(report: &Report) -> impl Iterator<Item = String> {
    let failures = report.others.iter().flat_map(|others| &others.failures);
    let told = failures.filter_map(|failure| {
        let own = report.connected_elsewhere(failure)?;
        let (peer, qpn) = (own.ends.peer.as_deref()?, own.ends.peer_qpn?);
        let from = failure.ends.local.as_deref()?;
        Some(format!(
            "{}: QP {:#x} answered no request of {}, {from} QP {:#x}: it is connected with {peer} QP {qpn:#x}, and its answers \
             go there. Compare dest_qp_num and GID as both sides have them",
            report.process(own.process),
            own.ends.qpn,
            report.process(failure.process),
            failure.ends.qpn
        ))
    });
    told.take(MOST)
}

/// READs that were answered here, and whose requesters took none of that for an answer.
fn of_other_mtus(report: &Report) -> impl Iterator<Item = String> {
    let failures = report.others.iter().flat_map(|others| &others.failures);
    let told = failures.filter_map(|failure| {
        let (life, own, theirs) = report.answered_by_other_mtu(failure)?;
        let from = failure.ends.local.as_deref()?;
        Some(format!(
            "{}: QP {:#x} answered an RDMA READ of {}, {from} QP {:#x}, which could not use the answer (status 7): path_mtu \
             is {} here, and {theirs} there. Set the smaller one on both sides (ibv_modify_qp to RTR)",
            report.process(life.process),
            life.ends.qpn,
            report.process(failure.process),
            failure.ends.qpn,
            count(own, "byte")
        ))
    });
    told.take(MOST)
}

/// Packets with the P_Key of another partition, where no failure here is told by it.
fn of_partitions(report: &Report) -> impl Iterator<Item = String> {
    let is_told = |partition: &&Partition| {
        let mut failures = report.failures.iter();
        failures.any(|failure| {
            let same = (partition.process, partition.ends.key());
            same == (failure.process, failure.ends.key())
                || partition.ends.is_opposite(&failure.ends)
        })
    };
    let partitions = report.partitions.iter().filter(move |p| !is_told(p));
    partitions.take(MOST).map(|partition| {
        let from = partition.ends.peer.as_deref();
        format!(
            "{}: QP {:#x} dropped what came{} without a word to the sender: {}",
            report.process(partition.process),
            partition.ends.qpn,
            from.map_or(String::new(), |peer| format!(" from {peer}")),
            partitions_differ(partition.pkey, partition.peer_pkey)
        )
    })
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
/// was, they came too early or too late, and were repeated or of no use; but nobody repeats what UD and
/// UC send.
fn of_unheard(report: &Report) -> impl Iterator<Item = String> {
    let early = report.unheard.iter().filter(|unheard| {
        unheard.cause == "not ready" && matches!(unheard.state.as_deref(), Some("RESET" | "INIT"))
    });
    let told = early.filter_map(|unheard| {
        let lives = report.connected.iter();
        let mut lives =
            lives.filter(|c| (c.process, c.ends.qpn) == (unheard.process, unheard.ends.qpn));
        let then = match lives.next() {
            None => "was never moved to RTR".to_owned(),
            Some(life) if life.qp_type != "RC" && life.ns > unheard.ns => format!(
                "was moved to RTR {} later: what comes before is lost",
                seconds(life.ns - unheard.ns)
            ),
            Some(_) => return None,
        };
        Some(format!(
            "{}: QP {:#x} took no packet from {}: it was in {}, and {then}",
            report.process(unheard.process),
            unheard.ends.qpn,
            unheard.from,
            unheard.state.as_deref().unwrap_or_default()
        ))
    });
    told.take(MOST)
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
        // Another user's, or not of this user's rnic.
        "other process" => Some(format!(
            "it is connected with QP {:#x} there, and they came from a UDP port that is not of the process which has it",
            unheard.ends.peer_qpn?
        )),
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
