//! What a trace says of a program, as numbers: the only thing that the rules look at.
//!
//! Other processes wrote the counts, which may be anything: sums saturate.

use std::collections::BTreeMap;

use rnic_sys::tally::{AllCounted, Count, Counted, Lane as Of, Spread as Histogram, Whole};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// A histogram by powers of two: bucket n has the values of n bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    pub sum: u64,
    buckets: BTreeMap<u32, u64>,
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Spread", 4)?;
        all.serialize_field("count", &self.count())?;
        all.serialize_field("p50", &self.quantile(0.5))?;
        all.serialize_field("p90", &self.quantile(0.9))?;
        all.serialize_field("p99", &self.quantile(0.99))?;
        all.end()
    }
}

impl Spread {
    pub fn add(&mut self, bits: u32, count: u64) {
        if count > 0 {
            let bucket = self.buckets.entry(bits).or_default();
            *bucket = bucket.saturating_add(count);
        }
    }

    fn merge(&mut self, (sum, buckets): (u64, &[u64])) {
        self.sum = self.sum.saturating_add(sum);
        for (bits, count) in (0..).zip(buckets) {
            self.add(bits, *count);
        }
    }

    pub fn count(&self) -> u64 {
        self.buckets
            .values()
            .fold(0, |all, n| all.saturating_add(*n))
    }

    /// The mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// A value of the bucket in which so many of all are reached: 0.5 is the median.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).max(1.0);
        let mut seen = 0.0;
        for (bits, count) in &self.buckets {
            seen += *count as f64;
            if seen >= wanted {
                return largest(*bits);
            }
        }
        0
    }

    /// Those that are at most `limit`, which is a power of two less one, or is taken for the one
    /// below.
    pub fn up_to(&self, limit: u64) -> u64 {
        let within = self
            .buckets
            .iter()
            .filter(|(bits, _)| largest(**bits) <= limit);
        within.fold(0, |all, (_, n)| all.saturating_add(*n))
    }
}

/// The largest value of so many bits.
fn largest(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(u64::MAX, |next| next - 1)
}

/// Bytes one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    pub calls: u64,
    pub bytes: u64,
    /// Time in the calls, seconds of all threads.
    pub seconds: f64,
    pub sizes: Spread,
    /// Bytes between two changes of the direction.
    pub turns: Spread,
}

/// Sockets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lane {
    pub sockets: u64,
    /// Those whose peer is on this host.
    pub local: u64,
    pub sent: Flow,
    pub received: Flow,
    /// Calls that had to come again.
    pub again: u64,
    /// Bytes of files that the kernel sent.
    pub file_bytes: u64,
    /// From a receive to the next send, ns.
    pub think: Spread,
    /// From a send to the next receive, ns.
    pub answer: Spread,
}

impl Lane {
    fn of(parts: &[Counted], lane: Of) -> Lane {
        let mut all = Lane::default();
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        for part in parts {
            let count = |which| part.count(lane, which);
            add(&mut all.sockets, count(Count::Sockets));
            add(&mut all.local, count(Count::Local));
            add(&mut all.again, count(Count::Again));
            add(&mut all.file_bytes, count(Count::FileBytes));
            for (flow, ns, sizes, turns) in [
                (
                    &mut all.sent,
                    Count::SendNs,
                    Histogram::Sent,
                    Histogram::TurnOut,
                ),
                (
                    &mut all.received,
                    Count::ReceiveNs,
                    Histogram::Received,
                    Histogram::TurnIn,
                ),
            ] {
                flow.seconds += count(ns) as f64 / 1e9;
                flow.sizes.merge(part.spread(lane, sizes));
                flow.turns.merge(part.spread(lane, turns));
            }
            for flow in [&mut all.sent, &mut all.received] {
                (flow.calls, flow.bytes) = (flow.sizes.count(), flow.sizes.sum);
            }
            all.think.merge(part.spread(lane, Histogram::Think));
            all.answer.merge(part.spread(lane, Histogram::Answer));
        }
        all.local = all.local.min(all.sockets);
        all
    }

    pub fn calls(&self) -> u64 {
        self.sent.calls.saturating_add(self.received.calls)
    }

    pub fn bytes(&self) -> u64 {
        self.sent.bytes.saturating_add(self.received.bytes)
    }

    /// Answers that came, or requests that were answered: how often something went there and back.
    pub fn trips(&self) -> u64 {
        self.answer.count().max(self.think.count())
    }

    /// Seconds in calls, of all threads.
    pub fn seconds(&self) -> f64 {
        self.sent.seconds + self.received.seconds
    }
}

/// What was seen of sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sockets {
    /// Processes that used some.
    pub processes: u64,
    pub programs: Vec<String>,
    /// Processes of them whose counts are missing, as there was no room for more.
    pub uncounted: u64,
    /// From the first byte to the last, and processor time of each process before, seconds.
    pub seconds: f64,
    /// Sockets that stdio reads or writes, whose calls are not seen.
    pub stdio: u64,
    pub listens: u64,
    /// TCP connections that the program opened.
    pub asks: Lane,
    /// TCP connections that it accepted.
    pub serves: Lane,
    pub datagrams: Lane,
    pub unix: Lane,
    /// Calls of poll and its kin.
    pub waits: u64,
    /// Those that were not to wait.
    pub looks: u64,
    pub waits_in_vain: u64,
    /// Descriptors that they had to say something of.
    pub ready: u64,
    /// Seconds in them, of all threads.
    pub wait_seconds: f64,
    /// Most TCP connections at once, of one process.
    pub most_open: u64,
}

impl Sockets {
    pub fn of(all: &AllCounted) -> Sockets {
        let parts = &all.parts;
        let sum = |word| {
            let values = parts.iter().map(|part| part.whole(word));
            values.fold(0, u64::saturating_add)
        };
        let mut programs: Vec<String> = parts.iter().map(Counted::name).collect();
        programs.sort();
        programs.dedup();
        let active = parts.iter().filter(|part| part.whole(Whole::Last) > 0);
        let times = active.map(|part| (part.whole(Whole::First), part.whole(Whole::Last)));
        let window = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        // What was computed before is the program's time, too; what it waited is not.
        let before = parts.iter().map(|part| part.whole(Whole::CpuBefore)).max();
        let before = before
            .unwrap_or(0)
            .min(window.map_or(0, |(first, _)| first));
        Sockets {
            processes: parts.len() as u64 + all.uncounted,
            programs,
            uncounted: all.uncounted,
            seconds: window.map_or(0.0, |(from, to)| {
                to.saturating_sub(from).saturating_add(before) as f64 / 1e9
            }),
            stdio: sum(Whole::Stdio),
            listens: sum(Whole::Listens),
            asks: Lane::of(parts, Of::Asks),
            serves: Lane::of(parts, Of::Serves),
            datagrams: Lane::of(parts, Of::Datagrams),
            unix: Lane::of(parts, Of::Unix),
            waits: sum(Whole::Waits),
            looks: sum(Whole::Looks),
            waits_in_vain: sum(Whole::WaitsInVain),
            ready: sum(Whole::Ready),
            wait_seconds: sum(Whole::WaitNs) as f64 / 1e9,
            most_open: (parts.iter().map(|part| part.whole(Whole::MostOpen)))
                .filter(|open| *open < 1 << 32)
                .max()
                .unwrap_or(0),
        }
    }
}

/// Sizes in a line of the NIC's: bits to count.
type Sizes = BTreeMap<String, u64>;

/// A line that the NIC wrote of a queue pair (`nic/src/observe/usage.rs`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct QpLine {
    process: u64,
    qpn: u64,
    max_send_wr: u64,
    posts: u64,
    inline: u64,
    signaled: u64,
    immediate: u64,
    elements: u64,
    deepest: u64,
    depths: u64,
    began: u64,
    last: u64,
    send: Sizes,
    write: Sizes,
    read: Sizes,
    atomic: Sizes,
    other: Sizes,
}

/// The same of a process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ProcessLine {
    process: u64,
    polls: u64,
    polls_in_vain: u64,
    arms: u64,
    registrations: u64,
    deregistrations: u64,
    registered: u64,
    queue_pairs: u64,
    sharing: u64,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "record")]
enum Line {
    #[serde(rename = "usage")]
    Qp(Box<QpLine>),
    #[serde(rename = "process usage")]
    Process(ProcessLine),
    #[serde(other)]
    Other,
}

/// Requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kinds {
    pub send: Spread,
    pub write: Spread,
    pub read: Spread,
    pub atomic: Spread,
}

impl Kinds {
    pub fn count(&self) -> u64 {
        let all = [&self.send, &self.write, &self.read, &self.atomic];
        all.into_iter()
            .fold(0, |sum, kind| sum.saturating_add(kind.count()))
    }
}

/// What was seen of verbs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verbs {
    pub processes: u64,
    /// From the first post to the last, seconds.
    pub seconds: f64,
    pub queue_pairs: u64,
    /// Those that take receives from a shared queue.
    pub sharing: u64,
    /// Send work requests that were posted.
    pub requests: Kinds,
    /// Bytes of those that were done.
    pub requested_bytes: u64,
    /// Messages of the peer that were taken: SENDs, and all others.
    pub served_sends: u64,
    pub served_others: u64,
    pub served_bytes: u64,
    /// Of the messages of a queue pair, how many have one the other way: 1 if all do.
    pub both_ways: f64,
    /// Calls that posted.
    pub posts: u64,
    pub inline: u64,
    pub signaled: u64,
    pub immediate: u64,
    pub elements: u64,
    /// Depth of the send queues, that of the largest.
    pub max_send_wr: u64,
    /// Most requests in one at once.
    pub deepest: u64,
    /// How many there were on average behind each post.
    pub mean_depth: f64,
    pub polls: u64,
    pub polls_in_vain: u64,
    /// Completion queues were told to send an event.
    pub arms: u64,
    pub registrations: u64,
    pub deregistrations: u64,
    pub registered_bytes: u64,
    pub rnr_naks: u64,
    pub retransmitted: u64,
    /// The smallest path MTU of a connection; 0: none is known.
    pub path_mtu: u64,
}

impl Verbs {
    /// From the lines of the NIC; the last of each queue pair and process counts.
    pub fn read(lines: &str) -> Verbs {
        let mut qps = BTreeMap::new();
        let mut processes = BTreeMap::new();
        for line in lines.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Qp(qp)) => {
                    qps.insert((qp.process, qp.qpn), *qp);
                }
                Ok(Line::Process(process)) => {
                    processes.insert(process.process, process);
                }
                _ => {}
            }
        }
        let mut all = Verbs {
            processes: processes.len() as u64,
            ..Verbs::default()
        };
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        let mut depths = 0;
        for qp in qps.values() {
            for (to, from) in [
                (&mut all.requests.send, &qp.send),
                (&mut all.requests.write, &qp.write),
                (&mut all.requests.read, &qp.read),
                (&mut all.requests.atomic, &qp.atomic),
            ] {
                for (bits, count) in from {
                    to.add(bits.parse().unwrap_or(0), *count);
                }
            }
            add(&mut all.posts, qp.posts);
            add(&mut all.inline, qp.inline);
            add(&mut all.signaled, qp.signaled);
            add(&mut all.immediate, qp.immediate);
            add(&mut all.elements, qp.elements);
            add(&mut depths, qp.depths);
            all.max_send_wr = all.max_send_wr.max(qp.max_send_wr);
            all.deepest = all.deepest.max(qp.deepest);
        }
        let used = qps.values().filter(|qp| qp.last > 0);
        let window = used
            .map(|qp| (qp.began, qp.last))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        all.seconds = window.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9);
        let other = qps.values().flat_map(|qp| qp.other.values());
        let posted = other.fold(all.requests.count(), |sum, n| sum.saturating_add(*n));
        all.mean_depth = depths as f64 / posted.max(1) as f64;
        for process in processes.values() {
            add(&mut all.polls, process.polls);
            add(&mut all.polls_in_vain, process.polls_in_vain);
            add(&mut all.arms, process.arms);
            add(&mut all.registrations, process.registrations);
            add(&mut all.deregistrations, process.deregistrations);
            add(&mut all.registered_bytes, process.registered);
            add(&mut all.queue_pairs, process.queue_pairs);
            add(&mut all.sharing, process.sharing);
        }
        all
    }

    /// Messages, of this side and of the peer.
    pub fn messages(&self) -> u64 {
        let served = self.served_sends.saturating_add(self.served_others);
        self.requests.count().saturating_add(served)
    }

    /// Mean bytes of a request that was done; of what the peer sent, if there was none.
    pub fn mean_size(&self) -> f64 {
        match self.requests.count() {
            0 => {
                let served = self.served_sends.saturating_add(self.served_others);
                self.served_bytes as f64 / served.max(1) as f64
            }
            count => self.requested_bytes as f64 / count as f64,
        }
    }
}

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    pub program: String,
    /// How long it ran.
    pub seconds: f64,
    /// Processes that the recorder came into.
    pub processes: u64,
    /// Sockets were open in the program that no call of the C library told of.
    pub hidden_sockets: bool,
    pub sockets: Sockets,
    pub verbs: Option<Verbs>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_quantiles() {
        let mut sizes = Spread::default();
        sizes.add(7, 90);
        sizes.add(11, 10);
        sizes.add(3, 0);
        assert_eq!(sizes.count(), 100);
        assert_eq!((sizes.quantile(0.5), sizes.quantile(0.95)), (127, 2047));
        assert_eq!(
            (sizes.up_to(127), sizes.up_to(256), sizes.up_to(4095)),
            (90, 90, 100)
        );
        assert_eq!(Spread::default().quantile(0.5), 0);
        sizes.add(64, u64::MAX);
        assert_eq!(sizes.count(), u64::MAX, "sums saturate");
    }

    /// The last line of a queue pair counts; nonsense is left out.
    #[test]
    fn lines_become_counts() {
        let lines = r#"{"record":"usage","process":1,"ns":5,"qpn":17,"posts":1,"send":{"6":1},"depths":1}
nonsense
{"record":"qp","process":1}
{"record":"usage","process":1,"ns":9,"qpn":17,"max_send_wr":128,"posts":10,"inline":4,"signaled":9,"deepest":3,"depths":20,"send":{"6":8},"write":{"12":2}}
{"record":"process usage","process":1,"ns":9,"polls":10,"arms":3,"registrations":2,"queue_pairs":1}"#;
        let verbs = Verbs::read(lines);
        assert_eq!(
            (verbs.posts, verbs.inline, verbs.requests.count()),
            (10, 4, 10)
        );
        assert_eq!((verbs.processes, verbs.arms, verbs.queue_pairs), (1, 3, 1));
        assert_eq!((verbs.mean_depth, verbs.max_send_wr), (2.0, 128));
        assert_eq!(verbs.requests.write.quantile(0.5), 4095);
    }
}
