//! How packets leave: RoCEv2 over UDP sockets that need no privilege.
//!
//! [`RoceLink`] is what the device sees: it builds packets in a staging buffer, takes the ICRC over the copy, sends
//! batches, and hands over received packets whose ICRC held and whose QPN belongs to this process. Beneath it a
//! [`Link`] carries datagrams: [`udp`] sockets, with [`faults`] and [`pcap`] as wrappers around any of them.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

/// How to open the link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Fault injection on what this process sends (`RNIC_FAULTS`).
    pub faults: Option<FaultSpec>,
    /// Append every packet sent and received to this pcap file (`RNIC_PCAP`).
    pub pcap: Option<std::path::PathBuf>,
    /// Never use GSO (for tests of the fall-back).
    pub no_gso: bool,
}

/// Probabilities and amounts of injected faults (`--faults drop=1%,dup=..,reorder=..,corrupt=..,delay=..,seed=N`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultSpec {
    /// Probability 0..=1 that a packet is lost.
    pub drop: f64,
    /// Probability that it is sent twice.
    pub duplicate: f64,
    /// Probability that it is held back behind later packets.
    pub reorder: f64,
    /// Probability that one bit of it flips.
    pub corrupt: f64,
    /// Added to every packet, nanoseconds.
    pub delay_ns: u64,
    /// Seed of the generator; `None`: a fresh one, printed to stderr.
    pub seed: Option<u64>,
}

/// The two ends of a path and what goes into its IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathSpec {
    /// Source address (that of the GID in use).
    pub local: IpAddr,
    /// Interface of `local` when it is IPv6 link-local, else 0.
    pub scope_id: u32,
    /// Destination address.
    pub remote: IpAddr,
    /// The peer's QPN: its process slot decides the UDP source port.
    pub dest_qpn: u32,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0: the system's default.
    pub hop_limit: u8,
}

/// A path set up by [`RoceLink::path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(pub u32);

/// A packet that arrived: ICRC right, QPN ours.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// From the first byte of the BTH to the last pad byte, without ICRC.
    pub bytes: &'a [u8],
    /// Destination QPN from the BTH.
    pub dest_qpn: u32,
}

/// Why the link cannot be opened or a path not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Another user's process owns UDP port 4791.
    #[error("UDP port 4791 is taken by {owner}")]
    PortTaken {
        /// Who, as far as can be found out: a user (uid 1000), the kernel's Soft-RoCE (rdma_rxe), ...
        owner: String,
    },
    /// All QPN ranges of this host are claimed.
    #[error("no free QPN range: {live} processes have the device open")]
    NoQpnRange {
        /// Live processes.
        live: usize,
    },
    /// The runtime folder cannot be used.
    #[error("cannot use the runtime folder {path}: {source}")]
    Runtime {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Counts of what passed and what was dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LinkCounters {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_syscalls: u64,
    pub tx_errors: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_syscalls: u64,
    pub rx_bad_icrc: u64,
    pub rx_truncated: u64,
    pub rx_handed_over: u64,
    pub rx_adopted: u64,
    pub rx_unknown_qpn: u64,
}

/// A range of QP numbers that belongs to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpnRange {
    /// First number.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// The process's part of the host's RoCEv2 port. Not `Sync`: the engine's lock guards it.
pub struct RoceLink {}

#[allow(unused_variables, clippy::todo, reason = "signatures first")]
impl RoceLink {
    /// Joins the host's port 4791 and claims a first QPN range.
    pub fn open(config: &LinkConfig) -> Result<RoceLink, LinkError> {
        todo!()
    }
    /// The QPN ranges of this process.
    pub fn qpn_ranges(&self) -> &[QpnRange] {
        todo!()
    }
    /// Claims one more range.
    pub fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        todo!()
    }
    /// Sets up (or finds again) a path; counted, give it back with `release_path`.
    pub fn path(&mut self, spec: &PathSpec) -> Result<PathId, LinkError> {
        todo!()
    }
    /// Gives a path back.
    pub fn release_path(&mut self, path: PathId) {
        todo!()
    }
    /// Largest IP packet that the way to the peer takes, bytes (65536 on lo); `None` if unknown.
    pub fn path_ip_mtu(&self, spec: &PathSpec) -> Option<u32> {
        todo!()
    }
    /// Room for one packet of `len` bytes (BTH .. last pad byte; the link adds the ICRC); `None`: flush first.
    pub fn packet(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        todo!()
    }
    /// Takes back the packet given out last.
    pub fn retract(&mut self) {
        todo!()
    }
    /// Packets are waiting for `flush`.
    pub fn has_pending(&self) -> bool {
        todo!()
    }
    /// Completes ICRCs and sends all packets built since the last flush. Never blocks; what the kernel refuses is
    /// counted and lost, as on a wire.
    pub fn flush(&mut self, now_ns: u64) {
        todo!()
    }
    /// Receives until nothing is there or about `budget` packets were handed to `deliver`; never blocks.
    /// Returns packets delivered. `door`: also look at the hand-over door (the background thread does).
    pub fn receive(
        &mut self,
        now_ns: u64,
        budget: usize,
        door: bool,
        deliver: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        todo!()
    }
    /// When `flush` must be called for held-back packets (fault injection's delay and reorder).
    pub fn next_timeout(&self) -> Option<u64> {
        todo!()
    }
    /// The socket on which packets arrive: readable means call `receive`.
    pub fn rx_fd(&self) -> RawFd {
        todo!()
    }
    /// The hand-over door and other rarely readable descriptors: readable means call `receive(.., door: true, ..)`.
    pub fn door_fds(&self) -> Vec<RawFd> {
        todo!()
    }
    /// House-keeping of the registry (reap dead processes, refresh the steering program when stale); call it every
    /// now and then from the background thread. Returns after how many nanoseconds it wants to be called again.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        todo!()
    }
    /// Half the effective receive buffer in bytes: what all peers together may have in flight towards us.
    pub fn receive_buffer(&self) -> usize {
        todo!()
    }
    /// In a forked child: close every descriptor without telling anyone.
    pub fn abandon(&mut self) {
        todo!()
    }
    /// Counts since open.
    pub fn counters(&self) -> LinkCounters {
        todo!()
    }
}
