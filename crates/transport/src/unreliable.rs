//! What the services without acknowledgements have in common: the send queue, whose work requests
//! are done when their last packet has been handed over, and the states.

use crate::completion::{Failure, vendor_err};
use crate::fifo::Fifo;
use crate::rc::Drain;
use crate::scatter::SgCursor;
use crate::{
    Completion, Counters, Device, Evidence, Immediate, LocalFault, Pd, QpEvent, SendData,
    SendFailed, SendWqe, Status,
};
use rnic_wire::Psn;

/// Where in its life a queue pair is. INIT is RESET here: nothing is sent or taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Reset,
    /// Receives; nothing has come yet.
    Rtr,
    /// Receives.
    RtrCommunicating,
    /// Receives and sends.
    Rts,
    /// Receives; a send failed and all that follow are flushed, until [`State::Rts`] again (IBTA
    /// 10.3.1.6).
    SendError,
    Error,
}

impl State {
    /// Takes note of a packet that came: may it be received?
    #[inline]
    pub(crate) fn receives<H: Device>(&mut self, device: &mut H) -> bool {
        match self {
            State::RtrCommunicating | State::Rts | State::SendError => true,
            State::Rtr => {
                *self = State::RtrCommunicating;
                device.event(QpEvent::CommunicationEstablished);
                true
            }
            State::Reset | State::Error => false,
        }
    }
}

/// The send queue.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    pub(crate) queue: Fifo<SendWqe>,
    /// PSN of the next packet.
    pub(crate) psn: Psn,
    /// Where in the front's list the next packet starts.
    cursor: SgCursor,
    /// In SQD: nothing new begins.
    pub(crate) drain: Drain,
}

impl SendQueue {
    /// A new one with the memory of this one.
    pub(crate) fn reset(mut self) -> SendQueue {
        self.queue.clear();
        SendQueue {
            queue: self.queue,
            ..SendQueue::default()
        }
    }

    /// The front's last packet was handed over.
    #[inline]
    pub(crate) fn complete_front<H: Device>(
        &mut self,
        qpn: u32,
        counters: &mut Counters,
        device: &mut H,
    ) {
        self.cursor = SgCursor::default();
        if let Some(wqe) = self.queue.pop_front() {
            counters.messages_sent += 1;
            counters.requested.requested(&wqe.op, wqe.data.len());
            if wqe.signaled {
                device.complete_send(completion(&wqe, qpn, Status::Success, 0));
            }
        }
    }

    /// Enters SQD; `under_way`: packets of the front have left.
    pub(crate) fn drain<H: Device>(&mut self, notify: bool, under_way: bool, device: &mut H) {
        self.drain = Drain::Draining { notify };
        if !under_way {
            self.note_drained(device);
        }
    }

    /// Nothing is under way.
    #[inline]
    pub(crate) fn note_drained<H: Device>(&mut self, device: &mut H) {
        if let Drain::Draining { notify } = self.drain {
            self.drain = Drain::Drained;
            if notify {
                device.event(QpEvent::SendQueueDrained);
            }
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.drain, Drain::Draining { .. })
    }

    /// A new message may begin.
    #[inline]
    pub(crate) fn may_begin(&self) -> bool {
        self.drain == Drain::No
    }

    /// The front failed: it completes so, and all others are flushed.
    /// `longest`: bytes of the longest message.
    #[cold]
    pub(crate) fn fail_front<H: Device>(
        &mut self,
        failure: Failure,
        qpn: u32,
        longest: u64,
        device: &mut H,
    ) {
        if let Some(wqe) = self.queue.pop_front() {
            device.evidence(&Evidence::SendFailed(SendFailed {
                op: wqe.op,
                len: wqe.data.len(),
                longest,
                psn: self.psn,
                sent: false,
                tries: 0,
                received: 0,
                received_ever: 0,
                answered: false,
                start_psn: self.psn,
                peer_expects: None,
                waited_ns: 0,
                stopped_ns: 0,
                response: None,
            }));
            let Failure { status, vendor_err } = failure;
            device.complete_send(completion(&wqe, qpn, status, vendor_err));
        }
        self.flush(qpn, device);
    }

    /// Completes all WQEs as flushed.
    pub(crate) fn flush<H: Device>(&mut self, qpn: u32, device: &mut H) {
        self.cursor = SgCursor::default();
        self.drain = Drain::No;
        while let Some(wqe) = self.queue.pop_front() {
            let (status, detail) = (Status::WorkRequestFlushed, vendor_err::FLUSHED);
            device.complete_send(completion(&wqe, qpn, status, detail));
        }
    }

    pub(crate) fn outstanding(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Copies the part of the front's message that starts at `offset`.
    #[inline]
    pub(crate) fn fill<H: Device>(
        &mut self,
        pd: Pd,
        offset: u64,
        payload: &mut [u8],
        device: &H,
    ) -> Result<(), LocalFault> {
        match self.queue.front().map(|wqe| &wqe.data) {
            _ if payload.is_empty() => Ok(()),
            Some(SendData::Gather(list)) => {
                self.cursor.seek(list, offset);
                self.cursor.gather(device, pd, list, payload)
            }
            Some(SendData::Inline(bytes)) => {
                let from = offset as usize;
                payload.copy_from_slice(&bytes[from..from + payload.len()]);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn completion(wqe: &SendWqe, qpn: u32, status: Status, vendor_err: u32) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        status,
        opcode: wqe.op.completion_opcode(),
        byte_len: 0,
        vendor_err,
        qpn,
        src_qpn: 0,
        immediate: Immediate::None,
        grh: None,
        pkey_index: 0,
        solicited: status != Status::Success,
    }
}
