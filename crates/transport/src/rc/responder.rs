//! The responder: executes the peer's requests in the order of their PSNs and answers them.
//!
//! A request is expected (its PSN is the next), past (executed before: answered again, not executed
//! again) or future (something was lost: one NAK asks for it). Answers leave in the order of PSNs:
//! READ responses are made from memory when they are sent; ACKs of requests taken between two calls
//! of `poll_transmit` become one.

mod answer;
mod atomic;
mod fast_path;
mod flush;
mod read;
mod remote_srq;
mod send;
mod write;

#[cfg(test)]
mod tests;

pub use remote_srq::{Delegate, Verdict};

use super::resources::Resources;
use super::{Role, Shared};
use crate::completion::vendor_err;
use crate::multi_psn;
use crate::receiving::{Receiving, failed_receive, flush_receives};
use crate::{
    Completion, CompletionOpcode, Device, Evidence, Immediate, LocalFault, Misplaced, Pd, QpEvent,
    Refused, RemoteFault, RequestRefused, Status,
};
use rnic_wire::{NakCode, Operation, Packet, Payload, Psn, Reth};

/// The message that is arriving.
#[derive(Clone, Copy, Debug, Default)]
enum Inbound {
    /// None: the next packet starts one.
    #[default]
    Idle,
    /// A SEND, into `receive`.
    Send,
    /// Whatever it is, another process executes it.
    RemoteSrq,
    /// A WRITE.
    Write {
        /// Where the next packet goes.
        va: u64,
        rkey: u32,
        /// Bytes that are still to come.
        left: u32,
        /// Bytes of the message.
        total: u32,
    },
}

/// Why future packets draw no NAK: the one about the expected PSN was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Silence {
    #[default]
    None,
    /// Something was lost.
    Sequence,
    /// There was no receive.
    NotReady,
}

/// A NAK that is to be sent. It refuses the expected PSN, so it comes after every other answer.
#[derive(Clone, Copy, Debug)]
enum Nak {
    /// Packets up to `ahead` were dropped because earlier ones are missing.
    Sequence { ahead: Psn },
    /// No receive.
    NotReady,
    /// The queue pair is in ERR because of the request at `psn`.
    Fatal { psn: Psn, code: NakCode },
}

/// Why a request was not executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted; the request may come again.
    NotReady,
    /// Another process has to execute it, and will say what becomes of it.
    RemoteSrq,
    /// Its payload, which was detached, cannot be had: the packet is lost.
    Lost,
    /// The queue pair breaks.
    Fatal(Fatal),
}

/// The end of a connection as the responder sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fatal {
    code: NakCode,
    why: Refused,
    /// How the receive WQE in use ends; flushed if `None`.
    receive: Option<(Status, u32)>,
    pub(crate) event: Option<QpEvent>,
}

impl Refusal {
    /// Malformed or out of sequence.
    const INVALID: Refusal = Refusal::invalid(Refused::Malformed);

    /// Not a request that this queue pair executes.
    const fn invalid(why: Refused) -> Refusal {
        Refusal::Fatal(Fatal {
            code: NakCode::InvalidRequest,
            why,
            receive: None,
            event: Some(QpEvent::RequestError),
        })
    }

    /// Key, range or right.
    fn access(_: RemoteFault) -> Refusal {
        Refusal::Fatal(Fatal {
            code: NakCode::RemoteAccessError,
            why: Refused::Access,
            receive: None,
            event: Some(QpEvent::AccessError),
        })
    }

    /// Longer than the receive.
    const TOO_LONG: Refusal = Refusal::Fatal(Fatal {
        code: NakCode::InvalidRequest,
        why: Refused::TooLong,
        receive: Some((Status::LocalLengthError, vendor_err::RECEIVE_TOO_SHORT)),
        event: None,
    });

    /// The receive's memory is not accessible.
    fn local(fault: LocalFault) -> Refusal {
        Refusal::Fatal(Fatal {
            code: NakCode::RemoteOperationalError,
            why: Refused::ReceiveMemory,
            receive: Some((Status::LocalProtectionError, vendor_err::local_fault(fault))),
            event: None,
        })
    }

    /// [`Refusal::access`] of a payload that may be detached.
    fn not_written(why: Misplaced<RemoteFault>) -> Refusal {
        match why {
            Misplaced::Refused(fault) => Refusal::access(fault),
            Misplaced::Lost => Refusal::Lost,
        }
    }

    /// [`Refusal::local`] of a payload that may be detached.
    fn not_received(why: Misplaced<LocalFault>) -> Refusal {
        match why {
            Misplaced::Refused(fault) => Refusal::local(fault),
            Misplaced::Lost => Refusal::Lost,
        }
    }

    /// The key that a SEND should have invalidated cannot be. Linux too gives the receive this
    /// status; hardware and IBTA send the NAK.
    fn invalidate(_: RemoteFault) -> Refusal {
        Refusal::Fatal(Fatal {
            code: NakCode::RemoteAccessError,
            why: Refused::Invalidate,
            receive: Some((Status::RemoteInvalidRequest, vendor_err::INVALIDATE)),
            event: None,
        })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    expected: Psn,
    /// In which requests work: the queue pair's protection domain or, over XRC, that of `srqn`.
    pd: Pd,
    /// XRC: the SRQ of the last request.
    srqn: u32,
    /// Messages executed, 24 bits on the wire.
    msn: u32,
    inbound: Inbound,
    receive: Option<Receiving>,
    /// PSN of the last SEND or WRITE packet taken: what an ACK may name. READs and atomics have
    /// answers of their own.
    last_taken: Psn,
    resources: Resources,
    ack: Option<Psn>,
    /// Which leaves even if a NAK follows it.
    ack_first: bool,
    nak: Option<Nak>,
    silence: Silence,
    /// The next answer needs bytes that another process was asked for.
    awaits_memory: bool,
}

impl Responder {
    pub(crate) fn new(sh: &Shared) -> Responder {
        Responder {
            expected: sh.attr.rq_psn,
            pd: sh.attr.pd,
            last_taken: sh.attr.rq_psn.prev(),
            resources: Resources::new(sh.attr.max_dest_rd_atomic),
            ..Responder::default()
        }
    }

    /// `max_dest_rd_atomic` has changed.
    pub(crate) fn resize_resources(&mut self, max_dest_rd_atomic: u8) {
        self.resources.resize(max_dest_rd_atomic);
    }

    pub(crate) fn holds_receive(&self) -> bool {
        self.receive.is_some()
    }

    pub(crate) fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Takes a request. An error has been recorded as a NAK to send; the caller moves the queue
    /// pair to ERR.
    #[inline]
    pub(crate) fn handle_request<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Fatal> {
        let distance = packet.bth.psn.distance_from(self.expected);
        if distance == 0 {
            return self.take(operation, packet, sh, device);
        }
        let psns = psns_taken(operation, packet, sh);
        if distance > 0 {
            self.look_at_start(packet.bth.psn, sh, device);
            self.future(packet.bth.psn.add(psns - 1), sh);
        } else if distance.unsigned_abs() < psns {
            return self.partly_past(operation, packet, sh, device);
        } else {
            self.look_at_start(packet.bth.psn, sh, device);
            self.past(operation, packet, sh);
        }
        Ok(())
    }

    /// The first pieces of a multi-PSN packet were executed before, from packets that
    /// were cut otherwise: the others are expected. All of it is acknowledged.
    #[cold]
    fn partly_past<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Fatal> {
        let past = self.expected.distance_from(packet.bth.psn) as usize;
        sh.counters.duplicates_received += 1;
        let mut rest = *packet;
        rest.payload = packet
            .payload
            .split_at(multi_psn::bytes_of(&packet.payload, past))
            .1;
        rest.bth.psn = self.expected;
        rest.bth.ack_req = true;
        self.take(multi_psn::without_start(operation), &rest, sh, device)
    }

    /// Takes the expected request.
    #[inline]
    fn take<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Fatal> {
        match self.execute(operation, packet, sh, device) {
            Ok(()) => {
                if self.nak.is_some() || self.silence != Silence::None {
                    self.caught_up();
                }
                Ok(())
            }
            Err(Refusal::NotReady | Refusal::Fatal(_))
                if may_be_taken_apart(operation, packet, sh) =>
            {
                self.take_apart(operation, packet, sh, device)
            }
            Err(Refusal::NotReady) => {
                self.put_off();
                Ok(())
            }
            Err(Refusal::RemoteSrq) => Ok(()),
            Err(Refusal::Lost) => {
                self.lost(operation, packet, sh, device);
                Ok(())
            }
            Err(Refusal::Fatal(fatal)) => {
                self.nak = Some(Nak::Fatal {
                    psn: packet.bth.psn,
                    code: fatal.code,
                });
                device.evidence(&self.refused(operation, packet, fatal.why));
                self.end_receive(fatal.receive, sh, device);
                Err(fatal)
            }
        }
    }

    /// A multi-PSN packet was refused: what the wire would have needed packets for is
    /// taken packet by packet, and those before the one that is refused are executed.
    #[cold]
    fn take_apart<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Fatal> {
        self.give_back(device);
        let [front, back] = multi_psn::halves(operation, packet);
        self.take(front.0, &front.1, sh, device)?;
        if self.expected == back.1.bth.psn {
            self.take(back.0, &back.1, sh, device)?;
        }
        Ok(())
    }

    /// Executes the expected request.
    #[inline]
    fn execute<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        use Operation::*;
        check_payload(operation, &packet.payload, sh.mtu as usize)?;
        if sh.attr.role == Role::XrcTarget {
            // Packets that another process may have to execute take one PSN each.
            if operation.has_payload() && packet.payload.len() > sh.mtu as usize {
                return Err(Refusal::INVALID);
            }
            self.select_srq(operation, packet, device)?;
        }
        let last = match operation {
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm => {
                self.write(operation, packet, sh, device)?
            }
            SendFirst | SendMiddle | SendLast | SendLastImm | SendLastInvalidate | SendOnly
            | SendOnlyImm | SendOnlyInvalidate => self.send(operation, packet, sh, device)?,
            ReadRequest => return self.read(packet, sh, device),
            CompareSwap | FetchAdd => return self.atomic(operation, packet, sh, device),
            AtomicWrite => return self.atomic_write(packet, sh, device),
            Flush => return self.flush_memory(packet, sh, device),
            _ => return Err(Refusal::INVALID),
        };
        self.taken(operation, packet, last, sh);
        Ok(())
    }

    /// A packet of a SEND or WRITE was executed.
    #[inline]
    fn taken(&mut self, operation: Operation, packet: &Packet<'_>, last: bool, sh: &mut Shared) {
        let psns = multi_psn::psns_of(&packet.payload);
        self.last_taken = packet.bth.psn.add(psns - 1);
        self.expected = self.last_taken.next();
        sh.counters
            .served
            .served(operation, packet.payload.len(), last);
        if last {
            self.message_done(sh);
        }
        if packet.bth.ack_req {
            self.ack = Some(self.last_taken);
        }
    }

    /// There is no receive: the requester is to come again.
    fn put_off(&mut self) {
        self.silence = Silence::NotReady;
        self.nak = Some(Nak::NotReady);
    }

    /// A receive that was taken for a packet which was not executed is posted again.
    fn give_back<H: Device>(&mut self, device: &mut H) {
        if !matches!(self.inbound, Inbound::Send)
            && let Some(receiving) = self.receive.take()
        {
            device.return_receive(receiving.wqe);
        }
    }

    /// The payload of the expected request cannot be had: all is as if it had not come, and it is
    /// asked for at once.
    #[cold]
    fn lost<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) {
        self.give_back(device);
        let psns = psns_taken(operation, packet, sh);
        self.silence = Silence::None;
        self.future(packet.bth.psn.add(psns - 1), sh);
    }

    /// Takes the SRQ that an XRC request names. All packets of a message name the same (IBTA A14).
    fn select_srq<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        device: &mut H,
    ) -> Result<(), Refusal> {
        let srqn = packet.ext.xrceth.ok_or(Refusal::INVALID)?.srqn;
        if srqn != self.srqn && !matches!(self.inbound, Inbound::Idle) {
            return Err(Refusal::INVALID);
        }
        match device.select_srq(srqn) {
            Some(pd) => self.pd = pd,
            None if device.is_remote_srq(srqn) => return Err(self.refer(operation)),
            None => return Err(Refusal::INVALID),
        }
        self.srqn = srqn;
        Ok(())
    }

    fn message_done(&mut self, sh: &mut Shared) {
        self.msn = self.msn.wrapping_add(1);
        sh.counters.messages_received += 1;
    }

    #[cold]
    fn refused(&self, operation: Operation, packet: &Packet<'_>, why: Refused) -> Evidence {
        let (room, filled) = match &self.receive {
            Some(receiving) => (receiving.room, receiving.filled),
            None => (0, 0),
        };
        Evidence::RequestRefused(RequestRefused {
            operation,
            psn: packet.bth.psn,
            why,
            room,
            length: filled + packet.payload.len() as u64,
        })
    }

    /// A request came that is not the expected one: counts it if none was ever taken.
    #[cold]
    fn look_at_start<H: Device>(&self, psn: Psn, sh: &mut Shared, device: &mut H) {
        if self.msn == 0 && self.expected == sh.attr.rq_psn {
            sh.counters.other_start(self.expected, psn, device);
        }
    }

    /// A request that was executed before: its answer was lost, or the network sent it twice.
    #[cold]
    fn past(&mut self, operation: Operation, packet: &Packet<'_>, sh: &mut Shared) {
        sh.counters.duplicates_received += 1;
        let psn = packet.bth.psn;
        let known = match operation {
            // It reads once more, so the right is needed once more.
            Operation::ReadRequest => packet.ext.reth.is_some_and(|reth| {
                sh.attr.remote_read && self.resources.replay_read(psn, reth, sh.mtu)
            }),
            Operation::CompareSwap | Operation::FetchAdd => self.resources.replay_atomic(psn),
            Operation::AtomicWrite | Operation::Flush => packet
                .ext
                .reth
                .is_some_and(|reth| self.resources.replay_read(psn, confirmation(reth), sh.mtu)),
            _ => {
                self.ack = Some(self.last_taken);
                true
            }
        };
        if !known {
            sh.counters.dropped += 1;
        }
        // An answer acknowledges all before it. An ACK for that in the middle of the answer would
        // not be in the order of PSNs, and Linux's requester takes the READ for done
        // (docs/interop.md).
        let last = self.resources.answers.back().map(|answer| answer.psn);
        self.ack = self
            .ack
            .filter(|ack| !last.is_some_and(|last| ack.is_before(last)));
    }

    /// A request behind a gap.
    #[cold]
    fn future(&mut self, psn: Psn, sh: &mut Shared) {
        sh.counters.out_of_sequence += 1;
        match (&mut self.nak, self.silence) {
            (Some(Nak::Sequence { ahead }), _) if ahead.is_before(psn) => {
                *ahead = psn;
            }
            (None, Silence::None) => {
                self.nak = Some(Nak::Sequence { ahead: psn });
                self.silence = Silence::Sequence;
            }
            _ => {}
        }
    }

    /// The expected request came. A NAK that was not sent yet is still needed if packets behind it
    /// were dropped.
    #[cold]
    fn caught_up(&mut self) {
        match self.nak {
            Some(Nak::Sequence { ahead }) if !ahead.is_before(self.expected) => {}
            nak => {
                // What a NAK asked for has come. Linux's requester takes nothing but an ACK for
                // progress: a NAK costs it a retry, although it acknowledges all packets before, so
                // that it gave up where many are reordered. So the next NAK, for a gap behind it in
                // the same batch, does not stand for the ACK.
                let asked = nak.is_none() && self.silence == Silence::Sequence;
                if asked && self.last_taken.next() == self.expected {
                    self.ack = Some(self.last_taken);
                    self.ack_first = true;
                }
                self.nak = None;
                self.silence = Silence::None;
            }
        }
    }

    /// Completes the receive WQE in use, if any: flushed, or as said.
    fn end_receive<H: Device>(&mut self, how: Option<(Status, u32)>, sh: &Shared, device: &mut H) {
        if let Some(receiving) = self.receive.take() {
            let (status, vendor_err) =
                how.unwrap_or((Status::WorkRequestFlushed, vendor_err::FLUSHED));
            device.complete_recv(failed_receive(
                receiving.wqe.wr_id,
                sh.attr.qpn,
                sh.attr.dest_qpn,
                status,
                vendor_err,
            ));
        }
    }

    /// Enters ERR: flushes the receive WQE in use and the receive queue (an SRQ keeps its
    /// receives).
    pub(crate) fn flush<H: Device>(&mut self, sh: &Shared, device: &mut H) {
        self.inbound = Inbound::Idle;
        self.end_receive(None, sh, device);
        flush_receives(sh.attr.qpn, sh.attr.dest_qpn, false, device);
    }

    /// Drops the answers that were not sent yet, except an ACK of what was executed and needs no
    /// other answer before.
    pub(crate) fn drop_answers(&mut self) {
        if !self.resources.answers.is_empty() {
            self.resources.answers.clear();
            self.ack = None;
        }
        self.nak = None;
    }

    /// Takes the next receive WQE.
    fn start_receive<H: Device>(&mut self, device: &mut H) -> Result<(), Refusal> {
        self.receive = Some(Receiving::take(self.pd, device).ok_or(Refusal::NotReady)?);
        Ok(())
    }

    /// Completes the receive WQE in use with success.
    fn complete_receive<H: Device>(
        &mut self,
        opcode: CompletionOpcode,
        byte_len: u32,
        immediate: Immediate,
        solicited: bool,
        sh: &Shared,
        device: &mut H,
    ) {
        if let Some(receiving) = self.receive.take() {
            device.complete_recv(Completion {
                wr_id: receiving.wqe.wr_id,
                status: Status::Success,
                opcode,
                byte_len,
                vendor_err: 0,
                qpn: sh.attr.qpn,
                src_qpn: sh.attr.dest_qpn,
                immediate,
                grh: None,
                pkey_index: 0,
                solicited,
            });
        }
    }
}

/// Payload lengths that each part of a message may have (IBTA 9.7.4.1.6).
#[inline]
fn check_payload(operation: Operation, payload: &Payload<'_>, mtu: usize) -> Result<(), Refusal> {
    use Operation::*;
    let fits = match operation {
        SendFirst | SendMiddle | WriteFirst | WriteMiddle => multi_psn::fills(payload, mtu),
        SendLast | SendLastImm | SendLastInvalidate | WriteLast | WriteLastImm => {
            !payload.is_empty() && multi_psn::ends(payload, mtu)
        }
        SendOnly | SendOnlyImm | SendOnlyInvalidate | WriteOnly | WriteOnlyImm => {
            multi_psn::ends(payload, mtu)
        }
        AtomicWrite if payload.len() != 8 => return Err(Refusal::INVALID),
        // Have none; what comes along is ignored.
        _ => true,
    };
    if fits {
        Ok(())
    } else {
        Err(wrong_length(payload))
    }
}

/// It is a multi-PSN packet, and its length is not what is wrong with it.
#[cold]
fn may_be_taken_apart(operation: Operation, packet: &Packet<'_>, sh: &Shared) -> bool {
    psns_taken(operation, packet, sh) > 1
        && check_payload(operation, &packet.payload, sh.mtu as usize).is_ok()
}

#[cold]
fn wrong_length(payload: &Payload<'_>) -> Refusal {
    match multi_psn::bytes_of(payload, 1) {
        0 => Refusal::INVALID,
        first => Refusal::invalid(Refused::PacketLength(
            u32::try_from(first).unwrap_or(u32::MAX),
        )),
    }
}

/// PSNs that a request takes as a packet.
#[inline]
fn psns_taken(operation: Operation, packet: &Packet<'_>, sh: &Shared) -> u32 {
    let may_be_multi_psn = operation.is_send() || operation.is_write();
    if may_be_multi_psn && sh.attr.role == Role::Rc {
        multi_psn::psns_of(&packet.payload)
    } else {
        1
    }
}

/// The READ whose response answers an atomic write or FLUSH: of no bytes.
fn confirmation(reth: Reth) -> Reth {
    Reth { dma_len: 0, ..reth }
}

/// The RETH of a request whose opcode has one; [`Packet::parse`] makes sure of it, other callers
/// may not.
fn reth_of(packet: &Packet<'_>) -> Result<Reth, Refusal> {
    packet.ext.reth.ok_or(Refusal::INVALID)
}
