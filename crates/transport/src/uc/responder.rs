//! What arrives: messages whole or not at all, in order.
//!
//! A packet ahead of the expected PSN shows a loss: the message that was arriving is dropped, and
//! the next FIRST or ONLY packet starts another (IBTA 9.8.2.2.1). InfiniBand neither repeats nor
//! reorders packets, IP networks may: a packet from shortly before the expected PSN is a straggler
//! and is ignored, or it would be taken twice or out of order.

use super::UcAttr;
use crate::completion::vendor_err;
use crate::rc::MAX_MESSAGE;
use crate::receiving::{Receiving, failed_receive, flush_receives};
use crate::scatter::store_remote;
use crate::{
    Completion, CompletionOpcode, Counters, Device, Dropped, Immediate, LocalFault, Misplaced,
    RemoteAccess, Status, multi_psn,
};
use rnic_wire::{ImmDt, Operation, Packet, Payload, Psn};

/// How far back a PSN may lie to be a straggler. Beyond, the peer has started anew.
const STRAGGLERS: i32 = 1024;

/// The message that is arriving.
#[derive(Clone, Copy, Debug, Default)]
enum Inbound {
    /// None: the next packet starts one.
    #[default]
    Idle,
    /// The rest of one that was given up: nothing counts but the start of the next.
    Dropped,
    /// A SEND, into the receive.
    Send,
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

/// Why a packet was not taken.
enum Refusal {
    /// The message is dropped; nothing else happens.
    Drop(Dropped),
    /// The memory of the receive is not accessible: the queue pair breaks.
    Local(LocalFault),
}

impl Refusal {
    const MALFORMED: Refusal = Refusal::Drop(Dropped::Malformed);
    const ACCESS: Refusal = Refusal::Drop(Dropped::Access);
}

/// The queue pair breaks.
pub(super) struct Broken;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Responder {
    expected: Psn,
    inbound: Inbound,
    /// The receive WQE in use; that of a dropped message waits here for the next one.
    receive: Option<Receiving>,
}

impl Responder {
    pub(super) fn new(expected: Psn) -> Responder {
        Responder {
            expected,
            ..Responder::default()
        }
    }

    pub(super) fn expected_psn(&self) -> Psn {
        self.expected
    }

    pub(super) fn holds_receive(&self) -> bool {
        self.receive.is_some()
    }

    /// The packet takes a receive, and none is in use.
    pub(super) fn needs_receive(&self, operation: Operation, psn: Psn) -> bool {
        let distance = psn.distance_from(self.expected);
        if self.receive.is_some() || (-STRAGGLERS..0).contains(&distance) {
            return false;
        }
        let starts = operation.is_first() || operation.is_only();
        if operation.is_write() {
            let goes_on = distance == 0 && matches!(self.inbound, Inbound::Write { .. });
            operation.has_immediate() && (starts || goes_on)
        } else {
            starts
        }
    }

    pub(super) fn handle_packet<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        attr: &UcAttr,
        counters: &mut Counters,
        device: &mut H,
    ) -> Result<(), Broken> {
        let psn = packet.bth.psn;
        let distance = psn.distance_from(self.expected);
        if (-STRAGGLERS..0).contains(&distance) {
            counters.duplicates_received += 1;
            if self.expected == attr.rq_psn && counters.messages_received == 0 {
                counters.other_start(attr.rq_psn, psn, device);
            }
            return Ok(());
        }
        if distance != 0 {
            counters.out_of_sequence += 1;
            self.give_up(counters, device);
        }
        let psns = multi_psn::psns_of(&packet.payload);
        self.expected = psn.add(psns);
        self.take(operation, packet, attr, counters, device)
    }

    /// Takes what has the expected PSN.
    fn take<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        attr: &UcAttr,
        counters: &mut Counters,
        device: &mut H,
    ) -> Result<(), Broken> {
        let starts = operation.is_first() || operation.is_only();
        if starts {
            // A message that never ended.
            self.give_up(counters, device);
            self.inbound = Inbound::Idle;
        } else if !matches!(self.inbound, Inbound::Send | Inbound::Write { .. }) {
            if matches!(self.inbound, Inbound::Idle) {
                // Its start was lost.
                counters.drop_message(Dropped::Incomplete, None, device);
                self.inbound = Inbound::Dropped;
            }
            if operation.is_last() {
                self.inbound = Inbound::Idle;
            }
            counters.dropped += 1;
            return Ok(());
        }
        let taken = if operation.is_write() {
            self.write(operation, packet, attr, device)
        } else {
            self.send(operation, packet, attr, device)
        };
        match taken {
            Ok(last) => {
                let len = packet.payload.len();
                counters.served.served(operation, len, last);
                if !last {
                    return Ok(());
                }
                counters.messages_received += 1;
                self.inbound = Inbound::Idle;
                Ok(())
            }
            // What the wire would have needed packets for is taken packet by packet, and those
            // before the one that is refused are executed.
            Err(_) if may_be_taken_apart(operation, packet, attr) => {
                let [front, back] = multi_psn::halves(operation, packet);
                self.take(front.0, &front.1, attr, counters, device)?;
                self.take(back.0, &back.1, attr, counters, device)
            }
            Err(Refusal::Drop(why)) => {
                counters.drop_message(why, None, device);
                self.inbound = if operation.is_last() || operation.is_only() {
                    Inbound::Idle
                } else {
                    Inbound::Dropped
                };
                Ok(())
            }
            Err(Refusal::Local(fault)) => {
                if let Some(receiving) = self.receive.take() {
                    device.complete_recv(failed_receive(
                        receiving.wqe.wr_id,
                        attr.qpn,
                        attr.dest_qpn,
                        Status::LocalProtectionError,
                        vendor_err::local_fault(fault),
                    ));
                }
                Err(Broken)
            }
        }
    }

    /// Drops the message that was arriving, if any.
    fn give_up<H: Device>(&mut self, counters: &mut Counters, device: &mut H) {
        if matches!(self.inbound, Inbound::Send | Inbound::Write { .. }) {
            counters.drop_message(Dropped::Incomplete, None, device);
            self.inbound = Inbound::Dropped;
        }
    }

    /// Flushes the receive WQE in use and the receive queue (an SRQ keeps its receives).
    pub(super) fn flush<H: Device>(&mut self, attr: &UcAttr, entered: bool, device: &mut H) {
        self.inbound = Inbound::Idle;
        if let Some(receiving) = self.receive.take() {
            device.complete_recv(failed_receive(
                receiving.wqe.wr_id,
                attr.qpn,
                attr.dest_qpn,
                Status::WorkRequestFlushed,
                vendor_err::FLUSHED,
            ));
        }
        flush_receives(attr.qpn, attr.dest_qpn, entered, device);
    }

    /// Takes the receive WQE that waits, or the next one.
    fn start_receive<H: Device>(&mut self, attr: &UcAttr, device: &mut H) -> Result<(), Refusal> {
        match &mut self.receive {
            Some(receiving) => receiving.rewind(),
            None => {
                self.receive = Some(
                    Receiving::take(attr.pd, device).ok_or(Refusal::Drop(Dropped::NoReceive))?,
                );
            }
        }
        Ok(())
    }

    /// Takes a packet of a SEND; true if it ends the message.
    fn send<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        attr: &UcAttr,
        device: &mut H,
    ) -> Result<bool, Refusal> {
        check_payload(operation, &packet.payload, attr)?;
        match self.inbound {
            Inbound::Idle => self.start_receive(attr, device)?,
            Inbound::Send => {}
            _ => return Err(Refusal::MALFORMED),
        }
        let Some(receiving) = &mut self.receive else {
            return Err(Refusal::MALFORMED);
        };
        let len = packet.payload.len() as u64;
        if len > receiving.left() || receiving.filled + len > MAX_MESSAGE {
            return Err(Refusal::Drop(Dropped::TooLong {
                room: receiving.room,
                length: receiving.filled + len,
            }));
        }
        receiving
            .store(packet.payload, device)
            .map_err(|why| match why {
                Misplaced::Refused(fault) => Refusal::Local(fault),
                Misplaced::Lost => Refusal::Drop(Dropped::Incomplete),
            })?;
        if operation.is_first() || operation.is_middle() {
            self.inbound = Inbound::Send;
            return Ok(false);
        }
        let (byte_len, opcode) = (receiving.filled as u32, CompletionOpcode::Recv);
        self.complete_receive(opcode, byte_len, packet, attr, device);
        Ok(true)
    }

    /// Takes a packet of a WRITE; true if it ends the message.
    fn write<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        attr: &UcAttr,
        device: &mut H,
    ) -> Result<bool, Refusal> {
        check_payload(operation, &packet.payload, attr)?;
        // In every packet: it may have been taken away since the first.
        if !attr.remote_write {
            return Err(Refusal::ACCESS);
        }
        let len = packet.payload.len() as u32;
        let (va, rkey, left, total) = match self.inbound {
            Inbound::Idle => {
                let reth = packet.ext.reth.ok_or(Refusal::MALFORMED)?;
                let whole = u64::from(reth.dma_len);
                if whole > MAX_MESSAGE {
                    return Err(Refusal::MALFORMED);
                }
                // Key and address of an empty message mean nothing (IBTA 9.7.4.1.5).
                if whole > 0 {
                    device
                        .check_remote(attr.pd, reth.rkey, reth.va, whole, RemoteAccess::Write)
                        .map_err(|_| Refusal::ACCESS)?;
                }
                (reth.va, reth.rkey, reth.dma_len, reth.dma_len)
            }
            Inbound::Write {
                va,
                rkey,
                left,
                total,
            } => (va, rkey, left, total),
            _ => return Err(Refusal::MALFORMED),
        };
        let ends = operation.is_last() || operation.is_only();
        // Something must be left for the packets that follow, and nothing behind the last one.
        if ends && len != left || !ends && len >= left {
            return Err(Refusal::MALFORMED);
        }
        // The receive of the immediate data is taken before anything of the last packet is stored.
        if operation.has_immediate() {
            self.start_receive(attr, device)?;
        }
        if len > 0 {
            store_remote(device, attr.pd, rkey, va, packet.payload).map_err(|why| match why {
                Misplaced::Refused(_) => Refusal::ACCESS,
                Misplaced::Lost => Refusal::Drop(Dropped::Incomplete),
            })?;
        }
        if !ends {
            self.inbound = Inbound::Write {
                va: va.wrapping_add(u64::from(len)),
                rkey,
                left: left - len,
                total,
            };
            return Ok(false);
        }
        if operation.has_immediate() {
            let opcode = CompletionOpcode::RecvRdmaWithImm;
            self.complete_receive(opcode, total, packet, attr, device);
        }
        Ok(true)
    }

    fn complete_receive<H: Device>(
        &mut self,
        opcode: CompletionOpcode,
        byte_len: u32,
        packet: &Packet<'_>,
        attr: &UcAttr,
        device: &mut H,
    ) {
        if let Some(receiving) = self.receive.take() {
            device.complete_recv(Completion {
                wr_id: receiving.wqe.wr_id,
                status: Status::Success,
                opcode,
                byte_len,
                vendor_err: 0,
                qpn: attr.qpn,
                src_qpn: attr.dest_qpn,
                immediate: match packet.ext.imm {
                    Some(ImmDt(data)) => Immediate::Data(data),
                    None => Immediate::None,
                },
                grh: None,
                pkey_index: 0,
                solicited: packet.bth.solicited,
            });
        }
    }
}

/// Payload lengths that each part of a message may have (IBTA 9.8.2.2.3).
#[inline]
fn check_payload(
    operation: Operation,
    payload: &Payload<'_>,
    attr: &UcAttr,
) -> Result<(), Refusal> {
    let mtu = attr.mtu.bytes();
    let fits = if operation.is_first() || operation.is_middle() {
        multi_psn::fills(payload, mtu)
    } else if operation.is_last() {
        !payload.is_empty() && multi_psn::ends(payload, mtu)
    } else {
        multi_psn::ends(payload, mtu)
    };
    if fits {
        Ok(())
    } else {
        Err(wrong_length(payload))
    }
}

#[cold]
fn wrong_length(payload: &Payload<'_>) -> Refusal {
    match multi_psn::bytes_of(payload, 1) {
        0 => Refusal::MALFORMED,
        first => Refusal::Drop(Dropped::PacketLength(
            u32::try_from(first).unwrap_or(u32::MAX),
        )),
    }
}

/// It is a multi-PSN packet, and its length is not what is wrong with it.
#[cold]
fn may_be_taken_apart(operation: Operation, packet: &Packet<'_>, attr: &UcAttr) -> bool {
    multi_psn::psns_of(&packet.payload) > 1
        && check_payload(operation, &packet.payload, attr).is_ok()
}
