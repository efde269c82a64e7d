//! From a frame to the RoCEv2 packet in it: link layer, IP with all that may stand between, UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rnic_wire::{Flow, ROCE_PORT};

/// Why a frame is of no interest, or cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Skip {
    /// A link type that is not read.
    LinkType(u16),
    /// Shorter than the headers that lead to the BTH: a small snap length, or nonsense.
    CutShort,
    /// ARP, LLDP and the like.
    NotIp,
    /// RoCE version 1: another Ethernet type, no IP.
    RoceV1,
    /// IP, but no UDP.
    NotUdp,
    /// UDP to another port.
    OtherPort,
    /// A part of a UDP datagram to who knows which port; the first one tells.
    Fragment,
    /// The first fragment of a datagram to port 4791. RoCEv2 forbids fragments.
    RoceFragment,
    /// Length fields that contradict each other.
    BadLength,
}

/// What the headers in front of the BTH said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Addresses and ports.
    pub flow: Flow,
    /// IPv4 identification; 0 over IPv6.
    pub ip_id: u16,
    /// IPv4 DF; true over IPv6.
    pub dont_fragment: bool,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The innermost VLAN, if any.
    pub vlan: Option<u16>,
    /// IPv4 options or IPv6 extension headers: the ICRC is not defined for these.
    pub options: bool,
    /// Length of the UDP payload on the wire.
    pub udp_payload: u32,
    /// Whether the interface had sent it, where the link layer tells.
    pub outgoing: Option<bool>,
    /// Index of the interface, where the link layer tells: a capture of all of them has one number
    /// in the file.
    pub ifindex: Option<u32>,
}

/// Finds the UDP payload of a RoCEv2 packet: BTH up to and including the ICRC, as much of it as was
/// captured.
///
/// # Errors
/// See [`Skip`].
pub fn open(link_type: u16, bytes: &[u8]) -> Result<(Outer, &[u8]), Skip> {
    let mut vlan = None;
    let mut outgoing = None;
    let mut ifindex = None;
    let ip = match link_type {
        1 => {
            let kind = word(bytes, 12).ok_or(Skip::CutShort)?;
            ethertype(kind, bytes.get(14..).ok_or(Skip::CutShort)?, &mut vlan)?
        }
        // Address family in the byte order of whoever captured, or of the network; the IP header
        // tells as well.
        0 | 108 => bytes.get(4..).ok_or(Skip::CutShort)?,
        12 | 14 | 101 | 228 | 229 => bytes,
        113 => {
            outgoing = word(bytes, 0).map(|kind| kind == 4);
            let kind = word(bytes, 14).ok_or(Skip::CutShort)?;
            ethertype(kind, bytes.get(16..).ok_or(Skip::CutShort)?, &mut vlan)?
        }
        276 => {
            outgoing = bytes.get(10).map(|&kind| kind == 4);
            let index = bytes.get(4..).and_then(|rest| rest.first_chunk());
            ifindex = index.map(|bytes| u32::from_be_bytes(*bytes));
            let kind = word(bytes, 0).ok_or(Skip::CutShort)?;
            ethertype(kind, bytes.get(20..).ok_or(Skip::CutShort)?, &mut vlan)?
        }
        other => return Err(Skip::LinkType(other)),
    };
    let (mut outer, payload) = match ip.first().ok_or(Skip::CutShort)? >> 4 {
        4 => ipv4(ip)?,
        6 => ipv6(ip)?,
        _ => return Err(Skip::NotIp),
    };
    outer.vlan = vlan;
    outer.outgoing = outgoing;
    outer.ifindex = ifindex;
    Ok((outer, payload))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// Strips VLAN tags, of any number and kind.
fn ethertype<'a>(
    mut kind: u16,
    mut rest: &'a [u8],
    vlan: &mut Option<u16>,
) -> Result<&'a [u8], Skip> {
    loop {
        match kind {
            0x0800 | 0x86dd => return Ok(rest),
            0x8100 | 0x88a8 | 0x9100 => {
                *vlan = Some(word(rest, 0).ok_or(Skip::CutShort)? & 0x0fff);
                kind = word(rest, 2).ok_or(Skip::CutShort)?;
                rest = rest.get(4..).ok_or(Skip::CutShort)?;
            }
            0x8915 => return Err(Skip::RoceV1),
            _ => return Err(Skip::NotIp),
        }
    }
}

fn ipv4(ip: &[u8]) -> Result<(Outer, &[u8]), Skip> {
    let header = ip.first_chunk::<20>().ok_or(Skip::CutShort)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_len < 20 || total < header_len {
        return Err(Skip::BadLength);
    }
    if header[9] != 17 {
        return Err(Skip::NotUdp);
    }
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let address = |at: usize| {
        Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
    };
    let outer = outer(
        address(12),
        address(16),
        u16::from_be_bytes([header[4], header[5]]),
        flags & 0x4000 != 0,
        header[1],
        header[8],
        header_len > 20,
    );
    let fragment = Fragment {
        offset: flags & 0x1fff,
        more: flags & 0x2000 != 0,
    };
    udp(
        outer,
        ip.get(header_len..).ok_or(Skip::CutShort)?,
        total - header_len,
        fragment,
    )
}

fn ipv6(ip: &[u8]) -> Result<(Outer, &[u8]), Skip> {
    let header = ip.first_chunk::<40>().ok_or(Skip::CutShort)?;
    let mut len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    let mut fragment = Fragment {
        offset: 0,
        more: false,
    };
    let (mut next, mut rest, mut options) = (header[6], &ip[40..], false);
    loop {
        let extension = match next {
            17 => break,
            // Hop by hop, routing, destination options, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => {
                let units = *rest.get(1).ok_or(Skip::CutShort)?;
                (usize::from(units) + 1) * 8
            }
            44 => {
                let field = word(rest, 2).ok_or(Skip::CutShort)?;
                fragment = Fragment {
                    offset: field >> 3,
                    more: field & 1 != 0,
                };
                8
            }
            // Authentication.
            51 => {
                let units = *rest.get(1).ok_or(Skip::CutShort)?;
                (usize::from(units) + 2) * 4
            }
            _ => return Err(Skip::NotUdp),
        };
        options = true;
        next = *rest.first().ok_or(Skip::CutShort)?;
        len = len.checked_sub(extension).ok_or(Skip::BadLength)?;
        rest = rest.get(extension..).ok_or(Skip::CutShort)?;
        if fragment.offset != 0 {
            break;
        }
    }
    let outer = outer(
        address(8),
        address(24),
        0,
        true,
        header[0] << 4 | header[1] >> 4,
        header[7],
        options,
    );
    udp(outer, rest, len, fragment)
}

struct Fragment {
    offset: u16,
    more: bool,
}

fn outer(
    src: IpAddr,
    dst: IpAddr,
    ip_id: u16,
    dont_fragment: bool,
    traffic_class: u8,
    hop_limit: u8,
    options: bool,
) -> Outer {
    Outer {
        flow: Flow {
            src,
            dst,
            src_port: 0,
            dst_port: 0,
        },
        ip_id,
        dont_fragment,
        traffic_class,
        hop_limit,
        vlan: None,
        options,
        udp_payload: 0,
        outgoing: None,
        ifindex: None,
    }
}

/// `len` is what IP says; `bytes` may be less (cut) or more (Ethernet padding).
fn udp(
    mut outer: Outer,
    bytes: &[u8],
    len: usize,
    fragment: Fragment,
) -> Result<(Outer, &[u8]), Skip> {
    if fragment.offset != 0 {
        return Err(Skip::Fragment);
    }
    let header = bytes.first_chunk::<8>().ok_or(Skip::CutShort)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    outer.flow.src_port = field(0);
    outer.flow.dst_port = field(2);
    if field(2) != ROCE_PORT {
        return Err(Skip::OtherPort);
    }
    if fragment.more {
        return Err(Skip::RoceFragment);
    }
    let udp_len = usize::from(field(4));
    if udp_len != len || len < 8 {
        return Err(Skip::BadLength);
    }
    outer.udp_payload = (len - 8) as u32;
    let rest = &bytes[8..];
    Ok((outer, &rest[..rest.len().min(len - 8)]))
}

#[cfg(test)]
mod tests;
