//! What the NIC noted of work requests: a line each (`nic/src/observe/trace.rs`).

use serde::Deserialize;

/// A line.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Event {
    Posted(Posted),
    Completed(Completed),
    Polled(Polled),
}

/// A send work request was posted.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Posted {
    pub time_ns: u64,
    pub pid: u32,
    pub qpn: u32,
    pub qp_type: String,
    pub wr_id: u64,
    pub operation: String,
    /// It sends nothing.
    pub local: bool,
    pub bytes: u64,
    pub signaled: bool,
    pub inline: bool,
}

/// A completion is in its queue.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Completed {
    pub time_ns: u64,
    pub pid: u32,
    pub qpn: u32,
    pub wr_id: u64,
    pub receive: bool,
    pub bytes: u64,
    pub status: u64,
}

/// The program has it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Polled {
    pub time_ns: u64,
    pub pid: u32,
    pub qpn: u32,
    pub wr_id: u64,
    pub receive: bool,
}

/// The events of a file, in order. The process may have been killed over a line: one that cannot be
/// read is left out.
pub fn read(bytes: &[u8]) -> Vec<Event> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}
