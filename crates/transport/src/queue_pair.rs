//! A queue pair of any transport service.

use alloc::collections::TryReserveError;

use crate::{Counters, Device, PacketSink, Rc, SendWqe, Time, Uc, Ud};
use rnic_wire::{Packet, Psn, UdPrefix};

/// A queue pair of any service, for whoever drives them alike.
///
/// The drive contract is that of [`Rc`]; what a service has no use for (timers where nothing is
/// awaited) it answers with nothing. What differs, the attributes on the way to RTR and RTS, is set
/// on the service itself.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "RC is both the largest and the usual one"
)]
pub enum QueuePair {
    /// Reliable connected.
    Rc(Rc),
    /// Unreliable connected.
    Uc(Uc),
    /// Unreliable datagram.
    Ud(Ud),
}

/// The same call on whatever service it is: known at compile time, so that the hot paths inline.
macro_rules! each {
    ($self:expr, $qp:ident => $call:expr) => {
        match $self {
            QueuePair::Rc($qp) => $call,
            QueuePair::Uc($qp) => $call,
            QueuePair::Ud($qp) => $call,
        }
    };
}

impl QueuePair {
    /// Forgets everything without completions (`IBV_QPS_RESET`). The counters stay.
    pub fn reset(&mut self) {
        each!(self, qp => qp.reset());
    }

    /// Moves to ERR and flushes both queues in order; also called after WQEs were posted in ERR.
    /// Idempotent.
    pub fn fail<H: Device>(&mut self, device: &mut H) {
        each!(self, qp => qp.fail(device));
    }

    /// Enters SQD: what was begun of the send queue is finished, nothing new begins. `notify`: its
    /// end is [`crate::QpEvent::SendQueueDrained`].
    pub fn drain<H: Device>(&mut self, notify: bool, device: &mut H) {
        each!(self, qp => qp.drain(notify, device));
    }

    /// In SQD, and something is still under way.
    pub fn is_draining(&self) -> bool {
        each!(self, qp => qp.is_draining())
    }

    /// Leaves SQD for RTS.
    pub fn resume(&mut self) {
        each!(self, qp => qp.resume());
    }

    /// Operations done without packets.
    #[inline]
    pub fn without_packets(&self) -> u64 {
        match self {
            QueuePair::Rc(rc) => rc.without_packets(),
            QueuePair::Uc(uc) => uc.without_packets(),
            QueuePair::Ud(_) => 0,
        }
    }

    /// In ERR.
    #[inline]
    pub fn is_error(&self) -> bool {
        each!(self, qp => qp.is_error())
    }

    /// In SQE: a send failed, the send queue was flushed, receiving goes on.
    #[inline]
    pub fn is_send_error(&self) -> bool {
        match self {
            QueuePair::Rc(_) => false,
            QueuePair::Uc(uc) => uc.is_send_error(),
            QueuePair::Ud(ud) => ud.is_send_error(),
        }
    }

    /// Takes memory for so many send WQEs: up to that number none more is taken by posting.
    ///
    /// # Errors
    /// There is none.
    pub fn try_reserve_sends(&mut self, most: usize) -> Result<(), TryReserveError> {
        each!(self, qp => qp.try_reserve_sends(most))
    }

    /// Queues a WQE. The caller has checked state, queue depth, SGE count and that the service has
    /// the operation.
    #[inline]
    pub fn post_send(&mut self, wqe: SendWqe) {
        each!(self, qp => qp.post_send(wqe));
    }

    /// WQEs posted and not yet retired.
    pub fn sends_outstanding(&self) -> u32 {
        each!(self, qp => qp.sends_outstanding())
    }

    /// A receive was taken and is not complete.
    pub fn holds_receive(&self) -> bool {
        each!(self, qp => qp.holds_receive())
    }

    /// A packet of UC or UD would be lost if no receive were posted.
    #[inline]
    pub fn needs_receive(&self, packet: &Packet<'_>) -> bool {
        match self {
            QueuePair::Rc(_) => false,
            QueuePair::Uc(uc) => uc.needs_receive(packet),
            QueuePair::Ud(ud) => ud.needs_receive(packet),
        }
    }

    /// Takes one packet addressed to this queue pair, whose ICRC and P_Key, and on a connection
    /// whose addresses, the caller has checked. `prefix` is asked for what a datagram's receive
    /// begins with.
    #[inline]
    pub fn handle_packet<H: Device>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        prefix: impl FnOnce() -> UdPrefix,
        device: &mut H,
    ) {
        match self {
            QueuePair::Rc(rc) => rc.handle_packet(now, packet, device),
            QueuePair::Uc(uc) => uc.handle_packet(now, packet, device),
            QueuePair::Ud(ud) => ud.handle_packet(now, packet, &prefix(), device),
        }
    }

    /// Emits packets until there is nothing to send now, about `budget` bytes were emitted, or the
    /// sink is full. Gives what that took of the budget.
    #[inline]
    pub fn poll_transmit<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        each!(self, qp => qp.poll_transmit(now, device, sink, budget))
    }

    /// As `poll_transmit`, but an ACK that is all the responder has to say stays owed.
    #[inline]
    pub fn poll_requests<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        match self {
            QueuePair::Rc(rc) => rc.poll_requests(now, device, sink, budget),
            QueuePair::Uc(uc) => uc.poll_transmit(now, device, sink, budget),
            QueuePair::Ud(ud) => ud.poll_transmit(now, device, sink, budget),
        }
    }

    /// An ACK is all that the responder has to say.
    #[inline]
    pub fn owes_only_ack(&self) -> bool {
        match self {
            QueuePair::Rc(rc) => rc.owes_only_ack(),
            QueuePair::Uc(_) | QueuePair::Ud(_) => false,
        }
    }

    /// The requester has something to send.
    #[inline]
    pub fn may_request(&self) -> bool {
        match self {
            QueuePair::Rc(rc) => rc.may_request(),
            QueuePair::Uc(uc) => uc.wants_transmit(),
            QueuePair::Ud(ud) => ud.wants_transmit(),
        }
    }

    /// `poll_transmit` would emit something now, or complete a WQE.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        each!(self, qp => qp.wants_transmit())
    }

    /// The earliest instant at which `handle_timeout` has something to do.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        each!(self, qp => qp.next_timeout())
    }

    /// Fires the timers that are due.
    pub fn handle_timeout<H: Device>(&mut self, now: Time, device: &mut H) {
        each!(self, qp => qp.handle_timeout(now, device));
    }

    /// Next PSN the requester will use.
    pub fn sq_psn(&self) -> Psn {
        each!(self, qp => qp.sq_psn())
    }

    /// Next PSN the responder expects.
    pub fn rq_psn(&self) -> Psn {
        each!(self, qp => qp.rq_psn())
    }

    /// Counts since creation.
    pub fn counters(&self) -> Counters {
        each!(self, qp => qp.counters())
    }
}
