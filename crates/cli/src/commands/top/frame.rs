//! Two looks at all processes, and what happened between them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use rnic::monitor::{Latency, Look, Path, QueuePairLook};
use rnic::{ByOperation, Counters};
use serde::Serialize;

/// What happened in each second between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Messages that were requested here and are done: SENDs, WRITEs, READs, atomics.
    pub messages_requested: f64,
    /// Messages of peers that were served here.
    pub messages_served: f64,
    /// Payload that left: of SENDs and WRITEs here, and of READs of peers.
    pub bytes_out: f64,
    /// Payload that came in.
    pub bytes_in: f64,
    /// Packets that were sent again.
    pub retransmissions: f64,
    /// RNR NAKs, sent and received: a receive was missing.
    pub rnr_naks: f64,
    /// Messages of UC and UD that were dropped.
    pub drops: f64,
}

/// What a process says of itself may be anything.
fn sum(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

impl Rates {
    fn between(then: &Counters, now: &Counters, time: Duration) -> Rates {
        let seconds = time.as_secs_f64();
        // A number may be another queue pair's by now.
        let of = |count: &dyn Fn(&Counters) -> u64| {
            count(now).saturating_sub(count(then)) as f64 / seconds
        };
        Rates {
            messages_requested: of(&|c| c.requested.total().messages),
            messages_served: of(&|c| c.served.total().messages),
            bytes_out: of(&|c| {
                let (requested, served) = (c.requested, c.served);
                sum(&[
                    requested.send.bytes,
                    requested.write.bytes,
                    served.read.bytes,
                ])
            }),
            bytes_in: of(&|c| {
                let (requested, served) = (c.requested, c.served);
                sum(&[served.send.bytes, served.write.bytes, requested.read.bytes])
            }),
            retransmissions: of(&|c| c.retransmitted_packets),
            rnr_naks: of(&|c| sum(&[c.rnr_naks_sent, c.rnr_naks_received])),
            drops: of(&|c| c.messages_dropped),
        }
    }

    /// What the peer's device executed in memory of this process by itself, which it is not told
    /// of.
    fn executed_by_peer(then: &Counters, now: &Counters, time: Duration) -> Rates {
        let seconds = time.as_secs_f64();
        let of = |count: &dyn Fn(&ByOperation) -> u64| {
            let (then, now) = (count(&then.without_packets), count(&now.without_packets));
            now.saturating_sub(then) as f64 / seconds
        };
        Rates {
            messages_served: of(&|by| by.total().messages),
            bytes_in: of(&|by| by.write.bytes),
            bytes_out: of(&|by| by.read.bytes),
            ..Rates::default()
        }
    }

    fn add(&mut self, other: &Rates) {
        self.messages_requested += other.messages_requested;
        self.messages_served += other.messages_served;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.retransmissions += other.retransmissions;
        self.rnr_naks += other.rnr_naks;
        self.drops += other.drops;
    }
}

/// How long requests took from post to completion, of those of the time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// How many were measured.
    pub count: u64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
}

impl Latencies {
    fn of(latency: &Latency) -> Latencies {
        let us = |share| latency.quantile(share).map(|ns| ns as f64 / 1000.0);
        Latencies {
            count: latency.count(),
            p50_us: us(0.5),
            p99_us: us(0.99),
        }
    }
}

/// What a path is called; `None`: there is none.
pub fn path_name(path: Path) -> Option<&'static str> {
    match path {
        Path::Memory => Some("memory"),
        Path::Host => Some("host"),
        Path::Network => Some("network"),
        _ => None,
    }
}

/// A queue pair.
#[derive(Clone, Debug, Serialize)]
pub struct QueuePair {
    pub pid: u32,
    pub program: String,
    pub qpn: u32,
    pub service: &'static str,
    pub state: String,
    /// `memory`, `host` (over UDP), `network` (over UDP), or null: it is not connected.
    pub path: Option<&'static str>,
    pub local: Option<IpAddr>,
    pub peer: Option<IpAddr>,
    pub peer_qpn: Option<u32>,
    /// The process of the peer, if it is one of this user on this host.
    pub peer_pid: Option<u32>,
    pub sends_outstanding: u32,
    pub receives_posted: Option<u32>,
    pub rates: Rates,
    pub latency: Latencies,
}

/// A process, with all its queue pairs together.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    pub pid: u32,
    pub program: String,
    pub queue_pairs: usize,
    pub sends_outstanding: u64,
    pub rates: Rates,
    pub latency: Latencies,
}

/// Who talks to whom: all queue pairs of a process with one peer.
#[derive(Clone, Debug, Serialize)]
pub struct Talk {
    pub pid: u32,
    pub program: String,
    /// The peer's process, if it is one of this user on this host.
    pub peer_pid: Option<u32>,
    pub peer_program: Option<String>,
    pub peer: Option<IpAddr>,
    pub queue_pairs: usize,
    /// As the first process counts.
    pub rates: Rates,
}

/// All that is shown at a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Frame {
    /// Of the format that docs/json.md describes. Fields may be added to it.
    pub version: u32,
    /// Between the two looks, s.
    pub seconds: f64,
    /// The busiest first.
    pub processes: Vec<Process>,
    pub queue_pairs: Vec<QueuePair>,
    pub talks: Vec<Talk>,
    /// Processes that did not answer.
    pub silent: Vec<u32>,
}

impl Frame {
    /// What happened from `then` to `now`. `program` knows the names of processes.
    pub fn between(
        then: &Look,
        now: &Look,
        time: Duration,
        program: &dyn Fn(u32) -> String,
    ) -> Frame {
        let known: HashMap<(u32, u32), &QueuePairLook> = then
            .queue_pairs
            .iter()
            .map(|qp| ((qp.pid, qp.qpn), qp))
            .collect();
        let looks: HashMap<u32, &QueuePairLook> =
            now.queue_pairs.iter().map(|qp| (qp.qpn, qp)).collect();
        let mut names = HashMap::new();
        let mut name_of = |pid| names.entry(pid).or_insert_with(|| program(pid)).clone();
        let mut processes: BTreeMap<u32, (Process, Latency)> = BTreeMap::new();
        let mut talks: BTreeMap<(u32, Option<u32>, Option<IpAddr>), Talk> = BTreeMap::new();
        let mut queue_pairs = Vec::new();
        for qp in &now.queue_pairs {
            let earlier = known.get(&(qp.pid, qp.qpn));
            let (mut rates, latency) = match earlier {
                Some(earlier) => (
                    Rates::between(&earlier.counters, &qp.counters, time),
                    qp.latency.since(&earlier.latency),
                ),
                // It is new: when its messages came is not known.
                None => (Rates::default(), Latency::default()),
            };
            let here = matches!(qp.path, Path::Memory | Path::Host);
            let peer = qp.peer_qpn.filter(|_| here).and_then(|qpn| looks.get(&qpn));
            let peer_pid = peer.map(|peer| peer.pid);
            if let Some(peer) = peer.filter(|peer| peer.peer_qpn == Some(qp.qpn))
                && let Some(earlier) = known.get(&(peer.pid, peer.qpn))
            {
                let (then, now) = (&earlier.counters, &peer.counters);
                rates.add(&Rates::executed_by_peer(then, now, time));
            }
            let program = name_of(qp.pid);
            let (process, all) = processes.entry(qp.pid).or_insert_with(|| {
                let process = Process {
                    pid: qp.pid,
                    program: program.clone(),
                    queue_pairs: 0,
                    sends_outstanding: 0,
                    rates: Rates::default(),
                    latency: Latencies::default(),
                };
                (process, Latency::default())
            });
            process.queue_pairs += 1;
            process.sends_outstanding += u64::from(qp.sends_outstanding);
            process.rates.add(&rates);
            all.add(&latency);
            if qp.path != Path::None {
                let talk = talks
                    .entry((qp.pid, peer_pid, qp.peer))
                    .or_insert_with(|| Talk {
                        pid: qp.pid,
                        program: program.clone(),
                        peer_pid,
                        peer_program: peer_pid.map(&mut name_of),
                        peer: qp.peer,
                        queue_pairs: 0,
                        rates: Rates::default(),
                    });
                talk.queue_pairs += 1;
                talk.rates.add(&rates);
            }
            queue_pairs.push(QueuePair {
                pid: qp.pid,
                program,
                qpn: qp.qpn,
                service: qp.service,
                state: format!("{:?}", qp.state).to_uppercase(),
                path: path_name(qp.path),
                local: qp.local,
                peer: qp.peer,
                peer_qpn: qp.peer_qpn,
                peer_pid,
                sends_outstanding: qp.sends_outstanding,
                receives_posted: qp.receives_posted,
                rates,
                latency: Latencies::of(&latency),
            });
        }
        let mut processes: Vec<Process> = processes
            .into_values()
            .map(|(process, latency)| Process {
                latency: Latencies::of(&latency),
                ..process
            })
            .collect();
        let mut talks: Vec<Talk> = talks.into_values().collect();
        let busy = |rates: &Rates| rates.bytes_in + rates.bytes_out;
        processes.sort_by(|a, b| busy(&b.rates).total_cmp(&busy(&a.rates)));
        queue_pairs.sort_by(|a, b| busy(&b.rates).total_cmp(&busy(&a.rates)));
        talks.sort_by(|a, b| busy(&b.rates).total_cmp(&busy(&a.rates)));
        Frame {
            version: 1,
            seconds: time.as_secs_f64(),
            processes,
            queue_pairs,
            talks,
            silent: now.silent.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rnic::{QpState, Traffic};

    use super::*;

    fn queue_pair(pid: u32, qpn: u32, peer_qpn: u32, path: Path) -> QueuePairLook {
        let address = "192.0.2.1".parse().ok();
        QueuePairLook {
            pid,
            qpn,
            service: "RC",
            state: QpState::Rts,
            peer_qpn: Some(peer_qpn),
            path,
            local: address,
            peer: address,
            sends_outstanding: 1,
            receives_posted: None,
            counters: Counters::default(),
            latency: Latency::default(),
        }
    }

    fn look(queue_pairs: &[&QueuePairLook]) -> Look {
        Look {
            queue_pairs: queue_pairs.iter().copied().cloned().collect(),
            silent: Vec::new(),
        }
    }

    fn between(then: &Look, now: &Look) -> Frame {
        Frame::between(then, now, Duration::from_secs(2), &|pid| format!("p{pid}"))
    }

    const SOME: Traffic = Traffic {
        messages: 10,
        bytes: 4000,
    };

    /// Promise: what a peer's device does in this process's memory by itself is shown on both
    /// sides, in the right direction.
    #[test]
    fn both_sides_are_told_of_what_passes() {
        let (mut a, b) = (
            queue_pair(1, 11, 22, Path::Memory),
            queue_pair(2, 22, 11, Path::Memory),
        );
        let then = look(&[&a, &b]);
        a.counters.requested.write = SOME;
        a.counters.without_packets.write = SOME;
        a.counters.requested.read = SOME;
        a.counters.without_packets.read = SOME;
        let frame = between(&then, &look(&[&a, &b]));
        let of = |pid| {
            frame
                .processes
                .iter()
                .find(|it| it.pid == pid)
                .unwrap()
                .rates
        };
        assert_eq!((of(1).bytes_out, of(1).bytes_in), (2000.0, 2000.0));
        assert_eq!((of(2).bytes_out, of(2).bytes_in), (2000.0, 2000.0));
        assert_eq!(
            (of(1).messages_requested, of(2).messages_served),
            (10.0, 10.0)
        );
        let talk = frame.talks.iter().find(|talk| talk.pid == 1).unwrap();
        assert_eq!(talk.peer_program.as_deref(), Some("p2"));
    }

    /// Promise: the same numbers on another host are no process of this one.
    #[test]
    fn a_peer_on_another_host_has_an_address_alone() {
        let (a, b) = (
            queue_pair(1, 11, 22, Path::Network),
            queue_pair(2, 22, 11, Path::Network),
        );
        let now = look(&[&a, &b]);
        let frame = between(&now, &now);
        assert!(
            frame
                .talks
                .iter()
                .all(|talk| talk.peer_pid.is_none() && talk.peer.is_some())
        );
    }

    /// Promise: a queue pair that came between two looks, or whose number is another's now, is not
    /// shown with rates that it never had.
    #[test]
    fn what_is_new_has_no_rate_yet() {
        let mut a = queue_pair(1, 11, 22, Path::Memory);
        a.counters.requested.send = SOME;
        let frame = between(&look(&[]), &look(&[&a]));
        assert_eq!(frame.queue_pairs[0].rates, Rates::default());
        let other = queue_pair(7, 11, 22, Path::Memory);
        let frame = between(&look(&[&other]), &look(&[&a]));
        assert_eq!(frame.queue_pairs[0].rates, Rates::default());
    }

    #[test]
    fn the_busiest_is_first() {
        let (a, mut b) = (
            queue_pair(1, 11, 0, Path::Network),
            queue_pair(2, 22, 0, Path::Network),
        );
        let then = look(&[&a, &b]);
        b.counters.served.send = SOME;
        let frame = between(&then, &look(&[&a, &b]));
        assert_eq!(frame.processes[0].pid, 2);
        assert_eq!(frame.queue_pairs[0].qpn, 22);
    }
}
