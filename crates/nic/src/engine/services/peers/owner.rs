//! The side that owns shared receive queues: executes what comes to XRC targets of other processes.
//!
//! Messages come from other processes of the user, which may be anything: what they ask for is
//! checked as what a peer asks for by packets is, and what they can make this process keep is
//! bounded.

use std::collections::HashMap;
use std::sync::Arc;

use rnic_host::PeerId;
use rnic_sys::Fd;
use rnic_transport::{
    AtomicOp, BindFault, BindWindow, Completion, Delegate, Device, Evidence, LocalFault, Pd,
    Placement, QpEvent, RcAttr, RecvWqe, RemoteAccess, RemoteFault, Sge, Verdict,
};
use rnic_wire::{DEFAULT_PKEY, Packet, PathMtu, Psn};

use super::message::{Message, Packets, Target, Verdicts, rights};
use crate::engine::SrqTable;
use crate::engine::tables::remote_srq::{NO_SRQ, READ_AHEAD};
use crate::memory::MemoryTable;
use crate::queues::{Domains, Freed};
use rnic_sys::FileIdentity;

/// Most targets of other processes that are executed for.
const TARGETS: usize = 1 << 16;
/// Most domains that one process may have joined.
const DOMAINS: usize = 1024;
/// Most that all may have.
const ALL_DOMAINS: usize = 1 << 16;

/// What this process does for others.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// XRC domains of this process, by who showed their files and what it calls them. No descriptor
    /// is kept for it.
    joined: HashMap<(PeerId, u32), Arc<FileIdentity>>,
    /// By queue pair number.
    targets: HashMap<(PeerId, u32), Served>,
}

/// An XRC target of another process.
#[derive(Debug)]
struct Served {
    target: Target,
    delegate: Delegate,
    /// The shared receive queue that its last request named.
    selected: u32,
}

/// The parts of the device that it is done with.
pub(crate) struct DeviceParts<'a> {
    pub(crate) memory: &'a MemoryTable,
    pub(crate) srqs: &'a SrqTable,
}

impl Owner {
    /// Somebody shows the file of a domain. One that is not open here is no concern of this
    /// process: who showed it is refused what it asks for, and shows it again when it asks again.
    pub(crate) fn join(&mut self, peer: PeerId, domain: u32, fd: Fd, domains: &Domains) {
        let Ok(file) = FileIdentity::of_owned(fd) else {
            return;
        };
        let Some(open) = domains.file_like(&file) else {
            return;
        };
        // A process has a file's domain open once: what it called it before is closed.
        self.joined
            .retain(|(who, _), other| *who != peer || !other.same(&open));
        if self.joined.len() >= DOMAINS {
            let of_peer = self.joined.keys().filter(|(who, _)| *who == peer).count();
            if of_peer >= DOMAINS || self.joined.len() >= ALL_DOMAINS {
                return;
            }
        }
        self.joined.insert((peer, domain), open);
    }

    /// Executes requests up to the first that cannot be, and gives the answer. `None`: none is
    /// executed.
    pub(crate) fn execute(
        &mut self,
        peer: PeerId,
        request: u32,
        target: Target,
        packets: Option<Packets<'_>>,
        device: DeviceParts<'_>,
    ) -> Vec<u8> {
        let mut verdicts = Vec::new();
        let mut record = |verdict| Verdicts::push(&mut verdicts, verdict);
        match packets {
            Some(packets) => self.execute_each(peer, target, packets, device, &mut record),
            None => record(NO_SRQ),
        }
        let answer = Message::Verdicts {
            request,
            qpn: target.qpn,
            verdicts: Verdicts::of(&verdicts),
        };
        answer.encode()
    }

    fn execute_each(
        &mut self,
        peer: PeerId,
        target: Target,
        packets: Packets<'_>,
        mut device: DeviceParts<'_>,
        record: &mut dyn FnMut(Verdict),
    ) {
        let refused = NO_SRQ;
        let (Some(attr), Some(domain)) = (attr_of(target), self.joined.get(&(peer, target.domain)))
        else {
            return record(refused);
        };
        let key = (peer, target.qpn);
        let known = self.targets.get(&key);
        let same = known.is_some_and(|served| {
            (served.target.dest_qpn, served.target.mtu) == (target.dest_qpn, target.mtu)
        });
        if !same {
            if let Some(served) = self.targets.remove(&key) {
                served.abandon(device.srqs);
            }
            if self.targets.len() >= TARGETS {
                return record(refused);
            }
        }
        let served = self.targets.entry(key).or_insert_with(|| Served {
            target,
            delegate: Delegate::new(attr),
            selected: 0,
        });
        served.delegate.update(attr);
        for bytes in packets.iter() {
            let verdict = match Packet::parse(bytes) {
                Ok(packet) => {
                    let mut view = OwnerView {
                        device: &mut device,
                        domain: Some(domain),
                        selected: &mut served.selected,
                        qpn: target.qpn,
                    };
                    served.delegate.execute(&packet, &mut view)
                }
                Err(_) => refused,
            };
            record(verdict);
            if !matches!(verdict, Verdict::Executed { .. }) {
                break;
            }
        }
    }

    /// Reads for a READ of another process's target, and gives the answer. Not `honest`: it does
    /// not have that target.
    pub(crate) fn read(
        &self,
        peer: PeerId,
        message: Message<'_>,
        honest: bool,
        device: DeviceParts<'_>,
    ) -> Vec<u8> {
        let Message::Read {
            request,
            qpn,
            domain,
            srqn,
            rkey,
            va,
            len,
        } = message
        else {
            return Vec::new();
        };
        let mut buffer = vec![0; len.min(READ_AHEAD) as usize];
        let domain = self.joined.get(&(peer, domain)).filter(|_| honest);
        let pd = domain.and_then(|domain| pd_of(device.srqs, srqn, domain));
        let bytes = match pd {
            Some(pd) => device.memory.read_remote(pd, qpn, rkey, va, &mut buffer),
            None => Err(RemoteFault::UnknownKey),
        };
        let bytes = bytes.map(|()| &buffer[..]);
        let answer = Message::Data {
            request,
            qpn,
            bytes,
        };
        answer.encode()
    }

    /// A target is gone, or in ERR.
    pub(crate) fn leave(
        &mut self,
        peer: PeerId,
        qpn: u32,
        flush: bool,
        mut device: DeviceParts<'_>,
    ) {
        let Some(mut served) = self.targets.remove(&(peer, qpn)) else {
            return;
        };
        if !flush {
            return served.abandon(device.srqs);
        }
        let mut view = OwnerView {
            device: &mut device,
            domain: None,
            selected: &mut served.selected,
            qpn,
        };
        served.delegate.flush(&mut view);
    }

    /// A process is gone: so are its targets.
    pub(crate) fn forget(&mut self, peer: PeerId, srqs: &SrqTable) {
        self.joined.retain(|(who, _), _| *who != peer);
        self.targets.retain(|(who, _), served| {
            if *who == peer {
                served.abandon(srqs);
            }
            *who != peer
        });
    }
}

impl Served {
    /// The receive in use ends without a completion, as with a queue pair that is destroyed.
    fn abandon(&self, srqs: &SrqTable) {
        if self.delegate.holds_receive()
            && let Some(srq) = srqs.get(self.selected)
        {
            srq.slots.recv.give_back(1);
        }
    }
}

/// `None`: that is no target.
fn attr_of(target: Target) -> Option<RcAttr> {
    let may = |right: u8| target.rights & right != 0;
    Some(RcAttr {
        role: rnic_transport::Role::XrcTarget,
        qpn: target.qpn,
        pd: Pd(0),
        dest_qpn: target.dest_qpn,
        mtu: PathMtu::from_ibv(target.mtu.into())?,
        // It sends no packets, and the target's process looks at the P_Key of those that come.
        pkey: DEFAULT_PKEY,
        sq_psn: Psn::new(0),
        rq_psn: Psn::new(0),
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        min_rnr_timer: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 1,
        remote_write: may(rights::WRITE),
        remote_read: may(rights::READ),
        remote_atomic: may(rights::ATOMIC),
        flush: Placement {
            global: may(rights::FLUSH_GLOBAL),
            persistent: may(rights::FLUSH_PERSISTENT),
        },
        window_bytes: 0,
    })
}

/// The protection domain of a shared receive queue, if it is one of that XRC domain.
fn pd_of(srqs: &SrqTable, srqn: u32, domain: &FileIdentity) -> Option<Pd> {
    let srq = srqs.get(srqn)?;
    let xrc = srq.xrc.as_ref()?;
    (xrc.domain.file()?.same(domain)).then_some(srq.pd)
}

/// The device as a target of another process sees it.
struct OwnerView<'a, 'b> {
    device: &'a mut DeviceParts<'b>,
    /// `None`: nothing may be selected any more.
    domain: Option<&'a FileIdentity>,
    selected: &'a mut u32,
    qpn: u32,
}

impl Device for OwnerView<'_, '_> {
    fn check_local(&self, pd: Pd, sge: &Sge, write: bool) -> Result<(), LocalFault> {
        let length = u64::from(sge.length);
        let memory = &self.device.memory;
        memory.check_local(pd, sge.lkey, sge.addr, length, write)
    }

    fn read_local(&self, pd: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        self.device.memory.read_local(pd, lkey, addr, out)
    }

    fn write_local(&mut self, pd: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        self.device.memory.write_local(pd, lkey, addr, data)
    }

    fn check_remote(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        let memory = &self.device.memory;
        memory.check_remote(pd, self.qpn, rkey, va, len, access)
    }

    fn read_remote(&self, pd: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        self.device.memory.read_remote(pd, self.qpn, rkey, va, out)
    }

    fn write_remote(&mut self, pd: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        let memory = &self.device.memory;
        memory.write_remote(pd, self.qpn, rkey, va, data)
    }

    fn atomic_write(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        let memory = &self.device.memory;
        memory.atomic_write(pd, self.qpn, rkey, va, value)
    }

    fn flush(
        &mut self,
        pd: Pd,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), RemoteFault> {
        for (wanted, access) in [
            (placement.global, RemoteAccess::FlushGlobal),
            (placement.persistent, RemoteAccess::FlushPersistent),
        ] {
            if wanted {
                let memory = &self.device.memory;
                memory.flush(pd, self.qpn, rkey, range, access)?;
            }
        }
        Ok(())
    }

    fn atomic(&mut self, pd: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        self.device.memory.atomic(pd, self.qpn, rkey, va, op)
    }

    fn invalidate(&mut self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), RemoteFault> {
        self.device.memory.invalidate_by_peer(pd, qpn, rkey)
    }

    // A target has no work requests of its own.
    fn bind_window(&mut self, _: Pd, _: u32, _: &BindWindow) -> Result<(), BindFault> {
        Err(BindFault::UnknownWindow)
    }

    fn local_invalidate(&mut self, _: Pd, _: u32, _: u32) -> Result<(), BindFault> {
        Err(BindFault::UnknownWindow)
    }

    fn take_receive(&mut self) -> Option<RecvWqe> {
        self.device.srqs.get(*self.selected)?.take()
    }

    fn return_receive(&mut self, wqe: RecvWqe) {
        if let Some(srq) = self.device.srqs.get(*self.selected) {
            srq.put_back(wqe);
        }
    }

    fn select_srq(&mut self, srqn: u32) -> Option<Pd> {
        let pd = pd_of(self.device.srqs, srqn, self.domain?)?;
        *self.selected = srqn;
        Some(pd)
    }

    fn receives_posted(&self) -> Option<u32> {
        None
    }

    fn complete_send(&mut self, _: Completion) {}

    fn complete_recv(&mut self, completion: Completion) {
        // A queue that was destroyed meanwhile has no completions any more.
        let Some(srq) = self.device.srqs.get(*self.selected) else {
            return;
        };
        let Some(xrc) = &srq.xrc else { return };
        let completion = Completion {
            qpn: self.qpn,
            ..completion
        };
        let freed = Freed { send: 0, recv: 1 };
        xrc.cq.push(&completion, &srq.slots, freed);
    }

    // The target's process has them.
    fn event(&mut self, _: QpEvent) {}

    fn evidence(&mut self, _: &Evidence) {}
}
