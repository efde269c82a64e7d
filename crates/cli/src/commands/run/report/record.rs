//! The records that the NIC wrote (`rnic_nic`, module `report`), one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    Process {
        process: u64,
        pid: u32,
        program: String,
    },
    Opened {
        process: u64,
    },
    /// It has made or changed something since it was refused something.
    Survived {
        process: u64,
        ns: u64,
    },
    Failure(Box<Failure>),
    Refusal(Box<Refusal>),
    Partition(Partition),
    Flushed(Flushed),
    Waiting(Waiting),
    Stopped(Stopped),
    Dropped(Dropped),
    Overrun(Overrun),
    Verb(Verb),
    Wait(Box<Wait>),
    Connection(Box<Attempt>),
    Qp(Box<Qp>),
    Device(Device),
    Lint(Lint),
    Connected(Connected),
    Left(Left),
    Unheard(Unheard),
    #[serde(other)]
    Unknown,
}

/// A queue pair and with whom it talks.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Ends {
    pub qpn: u32,
    pub local: Option<String>,
    pub peer: Option<String>,
    pub peer_qpn: Option<u32>,
}

impl Ends {
    /// Own and the peer's number.
    pub fn key(&self) -> Option<(u32, u32)> {
        Some((self.qpn, self.peer_qpn?))
    }

    /// The two are the ends of one connection, as far as both say it.
    pub fn is_opposite(&self, other: &Ends) -> bool {
        let same = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
        self.peer_qpn == Some(other.qpn)
            && other.peer_qpn == Some(self.qpn)
            && same(&self.local, &other.peer)
            && same(&self.peer, &other.local)
    }

    /// `other` has the number and the address that this one takes for its peer's, whoever that one
    /// takes for its own.
    pub fn leads_to(&self, other: &Ends) -> bool {
        self.peer_qpn == Some(other.qpn) && self.peer.is_some() && self.peer == other.local
    }

    /// It is connected with itself.
    pub fn is_loop(&self) -> bool {
        self.is_opposite(self)
    }
}

/// Memory that was refused.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Memory {
    pub key: u32,
    pub addr: u64,
    pub length: u64,
    pub fault: String,
    #[serde(default)]
    pub write: bool,
    /// Of remote accesses.
    pub right: Option<String>,
    /// Of memory that could not be accessed: what it lacked.
    pub lack: Option<String>,
    /// The key is that of a region in the other byte order.
    #[serde(default)]
    pub swapped: bool,
    pub region: Option<Region>,
    pub deregistered: Option<Grave>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Region {
    pub addr: u64,
    pub length: u64,
    pub access: String,
    pub same_pd: bool,
    /// It is a memory window.
    #[serde(default)]
    pub window: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Grave {
    pub addr: u64,
    pub length: u64,
    pub ago_ns: u64,
}

/// The send work request that failed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Request {
    pub length: u64,
    /// Of a message of the queue pair.
    #[serde(default)]
    pub longest: u64,
    pub psn: u32,
    pub sent: bool,
    pub tries: u32,
    pub heard: u64,
    pub heard_ever: u64,
    /// Some request of the connection was acknowledged before.
    #[serde(default)]
    pub answered: bool,
    /// Of the connection.
    #[serde(default)]
    pub start_psn: u32,
    /// As its answers say, if that is not where this side began.
    pub peer_expects_psn: Option<u32>,
    pub waited_ns: u64,
    #[serde(default)]
    pub stopped_ns: u64,
    /// Of the READ response that was not what was awaited.
    pub response: Option<u64>,
    pub remote_addr: Option<u64>,
    pub rkey: Option<u32>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failure {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub qp_type: String,
    pub queue: String,
    /// The first of its queue pair.
    pub first: bool,
    pub wr_id: u64,
    pub operation: String,
    pub status: u32,
    pub vendor_err: u32,
    pub memory: Option<Memory>,
    /// UD: bytes that the receive takes, and that the datagram needs.
    pub room: Option<u64>,
    pub length: Option<u64>,
    pub request: Option<Request>,
    pub path_mtu: Option<u64>,
    pub peer_path_mtu: Option<u64>,
    pub peer_process: Option<String>,
    /// Of a peer of this host.
    pub peer_pid: Option<u32>,
    pub peer_program: Option<String>,
    /// The longest IP packet that the way takes, as the kernel heard by ICMP, where long ones are
    /// longer.
    pub path_bytes: Option<u64>,
    /// The longest that the interface or the route here takes, where long ones are longer.
    pub interface_bytes: Option<u64>,
    /// What the kernel or ICMP said of the way while no answer came: an errno.
    pub way_errno: Option<u32>,
    /// When the queue pair was connected.
    #[serde(default)]
    pub since_ns: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Refusal {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub first: bool,
    pub operation: String,
    pub psn: u32,
    pub why: String,
    pub room: Option<u64>,
    pub length: Option<u64>,
    pub limit: Option<u64>,
    pub path_mtu: Option<u64>,
    pub peer_path_mtu: Option<u64>,
    pub memory: Option<Memory>,
    /// The process of this host that has the peer.
    pub peer_pid: Option<u32>,
    pub peer_program: Option<String>,
}

/// A completion found its queue full.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Overrun {
    pub process: u64,
    pub ns: u64,
    /// The queue pair whose completion it was.
    #[serde(flatten)]
    pub ends: Ends,
    pub cq: u64,
    pub capacity: u64,
}

/// A queue pair was connected.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Connected {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub qp_type: String,
    pub path_mtu: Option<u64>,
}

impl Connected {
    /// It answers requests, and its answers go to its peer alone.
    pub fn answers(&self) -> bool {
        self.qp_type == "RC"
    }
}

/// The program moved a connected queue pair to RESET or ERR, or destroyed it.
#[derive(Clone, Debug, Deserialize)]
pub struct Left {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub how: String,
}

/// A packet that no queue pair took.
#[derive(Clone, Debug, Deserialize)]
pub struct Unheard {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub cause: String,
    pub from: String,
    pub to: String,
    /// It asked for something: no answer of the peer.
    #[serde(default)]
    pub request: bool,
    /// Of the queue pair.
    pub state: Option<String>,
    /// UD: who sent it, and the process of the host that has that.
    pub src_qpn: Option<u32>,
    pub src_pid: Option<u32>,
    pub src_program: Option<String>,
}

impl Unheard {
    /// Its packet came from that queue pair's address to the one that it takes for its peer.
    pub fn is_of(&self, sender: &Ends) -> bool {
        sender.peer_qpn == Some(self.ends.qpn)
            && sender.peer.as_ref() == Some(&self.to)
            && sender.local.as_ref() == Some(&self.from)
    }
}

/// A queue pair dropped a packet of another partition.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Partition {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    /// Its own, and the packet's.
    pub pkey: u16,
    pub peer_pkey: u16,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Flushed {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub wr_id: u64,
}

/// The peer had no receive for long, and rnr_retry is 7.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Waiting {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub naks: u64,
    pub waited_ns: u64,
}

/// The peer's process was stopped for long.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Stopped {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub waited_ns: u64,
    pub peer_pid: u32,
    pub peer_program: String,
    /// It still is, now that the program has ended.
    #[serde(default)]
    pub still: bool,
}

/// Messages that a queue pair dropped for one cause, without a word to the peer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Dropped {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub cause: String,
    pub count: u64,
    /// Of the first one of them.
    pub qkey: Option<u32>,
    pub own_qkey: Option<u32>,
    /// UD: who sent it, and the process of the host that has that.
    pub src_qpn: Option<u32>,
    pub src_pid: Option<u32>,
    pub src_program: Option<String>,
    pub room: Option<u64>,
    pub length: Option<u64>,
    pub path_mtu: Option<u64>,
    pub psn: Option<u32>,
    pub expected_psn: Option<u32>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Verb {
    pub process: u64,
    pub ns: u64,
    pub verb: String,
    pub errno: i32,
    pub reason: String,
    /// The program went on after it.
    #[serde(default)]
    pub survived: bool,
}

/// A connection that somebody wanted, and what stood in its way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Attempt {
    pub process: u64,
    pub ns: u64,
    pub what: String,
    /// Port space and port, or the service id.
    pub service: String,
    /// Of the side that asked: the two addresses with ports.
    pub local: Option<String>,
    pub peer: Option<String>,
    /// Of the side that was asked: who, and for which address.
    pub from: Option<String>,
    pub address: Option<String>,
    /// Of a REJ.
    pub reason: Option<u32>,
    /// Of a SIDR_REP.
    pub status: Option<u32>,
    pub errno: Option<u32>,
    /// Why, of an errno.
    pub reason_text: Option<String>,
    /// What the peer's application said, printable.
    pub private_data: Option<String>,
    /// Who listens on this host.
    pub listeners: Option<String>,
    /// How often the request was sent, and for how long.
    pub tries: Option<u32>,
    pub waited_ns: Option<u64>,
    /// The peer's address is one of this host.
    pub peer_here: Option<bool>,
    /// What the kernel or ICMP said of the way to another host: an errno.
    pub way_errno: Option<u32>,
    /// The process there that listens for it, if that is stopped.
    pub peer_pid: Option<u32>,
    pub peer_program: Option<String>,
    /// Types of queue pairs that do not fit each other.
    pub asked: Option<String>,
    pub listener: Option<String>,
    /// Of one who asked and went away: the program had accepted.
    pub accepted: Option<bool>,
    /// Of a request that was refused for its path MTU, and what the way takes here, bytes.
    pub asked_mtu: Option<u32>,
    pub most_mtu: Option<u32>,
    /// Of a request in another partition: its P_Key, and the table of the port.
    pub asked_pkey: Option<u16>,
    pub pkeys: Option<String>,
}

/// A thread that waits in a call, or a completion queue that is polled in vain, for long.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Wait {
    pub process: u64,
    /// When it was looked at last, and when it began.
    pub ns: u64,
    pub since: u64,
    /// No other of the process has it.
    pub wait: u64,
    /// The call.
    pub verb: String,
    /// `cq event`, `completion`, `cm event`, `async event`, `acks`, or `descriptors` of what brings
    /// such events. Futures of a queue pair wait for a `future message`, a `future completion`, or
    /// `future room` in the send queue.
    #[serde(rename = "for")]
    pub wanted: String,
    /// As the kernel numbers it; none of a queue that is polled.
    pub thread: Option<u32>,
    /// How it ended: `done`, `idle`, `interrupted` by a signal, at the `end` of the process.
    pub over: Option<String>,
    /// Of `descriptors`: asynchronous events are among them, and others than the NIC's.
    #[serde(default)]
    pub async_events: bool,
    #[serde(default)]
    pub others: bool,
    /// Completion channels among what is waited for, and their events that nobody has taken.
    #[serde(default)]
    pub channels: u64,
    #[serde(default)]
    pub untaken: u64,
    /// Channels of the connection manager.
    #[serde(default)]
    pub cm_channels: u64,
    /// The completion queues whose completions would end it: some of them.
    #[serde(default)]
    pub cqs: Vec<Queue>,
    #[serde(default)]
    pub all_cqs: u64,
    /// What completes into them: some of it.
    #[serde(default)]
    pub queue_pairs: Vec<Poster>,
    #[serde(default)]
    pub all_queue_pairs: u64,
    #[serde(default)]
    pub xrc_srqs: u64,
    /// The ids of the event channel: some of them.
    #[serde(default)]
    pub ids: Vec<Id>,
    #[serde(default)]
    pub all_ids: u64,
    /// Whose events are to be acknowledged, how many it had and how many were.
    pub object: Option<String>,
    #[serde(default)]
    pub taken: u64,
    #[serde(default)]
    pub acknowledged: u64,
    pub events: Option<String>,
    pub remedy: Option<String>,
    /// Futures that sleep for it, and their queue pair.
    #[serde(default)]
    pub futures: u64,
    pub future_qpn: Option<u32>,
}

/// How a completion queue stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Queue {
    pub cq: u32,
    /// For the `next` completion or the next `solicited` one; `never`, `no longer`.
    pub armed: String,
    /// Completions in it, and all that it ever had.
    pub waiting: u64,
    pub completions: u64,
    pub overrun: bool,
    pub moderated: bool,
}

/// How a queue pair stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Poster {
    #[serde(flatten)]
    pub ends: Ends,
    pub qp_type: String,
    pub state: String,
    /// What of it completes into the queues that are waited for.
    pub sends_here: bool,
    pub receives_here: bool,
    /// Sends that have not ended, and completions that they give if they succeed.
    pub sends: u64,
    pub signaled: u64,
    /// Work requests since the last one that gives one, whether they have ended or not.
    #[serde(default)]
    pub unsignaled: u64,
    pub receives: u64,
    /// The shared receive queue that these are of.
    pub srq: Option<u32>,
    /// Messages that it has taken.
    pub received: u64,
    pub peer_process: Option<String>,
}

/// How an id of the connection manager stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Id {
    pub standing: String,
    pub service: Option<String>,
    pub local: Option<String>,
    pub peer: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ByOperation {
    pub send: Traffic,
    pub write: Traffic,
    pub read: Traffic,
    pub atomic: Traffic,
    /// They have no bytes.
    #[serde(default)]
    pub flush: Traffic,
}

/// What one queue pair counted: traffic by operation, everything else by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Counters {
    pub requested: ByOperation,
    pub served: ByOperation,
    #[serde(flatten)]
    pub events: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Qp {
    pub process: u64,
    pub ns: u64,
    #[serde(flatten)]
    pub ends: Ends,
    pub qp_type: String,
    pub state: String,
    /// Destroyed: what comes under this number is another one.
    pub end: bool,
    pub max_rd_atomic: Option<u64>,
    pub max_dest_rd_atomic: Option<u64>,
    pub path_mtu: Option<u64>,
    pub counters: Counters,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Device {
    pub process: u64,
    pub ns: u64,
    pub link: BTreeMap<String, u64>,
    pub drops: BTreeMap<String, u64>,
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Lint {
    pub process: u64,
    pub ns: u64,
    pub kind: String,
    pub object: u64,
    pub value: u64,
    pub limit: u64,
    pub count: u64,
    pub more: String,
}
