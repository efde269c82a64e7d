//! The reliable connected transport service.

use crate::{Host, PacketSink, Pd, SendWqe, Time};
use rnic_wire::{Packet, PathMtu, Psn};

/// Attributes of a connected RC queue pair, as `ibv_modify_qp` sets them.
#[derive(Clone, Copy, Debug)]
pub struct RcAttr {
    /// Own QP number.
    pub qpn: u32,
    /// Protection domain.
    pub pd: Pd,
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// Path MTU.
    pub mtu: PathMtu,
    /// P_Key put into the BTH.
    pub pkey: u16,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// Local ACK timeout code, 0 = infinite.
    pub timeout: u8,
    /// Transport retries (0..=7), counted as IBTA says: 7 is seven.
    pub retry_cnt: u8,
    /// RNR retries, 7 = for ever.
    pub rnr_retry: u8,
    /// RNR timer code sent in RNR NAKs.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics accepted as responder.
    pub max_dest_rd_atomic: u8,
    /// QP access flags: remote WRITE, READ, ATOMIC allowed.
    pub remote_write: bool,
    /// See `remote_write`.
    pub remote_read: bool,
    /// See `remote_write`.
    pub remote_atomic: bool,
    /// Bytes of requests that may be unacknowledged: what the peer's receive buffer is trusted to hold.
    pub window_bytes: u32,
}

/// Counts of one queue pair; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub packets_sent: u64,
    pub packets_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    pub retransmitted_packets: u64,
    pub timeouts: u64,
    pub sequence_naks_sent: u64,
    pub sequence_naks_received: u64,
    pub rnr_naks_sent: u64,
    pub rnr_naks_received: u64,
    pub access_naks_sent: u64,
    pub invalid_naks_sent: u64,
    pub naks_received: u64,
    pub duplicates_received: u64,
    pub out_of_sequence: u64,
    pub dropped: u64,
}

/// One RC queue pair: a requester and a responder that share a peer.
///
/// # Drive contract
/// * [`Rc::receive_ready`] on RTR, [`Rc::send_ready`] on RTS, [`Rc::reset`] on RESET.
/// * [`Rc::post_send`] queues a WQE; nothing leaves before [`Rc::poll_transmit`].
/// * [`Rc::handle_packet`] takes one packet whose ICRC, address and P_Key the caller has checked.
/// * After any of these calls, call [`Rc::poll_transmit`] until [`Rc::wants_transmit`] is false or the sink is full,
///   then read [`Rc::next_timeout`]: every call may have changed it.
/// * When that instant has come, call [`Rc::handle_timeout`], then poll again.
/// * A fatal condition moves the queue pair to ERR by itself ([`Rc::is_error`] turns true within the call) with all
///   queues flushed through the host in order: first the failing WQE with its status, then the rest, send queue and
///   receive queue, as `WorkRequestFlushed`.
#[derive(Debug)]
pub struct Rc {}

#[allow(unused_variables, clippy::todo, reason = "signatures first")]
impl Rc {
    /// A queue pair in RESET.
    pub fn new() -> Rc {
        Rc {}
    }

    /// Enters RTR: the responder accepts packets from now on.
    pub fn receive_ready(&mut self, attr: RcAttr) {
        todo!()
    }

    /// Enters RTS (again): the requester may send. Fields of the requester in `attr` (sq_psn, timeout, retry_cnt,
    /// rnr_retry, max_rd_atomic) take effect.
    pub fn send_ready(&mut self, attr: RcAttr) {
        todo!()
    }

    /// Changes attributes in RTR/RTS that may change there (access flags, min_rnr_timer).
    pub fn update(&mut self, attr: RcAttr) {
        todo!()
    }

    /// Forgets everything without completions (`IBV_QPS_RESET`).
    pub fn reset(&mut self) {
        todo!()
    }

    /// Moves to ERR (verb or fatal event) and flushes both queues in order. Idempotent; also called after WQEs were
    /// posted in ERR to flush them.
    pub fn fail<H: Host>(&mut self, host: &mut H) {
        todo!()
    }

    /// In ERR.
    pub fn is_error(&self) -> bool {
        todo!()
    }

    /// Queues a WQE. The caller has checked state, queue depth, SGE count and message length limit.
    pub fn post_send(&mut self, wqe: SendWqe) {
        todo!()
    }

    /// WQEs posted and not yet retired from the send queue (an unsignaled one retires with the next signaled one's
    /// completion or any later acknowledged progress, see the completion rules in `requester`).
    pub fn sends_outstanding(&self) -> u32 {
        todo!()
    }

    /// Takes one packet addressed to this queue pair.
    pub fn handle_packet<H: Host>(&mut self, now: Time, packet: &Packet<'_>, host: &mut H) {
        todo!()
    }

    /// Emits packets (responses first, then requests) until there is nothing to send now, `budget` bytes of packets
    /// were emitted, or the sink is full. Local faults found here complete the WQE in error.
    pub fn poll_transmit<H: Host, S: PacketSink>(
        &mut self,
        now: Time,
        host: &mut H,
        sink: &mut S,
        budget: usize,
    ) {
        todo!()
    }

    /// `poll_transmit` would emit something now.
    pub fn wants_transmit(&self) -> bool {
        todo!()
    }

    /// The earliest instant at which `handle_timeout` has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        todo!()
    }

    /// Fires the timers that are due (ACK timeout, RNR wait).
    pub fn handle_timeout<H: Host>(&mut self, now: Time, host: &mut H) {
        todo!()
    }

    /// Bytes of requests (and READ responses asked for) in flight.
    pub fn bytes_in_flight(&self) -> u32 {
        todo!()
    }

    /// Next PSN the requester will use, for `ibv_query_qp`.
    pub fn sq_psn(&self) -> Psn {
        todo!()
    }

    /// Next PSN the responder expects, for `ibv_query_qp`.
    pub fn rq_psn(&self) -> Psn {
        todo!()
    }

    /// Counts since creation.
    pub fn counters(&self) -> Counters {
        todo!()
    }
}
