//! The side that has an XRC target: what a queue pair whose requests another process executes keeps
//! meanwhile.
//!
//! A request that names a shared receive queue of another process is not executed here. It is kept,
//! with those behind it, as a batch that goes to that process; what comes until the verdicts are
//! there is kept, too, and fed again then. So the queue pair takes its requests one after the other
//! whoever executes them. What does not fit is dropped: the requester sends it again.

use std::cell::Cell;
use std::collections::VecDeque;

use rnic_host::PeerId;
use rnic_transport::{RemoteFault, Verdict};
use rnic_wire::{Operation, Packet};

/// Most bytes that one question for memory asks for.
pub(crate) const READ_AHEAD: u32 = 48 * 1024;
/// Most bytes of the packets that one question has executed.
pub(crate) const BATCH: usize = 60 * 1024;
/// Most packets of such a question.
pub(crate) const BATCH_PACKETS: usize = 64;

/// Most bytes of packets that are kept for one queue pair.
const STASH: usize = 4 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RemoteSrq {
    /// The last packet that was fed is for another process.
    referred: bool,
    /// Packets that another process executes, or is to.
    pub(crate) batch: Vec<Box<[u8]>>,
    /// Who executes them; `None`: nobody was asked yet.
    pub(crate) asked: Option<PeerId>,
    pub(crate) request: u32,
    pub(crate) deadline: u64,
    /// Who was asked was stopped when the deadline came.
    pub(crate) stopped: bool,
    /// What came behind them.
    stash: VecDeque<Box<[u8]>>,
    stashed: usize,
    pub(crate) read: ReadAhead,
    /// Who knows of this queue pair.
    pub(crate) known_to: Vec<PeerId>,
}

/// Bytes for the answers to READs.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// What is there.
    have: Option<Have>,
    /// What is to be asked for, or was.
    pub(crate) wanted: Option<Wanted>,
    pub(crate) asked: Option<PeerId>,
    pub(crate) request: u32,
    pub(crate) deadline: u64,
}

#[derive(Debug)]
struct Have {
    of: Wanted,
    bytes: Result<Vec<u8>, RemoteFault>,
    /// So many of them were read: another READ of them finds what the memory holds by then.
    used: Cell<usize>,
}

impl Have {
    /// Those at `va`, if `len` are there.
    fn at(&self, va: u64, len: usize) -> Option<Result<&[u8], RemoteFault>> {
        let bytes = match &self.bytes {
            Ok(bytes) => bytes,
            Err(fault) => return (self.used.get() == 0).then_some(Err(*fault)),
        };
        let from = usize::try_from(va.checked_sub(self.of.va)?).ok()?;
        if from < self.used.get() {
            return None;
        }
        Some(Ok(bytes.get(from..from.checked_add(len)?)?))
    }
}

/// A part of another process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) srqn: u32,
    pub(crate) rkey: u32,
    pub(crate) va: u64,
    pub(crate) len: u32,
}

impl RemoteSrq {
    /// For [`rnic_transport::Device::is_remote_srq`].
    pub(crate) fn refer(&mut self) {
        self.referred = true;
    }

    /// The packet that was just fed was referred: it begins a batch. True: somebody has to be
    /// asked.
    pub(crate) fn take_referral(&mut self, bytes: &[u8]) -> bool {
        if !std::mem::take(&mut self.referred) {
            return false;
        }
        self.batch.push(bytes.into());
        self.asked = None;
        true
    }

    /// A batch is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Keeps a packet that has to wait; false: it has not to.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        if !self.is_waiting() {
            return false;
        }
        if self.stashed + bytes.len() <= STASH {
            self.stashed += bytes.len();
            self.stash.push_back(bytes.into());
        }
        true
    }

    /// The next of those that had to wait.
    pub(crate) fn next_kept(&mut self) -> Option<Box<[u8]>> {
        let bytes = self.stash.pop_front()?;
        self.stashed -= bytes.len();
        Some(bytes)
    }

    /// These have to wait again, before all others.
    pub(crate) fn keep_again(&mut self, packets: impl DoubleEndedIterator<Item = Box<[u8]>>) {
        for bytes in packets.rev() {
            self.stashed += bytes.len();
            self.stash.push_front(bytes);
        }
    }

    /// The shared receive queue that the batch is for.
    pub(crate) fn srqn(&self) -> Option<u32> {
        let first = Packet::parse(self.batch.first()?).ok()?;
        Some(first.ext.xrceth?.srqn)
    }

    /// Adds to the batch what follows its first packet in sequence, as far as nothing but its
    /// execution has to come before.
    pub(crate) fn fill_batch(&mut self) {
        let Some(srqn) = self.srqn() else { return };
        let mut last = None;
        let mut size = 0;
        for bytes in &self.batch {
            size += bytes.len();
            last = Packet::parse(bytes).ok().filter(is_send_or_write);
        }
        let Some(mut psn) = last.map(|packet| packet.bth.psn) else {
            return;
        };
        while let Some(bytes) = self.stash.front() {
            let fits = self.batch.len() < BATCH_PACKETS && size + bytes.len() <= BATCH;
            let follows = Packet::parse(bytes).is_ok_and(|packet| {
                packet.bth.psn == psn.next()
                    && packet.ext.xrceth.is_some_and(|xrceth| xrceth.srqn == srqn)
                    && is_send_or_write(&packet)
            });
            if !(fits && follows) {
                return;
            }
            if let Some(bytes) = self.next_kept() {
                size += bytes.len();
                psn = psn.next();
                self.batch.push(bytes);
            }
        }
    }

    /// Ends the wait: the batch with what is to be done about each packet of it. Without verdict
    /// nothing happened.
    pub(crate) fn take_batch(&mut self) -> Vec<Box<[u8]>> {
        self.asked = None;
        std::mem::take(&mut self.batch)
    }

    /// For [`rnic_transport::Device::is_at_hand`].
    pub(crate) fn is_at_hand(
        &mut self,
        srqn: u32,
        rkey: u32,
        va: u64,
        len: u32,
        left: u32,
    ) -> bool {
        if let Some(have) = &self.read.have
            && (have.of.srqn, have.of.rkey) == (srqn, rkey)
            && have.at(va, len as usize).is_some()
        {
            return true;
        }
        self.read.have = None;
        self.read.asked = None;
        self.read.wanted = Some(Wanted {
            srqn,
            rkey,
            va,
            len: left.min(READ_AHEAD),
        });
        false
    }

    /// For [`rnic_transport::Device::read_remote`] behind it.
    pub(crate) fn read(&self, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        let have = self.read.have.as_ref().ok_or(RemoteFault::Unmapped)?;
        let bytes = have.at(va, out.len()).ok_or(RemoteFault::Unmapped)?;
        // Said once: what is read next may be there.
        let bytes = bytes.inspect_err(|_| have.used.set(1))?;
        out.copy_from_slice(bytes);
        have.used.set((va - have.of.va) as usize + bytes.len());
        Ok(())
    }

    /// What was asked for has come, or cannot be had.
    pub(crate) fn came(&mut self, bytes: Result<&[u8], RemoteFault>) {
        let Some(of) = self.read.wanted.take() else {
            return;
        };
        self.read.asked = None;
        let bytes = match bytes {
            Ok(bytes) if bytes.len() == of.len as usize => Ok(bytes.to_vec()),
            Ok(_) => Err(RemoteFault::Unmapped),
            Err(fault) => Err(fault),
        };
        self.read.have = Some(Have {
            of,
            bytes,
            used: Cell::new(0),
        });
    }

    /// In ERR: READs that came before the request which was refused are still answered, and its NAK
    /// leaves behind them. All else is over.
    pub(crate) fn only_read(self: Box<Self>) -> Option<Box<RemoteSrq>> {
        let reads = self.read.wanted.is_some() || self.read.have.is_some();
        reads.then(|| {
            Box::new(RemoteSrq {
                read: self.read,
                ..RemoteSrq::default()
            })
        })
    }

    /// Something is to be asked for.
    #[inline]
    pub(crate) fn has_question(&self) -> bool {
        self.read.wanted.is_some() && self.read.asked.is_none()
    }
}

fn is_send_or_write(packet: &Packet<'_>) -> bool {
    use Operation::*;
    matches!(
        packet.bth.opcode.operation(),
        Some(
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInvalidate
                | SendOnly
                | SendOnlyImm
                | SendOnlyInvalidate
                | WriteFirst
                | WriteMiddle
                | WriteLast
                | WriteLastImm
                | WriteOnly
                | WriteOnlyImm
        )
    )
}

/// The batch was not executed, and will not be.
pub(crate) const UNANSWERED: Verdict = Verdict::Refused(rnic_transport::Refused::ReceiveMemory);
/// There is no such shared receive queue.
pub(crate) const NO_SRQ: Verdict = Verdict::Refused(rnic_transport::Refused::Malformed);
