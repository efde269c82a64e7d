//! Packets that span several PSNs.
//!
//! A path by memory loses and reorders nothing and has no MTU of its own. One packet there may carry the payload of many:
//! as long as a whole number of path MTUs, but at the end of the message. It stands for the packets that the wire would
//! have needed, takes their PSNs and bears that of the first, so that all reckoning in PSNs is that of the wire, and a
//! connection may change between both kinds of path at any packet. Its opcode and headers are those of a packet that is
//! the first of its message if its first piece is, and the last if its last piece is.
//!
//! Its payload may be in the sender's memory instead of in the packet ([`crate::PacketSink::point`]).
//!
//! XRC does not do this: its requests may be executed by another process than the one that takes them.
//!
//! Only a payload that is [`Payload::Elsewhere`] may span: it came by memory. From the wire a payload longer than the path
//! MTU is malformed.

use rnic_wire::{Operation, Payload};

/// PSNs that a packet with this payload takes.
#[inline]
pub(crate) fn psns_of(payload: &Payload<'_>, mtu: u32) -> u32 {
    match payload {
        Payload::Here(_) => 1,
        Payload::Elsewhere { len, .. } if *len <= mtu as usize => 1,
        // At most half the circle of PSNs: no payload is longer than the longest message.
        Payload::Elsewhere { len, .. } => {
            u32::try_from(len.div_ceil(mtu as usize)).unwrap_or(u32::MAX)
        }
    }
}

/// PSNs that the next packet takes, of `left` that its message still needs, if it may carry `most` bytes.
#[inline]
pub(crate) fn fitting(left: u32, most: usize, mtu: u32) -> u32 {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    if most < 2 * mtu {
        1
    } else {
        left.min(most / mtu).max(1)
    }
}

/// May a packet whose message goes on behind it have this payload?
#[inline]
pub(crate) fn fills(payload: &Payload<'_>, mtu: usize) -> bool {
    match payload {
        Payload::Here(bytes) => bytes.len() == mtu,
        Payload::Elsewhere { len, .. } => *len > 0 && len.is_multiple_of(mtu),
    }
}

/// May a packet that ends its message have this payload?
#[inline]
pub(crate) fn ends(payload: &Payload<'_>, mtu: usize) -> bool {
    match payload {
        Payload::Here(bytes) => bytes.len() <= mtu,
        Payload::Elsewhere { .. } => true,
    }
}

/// What a packet of this kind is without its first pieces.
pub(crate) fn without_start(operation: Operation) -> Operation {
    use Operation::*;
    match operation {
        SendFirst => SendMiddle,
        SendOnly => SendLast,
        SendOnlyImm => SendLastImm,
        SendOnlyInvalidate => SendLastInvalidate,
        WriteFirst => WriteMiddle,
        WriteOnly => WriteLast,
        WriteOnlyImm => WriteLastImm,
        ReadResponseFirst => ReadResponseMiddle,
        ReadResponseOnly => ReadResponseLast,
        other => other,
    }
}
