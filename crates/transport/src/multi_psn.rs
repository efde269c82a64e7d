//! Multi-PSN packets: one packet that takes the PSNs of several.
//!
//! A path by memory loses and reorders nothing and has no MTU of its own. One packet there may
//! carry the payload of many: as long as a whole number of path MTUs, but at the end of the
//! message. It stands for the packets that the wire would have needed, takes their PSNs and bears
//! that of the first, so that all reckoning in PSNs is that of the wire, and a connection may
//! change between both kinds of path at any packet. Its opcode and headers are those of a packet
//! that is the first of its message if its first piece is, and the last if its last piece is.
//!
//! Its payload may be in the sender's memory instead of in the packet
//! ([`crate::PacketSink::point`]).
//!
//! XRC does not do this: its requests may be executed by another process than the one that takes
//! them.
//!
//! Only a payload that is [`Payload::Detached`] may be one of several PSNs: it came by memory. From
//! the wire a payload longer than the path MTU is malformed.
//!
//! The two ends of a connection may have different path MTUs, by mistake. Such a payload says its
//! sender's, which its PSNs are of, and the receiver judges it as it would have judged its packets
//! one by one.
//!
//! One that is refused is taken apart ([`halves`]) until the packet is found that is refused, since
//! those before it count.

use rnic_wire::{Operation, Packet, Payload};

/// PSNs that a packet with this payload takes.
#[inline]
pub(crate) fn psns_of(payload: &Payload<'_>) -> u32 {
    match payload {
        Payload::Here(_) => 1,
        Payload::Detached { len, mtu, .. } if *len <= mtu.bytes() => 1,
        // At most half the circle of PSNs: no payload is longer than the longest message.
        Payload::Detached { len, mtu, .. } => {
            u32::try_from(len.div_ceil(mtu.bytes())).unwrap_or(u32::MAX)
        }
    }
}

/// Bytes of the first `psns` packets that the wire would have needed for this payload, or of all if
/// there are fewer.
#[inline]
pub(crate) fn bytes_of(payload: &Payload<'_>, psns: usize) -> usize {
    match payload {
        Payload::Here(bytes) => bytes.len(),
        Payload::Detached { len, mtu, .. } => psns.saturating_mul(mtu.bytes()).min(*len),
    }
}

/// It stands for several packets, and not such as a receiver of that path MTU would have sent. At
/// the first of them the receiver has to refuse.
#[inline]
pub(crate) fn is_cut_otherwise(payload: &Payload<'_>, mtu: usize) -> bool {
    match payload {
        Payload::Here(_) => false,
        Payload::Detached {
            len, mtu: theirs, ..
        } => *len > theirs.bytes() && theirs.bytes() != mtu,
    }
}

/// PSNs that the next packet takes, of `left` that its message still needs, if it may carry `most`
/// bytes.
#[inline]
pub(crate) fn fitting(left: u32, most: usize, mtu: u32) -> u32 {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    if most < 2 * mtu {
        1
    } else {
        left.min(most / mtu).max(1)
    }
}

/// May a packet whose message goes on behind it have this payload, at a receiver of that path MTU?
#[inline]
pub(crate) fn fills(payload: &Payload<'_>, mtu: usize) -> bool {
    match payload {
        Payload::Here(bytes) => bytes.len() == mtu,
        Payload::Detached { len, .. } => {
            *len > 0 && len.is_multiple_of(mtu) && !is_cut_otherwise(payload, mtu)
        }
    }
}

/// May a packet that ends its message have this payload, at a receiver of that path MTU?
#[inline]
pub(crate) fn ends(payload: &Payload<'_>, mtu: usize) -> bool {
    match payload {
        Payload::Here(bytes) => bytes.len() <= mtu,
        Payload::Detached {
            len, mtu: theirs, ..
        } if *len <= theirs.bytes() => *len <= mtu,
        Payload::Detached { .. } => !is_cut_otherwise(payload, mtu),
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

/// What a packet of this kind is without its last pieces.
fn without_end(operation: Operation) -> Operation {
    use Operation::*;
    match operation {
        SendOnly | SendOnlyImm | SendOnlyInvalidate => SendFirst,
        SendLast | SendLastImm | SendLastInvalidate => SendMiddle,
        WriteOnly | WriteOnlyImm => WriteFirst,
        WriteLast | WriteLastImm => WriteMiddle,
        other => other,
    }
}

/// Two packets that stand for the same as this multi-PSN packet. The first asks for no
/// ACK.
pub(crate) fn halves<'a>(
    operation: Operation,
    packet: &Packet<'a>,
) -> [(Operation, Packet<'a>); 2] {
    let psns = psns_of(&packet.payload) / 2;
    let (mut front, mut back) = (*packet, *packet);
    (front.payload, back.payload) = packet
        .payload
        .split_at(bytes_of(&packet.payload, psns as usize));
    front.bth.ack_req = false;
    back.bth.psn = packet.bth.psn.add(psns);
    [
        (without_end(operation), front),
        (without_start(operation), back),
    ]
}

/// What the first packet of a READ response in several is.
pub(crate) fn start_of_response(operation: Operation) -> Operation {
    use Operation::*;
    match operation {
        ReadResponseOnly => ReadResponseFirst,
        ReadResponseLast => ReadResponseMiddle,
        other => other,
    }
}
