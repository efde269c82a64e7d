//! The device as one queue pair sees it.

use std::collections::VecDeque;
use std::sync::Arc;

use rnic_transport::{
    AtomicOp, BindFault, BindWindow, Completion, CompletionOpcode, Host, LocalFault, Pd, QpEvent,
    RecvWqe, RemoteAccess, RemoteFault, Sge, Status,
};

use crate::cq::Entry;
use crate::memory::MemoryTable;
use crate::qp::{QpShared, ReceiveSource, Signals};

use super::srq_table::SrqTable;

/// Lends a queue pair its memory, receive queue and completion queues for one call.
pub(super) struct DeviceHost<'a> {
    pub(super) memory: &'a mut MemoryTable,
    pub(super) shared: &'a Arc<QpShared>,
    pub(super) receives: &'a mut VecDeque<RecvWqe>,
    pub(super) srqs: &'a mut SrqTable,
    /// XRC: the queue that the last request named.
    pub(super) selected_srq: &'a mut u32,
    pub(super) signals: &'a mut Signals,
}

impl Host for DeviceHost<'_> {
    fn check_local(&self, pd: Pd, sge: &Sge, write: bool) -> Result<(), LocalFault> {
        self.memory
            .check_local(pd, sge.lkey, sge.addr, u64::from(sge.length), write)
    }

    fn read_local(&self, pd: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        self.memory.read_local(pd, lkey, addr, out)
    }

    fn write_local(&mut self, pd: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        self.memory.write_local(pd, lkey, addr, data)
    }

    fn check_remote(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        self.memory
            .check_remote(pd, self.shared.qpn, rkey, va, len, access)
    }

    fn read_remote(&self, pd: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        self.memory.read_remote(pd, self.shared.qpn, rkey, va, out)
    }

    fn write_remote(&mut self, pd: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        self.memory
            .write_remote(pd, self.shared.qpn, rkey, va, data)
    }

    fn atomic(&mut self, pd: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        self.memory.atomic(pd, self.shared.qpn, rkey, va, op)
    }

    fn invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), RemoteFault> {
        self.memory.invalidate_by_peer(pd, qpn, rkey)
    }

    fn bind_window(&mut self, pd: Pd, qpn: u32, bind: &BindWindow) -> Result<(), BindFault> {
        self.memory.bind(pd, qpn, bind)
    }

    fn local_invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), BindFault> {
        self.memory.invalidate(pd, qpn, rkey)
    }

    fn take_receive(&mut self) -> Option<RecvWqe> {
        match &self.shared.source {
            ReceiveSource::Own => self.receives.pop_front(),
            ReceiveSource::Srq(srq) => self.srqs.get_mut(srq.number)?.take(),
            ReceiveSource::Xrc(_) => self.srqs.get_mut(*self.selected_srq)?.take(),
        }
    }

    fn select_srq(&mut self, srqn: u32) -> Option<Pd> {
        let ReceiveSource::Xrc(domain) = &self.shared.source else {
            return None;
        };
        let srq = &self.srqs.get_mut(srqn)?.shared;
        let xrc = srq.xrc.as_ref()?;
        if !Arc::ptr_eq(xrc.xrcd.domain(), domain) {
            return None;
        }
        *self.selected_srq = srqn;
        Some(srq.pd.shared.id)
    }

    fn receive_pd(&self, own: Pd) -> Pd {
        match &self.shared.source {
            ReceiveSource::Srq(srq) => srq.pd.shared.id,
            ReceiveSource::Own | ReceiveSource::Xrc(_) => own,
        }
    }

    fn receives_posted(&self) -> Option<u32> {
        match self.shared.source {
            ReceiveSource::Own => Some(self.receives.len() as u32),
            ReceiveSource::Srq(_) | ReceiveSource::Xrc(_) => None,
        }
    }

    fn complete_send(&mut self, completion: Completion) {
        let send_slots = if completion.status == Status::Success {
            self.signals.completed()
        } else {
            self.signals.failed()
        };
        let Some(cq) = &self.shared.send_cq else {
            return;
        };
        cq.push(Entry {
            completion,
            slots: self.shared.slots.clone(),
            send_slots,
            recv_slots: 0,
        });
    }

    fn complete_recv(&mut self, completion: Completion) {
        debug_assert!(matches!(
            completion.opcode,
            CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm
        ));
        let (cq, slots) = match &self.shared.source {
            ReceiveSource::Own => (self.shared.recv_cq.as_ref(), &self.shared.slots),
            ReceiveSource::Srq(srq) => (self.shared.recv_cq.as_ref(), &srq.slots),
            // A queue that was destroyed meanwhile has no completions any more.
            ReceiveSource::Xrc(_) => match self.srqs.get_mut(*self.selected_srq) {
                Some(entry) => (
                    entry.shared.xrc.as_ref().map(|xrc| &xrc.cq),
                    &entry.shared.slots,
                ),
                None => return,
            },
        };
        let Some(cq) = cq else { return };
        cq.push(Entry {
            // The transport learns its number with RTR; receives of INIT may be flushed before.
            completion: Completion {
                qpn: self.shared.qpn,
                ..completion
            },
            slots: slots.clone(),
            send_slots: 0,
            recv_slots: 1,
        });
    }

    fn event(&mut self, event: QpEvent) {
        self.shared.post_event(event);
    }
}
