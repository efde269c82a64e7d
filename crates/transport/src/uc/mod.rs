//! The unreliable connected transport service: SEND and RDMA WRITE without acknowledgements (IBTA
//! 9.8.2, 9.9.3).
//!
//! A work request is done when its last packet was handed over. What the responder cannot take,
//! because a packet was lost, no receive is posted, or a key or right is wrong, it drops message by
//! message without a word, and goes on with the next one.

mod execute;
mod requester;
mod responder;

use crate::output::Output;
use crate::rc::Drain;
use crate::unreliable::{SendQueue, State};
use crate::{Counters, Device, PacketSink, Pd, SendWqe, Time};
use alloc::collections::TryReserveError;
use responder::Responder;
use rnic_wire::{DEFAULT_PKEY, Packet, PathMtu, Psn, Service};

/// Attributes of a connected UC queue pair, as `ibv_modify_qp` sets them.
#[derive(Clone, Copy, Debug)]
pub struct UcAttr {
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
    /// QP access flags: remote WRITE allowed.
    pub remote_write: bool,
}

impl UcAttr {
    const NONE: UcAttr = UcAttr {
        qpn: 0,
        pd: Pd(0),
        dest_qpn: 0,
        mtu: PathMtu::M256,
        pkey: DEFAULT_PKEY,
        sq_psn: Psn::new(0),
        rq_psn: Psn::new(0),
        remote_write: false,
    };
}

/// One UC queue pair.
///
/// # Drive contract
/// That of [`Rc`](crate::Rc), without timers: nothing is awaited. A send that fails flushes the
/// send queue alone ([`Uc::is_send_error`]) until [`Uc::send_ready`] is called again; a receive
/// that fails moves all to ERR.
#[derive(Debug)]
pub struct Uc {
    state: State,
    attr: UcAttr,
    counters: Counters,
    sends: SendQueue,
    /// What the peer granted may belong to a connection before, or to another address.
    grants_outdated: bool,
    /// PSNs of the front WQE that were handed over.
    sent: u32,
    responder: Responder,
}

impl Default for Uc {
    fn default() -> Uc {
        Uc::new()
    }
}

impl Uc {
    /// A queue pair in RESET.
    pub fn new() -> Uc {
        Uc {
            state: State::Reset,
            attr: UcAttr::NONE,
            counters: Counters::default(),
            sends: SendQueue::default(),
            grants_outdated: false,
            sent: 0,
            responder: Responder::default(),
        }
    }

    /// Enters RTR: packets are taken from now on.
    pub fn receive_ready(&mut self, attr: UcAttr) {
        self.attr = attr;
        self.responder = Responder::new(attr.rq_psn);
        self.state = State::Rtr;
    }

    /// Enters RTS. `sq_psn` counts only when nothing was sent yet: after a send error the numbers
    /// go on.
    pub fn send_ready(&mut self, attr: UcAttr) {
        let resumed = self.state == State::SendError;
        self.attr = attr;
        if !resumed {
            self.sends.psn = attr.sq_psn;
        }
        self.state = State::Rts;
    }

    /// Changes what may change in RTR and RTS: the access flags.
    pub fn update(&mut self, attr: UcAttr) {
        self.attr.remote_write = attr.remote_write;
    }

    /// Changes what may change in SQD: the access flags and the P_Key.
    pub fn retune(&mut self, attr: UcAttr) {
        self.update(attr);
        self.attr.pkey = attr.pkey;
    }

    /// Enters SQD: a message whose first packet left is finished, no other starts. `notify`: the
    /// end of that is an event.
    pub fn drain<H: Device>(&mut self, notify: bool, device: &mut H) {
        if self.state == State::Rts {
            self.sends.drain(notify, self.sent > 0, device);
        }
    }

    /// It is in SQD, and its packets go another way, or come from another address, from now on: the
    /// peer may not take them, and does not say so.
    pub fn readdress(&mut self) {
        self.grants_outdated = true;
    }

    /// In SQD, and a message is under way.
    pub fn is_draining(&self) -> bool {
        self.sends.is_draining()
    }

    /// Leaves SQD for RTS.
    pub fn resume(&mut self) {
        self.sends.drain = Drain::No;
    }

    /// Takes memory for so many WQEs: up to that number none more is taken by posting.
    ///
    /// # Errors
    /// There is none.
    pub fn try_reserve_sends(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.sends.queue.try_reserve(most)
    }

    /// Forgets everything without completions (`IBV_QPS_RESET`). The counters and the queue's
    /// memory stay. Once connected, it does no WRITE without packets any more: only the peer knows
    /// whether it takes the PSNs of the next connection.
    pub fn reset(&mut self) {
        *self = Uc {
            grants_outdated: self.grants_outdated || self.state != State::Reset,
            counters: self.counters,
            sends: core::mem::take(&mut self.sends).reset(),
            ..Uc::new()
        };
    }

    /// As the last transition set them.
    pub fn attr(&self) -> &UcAttr {
        &self.attr
    }

    /// Moves to ERR and flushes both queues in order. Idempotent; also called after WQEs were
    /// posted in ERR.
    pub fn fail<H: Device>(&mut self, device: &mut H) {
        let entered = self.state != State::Error;
        self.state = State::Error;
        self.sent = 0;
        self.sends.flush(self.attr.qpn, device);
        self.responder.flush(&self.attr, entered, device);
    }

    /// In ERR.
    pub fn is_error(&self) -> bool {
        self.state == State::Error
    }

    /// In SQE: a send failed; receiving goes on.
    pub fn is_send_error(&self) -> bool {
        self.state == State::SendError
    }

    /// Queues a WQE. The caller has checked state, queue depth and SGE count.
    #[inline]
    pub fn post_send(&mut self, wqe: SendWqe) {
        self.sends.queue.push_back(wqe);
    }

    /// WQEs posted and not yet handed over.
    pub fn sends_outstanding(&self) -> u32 {
        self.sends.outstanding()
    }

    /// A receive is taken and not completed: a message is arriving, or one was dropped.
    pub fn holds_receive(&self) -> bool {
        self.responder.holds_receive()
    }

    /// A packet would take a receive: it starts a SEND or ends a WRITE with immediate data, and
    /// none is in use.
    pub fn needs_receive(&self, packet: &Packet<'_>) -> bool {
        let opcode = packet.bth.opcode;
        match (opcode.service(), opcode.operation()) {
            (Service::Uc, Some(operation)) => {
                !matches!(self.state, State::Reset | State::Error)
                    && self.responder.needs_receive(operation, packet.bth.psn)
            }
            _ => false,
        }
    }

    /// Takes one packet addressed to this queue pair.
    pub fn handle_packet<H: Device>(&mut self, _now: Time, packet: &Packet<'_>, device: &mut H) {
        self.counters.packets_received += 1;
        let opcode = packet.bth.opcode;
        let operation = match (opcode.service(), opcode.operation()) {
            (Service::Uc, Some(operation)) if self.state.receives(device) => operation,
            _ => {
                self.counters.dropped += 1;
                return;
            }
        };
        self.counters.bytes_received += packet.payload.len() as u64;
        let taken =
            self.responder
                .handle_packet(operation, packet, &self.attr, &mut self.counters, device);
        if taken.is_err() {
            self.fail(device);
        }
    }

    /// Emits packets until there is nothing to send, `budget` bytes were emitted (the packet that
    /// crosses that line is the last), or the sink is full. Gives what that took of the budget.
    pub fn poll_transmit<H: Device, S: PacketSink>(
        &mut self,
        _now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        let mut out = Output::new(sink, budget);
        match self.state {
            State::Rts => self.transmit(device, &mut out),
            State::SendError => self.sends.flush(self.attr.qpn, device),
            _ => {}
        }
        budget - out.left()
    }

    /// `poll_transmit` would emit something now, or complete a WQE.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        match self.state {
            State::Rts => self.may_send(),
            State::SendError => !self.sends.queue.is_empty(),
            _ => false,
        }
    }

    #[inline]
    fn may_send(&self) -> bool {
        !self.sends.queue.is_empty() && (self.sent > 0 || self.sends.may_begin())
    }

    /// None: nothing is awaited.
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Does nothing.
    pub fn handle_timeout<H: Device>(&mut self, _now: Time, _host: &mut H) {}

    /// PSN of the next packet sent.
    pub fn sq_psn(&self) -> Psn {
        self.sends.psn
    }

    /// PSN of the next packet expected.
    pub fn rq_psn(&self) -> Psn {
        self.responder.expected_psn()
    }

    /// Counts since creation.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
