//! The device as one queue pair sees it.

use std::collections::VecDeque;
use std::sync::Arc;

use rnic_transport::{
    AtomicOp, BindFault, BindWindow, Completion, CompletionOpcode, Host, LocalFault, Pd, QpEvent,
    RecvWqe, RemoteAccess, RemoteFault, Sge, Status,
};

use crate::context::AsyncEvent;
use crate::cq::Entry;
use crate::memory::MemoryTable;
use crate::qp::{QpShared, Signals};

use super::srq_table::SrqTable;

/// Lends a queue pair its memory, receive queue and completion queues for one call.
pub(super) struct DeviceHost<'a> {
    pub(super) memory: &'a mut MemoryTable,
    pub(super) shared: &'a Arc<QpShared>,
    pub(super) receives: &'a mut VecDeque<RecvWqe>,
    pub(super) srqs: &'a mut SrqTable,
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
        match &self.shared.srq {
            None => self.receives.pop_front(),
            Some(srq) => self.srqs.get_mut(srq.number)?.take(),
        }
    }

    fn receive_pd(&self, own: Pd) -> Pd {
        self.shared.srq.as_ref().map_or(own, |srq| srq.pd.shared.id)
    }

    fn receives_posted(&self) -> Option<u32> {
        match self.shared.srq {
            None => Some(self.receives.len() as u32),
            Some(_) => None,
        }
    }

    fn complete_send(&mut self, completion: Completion) {
        let send_slots = if completion.status == Status::Success {
            self.signals.completed()
        } else {
            1
        };
        self.shared.send_cq.push(Entry {
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
        self.shared.recv_cq.push(Entry {
            // The transport learns its number with RTR; receives of INIT may be flushed before.
            completion: Completion {
                qpn: self.shared.qpn,
                ..completion
            },
            slots: self.shared.receive_slots().clone(),
            send_slots: 0,
            recv_slots: 1,
        });
    }

    fn event(&mut self, event: QpEvent) {
        self.shared.context().post_event(AsyncEvent::Qp {
            cookie: self.shared.cookie,
            event,
        });
    }
}
