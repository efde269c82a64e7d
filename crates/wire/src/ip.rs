//! IP and UDP headers around a packet, as they appear in captures: written for pcap records, read
//! back from them.
//!
//! Sockets neither need nor show these bytes; the ICRC depends on them all the same ([`Flow`]).

mod alike;

pub use alike::{LastHeaders, PreparedHeaders};

use crate::Flow;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const UDP: u8 = 17;

/// Length of a UDP header.
pub const UDP_LEN: usize = 8;

/// An IPv4 header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ipv4Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// DF.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol behind it; UDP is 17.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Ipv4Header {
    /// Length in bytes.
    pub const LEN: usize = 20;

    /// Reads the header. The checksum is not looked at: captures on the sender may hold an
    /// unfinished one.
    ///
    /// # Errors
    /// [`IpError::Version`], [`IpError::Options`] or [`IpError::Fragment`].
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Ipv4Header, IpError> {
        if b[0] >> 4 != 4 {
            return Err(IpError::Version);
        }
        if b[0] & 0x0f != 5 {
            return Err(IpError::Options);
        }
        // More fragments, or an offset.
        if u16::from_be_bytes([b[6], b[7]]) & 0x3fff != 0 {
            return Err(IpError::Fragment);
        }
        Ok(Ipv4Header {
            tos: b[1],
            total_len: u16::from_be_bytes([b[2], b[3]]),
            id: u16::from_be_bytes([b[4], b[5]]),
            dont_fragment: b[6] & 0x40 != 0,
            ttl: b[8],
            protocol: b[9],
            src: Ipv4Addr::new(b[12], b[13], b[14], b[15]),
            dst: Ipv4Addr::new(b[16], b[17], b[18], b[19]),
        })
    }

    /// Whether the checksum of a header is right.
    #[inline]
    pub fn has_right_checksum(b: &[u8; Self::LEN]) -> bool {
        fold(sum(b)) == 0xffff
    }

    /// Writes the header with its checksum to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Ipv4Header::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.id.to_be_bytes());
        out[6..8].copy_from_slice(&[u8::from(self.dont_fragment) << 6, 0]);
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        let checksum = !fold(sum(out));
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ipv6Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length of what follows.
    pub payload_len: u16,
    /// Protocol behind it; UDP is 17.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Reads the header.
    ///
    /// # Errors
    /// [`IpError::Version`].
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Ipv6Header, IpError> {
        if b[0] >> 4 != 6 {
            return Err(IpError::Version);
        }
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        src.copy_from_slice(&b[8..24]);
        dst.copy_from_slice(&b[24..40]);
        Ok(Ipv6Header {
            traffic_class: b[0] << 4 | b[1] >> 4,
            flow_label: u32::from_be_bytes([0, b[1] & 0x0f, b[2], b[3]]),
            payload_len: u16::from_be_bytes([b[4], b[5]]),
            next_header: b[6],
            hop_limit: b[7],
            src: src.into(),
            dst: dst.into(),
        })
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Ipv6Header::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
    }
}

/// What the IP and UDP headers of a packet say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct IpUdp {
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
}

/// Why an IP packet cannot be read as UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IpError {
    /// Shorter than its headers, or than the lengths in them.
    Truncated,
    /// Neither IPv4 nor IPv6.
    Version,
    /// IPv4 options: the ICRC would cover them.
    Options,
    /// A fragment.
    Fragment,
    /// Not UDP.
    Protocol,
    /// The UDP length contradicts the IP length.
    UdpLength,
    /// The IPv4 header's checksum is wrong.
    Checksum,
}

impl fmt::Display for IpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpError::Truncated => "shorter than its headers say",
            IpError::Version => "neither IPv4 nor IPv6",
            IpError::Options => "IPv4 options",
            IpError::Fragment => "an IP fragment",
            IpError::Protocol => "not UDP",
            IpError::UdpLength => "UDP and IP lengths disagree",
            IpError::Checksum => "wrong checksum of the IPv4 header",
        })
    }
}

impl core::error::Error for IpError {}

impl IpUdp {
    /// The longest headers: IPv6 and UDP.
    pub const MAX_LEN: usize = Ipv6Header::LEN + UDP_LEN;

    /// Length of the headers: 28 or 48.
    pub fn header_len(&self) -> usize {
        if self.v4().is_some() {
            Ipv4Header::LEN + UDP_LEN
        } else {
            Ipv6Header::LEN + UDP_LEN
        }
    }

    /// Writes the headers of a packet with this UDP payload to the front of `out`; returns
    /// [`IpUdp::header_len`].
    ///
    /// The IPv4 header's checksum is right. The UDP checksum is 0 over IPv4 and right over IPv6,
    /// where a dissector takes offence at 0.
    ///
    /// # Panics
    /// If `out` is shorter than the headers.
    pub fn emit(&self, udp_payload: &[u8], out: &mut [u8]) -> usize {
        // Longer than a datagram can be: the length fields are cut.
        let udp_len = (UDP_LEN + udp_payload.len()) as u16;
        let mut udp = [0; UDP_LEN];
        udp[..2].copy_from_slice(&self.flow.src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.flow.dst_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let at = if let Some((src, dst)) = self.v4() {
            let header = Ipv4Header {
                tos: self.traffic_class,
                total_len: udp_len.wrapping_add(Ipv4Header::LEN as u16),
                id: self.ip_id,
                dont_fragment: self.dont_fragment,
                ttl: self.hop_limit,
                protocol: UDP,
                src,
                dst,
            };
            header.emit(out);
            Ipv4Header::LEN
        } else {
            let (src, dst) = (
                crate::Gid::from(self.flow.src).0,
                crate::Gid::from(self.flow.dst).0,
            );
            let header = Ipv6Header {
                traffic_class: self.traffic_class,
                flow_label: 0,
                payload_len: udp_len,
                next_header: UDP,
                hop_limit: self.hop_limit,
                src: src.into(),
                dst: dst.into(),
            };
            header.emit(out);
            let pseudo = sum(&src) + sum(&dst) + u64::from(UDP) + u64::from(udp_len);
            let checksum = match !fold(pseudo + sum(&udp) + sum(udp_payload)) {
                // 0 would say that there is none.
                0 => 0xffff,
                checksum => checksum,
            };
            udp[6..].copy_from_slice(&checksum.to_be_bytes());
            Ipv6Header::LEN
        };
        out[at..at + UDP_LEN].copy_from_slice(&udp);
        at + UDP_LEN
    }

    /// Reads an IP packet; returns the headers and the UDP payload. Bytes behind the IP length
    /// (Ethernet padding) are left out, checksums are not looked at.
    ///
    /// # Errors
    /// See [`IpError`].
    pub fn parse(packet: &[u8]) -> Result<(IpUdp, &[u8]), IpError> {
        let (found, len) = IpUdp::parse_front(packet, packet.len())?;
        let at = IpUdp::len_of(packet);
        let payload = packet.get(at..at + len).ok_or(IpError::Truncated)?;
        Ok((found, payload))
    }

    /// Length of the headers that a packet has which [parses](IpUdp::parse_front): its IPv6 header
    /// may hold IPv4-mapped addresses.
    #[inline]
    pub fn len_of(front: &[u8]) -> usize {
        match front.first().map(|first| first >> 4) {
            Some(4) => Ipv4Header::LEN + UDP_LEN,
            _ => IpUdp::MAX_LEN,
        }
    }

    /// The same for a packet of `len` bytes of which only the `front` is at hand,
    /// [`IpUdp::MAX_LEN`] bytes or all that there is; returns the headers and the length of the UDP
    /// payload, all of which lies within `len`.
    ///
    /// # Errors
    /// See [`IpError`].
    pub fn parse_front(front: &[u8], len: usize) -> Result<(IpUdp, usize), IpError> {
        let (mut found, header_len, rest_len) = match front.first().ok_or(IpError::Truncated)? >> 4
        {
            4 => {
                let header = front.first_chunk().ok_or(IpError::Truncated)?;
                let header = Ipv4Header::parse(header)?;
                let rest_len = usize::from(header.total_len)
                    .checked_sub(Ipv4Header::LEN)
                    .ok_or(IpError::Truncated)?;
                if header.protocol != UDP {
                    return Err(IpError::Protocol);
                }
                let flow = Flow {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    src_port: 0,
                    dst_port: 0,
                };
                let found = IpUdp {
                    flow,
                    ip_id: header.id,
                    dont_fragment: header.dont_fragment,
                    traffic_class: header.tos,
                    hop_limit: header.ttl,
                };
                (found, Ipv4Header::LEN, rest_len)
            }
            6 => {
                let header = front.first_chunk().ok_or(IpError::Truncated)?;
                let header = Ipv6Header::parse(header)?;
                if header.next_header != UDP {
                    return Err(IpError::Protocol);
                }
                let flow = Flow {
                    src: header.src.into(),
                    dst: header.dst.into(),
                    src_port: 0,
                    dst_port: 0,
                };
                let found = IpUdp {
                    flow,
                    ip_id: 0,
                    dont_fragment: true,
                    traffic_class: header.traffic_class,
                    hop_limit: header.hop_limit,
                };
                (found, Ipv6Header::LEN, usize::from(header.payload_len))
            }
            _ => return Err(IpError::Version),
        };
        if rest_len > len.saturating_sub(header_len) {
            return Err(IpError::Truncated);
        }
        let udp = front[header_len..]
            .first_chunk::<UDP_LEN>()
            .filter(|_| rest_len >= UDP_LEN)
            .ok_or(IpError::Truncated)?;
        if usize::from(u16::from_be_bytes([udp[4], udp[5]])) != rest_len {
            return Err(IpError::UdpLength);
        }
        found.flow.src_port = u16::from_be_bytes([udp[0], udp[1]]);
        found.flow.dst_port = u16::from_be_bytes([udp[2], udp[3]]);
        Ok((found, rest_len - UDP_LEN))
    }

    fn v4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        match (self.flow.src.to_canonical(), self.flow.dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some((src, dst)),
            _ => None,
        }
    }
}

/// Sum of the big endian 16-bit words, the last one filled up with zero, in 16 bits (RFC 1071).
///
/// Wider words and the machine's byte order come to the same: that is its section 2, (B) and (C).
fn sum(bytes: &[u8]) -> u64 {
    let wide = |word: [u8; 4]| u64::from(u32::from_ne_bytes(word));
    let (words, tail) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    let sum: u64 = words.iter().map(|word| wide(*word)).sum();
    u16::from_be(fold(sum + wide(last))).into()
}

/// Ones' complement of a sum in 16 bits, not yet inverted.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
