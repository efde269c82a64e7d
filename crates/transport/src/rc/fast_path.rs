//! The fast path of the usual short message: a SEND of one packet that is posted while nothing
//! waits before it, one that comes as expected and finds its receive, and its ACK on either side.
//! An atomic and its answer likewise; and other requests of one packet leave as they are posted.
//!
//! All do what the general way does, of which nearly all is decided beforehand. Whatever is not
//! usual is left to that one as if it had not been tried here.

use super::{Failure, Rc, Requester, Role, Shared, State};
use crate::output::Output;
use crate::{AckRequest, Device, PacketSink, SendWqe, ShortSend, Time};
use rnic_wire::{Bth, Usual};

impl Rc {
    /// Sends a short message and queues it as sent, if it may leave at once. False: nothing was
    /// done, and it is one for [`Rc::post_fast`] or [`Rc::post_send`]. `ack_request` is for one
    /// that is not signaled, where it can be as said.
    #[inline(always)]
    pub fn post_short<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        short: &ShortSend<'_>,
        ack_request: AckRequest,
        device: &H,
        sink: &mut S,
    ) -> bool {
        self.state == State::Rts
            && self.requester.transmit_short(
                now,
                short,
                ack_request,
                &mut self.shared,
                device,
                sink,
            )
    }

    /// [`Rc::post_send`], and lets the WQE leave at once if it is one packet, whose turn it is, and
    /// may not do without. False: it is left to [`Rc::poll_transmit`]; if it cannot be sent, the
    /// queue pair may have failed.
    #[inline]
    pub fn post_fast<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        wqe: SendWqe,
        device: &mut H,
        sink: &mut S,
    ) -> bool {
        self.requester.post(wqe, &self.shared);
        if self.state != State::Rts {
            return false;
        }
        let mut out = Output::new(sink, usize::MAX);
        let sent = self
            .requester
            .transmit_fast(now, &mut self.shared, device, &mut out);
        match sent {
            Ok(left) => left,
            Err(failure) => {
                self.send_failed(failure, device);
                false
            }
        }
    }

    /// Does what was just posted, a WRITE or READ that is alone in its queue and needs no packets.
    /// False: nothing was done, and it is left to [`Rc::poll_transmit`].
    #[inline]
    pub fn execute_fast<H: Device>(&mut self, device: &mut H) -> bool {
        self.state == State::Rts && self.requester.execute_lone(&mut self.shared, device)
    }

    /// [`Rc::handle_packet`] of such a packet. False: it is not the usual one, and nothing was
    /// done.
    #[inline]
    pub fn take_fast<H: Device>(
        &mut self,
        now: Time,
        bth: &Bth,
        usual: Usual<'_>,
        device: &mut H,
    ) -> bool {
        if self.shared.attr.role != Role::Rc {
            return false;
        }
        match usual {
            Usual::Send(payload) => {
                matches!(self.state, State::RtrCommunicating | State::Rts)
                    && self
                        .responder
                        .take_fast(bth, payload, &mut self.shared, device)
            }
            Usual::Atomic(header) => {
                matches!(self.state, State::RtrCommunicating | State::Rts)
                    && self
                        .responder
                        .take_atomic_fast(bth, &header, &mut self.shared, device)
            }
            Usual::Acknowledge(aeth) => self.take_answer(device, |requester, sh, device| {
                requester.handle_ack(bth.psn, aeth, now, sh, device)
            }),
            Usual::AtomicAcknowledge(_, ack) => {
                self.take_answer(device, |requester, sh, device| {
                    requester.handle_atomic_ack(bth.psn, ack.original, now, sh, device)
                })
            }
        }
    }

    /// Has the requester take an answer; false: the state is not one for it, and nothing was done.
    #[inline]
    fn take_answer<H: Device>(
        &mut self,
        device: &mut H,
        take: impl FnOnce(&mut Requester, &mut Shared, &mut H) -> Result<(), Failure>,
    ) -> bool {
        if self.state != State::Rts {
            return false;
        }
        self.shared.counters.packets_received += 1;
        let taken = take(&mut self.requester, &mut self.shared, device);
        self.answered(taken, device);
        true
    }

    /// [`Rc::poll_transmit`] where the answer to an atomic, or to a READ of one packet, is all that
    /// there is to say. False: it is not, or it may not leave so, and nothing was done; or the
    /// queue pair has failed.
    #[inline]
    pub fn answer_fast<H: Device, S: PacketSink>(&mut self, device: &mut H, sink: &mut S) -> bool {
        let may = matches!(self.state, State::RtrCommunicating | State::Rts)
            && self.shared.attr.role == Role::Rc
            && self.responder.owes_only_answer()
            && !self.may_request();
        if !may {
            return false;
        }
        if !self.responder.owes_short_read(self.shared.mtu) {
            return self.responder.answer_fast(&mut self.shared, device, sink);
        }
        self.transmit_answers(device, &mut Output::new(sink, usize::MAX));
        !self.wants_transmit() && !self.is_error()
    }

    /// [`Rc::poll_transmit`] where an ACK is all that there is to say. False: it is not, or the ACK
    /// may not leave as a short packet, and nothing was done.
    #[inline]
    pub fn acknowledge_fast<H: Device, S: PacketSink>(&mut self, device: &H, sink: &mut S) -> bool {
        matches!(self.state, State::RtrCommunicating | State::Rts)
            && self.shared.attr.role == Role::Rc
            && !self.may_request()
            && self
                .responder
                .acknowledge_fast(&mut self.shared, device, sink)
    }
}
