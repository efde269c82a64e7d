//! A RoCEv2 packet as a record of a capture: all header fields, what is known of the ICRC, no
//! payload.

use rnic_wire::cm::Attribute;
use rnic_wire::{
    Bth, Ext, ICRC_LEN, IcrcContext, IcrcError, Packet as WirePacket, PacketError, Service,
    header_len,
};

use crate::frame::Outer;

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Frame number.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What stood in front of it.
    pub outer: Outer,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Ext,
    /// Bytes of payload on the wire, without padding.
    pub payload_len: u32,
    /// Which message of the connection manager its payload is.
    pub cm: Option<Attribute>,
    /// Whether the ICRC holds.
    pub icrc: Icrc,
    /// Not all of it was captured.
    pub cut: bool,
}

/// What is known of a packet's ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icrc {
    /// It holds.
    Right,
    /// It would hold if the IPv4 identification, or DF, were another: the packet is good, its IP
    /// header was changed behind the ICRC's back.
    OtherIpHeader {
        /// The identification for which it holds.
        ip_id: u16,
        /// The DF for which it holds.
        df: bool,
    },
    /// It does not hold.
    Wrong {
        /// As it came.
        found: u32,
        /// As it would be right.
        right: u32,
    },
    /// The packet was cut, or has IP options or extension headers, for which it is not defined.
    Unchecked,
}

/// Why the bytes behind a UDP header to port 4791 are no packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum NoPacket {
    /// Too short on the wire for BTH and ICRC, or for the headers of its opcode.
    Short,
    /// The capture holds less of it than its headers.
    CutShort,
    /// Transport header version other than 0.
    Version,
    /// The opcode means nothing.
    UnknownOpcode(u8),
    /// More pad bytes than there are bytes.
    BadPad,
}

/// Reads what [`open`](crate::frame::open) found. Also returns the payload, as much of it as was
/// captured.
///
/// # Errors
/// See [`NoPacket`]. A CNP is a packet without extension headers.
pub fn read<'a>(
    number: u64,
    time_ns: u64,
    outer: &Outer,
    bytes: &'a [u8],
) -> Result<(Packet, &'a [u8]), NoPacket> {
    let wire_len = outer.udp_payload as usize;
    let cut = bytes.len() < wire_len;
    let body_len = wire_len
        .checked_sub(ICRC_LEN)
        .filter(|&len| len >= Bth::LEN)
        .ok_or(NoPacket::Short)?;
    let body = &bytes[..bytes.len().min(body_len)];
    let bth = Bth::parse(body).map_err(|_| NoPacket::CutShort)?;
    let is_cnp = bth.opcode == rnic_wire::Opcode::CNP;
    let headers = if is_cnp {
        Bth::LEN
    } else {
        header_len(bth.opcode)
    };
    let pad = usize::from(bth.pad);
    let ext = if is_cnp {
        Ext::default()
    } else {
        // Headers are read with no payload at all, so that a cut packet is no other case.
        let mut front = [0; 64];
        let n = headers.min(body.len()).min(front.len());
        front[..n].copy_from_slice(&body[..n]);
        front[1] &= !0x30;
        match WirePacket::parse(&front[..n]) {
            Ok(packet) => packet.ext,
            Err(PacketError::Version) => return Err(NoPacket::Version),
            Err(PacketError::UnknownOpcode) => return Err(NoPacket::UnknownOpcode(bth.opcode.0)),
            Err(PacketError::BadPad) => return Err(NoPacket::BadPad),
            Err(PacketError::Truncated) if cut && body_len >= headers => {
                return Err(NoPacket::CutShort);
            }
            // What is too long for any message is no UDP datagram.
            Err(PacketError::Truncated | PacketError::TooLong) => return Err(NoPacket::Short),
        }
    };
    let payload_len = body_len.checked_sub(headers).ok_or(NoPacket::Short)?;
    let payload_len = if is_cnp {
        0
    } else {
        payload_len.checked_sub(pad).ok_or(NoPacket::BadPad)?
    };
    let payload = body.get(headers..).unwrap_or_default();
    let payload = &payload[..payload.len().min(payload_len)];
    let packet = Packet {
        number,
        time_ns,
        outer: *outer,
        bth,
        ext,
        payload_len: payload_len as u32,
        cm: message_of(&bth, payload),
        icrc: if cut || outer.options {
            Icrc::Unchecked
        } else {
            check(outer, bytes)
        },
        cut,
    };
    Ok((packet, payload))
}

/// The header of a MAD says which message it is; the rest may have been cut.
fn message_of(bth: &Bth, payload: &[u8]) -> Option<Attribute> {
    const CLASS_OF_CM: u8 = 7;
    if bth.dest_qp != 1 || bth.opcode.service() != Service::Ud || *payload.get(1)? != CLASS_OF_CM {
        return None;
    }
    let code = payload.get(16..18)?.try_into().ok()?;
    Attribute::from_code(u16::from_be_bytes(code))
}

fn check(outer: &Outer, bytes: &[u8]) -> Icrc {
    let Some((body, trailer)) = bytes.split_last_chunk::<ICRC_LEN>() else {
        return Icrc::Unchecked;
    };
    let context = IcrcContext::new(&outer.flow);
    let found = u32::from_le_bytes(*trailer);
    let right = context.icrc(outer.ip_id, outer.dont_fragment, body);
    if found == right {
        return Icrc::Right;
    }
    match context.check_any_df(bytes, outer.ip_id) {
        Ok(ok) => Icrc::OtherIpHeader {
            ip_id: ok.ip_id,
            df: ok.df,
        },
        Err(IcrcError::Length) => Icrc::Unchecked,
        Err(_) => Icrc::Wrong { found, right },
    }
}

/// The length of the packets that a sender handed over as one large datagram (UDP segmentation
/// offload), for the kernel or the NIC to cut: a capture on the sender, or on loopback, shows them
/// uncut. `None` if the datagram is one packet.
///
/// The lengths of IP and UDP are then not those that the ICRC is about, and each packet's
/// identification is one more than that of the one before it.
pub fn segment_len(outer: &Outer, bytes: &[u8]) -> Option<usize> {
    let total = outer.udp_payload as usize;
    let shortest = Bth::LEN + ICRC_LEN;
    if bytes.len() < total || total < 2 * shortest {
        return None;
    }
    let first = Bth::parse(bytes).ok()?;
    let context = IcrcContext::new(&outer.flow);
    let header = header_len(first.opcode).max(Bth::LEN) + ICRC_LEN;
    let largest = (header + 4096).min(total - shortest);
    let mut len = header;
    while len <= largest {
        let next = Bth::parse(&bytes[len..]).ok();
        if next.is_some_and(|next| {
            next.dest_qp == first.dest_qp
                && next.pkey == first.pkey
                && next.version == 0
                && next.opcode.service() == first.opcode.service()
        }) && context
            .check_any_df(&bytes[..len], outer.ip_id)
            .is_ok_and(|ok| ok.df == outer.dont_fragment && close(ok.ip_id, outer.ip_id))
        {
            return Some(len);
        }
        len += 4;
    }
    None
}

/// The kernel may number segments from the identification of the whole, or from 0.
fn close(a: u16, b: u16) -> bool {
    a == b || a == 0
}

#[cfg(test)]
mod tests;
