//! XRC with a remote SRQ, one of another process: that process executes the request, and this queue
//! pair answers it.
//!
//! The queue pair keeps what belongs to the connection: sequence, answers, retries. The SRQ's
//! owner, whose memory and receives these are, executes packets for it by a [`Delegate`], in the
//! order in which they are given to it, and says of each what became of it.

use super::{Fatal, Inbound, Nak, Refusal, Responder, confirmation};
use crate::rc::resources::{Body, Resources};
use crate::rc::{RcAttr, Role, Shared};
use crate::{Device, Pd, QpEvent, Refused};
use rnic_wire::{NakCode, Operation, Packet, Service};

/// What became of a request at the process that owns its SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was executed; an atomic found this value.
    Executed {
        /// Of an atomic: what the memory held before.
        original: u64,
    },
    /// No receive is posted.
    NotReady,
    /// It is refused, for good.
    Refused(Refused),
}

/// What the queue pair says of a request that was refused by the owner of its SRQ, where its
/// receive has been completed.
fn fatal(why: Refused) -> Fatal {
    let (code, event) = match why {
        Refused::Access => (NakCode::RemoteAccessError, Some(QpEvent::AccessError)),
        Refused::ReceiveMemory => (NakCode::RemoteOperationalError, None),
        Refused::TooLong => (NakCode::InvalidRequest, None),
        Refused::Invalidate => (NakCode::RemoteAccessError, None),
        Refused::NotAllowed
        | Refused::TooManyReads
        | Refused::Unaligned
        | Refused::PacketLength(_)
        | Refused::Malformed => (NakCode::InvalidRequest, Some(QpEvent::RequestError)),
    };
    Fatal {
        code,
        why,
        receive: None,
        event,
    }
}

const fn has_answer_of_its_own(operation: Operation) -> bool {
    use Operation::*;
    matches!(
        operation,
        ReadRequest | CompareSwap | FetchAdd | AtomicWrite | Flush
    )
}

impl Responder {
    /// The expected request is for another process, unless there is no room for its answer.
    #[cold]
    pub(super) fn refer(&mut self, operation: Operation) -> Refusal {
        if has_answer_of_its_own(operation) && !self.resources.make_room() {
            return Refusal::invalid(Refused::TooManyReads);
        }
        Refusal::RemoteSrq
    }

    /// Takes note of what became of a request. The caller gives the expected one; any other is none
    /// that it was asked about.
    pub(crate) fn executed_by_srq_owner<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        verdict: Verdict,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Fatal> {
        let psn = packet.bth.psn;
        let Some(xrceth) = packet.ext.xrceth else {
            return Ok(());
        };
        if psn != self.expected {
            return Ok(());
        }
        self.srqn = xrceth.srqn;
        match verdict {
            Verdict::NotReady => {
                self.put_off();
                return Ok(());
            }
            Verdict::Refused(why) => {
                let fatal = fatal(why);
                self.nak = Some(Nak::Fatal {
                    psn,
                    code: fatal.code,
                });
                device.evidence(&self.refused(operation, packet, why));
                return Err(fatal);
            }
            Verdict::Executed { original } => self.answer(operation, packet, original, sh),
        }
        self.caught_up();
        Ok(())
    }

    fn answer(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        original: u64,
        sh: &mut Shared,
    ) {
        use Operation::*;
        let psn = packet.bth.psn;
        if !has_answer_of_its_own(operation) {
            let last = !matches!(operation, SendFirst | SendMiddle | WriteFirst | WriteMiddle);
            self.inbound = if last {
                Inbound::Idle
            } else {
                Inbound::RemoteSrq
            };
            self.taken(operation, packet, last, sh);
            return;
        }
        self.message_done(sh);
        let pd = Pd::of_remote_srq(self.srqn);
        let mut packets = 1;
        match (operation, packet.ext.reth) {
            (ReadRequest, Some(reth)) => {
                packets = reth.dma_len.div_ceil(sh.mtu).max(1);
                sh.counters.served.read.add(u64::from(reth.dma_len));
                self.resources
                    .executed_read(psn, packets, self.msn, reth, pd);
            }
            (_, Some(reth)) => {
                let answer = confirmation(reth);
                let served = &mut sh.counters.served;
                match operation {
                    Flush => served.flush.add(0),
                    _ => served.atomic.add(8),
                }
                self.resources.executed_read(psn, 1, self.msn, answer, pd);
            }
            _ => {
                sh.counters.served.atomic.add(8);
                self.resources.executed_atomic(psn, self.msn, original);
            }
        }
        self.expected = psn.add(packets);
    }

    /// The bytes that the next answer needs are there, or are known to be out of reach.
    pub(crate) fn memory_came(&mut self) {
        self.awaits_memory = false;
    }
}

/// Executes requests that came to an XRC target of another process: a responder without a
/// connection.
#[derive(Debug)]
pub struct Delegate {
    responder: Responder,
    shared: Shared,
}

impl Delegate {
    /// For a target with these attributes; its role is that of an XRC target whatever they say.
    pub fn new(attr: RcAttr) -> Delegate {
        let shared = Shared {
            attr: RcAttr {
                role: Role::XrcTarget,
                ..attr
            },
            mtu: attr.mtu.bytes() as u32,
            counters: crate::Counters::default(),
        };
        Delegate {
            responder: Responder::new(&shared),
            shared,
        }
    }

    /// The target's access flags, which may change.
    pub fn update(&mut self, attr: RcAttr) {
        let own = &mut self.shared.attr;
        own.remote_write = attr.remote_write;
        own.remote_read = attr.remote_read;
        own.remote_atomic = attr.remote_atomic;
        own.flush = attr.flush;
    }

    /// Executes one request. What it is and whether it is well formed is checked here, its sequence
    /// is the caller's.
    pub fn execute<H: Device>(&mut self, packet: &Packet<'_>, device: &mut H) -> Verdict {
        let opcode = packet.bth.opcode;
        let operation = match (opcode.service(), opcode.operation()) {
            (Service::Xrc, Some(operation)) if !operation.is_response() => operation,
            _ => return Verdict::Refused(Refused::Malformed),
        };
        let responder = &mut self.responder;
        responder.expected = packet.bth.psn;
        // The target remembers what was answered.
        responder.resources = Resources::new(1);
        match responder.execute(operation, packet, &mut self.shared, device) {
            Ok(()) => {
                let original = match responder.resources.answers.front() {
                    Some(answer) => match answer.body {
                        Body::Atomic(original) => original,
                        Body::Read { .. } => 0,
                    },
                    None => 0,
                };
                Verdict::Executed { original }
            }
            Err(Refusal::NotReady) => Verdict::NotReady,
            Err(Refusal::Lost) => {
                responder.give_back(device);
                Verdict::NotReady
            }
            Err(Refusal::RemoteSrq) => Verdict::Refused(Refused::Malformed),
            Err(Refusal::Fatal(fatal)) => {
                responder.inbound = Inbound::Idle;
                responder.end_receive(fatal.receive, &self.shared, device);
                Verdict::Refused(fatal.why)
            }
        }
    }

    /// A receive was taken and is not complete.
    pub fn holds_receive(&self) -> bool {
        self.responder.holds_receive()
    }

    /// The target went to ERR: completes the receive in use as flushed.
    pub fn flush<H: Device>(&mut self, device: &mut H) {
        self.responder.inbound = Inbound::Idle;
        self.responder.end_receive(None, &self.shared, device);
    }
}

#[cfg(test)]
mod tests;
