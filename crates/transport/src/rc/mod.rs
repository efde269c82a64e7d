//! The reliable connected transport service, and the extended one (XRC, IBTA vol. 1, annex A14),
//! whose two ends are a requester and a responder.

mod drain;
mod fast_path;
mod requester;
mod resources;
mod responder;
#[cfg(test)]
pub(crate) mod testing;
mod timer;

use crate::completion::Failure;
use crate::output::Output;
use crate::{Counters, Device, PacketSink, Pd, Placement, QpEvent, SendWqe, Time};
use alloc::collections::TryReserveError;
pub(crate) use drain::Drain;
pub(crate) use requester::MAX_MESSAGE;
use requester::Requester;
pub use responder::{Delegate, Verdict};
use responder::{Fatal, Responder};
use rnic_wire::{Bth, DEFAULT_PKEY, Opcode, Operation, Packet, PathMtu, Psn, Service};

/// Which service a reliable connection is of, and which part of it the queue pair plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// RC: requester and responder.
    #[default]
    Rc,
    /// XRC initiator: a requester alone. Each of its messages names an SRQ of the peer.
    XrcInitiator,
    /// XRC target: a responder alone. Each request works with the SRQ that it names.
    XrcTarget,
}

impl Role {
    const fn service(self) -> Service {
        match self {
            Role::Rc => Service::Rc,
            Role::XrcInitiator | Role::XrcTarget => Service::Xrc,
        }
    }
}

/// Attributes of a connected RC queue pair, as `ibv_modify_qp` sets them.
#[derive(Clone, Copy, Debug)]
pub struct RcAttr {
    /// Service and part in it.
    pub role: Role,
    /// Own QP number.
    pub qpn: u32,
    /// Protection domain. An XRC target works in those of the SRQs instead.
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
    /// QP access flags: FLUSH to these placements allowed.
    pub flush: Placement,
    /// Bytes of requests that may be unacknowledged: what the peer's receive buffer is trusted to
    /// hold.
    pub window_bytes: u32,
}

/// One RC queue pair: a requester and a responder that share a peer.
///
/// # Drive contract
/// * [`Rc::receive_ready`] on RTR, [`Rc::send_ready`] on RTS, [`Rc::drain`] on SQD and
///   [`Rc::resume`] after it, [`Rc::reset`] on RESET.
/// * [`Rc::post_send`] queues a WQE; nothing leaves before [`Rc::poll_transmit`].
/// * [`Rc::handle_packet`] takes one packet whose ICRC, address and P_Key the caller has checked.
/// * After any of these calls, call [`Rc::poll_transmit`] until [`Rc::wants_transmit`] is false or
///   the sink is full, then read [`Rc::next_timeout`]: every call may have changed it.
/// * When that instant has come, call [`Rc::handle_timeout`], then poll again.
/// * A fatal condition moves the queue pair to ERR by itself ([`Rc::is_error`] turns true within
///   the call) with all queues flushed through the device in order: first the failing WQE with its
///   status, then the rest, send queue and receive queue, as `WorkRequestFlushed`.
#[derive(Debug)]
pub struct Rc {
    state: State,
    shared: Shared,
    requester: Requester,
    responder: Responder,
    /// READ responses left no room for the requests that waited: these come first in the next
    /// batch.
    requests_first: bool,
    drain: Drain,
}

/// Where in its life the queue pair is. INIT is RESET here: nothing is sent or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reset,
    /// Receives; nothing has come yet.
    Rtr,
    /// Receives.
    RtrCommunicating,
    /// Receives and sends.
    Rts,
    Error,
}

/// What requester and responder have in common.
#[derive(Debug)]
struct Shared {
    attr: RcAttr,
    /// Path MTU in bytes.
    mtu: u32,
    counters: Counters,
}

impl Shared {
    /// The BTH of an outgoing packet without payload.
    #[inline]
    fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        Bth {
            opcode,
            // "Migrated", the state of a queue pair without an alternate path (IBTA 17.2.8).
            mig_req: true,
            pkey: self.attr.pkey,
            dest_qp: self.attr.dest_qpn,
            psn,
            ..Bth::default()
        }
    }
}

impl Default for Rc {
    fn default() -> Rc {
        Rc::new()
    }
}

impl Rc {
    /// A queue pair in RESET.
    pub fn new() -> Rc {
        let attr = RcAttr {
            role: Role::Rc,
            qpn: 0,
            pd: Pd(0),
            dest_qpn: 0,
            mtu: PathMtu::M256,
            pkey: DEFAULT_PKEY,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            min_rnr_timer: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            remote_write: false,
            remote_read: false,
            remote_atomic: false,
            flush: Placement::default(),
            window_bytes: 0,
        };
        Rc {
            state: State::Reset,
            shared: Shared {
                attr,
                mtu: attr.mtu.bytes() as u32,
                counters: Counters::default(),
            },
            requester: Requester::default(),
            responder: Responder::default(),
            requests_first: false,
            drain: Drain::No,
        }
    }

    fn set_attr(&mut self, attr: RcAttr) {
        self.shared.attr = attr;
        self.shared.mtu = attr.mtu.bytes() as u32;
    }

    /// Enters RTR: the responder accepts packets from now on.
    pub fn receive_ready(&mut self, attr: RcAttr) {
        self.set_attr(attr);
        self.responder = Responder::new(&self.shared);
        self.state = State::Rtr;
    }

    /// Enters RTS (again): the requester may send. Fields of the requester in `attr` (sq_psn,
    /// timeout, retry_cnt, rnr_retry, max_rd_atomic) take effect.
    pub fn send_ready(&mut self, attr: RcAttr) {
        self.set_attr(attr);
        self.requester.start(&self.shared);
        self.state = State::Rts;
    }

    /// Changes attributes in RTR/RTS that may change there (access flags, min_rnr_timer).
    pub fn update(&mut self, attr: RcAttr) {
        let own = &mut self.shared.attr;
        own.remote_write = attr.remote_write;
        own.remote_read = attr.remote_read;
        own.remote_atomic = attr.remote_atomic;
        own.flush = attr.flush;
        own.min_rnr_timer = attr.min_rnr_timer;
    }

    /// Takes memory for so many WQEs: up to that number none more is taken by posting.
    ///
    /// # Errors
    /// There is none.
    pub fn try_reserve_sends(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.requester.try_reserve(most)
    }

    /// Forgets everything without completions (`IBV_QPS_RESET`). The counters and the queue's
    /// memory stay.
    pub fn reset(&mut self) {
        let counters = self.shared.counters;
        let requester = core::mem::take(&mut self.requester);
        *self = Rc::new();
        self.requester = requester.reset();
        self.shared.counters = counters;
    }

    /// Moves to ERR (verb or fatal event) and flushes both queues in order. Idempotent; also called
    /// after WQEs were posted in ERR to flush them.
    pub fn fail<H: Device>(&mut self, device: &mut H) {
        if self.state != State::Error {
            self.responder.drop_answers();
        }
        self.enter_error(device);
    }

    /// ERR with the answers that are still queued: what the responder has to say of its own
    /// failure.
    fn enter_error<H: Device>(&mut self, device: &mut H) {
        let entered = self.state != State::Error;
        self.state = State::Error;
        self.drain = Drain::No;
        self.requester.flush(&self.shared, device);
        self.responder.flush(&self.shared, device);
        if entered && device.receives_posted().is_none() {
            device.event(QpEvent::LastWqeReached);
        }
    }

    /// A send WQE failed.
    #[cold]
    fn send_failed<H: Device>(&mut self, failure: Failure, device: &mut H) {
        if let Some(evidence) = self.requester.failure_evidence(&self.shared) {
            device.evidence(&evidence);
        }
        self.requester.fail_front(failure, &self.shared, device);
        self.fail(device);
    }

    /// The responder refused a request for good.
    #[cold]
    fn request_refused<H: Device>(&mut self, fatal: Fatal, device: &mut H) {
        self.enter_error(device);
        if let Some(event) = fatal.event {
            device.event(event);
        }
    }

    /// In ERR.
    pub fn is_error(&self) -> bool {
        self.state == State::Error
    }

    /// Queues a WQE. The caller has checked state, queue depth, SGE count and message length limit.
    #[inline]
    pub fn post_send(&mut self, wqe: SendWqe) {
        self.requester.post(wqe, &self.shared);
    }

    /// WQEs posted and not yet retired from the send queue. A WQE retires when it is acknowledged,
    /// in order, signaled or not; the rule of real hardware, where an unsignaled one keeps its
    /// place until a later completion is polled, is the caller's.
    pub fn sends_outstanding(&self) -> u32 {
        u32::try_from(self.requester.outstanding()).unwrap_or(u32::MAX)
    }

    /// A receive was taken from the device and is not complete: RESET forgets it without a
    /// completion.
    pub fn holds_receive(&self) -> bool {
        self.responder.holds_receive()
    }

    /// Takes one packet addressed to this queue pair.
    pub fn handle_packet<H: Device>(&mut self, now: Time, packet: &Packet<'_>, device: &mut H) {
        let counters = &mut self.shared.counters;
        counters.packets_received += 1;
        let opcode = packet.bth.opcode;
        let operation = match (self.state, opcode.service(), opcode.operation()) {
            (State::Rtr | State::RtrCommunicating | State::Rts, service, Some(operation))
                if service == self.shared.attr.role.service() =>
            {
                operation
            }
            _ => {
                counters.dropped += 1;
                return;
            }
        };
        counters.bytes_received += packet.payload.len() as u64;
        if operation.is_response() {
            if self.state == State::Rts && self.shared.attr.role != Role::XrcTarget {
                let taken = self.handle_response(now, operation, packet, device);
                self.answered(taken, device);
            } else {
                counters.dropped += 1;
            }
            return;
        }
        if self.shared.attr.role == Role::XrcInitiator {
            counters.dropped += 1;
            return;
        }
        if self.state == State::Rtr {
            self.state = State::RtrCommunicating;
            device.event(QpEvent::CommunicationEstablished);
        }
        if let Err(fatal) =
            self.responder
                .handle_request(operation, packet, &mut self.shared, device)
        {
            self.request_refused(fatal, device);
        }
    }

    /// Another process has executed, or refused, the request in `packet`, which
    /// [`Rc::handle_packet`] had left because of [`Device::is_remote_srq`].
    pub fn executed_by_srq_owner<H: Device>(
        &mut self,
        packet: &Packet<'_>,
        verdict: Verdict,
        device: &mut H,
    ) {
        let Some(operation) = packet.bth.opcode.operation() else {
            return;
        };
        if self.state == State::Error || self.shared.attr.role != Role::XrcTarget {
            return;
        }
        let sh = &mut self.shared;
        if let Err(fatal) = self
            .responder
            .executed_by_srq_owner(operation, packet, verdict, sh, device)
        {
            self.request_refused(fatal, device);
        }
    }

    /// What [`Device::is_at_hand`] had to fetch has come, or cannot be had: reading it says so.
    pub fn memory_came(&mut self) {
        self.responder.memory_came();
    }

    /// What it was connected with.
    pub fn attr(&self) -> &RcAttr {
        &self.shared.attr
    }

    /// The peer's answer was taken, by which the send queue may have come to rest, or failed.
    #[inline]
    fn answered<H: Device>(&mut self, taken: Result<(), Failure>, device: &mut H) {
        match taken {
            Ok(()) => self.note_drained(device),
            Err(failure) => self.send_failed(failure, device),
        }
    }

    fn handle_response<H: Device>(
        &mut self,
        now: Time,
        operation: Operation,
        packet: &Packet<'_>,
        device: &mut H,
    ) -> Result<(), Failure> {
        let (requester, sh) = (&mut self.requester, &mut self.shared);
        let psn = packet.bth.psn;
        match (operation, packet.ext.aeth, packet.ext.atomic_ack) {
            (Operation::Acknowledge, Some(aeth), _) => {
                requester.handle_ack(psn, aeth, now, sh, device)
            }
            (Operation::AtomicAcknowledge, _, Some(ack)) => {
                requester.handle_atomic_ack(psn, ack.original, now, sh, device)
            }
            (Operation::Acknowledge | Operation::AtomicAcknowledge, ..) => {
                sh.counters.dropped += 1;
                Ok(())
            }
            _ => requester.handle_read_response(psn, operation, packet.payload, now, sh, device),
        }
    }

    /// Emits packets until there is nothing to send now, `budget` bytes of packets were emitted
    /// (the packet that crosses that line is the last), or the sink is full. Answers come before
    /// requests, except that a stream of READ responses takes no more than about half of a batch
    /// from requests that wait. Local faults found here complete the WQE in error. Gives what that
    /// took of the budget.
    pub fn poll_transmit<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        let mut out = Output::new(sink, budget);
        let waiting = self.may_request();
        // A lone ACK behind a short request leaves with it in one batch: it is the shorter one.
        if waiting && (self.requests_first || self.responder.owes_only_ack()) {
            out.half(|out| self.transmit_requests(now, device, out));
        }
        if waiting {
            out.half(|out| self.transmit_answers(device, out));
        } else {
            self.transmit_answers(device, &mut out);
        }
        let sent = self.shared.counters.packets_sent;
        self.transmit_requests(now, device, &mut out);
        self.requests_first =
            waiting && !self.requests_first && sent == self.shared.counters.packets_sent;
        self.transmit_answers(device, &mut out);
        budget - out.left()
    }

    /// As [`Rc::poll_transmit`], but an ACK that is all the responder has to say stays owed, and
    /// [`Rc::wants_transmit`] true: the caller is in a hurry with a request and will be back at
    /// once.
    pub fn poll_requests<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        if self.responder.owes_only_ack() {
            let mut out = Output::new(sink, budget);
            self.transmit_requests(now, device, &mut out);
            budget - out.left()
        } else {
            self.poll_transmit(now, device, sink, budget)
        }
    }

    /// Whether others wait behind what this queue pair has under way. If so, its window is limited.
    pub fn limit_head_of_line(&mut self, others_wait: bool) {
        self.requester.limit_head_of_line(others_wait);
    }

    /// Several packets cost little more than one by the way that they take, or each the same: short
    /// READs and atomics then wait for others, if as many as may be are under way.
    pub fn send_in_trains(&mut self, trains: bool) {
        self.requester.send_in_trains(trains);
    }

    fn transmit_requests<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) {
        if self.state == State::Rts {
            match self.requester.transmit(now, &mut self.shared, device, out) {
                Ok(()) => self.note_drained(device),
                Err(failure) => self.send_failed(failure, device),
            }
        }
    }

    fn transmit_answers<H: Device, S: PacketSink>(
        &mut self,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) {
        if let Err(fatal) = self.responder.transmit(&mut self.shared, device, out) {
            self.request_refused(fatal, device);
            // Now its queue holds the NAK alone, which cannot fail.
            let _ = self.responder.transmit(&mut self.shared, device, out);
        }
    }

    /// The requester has something to send now.
    pub fn may_request(&self) -> bool {
        self.state == State::Rts && self.requester.can_send(&self.shared)
    }

    /// From now on no request leaves, or they may again. What is under way goes on: one packet may
    /// still leave to ask for the answer. So does the responder.
    pub fn hold_back(&mut self, held: bool) {
        self.requester.hold_back(held);
    }

    /// See [`Rc::hold_back`].
    pub fn is_held_back(&self) -> bool {
        self.requester.is_held_back()
    }

    /// ACK timeouts since there was progress.
    pub fn consecutive_ack_timeouts(&self) -> u32 {
        self.requester.consecutive_ack_timeouts
    }

    /// An answer is awaited, in time for the ACK timeout: also where what is under way is asked
    /// about, or is about to be.
    #[inline]
    pub fn awaits_answer(&self) -> bool {
        self.requester.timers.is_set(timer::Timer::AckTimeout)
    }

    /// Grows as requests are acknowledged.
    #[inline]
    pub fn acknowledged(&self) -> u64 {
        self.requester.acknowledged()
    }

    /// The ACK timeout is over at `now`: before [`Rc::handle_timeout`] is called,
    /// [`Rc::peer_stopped`] is to be told whether the peer can answer at all, where the device can
    /// find that out.
    pub fn answer_is_overdue(&self, now: Time) -> bool {
        self.requester.timers.is_due(timer::Timer::AckTimeout, now)
    }

    /// The peer's process is stopped, or is not. While it is, the ACK timeout costs no retry and
    /// nothing is sent again; when it is not any more, and still silent at the next ACK timeout,
    /// everything is, once, without one.
    pub fn peer_stopped(&mut self, stopped: bool) {
        self.requester.peer_stopped(stopped);
    }

    /// Over XRC, the shared receive queue that the oldest request names whose answer is awaited.
    pub fn awaited_srq(&self) -> Option<u32> {
        self.requester.awaited_srq(&self.shared)
    }

    /// An ACK is all that the responder has to say.
    pub fn owes_only_ack(&self) -> bool {
        self.responder.owes_only_ack()
    }

    /// A WQE that is signaled is expected to be posted soon, or not: what is in the queue need not
    /// ask for acknowledges of its own.
    #[inline]
    pub fn expect_more(&mut self, more: bool) {
        self.requester.more = more;
    }

    /// Requests are under way, and a timer runs for them.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        self.requester.bytes_in_flight() > 0 && self.requester.timers.next().is_some()
    }

    /// What was posted last is a short WRITE or READ, and nothing is under way or waits that needs
    /// packets: it may be done in a row with others ([`Device::execute_row`]).
    #[inline]
    pub fn waits_for_row(&self) -> bool {
        self.state == State::Rts && self.requester.waits_for_row(&self.shared)
    }

    /// Some packet that points at memory of this key is not acknowledged.
    pub fn points_at(&self, lkey: u32) -> bool {
        self.requester.points_at(lkey)
    }

    /// `poll_transmit` would emit something now, or complete a WQE that it finds cannot be sent.
    pub fn wants_transmit(&self) -> bool {
        self.responder.can_send() || self.may_request()
    }

    /// The earliest instant at which `handle_timeout` has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        self.requester.timers.next()
    }

    /// Fires the timers that are due (ACK timeout, RNR wait, tail loss probe, ACK request).
    pub fn handle_timeout<H: Device>(&mut self, now: Time, device: &mut H) {
        let sh = &mut self.shared;
        self.requester.overslept(now, sh);
        if let Err(failure) = self.requester.handle_timeout(now, sh, device) {
            self.send_failed(failure, device);
        }
    }

    /// Bytes of requests (and READ responses asked for) in flight, with overhead for headers.
    pub fn bytes_in_flight(&self) -> u32 {
        u32::try_from(self.requester.bytes_in_flight()).unwrap_or(u32::MAX)
    }

    /// Next PSN the requester will use, for `ibv_query_qp`.
    pub fn sq_psn(&self) -> Psn {
        self.requester.next_new_psn()
    }

    /// Next PSN the responder expects, for `ibv_query_qp`.
    pub fn rq_psn(&self) -> Psn {
        self.responder.expected_psn()
    }

    /// Counts since creation.
    pub fn counters(&self) -> Counters {
        self.shared.counters
    }

    /// Operations done without packets.
    #[inline]
    pub fn without_packets(&self) -> u64 {
        let by = &self.shared.counters.without_packets;
        by.write.messages + by.read.messages
    }
}
