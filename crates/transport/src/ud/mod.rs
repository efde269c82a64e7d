//! The unreliable datagram transport service: messages of one packet, each to an address of its own
//! (IBTA 9.8.3).
//!
//! In front of every message the receive gets 40 bytes: the network header it came with
//! ([`UdPrefix`]).

use crate::completion::{Failure, vendor_err};
use crate::output::Output;
use crate::rc::Drain;
use crate::receiving::{Receiving, failed_receive, flush_receives};
use crate::unreliable::{SendQueue, State};
use crate::{
    Completion, CompletionOpcode, Counters, Device, Dropped, Evidence, Immediate, Misplaced,
    NetworkHeader, PacketSink, Pd, SendOp, SendWqe, Status, Time,
};
use alloc::collections::TryReserveError;
use rnic_wire::{
    Bth, DEFAULT_PKEY, Deth, Ext, ImmDt, Opcode, Operation, Packet, PathMtu, Payload, Psn, Service,
    UdPrefix, emit, header_len, pad_len,
};

/// With this bit a work request's queue key is that of the queue pair, which only the privileged
/// may set (IBTA 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// Attributes of a UD queue pair, as `ibv_modify_qp` sets them.
#[derive(Clone, Copy, Debug)]
pub struct UdAttr {
    /// Own QP number.
    pub qpn: u32,
    /// Protection domain.
    pub pd: Pd,
    /// Queue key.
    pub qkey: u32,
    /// MTU of the port: no message is longer.
    pub mtu: PathMtu,
    /// P_Key put into the BTH.
    pub pkey: u16,
    /// Its index, which completions of receives name.
    pub pkey_index: u16,
    /// First PSN sent. It tells the receiver nothing.
    pub sq_psn: Psn,
}

impl UdAttr {
    const NONE: UdAttr = UdAttr {
        qpn: 0,
        pd: Pd(0),
        qkey: 0,
        mtu: PathMtu::M256,
        pkey: DEFAULT_PKEY,
        pkey_index: 0,
        sq_psn: Psn::new(0),
    };
}

/// One UD queue pair.
///
/// # Drive contract
/// That of [`Rc`](crate::Rc), without timers. Packets leave by [`PacketSink::packet_to`]. A send
/// that fails flushes the send queue alone ([`Ud::is_send_error`]) until [`Ud::send_ready`] is
/// called again; a receive that is too small for its message, or whose memory is not accessible,
/// completes with an error and moves all to ERR, as on hardware.
#[derive(Debug)]
pub struct Ud {
    state: State,
    attr: UdAttr,
    counters: Counters,
    sends: SendQueue,
}

impl Default for Ud {
    fn default() -> Ud {
        Ud::new()
    }
}

impl Ud {
    /// A queue pair in RESET.
    pub fn new() -> Ud {
        Ud {
            state: State::Reset,
            attr: UdAttr::NONE,
            counters: Counters::default(),
            sends: SendQueue::default(),
        }
    }

    /// Enters RTR: packets are taken from now on.
    pub fn receive_ready(&mut self, attr: UdAttr) {
        self.attr = attr;
        self.state = State::Rtr;
    }

    /// Enters RTS. `sq_psn` counts only when nothing was sent yet: after a send error the numbers
    /// go on.
    pub fn send_ready(&mut self, attr: UdAttr) {
        let resumed = self.state == State::SendError;
        self.attr = attr;
        if !resumed {
            self.sends.psn = attr.sq_psn;
        }
        self.state = State::Rts;
    }

    /// Changes what may change in RTR and RTS: the queue key.
    pub fn update(&mut self, attr: UdAttr) {
        self.attr.qkey = attr.qkey;
    }

    /// Changes what may change in SQD: the Q_Key and the P_Key.
    pub fn retune(&mut self, attr: UdAttr) {
        self.update(attr);
        self.attr.pkey = attr.pkey;
        self.attr.pkey_index = attr.pkey_index;
    }

    /// Enters SQD: no other message leaves, and as each is one packet, none is under way. `notify`:
    /// the end of that is an event.
    pub fn drain<H: Device>(&mut self, notify: bool, device: &mut H) {
        if self.state == State::Rts {
            self.sends.drain(notify, false, device);
        }
    }

    /// In SQD, and a message is under way.
    pub fn is_draining(&self) -> bool {
        self.sends.is_draining()
    }

    /// Leaves SQD for RTS.
    pub fn resume(&mut self) {
        self.sends.drain = Drain::No;
    }

    /// Takes memory for so many WQEs: up to that number none more is taken by posting.
    ///
    /// # Errors
    /// There is none.
    pub fn try_reserve_sends(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.sends.queue.try_reserve(most)
    }

    /// Forgets everything without completions (`IBV_QPS_RESET`). The counters and the queue's
    /// memory stay.
    pub fn reset(&mut self) {
        *self = Ud {
            counters: self.counters,
            sends: core::mem::take(&mut self.sends).reset(),
            ..Ud::new()
        };
    }

    /// Moves to ERR and flushes both queues in order. Idempotent; also called after WQEs were
    /// posted in ERR.
    pub fn fail<H: Device>(&mut self, device: &mut H) {
        let entered = self.state != State::Error;
        self.state = State::Error;
        self.sends.flush(self.attr.qpn, device);
        flush_receives(self.attr.qpn, 0, entered, device);
    }

    /// In ERR.
    pub fn is_error(&self) -> bool {
        self.state == State::Error
    }

    /// In SQE: a send failed; receiving goes on.
    pub fn is_send_error(&self) -> bool {
        self.state == State::SendError
    }

    /// Queues a WQE. The caller has checked state, queue depth and SGE count.
    #[inline]
    pub fn post_send(&mut self, wqe: SendWqe) {
        self.sends.queue.push_back(wqe);
    }

    /// WQEs posted and not yet handed over.
    pub fn sends_outstanding(&self) -> u32 {
        self.sends.outstanding()
    }

    /// Never: a message is one packet.
    pub fn holds_receive(&self) -> bool {
        false
    }

    /// A packet would take a receive.
    pub fn needs_receive(&self, packet: &Packet<'_>) -> bool {
        let deth = packet.ext.deth;
        packet.bth.opcode.service() == Service::Ud
            && deth.is_some_and(|deth| deth.qkey == self.attr.qkey)
            && !matches!(self.state, State::Reset | State::Error)
    }

    /// Takes one packet addressed to this queue pair, or to a multicast group that it is attached
    /// to; `prefix` is the network header it came with.
    pub fn handle_packet<H: Device>(
        &mut self,
        _now: Time,
        packet: &Packet<'_>,
        prefix: &UdPrefix,
        device: &mut H,
    ) {
        self.counters.packets_received += 1;
        let service = packet.bth.opcode.service();
        let Some(deth) = packet.ext.deth.filter(|_| service == Service::Ud) else {
            self.counters.dropped += 1;
            return;
        };
        if matches!(self.state, State::Reset | State::Error) {
            self.counters.dropped += 1;
            return;
        }
        if deth.qkey != self.attr.qkey {
            let why = Dropped::WrongQkey {
                came: deth.qkey,
                own: self.attr.qkey,
            };
            self.counters.drop_message(why, Some(deth.src_qp), device);
            return;
        }
        let len = packet.payload.len();
        if len > self.attr.mtu.bytes() {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.counters
                .drop_message(Dropped::PacketLength(len), Some(deth.src_qp), device);
            return;
        }
        self.counters.bytes_received += packet.payload.len() as u64;
        let Some(receiving) = Receiving::take(self.attr.pd, device) else {
            self.counters
                .drop_message(Dropped::NoReceive, Some(deth.src_qp), device);
            return;
        };
        let wr_id = receiving.wqe.wr_id;
        let failure = match self.receive(receiving, deth, packet, prefix, device) {
            Ok(()) => return,
            Err(failure) => failure,
        };
        device.complete_recv(failed_receive(
            wr_id,
            self.attr.qpn,
            deth.src_qp,
            failure.status,
            failure.vendor_err,
        ));
        self.fail(device);
    }

    fn receive<H: Device>(
        &mut self,
        mut receiving: Receiving,
        deth: Deth,
        packet: &Packet<'_>,
        prefix: &UdPrefix,
        device: &mut H,
    ) -> Result<(), Failure> {
        let byte_len = UdPrefix::LEN + packet.payload.len();
        if byte_len as u64 > receiving.left() {
            device.evidence(&Evidence::DatagramTooLong {
                room: receiving.left(),
                length: byte_len as u64,
            });
            return Err(Failure {
                status: Status::LocalLengthError,
                vendor_err: vendor_err::RECEIVE_TOO_SHORT,
            });
        }
        let mut header = [0; UdPrefix::LEN];
        prefix.emit(&mut header);
        for part in [Payload::Here(&header), packet.payload] {
            match receiving.store(part, device) {
                Ok(()) => {}
                Err(Misplaced::Refused(fault)) => return Err(Failure::local(fault)),
                Err(Misplaced::Lost) => {
                    self.counters
                        .drop_message(Dropped::Incomplete, Some(deth.src_qp), device);
                    device.return_receive(receiving.wqe);
                    return Ok(());
                }
            }
        }
        self.counters.messages_received += 1;
        self.counters.served.send.add(packet.payload.len() as u64);
        device.complete_recv(Completion {
            wr_id: receiving.wqe.wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Recv,
            byte_len: byte_len as u32,
            vendor_err: 0,
            qpn: self.attr.qpn,
            src_qpn: deth.src_qp,
            immediate: match packet.ext.imm {
                Some(ImmDt(data)) => Immediate::Data(data),
                None => Immediate::None,
            },
            grh: match prefix {
                UdPrefix::V4(_) => Some(NetworkHeader::Ipv4),
                UdPrefix::V6(_) => Some(NetworkHeader::Ipv6),
                UdPrefix::None => None,
            },
            pkey_index: self.attr.pkey_index,
            solicited: packet.bth.solicited,
        });
        Ok(())
    }

    /// Emits datagrams until there is none, `budget` bytes were emitted (the packet that crosses
    /// that line is the last), or the sink is full. Gives what that took of the budget.
    pub fn poll_transmit<H: Device, S: PacketSink>(
        &mut self,
        _now: Time,
        device: &mut H,
        sink: &mut S,
        budget: usize,
    ) -> usize {
        let mut out = Output::new(sink, budget);
        match self.state {
            State::Rts => loop {
                match self.transmit_one(device, &mut out) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(failure) => {
                        self.state = State::SendError;
                        let longest = self.attr.mtu.bytes() as u64;
                        self.sends
                            .fail_front(failure, self.attr.qpn, longest, device);
                        break;
                    }
                }
            },
            State::SendError => self.sends.flush(self.attr.qpn, device),
            _ => {}
        }
        budget - out.left()
    }

    /// Emits the next datagram; false if there is none, or no room for it. An error concerns the
    /// front WQE.
    #[inline]
    fn transmit_one<H: Device, S: PacketSink>(
        &mut self,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        let may_begin = self.sends.may_begin();
        let Some(wqe) = self.sends.queue.front().filter(|_| may_begin) else {
            return Ok(false);
        };
        let SendOp::Datagram { to, imm } = wqe.op else {
            return Err(Failure {
                status: Status::LocalQpOperationError,
                vendor_err: vendor_err::WRONG_SERVICE,
            });
        };
        let len = wqe.data.len();
        if len > self.attr.mtu.bytes() as u64 {
            return Err(Failure {
                status: Status::LocalLengthError,
                vendor_err: vendor_err::DATAGRAM_TOO_LONG,
            });
        }
        let len = len as usize;
        let operation = match imm {
            Some(_) => Operation::SendOnlyImm,
            None => Operation::SendOnly,
        };
        let opcode = Opcode::new(Service::Ud, operation);
        let header = header_len(opcode);
        let pad = pad_len(len);
        let bth = Bth {
            opcode,
            solicited: wqe.solicited,
            mig_req: true,
            pad,
            pkey: self.attr.pkey,
            dest_qp: to.qpn,
            psn: self.sends.psn,
            ..Bth::default()
        };
        let ext = Ext {
            deth: Some(Deth {
                qkey: if to.qkey & OWN_QKEY != 0 {
                    self.attr.qkey
                } else {
                    to.qkey
                },
                src_qp: self.attr.qpn,
            }),
            imm: imm.map(ImmDt),
            ..Ext::default()
        };
        let Some(buf) = out.packet_to(&to, header + len + usize::from(pad)) else {
            return Ok(false);
        };
        emit(&bth, &ext, buf);
        let (payload, padding) = buf[header..].split_at_mut(len);
        let filled = self.sends.fill(self.attr.pd, 0, payload, device);
        padding.fill(0);
        if let Err(fault) = filled {
            out.retract();
            return Err(Failure::local(fault));
        }
        self.sends.psn = self.sends.psn.next();
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += len as u64;
        self.sends
            .complete_front(self.attr.qpn, &mut self.counters, device);
        Ok(true)
    }

    /// `poll_transmit` would emit something now, or complete a WQE.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.sends.queue.is_empty()
            && match self.state {
                State::Rts => self.sends.may_begin(),
                State::SendError => true,
                _ => false,
            }
    }

    /// None: nothing is awaited.
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Does nothing.
    pub fn handle_timeout<H: Device>(&mut self, _now: Time, _host: &mut H) {}

    /// PSN of the next packet sent.
    pub fn sq_psn(&self) -> Psn {
        self.sends.psn
    }

    /// 0: datagrams come in no order.
    pub fn rq_psn(&self) -> Psn {
        Psn::new(0)
    }

    /// Counts since creation.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
