//! The packets that are seen most among short messages, decoded in one step: all else is [`Packet`](crate::Packet)'s.

use crate::packet::unpadded;
use crate::{Aeth, Bth, Opcode, Operation, Service};

/// What follows the BTH of such a packet, over RC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual<'a> {
    /// A SEND that is whole and has no further headers: its payload.
    Send(&'a [u8]),
    /// An ACK, which may be a NAK.
    Acknowledge(Aeth),
}

impl<'a> Usual<'a> {
    /// Decodes a packet, BTH to last pad byte. `None`: it is another one, or none at all; [`Packet::parse`](crate::Packet::parse)
    /// says which.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<(Bth, Usual<'a>)> {
        const SEND_ONLY: Opcode = Opcode::new(Service::Rc, Operation::SendOnly);
        const ACKNOWLEDGE: Opcode = Opcode::new(Service::Rc, Operation::Acknowledge);
        let bth = Bth::parse(bytes).ok()?;
        if bth.version != 0 {
            return None;
        }
        let rest = &bytes[Bth::LEN..];
        let usual = match bth.opcode {
            SEND_ONLY => Usual::Send(&rest[..unpadded(rest.len(), &bth).ok()?]),
            ACKNOWLEDGE if bth.pad == 0 => Usual::Acknowledge(Aeth::parse(rest.try_into().ok()?)),
            _ => return None,
        };
        Some((bth, usual))
    }
}
