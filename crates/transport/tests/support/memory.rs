//! A device made of vectors: memory regions at invented addresses, queues, and a ledger of what a
//! queue pair may touch.
//!
//! The production [`Device`] would let a queue pair touch any byte its keys allow. This one is
//! stricter and remembers every transgression in [`Queues::violations`]:
//! * local stores only inside the scatter lists of receives taken and not yet completed, and of
//!   READs and atomics posted and not yet completed; local loads only inside the gather lists of
//!   uncompleted SENDs and WRITEs. So a byte written beside a buffer, or into a buffer that was
//!   already handed back, is found even if it is overwritten later;
//! * completions in posting order, each once, none skipped but successful unsignaled sends, and
//!   after the first error nothing but flushes;
//! * remote stores and atomics are listed in [`Queues::effects`] in the order in which they
//!   happened.

use rnic_transport::{
    AtomicOp, BindFault, BindWindow, Completion, Device, IoVec, IoVecs, LocalFault, Misplaced, Pd,
    Placement, QpEvent, RecvWqe, RemoteAccess, RemoteFault, SendData, SendWqe, Sge, Status,
};
use std::collections::{HashMap, VecDeque};

/// What a region allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub local_write: bool,
    pub remote_read: bool,
    pub remote_write: bool,
    pub remote_atomic: bool,
    pub flush: Placement,
}

impl Rights {
    pub const ALL: Rights = Rights {
        local_write: true,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        flush: Placement {
            global: true,
            persistent: true,
        },
    };
    pub const LOCAL: Rights = Rights {
        local_write: true,
        remote_read: false,
        remote_write: false,
        remote_atomic: false,
        flush: Placement {
            global: false,
            persistent: false,
        },
    };
}

/// A registered range of memory. A copy of a region is a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub base: u64,
    pub bytes: Vec<u8>,
    pub lkey: u32,
    pub rkey: u32,
    pub pd: Pd,
    pub rights: Rights,
    /// A SEND with invalidate may revoke the rkey.
    pub invalidatable: bool,
    /// The rkey was revoked by the peer.
    pub revoked: bool,
    /// The memory behind it is gone.
    pub unmapped: bool,
}

impl Region {
    fn offset(&self, addr: u64, len: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.base)?;
        let end = offset.checked_add(len)?;
        (end <= self.bytes.len() as u64).then_some(offset as usize)
    }
}

/// A store that a peer caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// WRITE: neighbouring pieces are joined.
    Write { rkey: u32, va: u64, len: u64 },
    /// Atomic: the value found.
    Atomic { rkey: u32, va: u64, before: u64 },
    /// FLUSH: address and length, or all.
    Flush {
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    },
    /// Key revoked.
    Invalidate { rkey: u32 },
    /// Not the peer's doing: a window was bound.
    Bind { rkey: u32 },
    /// Nor this: a window was invalidated locally.
    LocalInvalidate { rkey: u32 },
}

/// Appends `effect`, joining a WRITE to the one before it when it continues it.
pub fn push_effect(effects: &mut Vec<Effect>, effect: Effect) {
    if let (
        Some(Effect::Write { rkey, va, len }),
        Effect::Write {
            rkey: next_rkey,
            va: next_va,
            len: next_len,
        },
    ) = (effects.last_mut(), &effect)
        && *rkey == *next_rkey
        && va.wrapping_add(*len) == *next_va
    {
        *len += next_len;
        return;
    }
    effects.push(effect);
}

impl Memory {
    /// Bytes by address alone.
    pub fn at(&self, addr: u64, len: u64) -> &[u8] {
        let find = |region: &Region| region.offset(addr, len);
        let (region, at) = self
            .regions
            .iter()
            .find_map(|region| Some((region, find(region)?)))
            .expect("some region");
        &region.bytes[at..at + len as usize]
    }
}

/// All regions of a device.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub regions: Vec<Region>,
    by_lkey: HashMap<u32, usize>,
    by_rkey: HashMap<u32, usize>,
}

impl Memory {
    /// Registers a region; gives its index in `regions`.
    pub fn register(&mut self, region: Region) -> usize {
        let index = self.regions.len();
        assert!(
            self.by_lkey.insert(region.lkey, index).is_none(),
            "lkey used twice"
        );
        assert!(
            self.by_rkey.insert(region.rkey, index).is_none(),
            "rkey used twice"
        );
        self.regions.push(region);
        index
    }

    /// Deregisters: both keys are unknown from now on, the bytes remain for inspection.
    pub fn deregister(&mut self, index: usize) {
        let region = &self.regions[index];
        self.by_lkey.remove(&region.lkey);
        self.by_rkey.remove(&region.rkey);
    }

    fn local(
        &self,
        pd: Pd,
        lkey: u32,
        addr: u64,
        len: u64,
        write: bool,
    ) -> Result<(usize, usize), LocalFault> {
        let index = *self.by_lkey.get(&lkey).ok_or(LocalFault::UnknownKey)?;
        let region = &self.regions[index];
        if region.pd != pd {
            return Err(LocalFault::OtherPd);
        }
        let offset = region.offset(addr, len).ok_or(LocalFault::OutOfRange)?;
        if write && !region.rights.local_write {
            return Err(LocalFault::NoLocalWrite);
        }
        if region.unmapped {
            return Err(LocalFault::Unmapped);
        }
        Ok((index, offset))
    }

    fn remote(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(usize, usize), RemoteFault> {
        let index = *self.by_rkey.get(&rkey).ok_or(RemoteFault::UnknownKey)?;
        let region = &self.regions[index];
        if region.revoked {
            return Err(RemoteFault::UnknownKey);
        }
        if region.pd != pd {
            return Err(RemoteFault::OtherPd);
        }
        let offset = region.offset(va, len).ok_or(RemoteFault::OutOfRange)?;
        let granted = match access {
            RemoteAccess::Read => region.rights.remote_read,
            RemoteAccess::Write => region.rights.remote_write,
            RemoteAccess::Atomic => region.rights.remote_atomic,
            RemoteAccess::FlushGlobal => region.rights.flush.global,
            RemoteAccess::FlushPersistent => region.rights.flush.persistent,
        };
        if !granted {
            return Err(RemoteFault::NoRight);
        }
        if region.unmapped {
            return Err(RemoteFault::Unmapped);
        }
        Ok((index, offset))
    }
}

#[derive(Debug)]
struct PostedSend {
    wr_id: u64,
    signaled: bool,
    stores: bool,
    sges: Vec<Sge>,
}

/// A shared receive queue of an XRC domain.
#[derive(Debug)]
pub struct Srq {
    pd: Pd,
    receives: VecDeque<RecvWqe>,
}

impl Srq {
    pub fn new(pd: Pd) -> Srq {
        Srq {
            pd,
            receives: VecDeque::new(),
        }
    }
}

/// The queues of one queue pair and what came out of them.
#[derive(Debug, Default)]
pub struct Queues {
    pub receives: VecDeque<RecvWqe>,
    /// Receives come from a shared queue: no credits are sent.
    pub shared: bool,
    /// XRC: those of the domain, by number.
    pub srqs: HashMap<u32, Srq>,
    selected: Option<u32>,
    sends: VecDeque<PostedSend>,
    taken: VecDeque<RecvWqe>,
    pub send_completions: Vec<Completion>,
    pub recv_completions: Vec<Completion>,
    /// The SRQ that each receive completed to.
    pub recv_from: Vec<Option<u32>>,
    pub events: Vec<QpEvent>,
    /// What the peer did to this device through this queue pair.
    pub effects: Vec<Effect>,
    pub violations: Vec<String>,
    send_failed: bool,
    recv_failed: bool,
}

impl Queues {
    /// Notes a WQE that is about to be given to [`rnic_transport::Rc::post_send`].
    pub fn note_send(&mut self, wqe: &SendWqe) {
        self.sends.push_back(PostedSend {
            wr_id: wqe.wr_id,
            signaled: wqe.signaled,
            stores: wqe.op.is_read_or_atomic(),
            sges: match &wqe.data {
                SendData::Gather(list) => list.to_vec(),
                SendData::Inline(_) => Vec::new(),
            },
        });
    }

    /// Posts a receive to the queue pair itself or to an SRQ.
    pub fn post_receive(&mut self, srq: Option<u32>, wqe: RecvWqe) {
        match srq {
            None => self.receives.push_back(wqe),
            Some(number) => {
                let srq = self.srqs.get_mut(&number).expect("an SRQ of the test");
                srq.receives.push_back(wqe);
            }
        }
    }

    /// Receives that wait in a queue.
    #[allow(dead_code, reason = "of some of the tests")]
    pub fn posted(&self, srq: Option<u32>) -> usize {
        match srq {
            None => self.receives.len(),
            Some(number) => self.srqs.get(&number).map_or(0, |srq| srq.receives.len()),
        }
    }

    /// Sends noted that no completion, own or later, has covered.
    pub fn sends_open(&self) -> usize {
        self.sends.len()
    }

    /// Signaled sends without a completion.
    pub fn signaled_open(&self) -> usize {
        self.sends.iter().filter(|s| s.signaled).count()
    }

    /// Receives taken by the queue pair and not completed.
    pub fn receives_open(&self) -> usize {
        self.taken.len()
    }

    /// A queue pair that was reset may start afresh: nothing outstanding is owed any more.
    pub fn forget(&mut self) {
        self.sends.clear();
        self.taken.clear();
        self.receives.clear();
        self.selected = None;
        self.send_failed = false;
        self.recv_failed = false;
    }

    /// The send queue left SQE.
    pub fn send_recovered(&mut self) {
        self.send_failed = false;
    }

    fn violation(&mut self, text: String) {
        // A broken queue pair may repeat itself for ever.
        if self.violations.len() < 32 {
            self.violations.push(text);
        }
    }
}

fn covers(sge: &Sge, lkey: u32, addr: u64, len: u64) -> bool {
    sge.lkey == lkey
        && addr >= sge.addr
        && addr - sge.addr <= u64::from(sge.length)
        && len <= u64::from(sge.length) - (addr - sge.addr)
}

/// The device as one queue pair sees it.
pub struct QpDevice<'a> {
    pub memory: &'a mut Memory,
    pub queues: &'a mut Queues,
    /// The packet in hand, for a detached payload; `None`: it cannot be had.
    pub packet: Option<&'a [u8]>,
}

impl Device for QpDevice<'_> {
    fn check_local(&self, pd: Pd, sge: &Sge, write: bool) -> Result<(), LocalFault> {
        self.memory
            .local(pd, sge.lkey, sge.addr, u64::from(sge.length), write)
            .map(|_| ())
    }

    fn read_local(&self, pd: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        let (index, offset) = self.memory.local(pd, lkey, addr, out.len() as u64, false)?;
        // `&self`: a transgression cannot be noted, so it ends the test here and now.
        assert!(
            self.queues.sends.iter().any(|send| !send.stores
                && send
                    .sges
                    .iter()
                    .any(|sge| covers(sge, lkey, addr, out.len() as u64))),
            "local load of {} bytes at {addr:#x} lkey {lkey:#x} outside every open gather list",
            out.len()
        );
        out.copy_from_slice(&self.memory.regions[index].bytes[offset..offset + out.len()]);
        Ok(())
    }

    fn locate(&mut self, pd: Pd, list: &[Sge], offset: u64, len: u64, iov: &mut IoVecs) -> bool {
        let (mut skip, mut left) = (offset, len);
        for sge in list {
            let before = skip.min(u64::from(sge.length));
            skip -= before;
            let (addr, len) = (
                sge.addr + before,
                (u64::from(sge.length) - before).min(left),
            );
            if len == 0 {
                continue;
            }
            left -= len;
            let allowed = self.memory.local(pd, sge.lkey, addr, len, false).is_ok();
            if !allowed || !iov.push(IoVec { at: addr, len }) {
                return false;
            }
        }
        left == 0
    }

    fn check_presence(&self, pd: Pd, sge: &Sge) -> Result<(), LocalFault> {
        self.check_local(pd, sge, false)
    }

    fn write_local(&mut self, pd: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        let (index, offset) = self.memory.local(pd, lkey, addr, data.len() as u64, true)?;
        let len = data.len() as u64;
        let granted = self
            .queues
            .taken
            .iter()
            .flat_map(|recv| recv.sges.iter())
            .chain(
                self.queues
                    .sends
                    .iter()
                    .filter(|send| send.stores)
                    .flat_map(|send| send.sges.iter()),
            )
            .any(|sge| covers(sge, lkey, addr, len));
        if !granted {
            self.queues.violation(format!(
                "local store of {len} bytes at {addr:#x} lkey {lkey:#x} outside every open scatter list"
            ));
        }
        self.memory.regions[index].bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
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
        Ok(self.write_local(pd, lkey, addr, &packet[from..from + len])?)
    }

    fn fetch(&self, from: usize, out: &mut [u8]) -> bool {
        let part = self.packet.map(|packet| &packet[from..from + out.len()]);
        part.inspect(|part| out.copy_from_slice(part)).is_some()
    }

    fn check_remote(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        self.memory.remote(pd, rkey, va, len, access).map(|_| ())
    }

    fn read_remote(&self, pd: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        let (index, offset) =
            self.memory
                .remote(pd, rkey, va, out.len() as u64, RemoteAccess::Read)?;
        out.copy_from_slice(&self.memory.regions[index].bytes[offset..offset + out.len()]);
        Ok(())
    }

    fn write_remote(&mut self, pd: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        let len = data.len() as u64;
        let (index, offset) = self.memory.remote(pd, rkey, va, len, RemoteAccess::Write)?;
        push_effect(&mut self.queues.effects, Effect::Write { rkey, va, len });
        self.memory.regions[index].bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
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
        Ok(self.write_remote(pd, rkey, va, &packet[from..from + len])?)
    }

    fn atomic_write(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        if !va.is_multiple_of(8) {
            self.queues
                .violation(format!("atomic write at {va:#x}, not a multiple of 8"));
        }
        self.write_remote(pd, rkey, va, &value)
    }

    fn flush(
        &mut self,
        pd: Pd,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), RemoteFault> {
        let whole = || {
            let index = self.memory.by_rkey.get(&rkey)?;
            let region = &self.memory.regions[*index];
            Some((region.base, region.bytes.len() as u32))
        };
        let (va, len) = range.or_else(whole).ok_or(RemoteFault::UnknownKey)?;
        for (wanted, access) in [
            (placement.global, RemoteAccess::FlushGlobal),
            (placement.persistent, RemoteAccess::FlushPersistent),
        ] {
            if wanted {
                self.memory.remote(pd, rkey, va, u64::from(len), access)?;
            }
        }
        push_effect(
            &mut self.queues.effects,
            Effect::Flush {
                rkey,
                range,
                placement,
            },
        );
        Ok(())
    }

    fn atomic(&mut self, pd: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        let (index, offset) = self.memory.remote(pd, rkey, va, 8, RemoteAccess::Atomic)?;
        if !va.is_multiple_of(8) {
            self.queues
                .violation(format!("atomic at {va:#x}, not a multiple of 8"));
            return Err(RemoteFault::OutOfRange);
        }
        let cell = &mut self.memory.regions[index].bytes[offset..offset + 8];
        let before = u64::from_ne_bytes(cell.try_into().expect("8 bytes"));
        let after = match op {
            AtomicOp::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
        };
        cell.copy_from_slice(&after.to_ne_bytes());
        push_effect(
            &mut self.queues.effects,
            Effect::Atomic { rkey, va, before },
        );
        Ok(before)
    }

    fn invalidate(&mut self, pd: Pd, _qpn: u32, rkey: u32) -> Result<(), RemoteFault> {
        let index = *self
            .memory
            .by_rkey
            .get(&rkey)
            .ok_or(RemoteFault::UnknownKey)?;
        let region = &mut self.memory.regions[index];
        if region.revoked || !region.invalidatable {
            return Err(RemoteFault::UnknownKey);
        }
        if region.pd != pd {
            return Err(RemoteFault::OtherPd);
        }
        region.revoked = true;
        push_effect(&mut self.queues.effects, Effect::Invalidate { rkey });
        Ok(())
    }

    /// A window is one more rkey of its region, whole and with the region's rights.
    fn bind_window(&mut self, pd: Pd, _qpn: u32, bind: &BindWindow) -> Result<(), BindFault> {
        let by_lkey = &self.memory.by_lkey;
        let index = *by_lkey.get(&bind.lkey).ok_or(BindFault::UnknownRegion)?;
        if self.memory.regions[index].pd != pd {
            return Err(BindFault::OtherPd);
        }
        self.memory.by_rkey.insert(bind.rkey, index);
        push_effect(&mut self.queues.effects, Effect::Bind { rkey: bind.rkey });
        Ok(())
    }

    fn local_invalidate(&mut self, _pd: Pd, _qpn: u32, rkey: u32) -> Result<(), BindFault> {
        let index = *self
            .memory
            .by_rkey
            .get(&rkey)
            .ok_or(BindFault::UnknownWindow)?;
        if self.memory.regions[index].rkey == rkey {
            return Err(BindFault::InvalidatesRegion);
        }
        self.memory.by_rkey.remove(&rkey);
        push_effect(&mut self.queues.effects, Effect::LocalInvalidate { rkey });
        Ok(())
    }

    fn take_receive(&mut self) -> Option<RecvWqe> {
        let queues = &mut *self.queues;
        let wqe = match queues.selected {
            None => queues.receives.pop_front()?,
            Some(number) => queues.srqs.get_mut(&number)?.receives.pop_front()?,
        };
        self.queues.taken.push_back(wqe.clone());
        Some(wqe)
    }

    fn next_receive(&self) -> Option<&RecvWqe> {
        self.receives_posted()?;
        self.queues.receives.front()
    }

    fn return_receive(&mut self, wqe: RecvWqe) {
        let queues = &mut *self.queues;
        if queues.taken.pop_back().map(|taken| taken.wr_id) != Some(wqe.wr_id) {
            queues.violation(format!("receive {} given back, but not taken", wqe.wr_id));
        }
        match queues.selected {
            None => queues.receives.push_front(wqe),
            Some(number) => {
                if let Some(srq) = queues.srqs.get_mut(&number) {
                    srq.receives.push_front(wqe);
                }
            }
        }
    }

    fn select_srq(&mut self, srqn: u32) -> Option<Pd> {
        let pd = self.queues.srqs.get(&srqn)?.pd;
        self.queues.selected = Some(srqn);
        Some(pd)
    }

    fn receives_posted(&self) -> Option<u32> {
        (!self.queues.shared).then_some(self.queues.receives.len() as u32)
    }

    fn complete_send(&mut self, completion: Completion) {
        let queues = &mut *self.queues;
        let wr_id = completion.wr_id;
        match queues.sends.iter().position(|s| s.wr_id == wr_id) {
            None => queues.violation(format!("send {wr_id} completed twice or never posted")),
            Some(position) => {
                let skipped: Vec<PostedSend> = queues.sends.drain(..position).collect();
                for earlier in skipped {
                    if earlier.signaled || queues.send_failed {
                        queues.violation(format!(
                            "send {} skipped by the completion of {wr_id}",
                            earlier.wr_id
                        ));
                    }
                }
                let own = queues.sends.pop_front().expect("found above");
                if completion.status == Status::Success && !own.signaled {
                    queues.violation(format!("send {wr_id} is unsignaled but completed"));
                }
            }
        }
        if queues.send_failed && completion.status != Status::WorkRequestFlushed {
            queues.violation(format!(
                "send {wr_id} ends with {:?} after an earlier one failed",
                completion.status
            ));
        }
        queues.send_failed |= completion.status != Status::Success;
        queues.send_completions.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        let queues = &mut *self.queues;
        let wr_id = completion.wr_id;
        match queues.taken.pop_front() {
            Some(wqe) if wqe.wr_id == wr_id => {}
            other => queues.violation(format!(
                "receive {wr_id} completed, but the oldest one taken is {:?}",
                other.map(|wqe| wqe.wr_id)
            )),
        }
        if queues.recv_failed && completion.status != Status::WorkRequestFlushed {
            queues.violation(format!(
                "receive {wr_id} ends with {:?} after an earlier one failed",
                completion.status
            ));
        }
        queues.recv_failed |= completion.status != Status::Success;
        queues.recv_completions.push(completion);
        queues.recv_from.push(queues.selected);
    }

    fn event(&mut self, event: QpEvent) {
        self.queues.events.push(event);
    }
}
