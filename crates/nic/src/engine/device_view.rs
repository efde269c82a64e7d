//! The device as one queue pair sees it.

use std::sync::Arc;

use rnic_link::{Address, CmaWindow, GrantName, Request};
use rnic_transport::{
    AtomicOp, BindFault, BindWindow, Completion, CompletionOpcode, Device, Evidence, Fifo, IoVecs,
    LocalFault, Misplaced, OneSided, Pd, Placement, QpEvent, RecvWqe, RemoteAccess, RemoteFault,
    Sge, Status,
};

use crate::engine::tables::remote_srq::RemoteSrq;
use crate::memory::{self, MemoryTable, PacketMemory};
use crate::observe::{self, Latencies, lint, trace};
use crate::queues::{Freed, QpShared, ReceiveSource, Signals};

use super::FastPath;
use super::srq_table::SrqTable;
use super::tables::qp_entry::withdraw;

/// Lends a queue pair its memory, receive queue and completion queues for one call.
pub(crate) struct DeviceView<'a> {
    pub(super) memory: &'a MemoryTable,
    pub(super) shared: &'a Arc<QpShared>,
    pub(super) receives: &'a mut Fifo<RecvWqe>,
    pub(super) srqs: &'a SrqTable,
    /// XRC: the queue that the last request named.
    pub(super) selected_srq: &'a mut u32,
    pub(super) signals: &'a mut Signals,
    pub(super) latencies: &'a mut Latencies,
    /// Where the payload of the packet in hand is, if it did not come with the headers.
    pub(super) packet: Option<&'a dyn PacketMemory>,
    /// Whence the packet in hand came.
    pub(super) from: Option<&'a Address>,
    /// XRC: what another process does for the queue pair.
    pub(super) remote_srq: &'a mut Option<Box<RemoteSrq>>,
    /// Closed once there is such a process.
    pub(super) fast: &'a mut FastPath,
    /// The window to the memory of the peer's process, if there may be one.
    pub(super) cma: Option<&'a CmaWindow>,
    /// Payload of the queue pair went by reference since this was last withdrawn.
    pub(super) by_reference: &'a mut bool,
}

impl DeviceView<'_> {
    /// From now on another process does something for the queue pair, which takes no fast path
    /// any more.
    fn ask_remote(&mut self) -> &mut RemoteSrq {
        self.fast.close();
        self.remote_srq.get_or_insert_default()
    }

    /// No region has the key, and one has it in the other byte order.
    #[cold]
    fn is_swapped(&self, key: u32) -> bool {
        let has = |key| self.memory.facts(key).is_some();
        !has(key) && has(key.swap_bytes())
    }

    /// Notes what was wrong with a scatter/gather entry.
    #[cold]
    fn local(
        &self,
        pd: Pd,
        (key, addr, length): (u32, u64, u64),
        write: bool,
        fault: LocalFault,
    ) -> LocalFault {
        let access = observe::Access {
            key,
            addr,
            length,
            pd: pd.0,
            swapped: self.is_swapped(key),
        };
        observe::local_fault(
            self.shared.qpn,
            access,
            write,
            fault,
            self.memory.facts(key),
        );
        fault
    }

    /// Notes what was wrong with a remote access.
    #[cold]
    fn remote(
        &self,
        pd: Pd,
        (key, addr, length): (u32, u64, u64),
        right: Option<RemoteAccess>,
        fault: RemoteFault,
    ) -> RemoteFault {
        let access = observe::Access {
            key,
            addr,
            length,
            pd: pd.0,
            swapped: self.is_swapped(key),
        };
        observe::remote_fault(
            self.shared.qpn,
            access,
            right,
            fault,
            self.memory.facts(key),
        );
        fault
    }

    /// The request of which that is a part.
    fn request(&self, part: &OneSided<'_>) -> Request {
        Request {
            name: GrantName {
                src_qpn: self.shared.qpn,
                dest_qpn: part.dest_qpn,
                key: part.rkey,
            },
            mtu: part.mtu,
            pkey: self.fast.pkey(),
            va: part.va.wrapping_sub(part.offset),
            len: u64::from(part.whole),
        }
    }

    /// Tells a failure to whoever reads the report.
    #[cold]
    fn failed(&self, completion: &Completion, receive: bool) {
        observe::failed(self.shared, completion, receive);
    }
}

impl Device for DeviceView<'_> {
    fn check_local(&self, pd: Pd, sge: &Sge, write: bool) -> Result<(), LocalFault> {
        let length = u64::from(sge.length);
        self.memory
            .check_local(pd, sge.lkey, sge.addr, length, write)
            .map_err(|fault| self.local(pd, (sge.lkey, sge.addr, length), write, fault))
    }

    fn read_local(&self, pd: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        let length = out.len() as u64;
        self.memory
            .read_local(pd, lkey, addr, out)
            .map_err(|fault| self.local(pd, (lkey, addr, length), false, fault))
    }

    fn locate(&mut self, pd: Pd, list: &[Sge], offset: u64, len: u64, iov: &mut IoVecs) -> bool {
        let located = self.cma.is_some() && self.memory.locate(pd, list, (offset, len), iov);
        *self.by_reference |= located;
        located
    }

    fn check_presence(&self, pd: Pd, sge: &Sge) -> Result<(), LocalFault> {
        let length = u64::from(sge.length);
        self.memory
            .check_presence(pd, sge)
            .map_err(|fault| self.local(pd, (sge.lkey, sge.addr, length), false, fault))
    }

    fn write_local(&mut self, pd: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        self.memory
            .write_local(pd, lkey, addr, data)
            .map_err(|fault| self.local(pd, (lkey, addr, data.len() as u64), true, fault))
    }

    fn place_local(
        &mut self,
        pd: Pd,
        lkey: u32,
        addr: u64,
        from: usize,
        len: usize,
    ) -> Result<(), Misplaced<LocalFault>> {
        let packet = self.packet.ok_or(Misplaced::Lost)?;
        let placed = self.memory.pull_local(pd, lkey, addr, packet, (from, len));
        placed.inspect_err(|why| {
            if let Misplaced::Refused(fault) = *why {
                self.local(pd, (lkey, addr, len as u64), true, fault);
            }
        })
    }

    fn fetch(&self, from: usize, out: &mut [u8]) -> bool {
        self.packet
            .is_some_and(|packet| memory::fetch(packet, from, out))
    }

    #[inline]
    fn may_execute(&self) -> bool {
        self.cma.is_some()
    }

    fn would_execute(&self, part: &OneSided<'_>) -> bool {
        let request = self.request(part);
        self.cma
            .is_some_and(|cma| cma.may_copy(&request, part.write))
    }

    fn execute(&mut self, part: &OneSided<'_>) -> bool {
        let request = self.request(part);
        self.cma
            .is_some_and(|cma| self.memory.execute(cma, &request, part))
    }

    fn execute_row(&mut self, parts: &[OneSided<'_>]) -> usize {
        let request = |part: &OneSided<'_>| self.request(part);
        self.cma
            .map_or(0, |cma| self.memory.execute_row(cma, request, parts))
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
            .map_err(|fault| self.remote(pd, (rkey, va, len), Some(access), fault))
    }

    fn read_remote(&self, pd: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        if pd.remote_srq().is_some() {
            let remote_srq = self.remote_srq.as_ref().ok_or(RemoteFault::Unmapped)?;
            return remote_srq.read(va, out);
        }
        let length = out.len() as u64;
        self.memory
            .read_remote(pd, self.shared.qpn, rkey, va, out)
            .map_err(|fault| self.remote(pd, (rkey, va, length), Some(RemoteAccess::Read), fault))
    }

    fn write_remote(&mut self, pd: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        let length = data.len() as u64;
        self.memory
            .write_remote(pd, self.shared.qpn, rkey, va, data)
            .map_err(|fault| self.remote(pd, (rkey, va, length), Some(RemoteAccess::Write), fault))
    }

    fn place_remote(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        from: usize,
        len: usize,
    ) -> Result<(), Misplaced<RemoteFault>> {
        let packet = self.packet.ok_or(Misplaced::Lost)?;
        let placed = self
            .memory
            .pull_remote(pd, self.shared.qpn, rkey, va, packet, (from, len));
        placed.inspect_err(|why| {
            if let Misplaced::Refused(fault) = *why {
                let named = (rkey, va, len as u64);
                self.remote(pd, named, Some(RemoteAccess::Write), fault);
            }
        })
    }

    fn atomic_write(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        self.memory
            .atomic_write(pd, self.shared.qpn, rkey, va, value)
            .map_err(|fault| self.remote(pd, (rkey, va, 8), Some(RemoteAccess::Write), fault))
    }

    fn flush(
        &mut self,
        pd: Pd,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), RemoteFault> {
        let named = range.map_or((rkey, 0, 0), |(va, len)| (rkey, va, u64::from(len)));
        for (wanted, access) in [
            (placement.global, RemoteAccess::FlushGlobal),
            (placement.persistent, RemoteAccess::FlushPersistent),
        ] {
            if wanted {
                self.memory
                    .flush(pd, self.shared.qpn, rkey, range, access)
                    .map_err(|fault| self.remote(pd, named, Some(access), fault))?;
            }
        }
        Ok(())
    }

    fn atomic(&mut self, pd: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        self.memory
            .atomic(pd, self.shared.qpn, rkey, va, op)
            .map_err(|fault| self.remote(pd, (rkey, va, 8), Some(RemoteAccess::Atomic), fault))
    }

    fn invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), RemoteFault> {
        self.memory
            .invalidate_by_peer(pd, qpn, rkey)
            .map_err(|fault| self.remote(pd, (rkey, 0, 0), None, fault))
    }

    fn bind_window(&mut self, pd: Pd, qpn: u32, bind: &BindWindow) -> Result<(), BindFault> {
        self.memory.bind(pd, qpn, bind)
    }

    fn local_invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), BindFault> {
        self.memory.invalidate(pd, qpn, rkey)
    }

    #[inline]
    fn take_receive(&mut self) -> Option<RecvWqe> {
        match &self.shared.source {
            ReceiveSource::Own => self.receives.pop_front(),
            ReceiveSource::Srq(srq) => srq.take(),
            ReceiveSource::Xrc(_) => self.srqs.get(*self.selected_srq)?.take(),
        }
    }

    #[inline]
    fn next_receive(&self) -> Option<&RecvWqe> {
        match &self.shared.source {
            ReceiveSource::Own => self.receives.front(),
            ReceiveSource::Srq(_) | ReceiveSource::Xrc(_) => None,
        }
    }

    fn return_receive(&mut self, wqe: RecvWqe) {
        match &self.shared.source {
            ReceiveSource::Own => self.receives.push_front(wqe),
            ReceiveSource::Srq(srq) => srq.put_back(wqe),
            ReceiveSource::Xrc(_) => {
                if let Some(srq) = self.srqs.get(*self.selected_srq) {
                    srq.put_back(wqe);
                }
            }
        }
    }

    fn select_srq(&mut self, srqn: u32) -> Option<Pd> {
        let ReceiveSource::Xrc(domain) = &self.shared.source else {
            return None;
        };
        let srq = self.srqs.get(srqn)?;
        let xrc = srq.xrc.as_ref()?;
        if !Arc::ptr_eq(&xrc.domain, domain) {
            return None;
        }
        *self.selected_srq = srqn;
        Some(srq.pd)
    }

    fn is_remote_srq(&mut self, srqn: u32) -> bool {
        let ReceiveSource::Xrc(domain) = &self.shared.source else {
            return false;
        };
        // Nobody else can have opened a domain without a file.
        if domain.file().is_none() || self.srqs.is_ours(srqn) {
            return false;
        }
        self.ask_remote().refer();
        true
    }

    fn is_at_hand(&mut self, pd: Pd, rkey: u32, va: u64, len: u32, left: u32) -> bool {
        let Some(srqn) = pd.remote_srq() else {
            return true;
        };
        // No bytes: an empty READ, or the answer to a FLUSH or atomic write. Their key means
        // nothing, or no right to read.
        if len == 0 {
            return true;
        }
        self.ask_remote().is_at_hand(srqn, rkey, va, len, left)
    }

    fn receive_pd(&self, own: Pd) -> Pd {
        match &self.shared.source {
            ReceiveSource::Srq(srq) => srq.pd,
            ReceiveSource::Own | ReceiveSource::Xrc(_) => own,
        }
    }

    fn receives_posted(&self) -> Option<u32> {
        match self.shared.source {
            ReceiveSource::Own => Some(self.receives.len() as u32),
            ReceiveSource::Srq(_) | ReceiveSource::Xrc(_) => None,
        }
    }

    fn complete_send(&mut self, mut completion: Completion) {
        let send_slots = if completion.status == Status::Success {
            self.signals.completed()
        } else {
            withdraw(self.cma, self.by_reference, self.shared.qpn);
            self.failed(&completion, false);
            self.signals.failed()
        };
        let host = &self.shared.owner.host;
        self.latencies.completed(send_slots, || host.now_ns());
        if lint::is_on() {
            let (shared, pd) = (self.shared, self.shared.pd);
            lint::completed(self.memory, pd, shared.qpn, &completion, send_slots);
        }
        if trace::is_on() {
            trace::completed(self.shared.qpn, &completion);
        }
        let Some(cq) = &self.shared.send_cq else {
            return;
        };
        // As below: what is posted in ERR may be flushed without RTR before.
        completion.qpn = self.shared.qpn;
        let freed = Freed {
            send: send_slots,
            recv: 0,
        };
        cq.push(&completion, &self.shared.slots, freed);
    }

    fn complete_recv(&mut self, mut completion: Completion) {
        debug_assert!(matches!(
            completion.opcode,
            CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm
        ));
        if completion.status != Status::Success {
            self.failed(&completion, true);
        }
        if trace::is_on() {
            trace::completed(self.shared.qpn, &completion);
        }
        let (cq, slots) = match &self.shared.source {
            ReceiveSource::Own => (self.shared.recv_cq.as_ref(), &self.shared.slots),
            ReceiveSource::Srq(srq) => (self.shared.recv_cq.as_ref(), &srq.slots),
            // A queue that was destroyed meanwhile has no completions any more.
            ReceiveSource::Xrc(_) => match self.srqs.get(*self.selected_srq) {
                Some(srq) => (srq.xrc.as_ref().map(|xrc| &xrc.cq), &srq.slots),
                None => return,
            },
        };
        let Some(cq) = cq else { return };
        // The transport learns its number with RTR; receives of INIT may be flushed before.
        completion.qpn = self.shared.qpn;
        cq.push(&completion, slots, Freed { send: 0, recv: 1 });
    }

    fn event(&mut self, event: QpEvent) {
        self.shared.post_event(event);
    }

    fn evidence(&mut self, evidence: &Evidence) {
        observe::evidence(self.shared.qpn, evidence, self.from.copied());
    }
}
