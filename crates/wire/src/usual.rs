//! The packets that are seen most among short messages, decoded in one step: all else is
//! [`Packet`](crate::Packet)'s.

use crate::packet::unpadded;
use crate::{Aeth, AtomicAckEth, AtomicEth, Bth, Opcode, Operation, Service};

/// What follows the BTH of such a packet, over RC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual<'a> {
    /// A SEND that is whole and has no further headers: its payload.
    Send(&'a [u8]),
    /// An ACK, which may be a NAK.
    Acknowledge(Aeth),
    /// A COMPARE-AND-SWAP or FETCH-AND-ADD.
    Atomic(AtomicEth),
    /// The answer to one.
    AtomicAcknowledge(Aeth, AtomicAckEth),
}

impl<'a> Usual<'a> {
    /// Decodes a packet, BTH to last pad byte. `None`: it is another one, or none at all;
    /// [`Packet::parse`](crate::Packet::parse) says which.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<(Bth, Usual<'a>)> {
        const SEND_ONLY: Opcode = Opcode::new(Service::Rc, Operation::SendOnly);
        const ACKNOWLEDGE: Opcode = Opcode::new(Service::Rc, Operation::Acknowledge);
        const COMPARE_SWAP: Opcode = Opcode::new(Service::Rc, Operation::CompareSwap);
        const FETCH_ADD: Opcode = Opcode::new(Service::Rc, Operation::FetchAdd);
        const ATOMIC_ACKNOWLEDGE: Opcode = Opcode::new(Service::Rc, Operation::AtomicAcknowledge);
        let bth = Bth::parse(bytes).ok()?;
        if bth.version != 0 {
            return None;
        }
        let rest = &bytes[Bth::LEN..];
        let usual = match bth.opcode {
            SEND_ONLY => Usual::Send(&rest[..unpadded(rest.len(), &bth).ok()?]),
            ACKNOWLEDGE if bth.pad == 0 => Usual::Acknowledge(Aeth::parse(rest.try_into().ok()?)),
            COMPARE_SWAP | FETCH_ADD if bth.pad == 0 => {
                Usual::Atomic(AtomicEth::parse(rest.try_into().ok()?))
            }
            ATOMIC_ACKNOWLEDGE if bth.pad == 0 => {
                let (aeth, original) = rest.split_first_chunk()?;
                let original = AtomicAckEth::parse(original.try_into().ok()?);
                Usual::AtomicAcknowledge(Aeth::parse(aeth), original)
            }
            _ => return None,
        };
        Some((bth, usual))
    }
}
