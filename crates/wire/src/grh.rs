//! The global routing header (IBTA 8.3) and the 40 bytes in front of every UD receive (IBTA
//! 11.4.1.2, annex A17.9).

use crate::ip::{IpError, Ipv4Header, Ipv6Header};

/// Global routing header. Over RoCEv2 it is the IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length of what follows.
    pub payload_len: u16,
    /// What follows; UDP (17) over RoCEv2, 0x1b over InfiniBand.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: [u8; 16],
    /// Destination GID.
    pub dgid: [u8; 16],
}

impl Grh {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Reads the header.
    ///
    /// # Errors
    /// [`IpError::Version`] if the version is not 6.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Grh, IpError> {
        let header = Ipv6Header::parse(bytes)?;
        Ok(Grh {
            traffic_class: header.traffic_class,
            flow_label: header.flow_label,
            payload_len: header.payload_len,
            next_header: header.next_header,
            hop_limit: header.hop_limit,
            sgid: header.src.octets(),
            dgid: header.dst.octets(),
        })
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Grh::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            payload_len: self.payload_len,
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            src: self.sgid.into(),
            dst: self.dgid.into(),
        };
        header.emit(out);
    }
}

/// The 40 bytes that precede the payload in the buffer of a UD receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum UdPrefix {
    /// The IPv6 header.
    V6(Grh),
    /// 20 bytes that mean nothing (zero here), then the IPv4 header.
    V4(Ipv4Header),
    /// The packet had no network header: nothing that means anything (zeros here).
    None,
}

impl UdPrefix {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Reads the prefix. It is an IPv6 header if its first four bits are 6, as programs tell them
    /// apart.
    ///
    /// # Errors
    /// See [`Ipv4Header::parse`].
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<UdPrefix, IpError> {
        if bytes[0] >> 4 == 6 {
            return Grh::parse(bytes).map(UdPrefix::V6);
        }
        let (_, header) = bytes.split_last_chunk().ok_or(IpError::Truncated)?;
        Ipv4Header::parse(header).map(UdPrefix::V4)
    }

    /// Writes the prefix to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`UdPrefix::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        match self {
            UdPrefix::V6(grh) => grh.emit(out),
            UdPrefix::None => out[..Self::LEN].fill(0),
            UdPrefix::V4(header) => {
                let (unused, rest) = out[..Self::LEN].split_at_mut(Self::LEN - Ipv4Header::LEN);
                unused.fill(0);
                header.emit(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
