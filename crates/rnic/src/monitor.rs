//! What the processes of this user do with the NIC, from outside: who talks to whom, how much, how
//! fast, and what was lost.
//!
//! Each process answers for itself when its NIC has its turn, so that nothing is counted for an
//! observer who is not there. Latencies are measured while somebody looks: of what was posted since
//! the first look, until ten seconds after the last.
//!
//! ```
//! for queue_pair in &rnic::monitor::look().queue_pairs {
//!     println!("process {}, QP {:#x}", queue_pair.pid, queue_pair.qpn);
//! }
//! ```

use std::net::IpAddr;

use crate::nic::resources::{self, Survey};
use crate::{Counters, QpState};

/// What processes answered.
#[derive(Clone, Debug)]
pub struct Look {
    /// All queue pairs, by number.
    pub queue_pairs: Vec<QueuePairLook>,
    /// Processes that did not answer, or not to the end: they are stopped, or very busy.
    pub silent: Vec<u32>,
}

/// A queue pair as it stands.
#[derive(Clone, Debug)]
pub struct QueuePairLook {
    /// The process, as this one sees it.
    pub pid: u32,
    /// Its number; no other queue pair of this host has it.
    pub qpn: u32,
    /// Its transport service: `RC`, `UC`, `UD`, `XRC_SEND` or `XRC_RECV`.
    pub service: &'static str,
    /// Its state.
    pub state: QpState,
    /// The number of its peer, if it is connected.
    pub peer_qpn: Option<u32>,
    /// How its packets reach the peer.
    pub path: Path,
    /// Its own address, if it is connected.
    pub local: Option<IpAddr>,
    /// The peer's.
    pub peer: Option<IpAddr>,
    /// Send work requests that are posted and not done.
    pub sends_outstanding: u32,
    /// Receives that are posted; `None`: they are of a shared receive queue.
    pub receives_posted: Option<u32>,
    /// What it has counted so far.
    pub counters: Counters,
    /// How long signaled send work requests took from post to completion.
    pub latency: Latency,
}

/// How packets of a queue pair reach its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// It has no peer: it is not connected, or carries datagrams.
    None,
    /// Through shared memory, or within a process.
    Memory,
    /// Over UDP, to this host.
    Host,
    /// Over UDP, to another host.
    Network,
}

/// How many requests took how long: a histogram. Values are known to an eighth.
#[derive(Clone, Debug, Default)]
pub struct Latency(resources::Histogram);

/// Asks all processes of this user on this host. It takes as long as the slowest of them, 0.4 s
/// at most for one that is stopped, and 4 s for all.
pub fn look() -> Look {
    let mut survey = Survey::default();
    let queue_pairs = survey.carried().into_iter().map(|carried| {
        let connected = carried.path != resources::Path::None;
        QueuePairLook {
            pid: carried.pid,
            qpn: carried.qpn,
            service: carried.qp_type.name(),
            state: carried.state,
            peer_qpn: connected.then_some(carried.dest_qpn),
            path: match carried.path {
                resources::Path::None => Path::None,
                resources::Path::Memory => Path::Memory,
                resources::Path::Host => Path::Host,
                resources::Path::Network => Path::Network,
            },
            local: carried.local.and_then(|address| address.ip()),
            peer: carried.peer.and_then(|address| address.ip()),
            sends_outstanding: carried.sends_outstanding,
            receives_posted: carried.receives_posted,
            counters: carried.counters,
            latency: Latency(carried.latency),
        }
    });
    let queue_pairs = queue_pairs.collect();
    Look {
        queue_pairs,
        silent: survey.silent(),
    }
}

impl Latency {
    /// How many requests were measured.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The time, ns, that this share of all, 0 to 1, did not exceed. `None`: none was measured.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.0.quantile(share)
    }

    /// Those that came since `earlier` was so.
    pub fn since(&self, earlier: &Latency) -> Latency {
        Latency(self.0.since(&earlier.0))
    }

    /// Counts those of another queue pair as well.
    pub fn add(&mut self, other: &Latency) {
        self.0.add_all(&other.0);
    }
}
