//! What the responder sends next.

use super::{Fatal, Nak, Refusal, Responder};
use crate::middle::{WORTH, emit_row};
use crate::output::Output;
use crate::rc::resources::Body;
use crate::rc::{Role, Shared};
use crate::{Device, Evidence, Load, PacketSink, Pd, RemoteFault, RequestRefused, multi_psn};
use rnic_wire::{
    Aeth, AtomicAckEth, Bth, CREDITS_INVALID, Ext, NakCode, Opcode, Operation, Psn, Syndrome,
    credit_code, emit, header_len, pad_len,
};

/// What became of an attempt to emit a packet.
enum Emitted {
    /// So many packets.
    Yes(u32),
    NoRoom,
    /// The memory of a READ is gone.
    Refused(RemoteFault),
}

impl Responder {
    /// Something is to be sent.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        !self.awaits_memory
            && (self.ack.is_some() || self.nak.is_some() || !self.resources.answers.is_empty())
    }

    /// Nothing but an acknowledgement is to be sent.
    pub(crate) fn owes_only_ack(&self) -> bool {
        self.ack.is_some() && self.nak.is_none() && self.resources.answers.is_empty()
    }

    /// Nothing but one answer, to a READ or atomic, is to be sent.
    #[inline]
    pub(crate) fn owes_only_answer(&self) -> bool {
        self.resources.answers.len() == 1 && self.ack.is_none() && self.nak.is_none()
    }

    /// The next answer is a packet with all that a READ asked for.
    #[inline]
    pub(crate) fn owes_short_read(&self, mtu: u32) -> bool {
        let next = self.resources.answers.front();
        next.is_some_and(
            |answer| matches!(answer.body, Body::Read { left, begun, .. } if left <= mtu && !begun),
        )
    }

    /// Emits answers in the order of their PSNs until there is none or `out` takes no more.
    ///
    /// # Errors
    /// The memory of a READ is gone: the NAK is queued, the caller moves the queue pair to ERR and
    /// calls again.
    #[inline]
    pub(crate) fn transmit<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<(), Fatal> {
        while self.can_send() {
            let emitted = match (self.resources.answers.front(), self.ack) {
                (Some(answer), Some(ack)) if ack.is_before(answer.psn) => {
                    self.transmit_ack(ack, sh, device, out)
                }
                (Some(_), _) => self.transmit_answer(sh, device, out),
                // A NAK says that all before it was taken.
                (None, Some(ack)) if self.nak.is_none() || self.ack_first => {
                    self.transmit_ack(ack, sh, device, out)
                }
                (None, _) => self.transmit_nak(sh, out),
            };
            match emitted {
                Emitted::Yes(packets) => sh.counters.packets_sent += u64::from(packets),
                Emitted::NoRoom => break,
                // Its requester had the answer, it may be, and has told the program, which took the
                // memory back.
                Emitted::Refused(_) if self.resources.give_up_repetition() => {
                    sh.counters.dropped += 1;
                }
                Emitted::Refused(fault) => {
                    let psn = self
                        .resources
                        .answers
                        .front()
                        .map_or(self.expected, |answer| answer.psn);
                    let Refusal::Fatal(fatal) = Refusal::access(fault) else {
                        break;
                    };
                    self.resources.answers.clear();
                    self.ack = None;
                    self.nak = Some(Nak::Fatal {
                        psn,
                        code: fatal.code,
                    });
                    device.evidence(&Evidence::RequestRefused(RequestRefused {
                        operation: Operation::ReadRequest,
                        psn,
                        why: fatal.why,
                        room: 0,
                        length: 0,
                    }));
                    return Err(fatal);
                }
            }
        }
        Ok(())
    }

    /// The credit code of the receives that are posted, of which a message that has begun has one
    /// until it counts in the MSN: the requester adds the two (IBTA vol. 1, 9.7.7.2).
    #[inline]
    fn credits<H: Device>(&self, device: &H) -> u8 {
        let begun = u32::from(self.receive.is_some());
        device
            .receives_posted()
            .map_or(CREDITS_INVALID, |posted| credit_code(posted + begun))
    }

    /// The AETH of the ACK that is owed.
    #[inline]
    pub(super) fn ack_aeth<H: Device>(&self, device: &H) -> Aeth {
        Aeth {
            syndrome: Syndrome::Ack {
                credits: self.credits(device),
            },
            msn: self.msn,
        }
    }

    /// The ACK has left.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        self.ack = None;
        self.ack_first = false;
    }

    #[inline]
    fn transmit_ack<H: Device, S: PacketSink>(
        &mut self,
        psn: Psn,
        sh: &Shared,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Emitted {
        let emitted = acknowledge(psn, self.ack_aeth(device), sh, out);
        if let Emitted::Yes(_) = emitted {
            self.acknowledged();
        }
        emitted
    }

    fn transmit_nak<S: PacketSink>(&mut self, sh: &mut Shared, out: &mut Output<'_, S>) -> Emitted {
        let (psn, syndrome) = match self.nak {
            None => return Emitted::NoRoom,
            Some(Nak::Sequence { .. }) => (self.expected, Syndrome::Nak(NakCode::PsnSequenceError)),
            Some(Nak::NotReady) => (
                self.expected,
                Syndrome::RnrNak {
                    timer: sh.attr.min_rnr_timer,
                },
            ),
            Some(Nak::Fatal { psn, code }) => (psn, Syndrome::Nak(code)),
        };
        let emitted = acknowledge(
            psn,
            Aeth {
                syndrome,
                msn: self.msn,
            },
            sh,
            out,
        );
        if let Emitted::Yes(_) = emitted {
            self.nak = None;
            self.acknowledged();
            match syndrome {
                Syndrome::RnrNak { .. } => sh.counters.rnr_naks_sent += 1,
                Syndrome::Nak(NakCode::PsnSequenceError) => sh.counters.sequence_naks_sent += 1,
                Syndrome::Nak(NakCode::RemoteAccessError) => sh.counters.access_naks_sent += 1,
                Syndrome::Nak(NakCode::InvalidRequest) => sh.counters.invalid_naks_sent += 1,
                Syndrome::Nak(NakCode::RemoteOperationalError) => {
                    sh.counters.operational_naks_sent += 1;
                }
                _ => {}
            }
        }
        emitted
    }

    /// Emits the next packet of the oldest answer, or a row of them.
    #[inline]
    fn transmit_answer<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Emitted {
        let credits = self.credits(device);
        let Some(answer) = self.resources.answers.front_mut() else {
            return Emitted::NoRoom;
        };
        let aeth = Aeth {
            syndrome: Syndrome::Ack { credits },
            msn: answer.msn,
        };
        let (pd, va, rkey, left, begun) = match answer.body {
            Body::Read {
                pd,
                va,
                rkey,
                left,
                begun,
            } => (pd, va, rkey, left, begun),
            Body::Atomic(original) => {
                let atomic_ack = Some(AtomicAckEth { original });
                let ext = Ext {
                    aeth: Some(aeth),
                    atomic_ack,
                    ..Ext::default()
                };
                let emitted = respond(Operation::AtomicAcknowledge, answer.psn, &ext, sh, out);
                if let Emitted::Yes(_) = emitted {
                    self.resources.answers.pop_front();
                }
                return emitted;
            }
        };
        let psns = match sh.attr.role {
            Role::Rc => {
                let packets = left.div_ceil(sh.mtu).max(1);
                let most = out.most_payload(sh.mtu);
                let middles = packets - 1;
                if begun && middles >= WORTH && most <= sh.mtu as usize {
                    return self.transmit_middles(middles, (pd, rkey, va), sh, device, out);
                }
                multi_psn::fitting(packets, most, sh.mtu)
            }
            _ => 1,
        };
        let len = u64::from(left).min(u64::from(psns) * u64::from(sh.mtu)) as u32;
        let last = len == left;
        let operation = match (begun, last) {
            (false, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseMiddle,
            (true, true) => Operation::ReadResponseLast,
        };
        let aeth = if operation == Operation::ReadResponseMiddle {
            None
        } else {
            Some(aeth)
        };
        let ext = Ext {
            aeth,
            ..Ext::default()
        };
        if sh.attr.role == Role::XrcTarget && !device.is_at_hand(pd, rkey, va, len, left) {
            self.awaits_memory = true;
            return Emitted::NoRoom;
        }
        let source = (pd, rkey, va);
        let emitted = read_response(
            operation,
            answer.psn,
            &ext,
            len as usize,
            source,
            sh,
            device,
            out,
        );
        if let Emitted::Yes(_) = emitted {
            sh.counters.bytes_sent += u64::from(len);
            if last {
                self.resources.answers.pop_front();
            } else {
                answer.advance(psns, len);
            }
        }
        emitted
    }

    /// Emits at most so many packets from the middle of the oldest answer, a READ's, the next of
    /// which begins at `va`.
    #[inline]
    fn transmit_middles<H: Device, S: PacketSink>(
        &mut self,
        most: u32,
        (pd, rkey, mut va): (Pd, u32, u64),
        sh: &mut Shared,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Emitted {
        let Some(answer) = self.resources.answers.front_mut() else {
            return Emitted::NoRoom;
        };
        let opcode = Opcode::new(sh.attr.role.service(), Operation::ReadResponseMiddle);
        let bth = sh.bth(opcode, answer.psn);
        let (count, filled) = emit_row(out, most, &bth, sh.mtu, |payload| {
            device.read_remote(pd, rkey, va, payload)?;
            va = va.wrapping_add(u64::from(sh.mtu));
            Ok(())
        });
        let len = count * sh.mtu;
        answer.advance(count, len);
        sh.counters.bytes_sent += u64::from(len);
        match (count, filled) {
            (0, Err(fault)) => Emitted::Refused(fault),
            (0, Ok(())) => Emitted::NoRoom,
            // What ended the row is met again by the packet that did not get into it.
            _ => Emitted::Yes(count),
        }
    }
}

/// Emits an ACK or NAK.
fn acknowledge<S: PacketSink>(
    psn: Psn,
    aeth: Aeth,
    sh: &Shared,
    out: &mut Output<'_, S>,
) -> Emitted {
    respond(
        Operation::Acknowledge,
        psn,
        &Ext {
            aeth: Some(aeth),
            ..Ext::default()
        },
        sh,
        out,
    )
}

/// Emits a response without payload.
fn respond<S: PacketSink>(
    operation: Operation,
    psn: Psn,
    ext: &Ext,
    sh: &Shared,
    out: &mut Output<'_, S>,
) -> Emitted {
    let opcode = Opcode::new(sh.attr.role.service(), operation);
    let Some(buf) = out.packet(header_len(opcode)) else {
        return Emitted::NoRoom;
    };
    emit(&sh.bth(opcode, psn), ext, buf);
    Emitted::Yes(1)
}

/// Emits a READ response with the bytes that are in memory now.
#[inline]
#[allow(clippy::too_many_arguments, reason = "one call, inlined")]
fn read_response<H: Device, S: PacketSink>(
    operation: Operation,
    psn: Psn,
    ext: &Ext,
    len: usize,
    (pd, rkey, va): (Pd, u32, u64),
    sh: &Shared,
    device: &mut H,
    out: &mut Output<'_, S>,
) -> Emitted {
    let opcode = Opcode::new(sh.attr.role.service(), operation);
    let header = header_len(opcode);
    let pad = pad_len(len);
    let multi_psn = (len > sh.mtu as usize).then_some(sh.attr.mtu);
    let load = Load::Remote { pd, rkey, va };
    let carried = multi_psn.and_then(|mtu| out.carry(header, len, mtu, &load));
    let (buf, here) = match carried {
        Some(buf) => (buf, 0),
        None => match out.packet_or_multi_psn(multi_psn, header, len + usize::from(pad)) {
            Some(buf) => (buf, len),
            None => return Emitted::NoRoom,
        },
    };
    emit(
        &Bth {
            pad,
            ..sh.bth(opcode, psn)
        },
        ext,
        buf,
    );
    let (payload, padding) = buf[header..].split_at_mut(here);
    if !payload.is_empty()
        && let Err(fault) = device.read_remote(pd, rkey, va, payload)
    {
        out.retract();
        return Emitted::Refused(fault);
    }
    padding.fill(0);
    Emitted::Yes(1)
}
