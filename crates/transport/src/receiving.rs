//! Receive WQEs while messages go into them, and how they end.

use crate::completion::vendor_err;
use crate::scatter::{SgCursor, total_len};
use crate::{
    Completion, CompletionOpcode, Device, Immediate, LocalFault, Misplaced, Pd, QpEvent, RecvWqe,
    Status,
};
use rnic_wire::Payload;

/// A receive WQE in use. RC fills it with one message; UC, which drops messages, with one after the
/// other until one arrives whole.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) wqe: RecvWqe,
    /// Of its keys.
    pd: Pd,
    cursor: SgCursor,
    pub(crate) room: u64,
    pub(crate) filled: u64,
}

impl Receiving {
    /// The oldest receive; `own` is the queue pair's protection domain.
    pub(crate) fn take<H: Device>(own: Pd, device: &mut H) -> Option<Receiving> {
        let wqe = device.take_receive()?;
        Some(Receiving {
            room: total_len(&wqe.sges),
            wqe,
            pd: device.receive_pd(own),
            cursor: SgCursor::default(),
            filled: 0,
        })
    }

    /// A new message starts.
    pub(crate) fn rewind(&mut self) {
        self.cursor = SgCursor::default();
        self.filled = 0;
    }

    /// Bytes that still fit.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.room - self.filled
    }

    /// Stores what comes next; the caller has looked at [`Receiving::left`]. Of what is lost on the
    /// way nothing counts.
    #[inline]
    pub(crate) fn store<H: Device>(
        &mut self,
        data: Payload<'_>,
        device: &mut H,
    ) -> Result<(), Misplaced<LocalFault>> {
        let before = self.cursor;
        let stored = self.cursor.scatter(device, self.pd, &self.wqe.sges, data);
        match stored {
            Ok(()) => self.filled += data.len() as u64,
            Err(_) => self.cursor = before,
        }
        stored
    }
}

/// The completion of a receive that failed.
#[cold]
pub(crate) fn failed_receive(
    wr_id: u64,
    qpn: u32,
    src_qpn: u32,
    status: Status,
    vendor_err: u32,
) -> Completion {
    Completion {
        wr_id,
        status,
        opcode: CompletionOpcode::Recv,
        byte_len: 0,
        vendor_err,
        qpn,
        src_qpn,
        immediate: Immediate::None,
        grh: None,
        pkey_index: 0,
        solicited: true,
    }
}

/// Completes all receives as flushed; an SRQ keeps its own, and its queue pair, if it just
/// `entered` ERR, says that it is done with it.
pub(crate) fn flush_receives<H: Device>(qpn: u32, src_qpn: u32, entered: bool, device: &mut H) {
    if device.receives_posted().is_none() {
        if entered {
            device.event(QpEvent::LastWqeReached);
        }
        return;
    }
    while let Some(wqe) = device.take_receive() {
        let (status, detail) = (Status::WorkRequestFlushed, vendor_err::FLUSHED);
        device.complete_recv(failed_receive(wqe.wr_id, qpn, src_qpn, status, detail));
    }
}
