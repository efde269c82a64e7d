//! The header in front of the private data of requests to rdma_cm's port spaces (IBTA annex A11,
//! "CM REQ Message Private Data Format for RDMA IP CM Service").

use super::field::{array, put};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses and source port of a request to a port space of rdma_cm. The destination port is in
/// the service id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct IpCmHeader {
    /// Port of the requester.
    pub src_port: u16,
    /// Address of the requester.
    pub src: IpAddr,
    /// Address that was asked for, of the same family.
    pub dst: IpAddr,
}

/// Why the first bytes of private data are no [`IpCmHeader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IpCmError {
    /// Fewer bytes than it has.
    Truncated,
    /// Another version of the header than 0.0.
    Version(u8),
    /// Neither IPv4 nor IPv6.
    IpVersion(u8),
}

impl fmt::Display for IpCmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpCmError::Truncated => f.write_str("shorter than the IP-CM header"),
            IpCmError::Version(version) => {
                let (major, minor) = (version >> 4, version & 15);
                write!(f, "version {major}.{minor} of the IP-CM header")
            }
            IpCmError::IpVersion(version) => write!(f, "IP version {version} in the IP-CM header"),
        }
    }
}

impl core::error::Error for IpCmError {}

impl IpCmHeader {
    /// Length in bytes.
    pub const LEN: usize = 36;

    /// Reads the header at the front of private data.
    ///
    /// # Errors
    /// One [`IpCmError`] per cause.
    pub fn parse(private_data: &[u8]) -> Result<IpCmHeader, IpCmError> {
        let b: &[u8; Self::LEN] = private_data.first_chunk().ok_or(IpCmError::Truncated)?;
        if b[0] != 0 {
            return Err(IpCmError::Version(b[0]));
        }
        let ip = |at: usize| match b[1] >> 4 {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(array::<4>(b, at + 12)))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(array::<16>(b, at)))),
            version => Err(IpCmError::IpVersion(version)),
        };
        Ok(IpCmHeader {
            src_port: u16::from_be_bytes([b[2], b[3]]),
            src: ip(4)?,
            dst: ip(20)?,
        })
    }

    /// Writes the header to the front of `out`. The family is that of the destination: an IPv4
    /// source beside an IPv6 destination is written mapped, an IPv6 source beside an IPv4
    /// destination cut.
    ///
    /// # Panics
    /// If `out` is shorter than [`IpCmHeader::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out.fill(0);
        out[1] = if self.dst.is_ipv4() { 0x40 } else { 0x60 };
        put(out, 2, self.src_port.to_be_bytes());
        for (at, ip) in [(4, self.src), (20, self.dst)] {
            let bytes = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            if self.dst.is_ipv4() {
                put::<4>(out, at + 12, array(&bytes, 12));
            } else {
                put(out, at, bytes);
            }
        }
    }
}
