//! QP 1, which all processes of the host share: the connection manager's.
//!
//! A packet to it reaches some process of the SO_REUSEPORT group, by chance or by
//! [steering](crate::steering). What the message says decides whose it is: a communication id
//! carries the number of the QPN range of the process that chose it ([`ID_BITS`]), and requests go
//! to the process that listens, as the [port table](crate::ports) says. A REJ of a process that
//! never learned that id goes to all processes: one of them knows the request. What is nobody's
//! stays where it came: the connection manager there answers as the protocol says, and each answers
//! alike.

use rnic_wire::cm::{Addressee, Mad, Message, QP1_QKEY};
use rnic_wire::{Opcode, Operation, Packet, Service};

/// The number of the connection manager's queue pair (IBTA 3.5.3).
pub const QP1: u32 = 1;

/// A communication id is `range << ID_BITS | count`, where `range` is that of the process's first
/// queue pair number .
pub const ID_BITS: u32 = 20;

/// All packets to QP 1 are these.
pub const OPCODE: Opcode = Opcode::new(Service::Ud, Operation::SendOnly);

/// The process that a packet to QP 1 is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// One process.
    One(Addressee),
    /// All of them: a REJ without an id. It asks for no answer, so nobody answers twice.
    All,
}

/// The process that a packet to QP 1 (BTH to pad) is for; `None`: it is no message of the
/// connection manager.
pub fn recipient(packet: &[u8]) -> Option<Recipient> {
    let packet = Packet::parse(packet).ok()?;
    let deth = packet.ext.deth?;
    if packet.bth.opcode != OPCODE || deth.qkey != QP1_QKEY {
        return None;
    }
    let addressee = Addressee::of(packet.payload.here());
    if addressee != Addressee::Nobody {
        return Some(Recipient::One(addressee));
    }
    match Mad::parse(packet.payload.here()).ok()?.message {
        Message::Rej(_) => Some(Recipient::All),
        _ => Some(Recipient::One(addressee)),
    }
}

/// The QPN range in a communication id.
pub fn range_of_id(id: u32) -> u32 {
    id >> ID_BITS
}
