//! Global identifiers. A RoCEv2 GID is an IP address: IPv6 as it is, IPv4 mapped into
//! `::ffff:0:0/96`.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

/// A global identifier, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether it lies in `fe80::/10`.
    #[inline]
    pub const fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Whether all bytes are zero: an unused entry of a GID table.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// The address it stands for.
    #[inline]
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(ip) => Gid(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => Gid(ip.octets()),
        }
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> IpAddr {
        gid.ip()
    }
}

/// Eight groups of four digits, nothing left out: as in `/sys/class/infiniband/*/ports/*/gids/*`.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks(2).enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            for byte in pair {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
