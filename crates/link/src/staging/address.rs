//! Addresses of ports, in each way that a port may have one, and what leads from one to the other.
//!
//! Whoever sends and receives compares addresses and hands them on. Only a port takes one apart.

use std::fmt;
use std::net::IpAddr;

use rnic_wire::Grh;
use rnic_wire::ip::{Ipv4Header, UDP_LEN};

use super::path::PathSpec;

/// Bytes of the local route header (IBTA vol. 1, 7.7).
const LRH_LEN: usize = 8;

/// The address of a port, as packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// RoCEv2: an IP address.
    RoceV2(IpAddr),
    /// InfiniBand, within a subnet: a local identifier.
    Ib {
        /// The LID.
        lid: u16,
    },
}

impl From<IpAddr> for Address {
    #[inline]
    fn from(ip: IpAddr) -> Address {
        Address::RoceV2(ip)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::RoceV2(ip) => ip.fmt(f),
            Address::Ib { lid } => write!(f, "LID {lid:#06x}"),
        }
    }
}

impl Address {
    /// First of the LIDs of multicast groups (IBTA vol. 1, 4.1.3).
    const FIRST_MULTICAST_LID: u16 = 0xc000;

    /// It is a multicast group's.
    #[inline]
    pub fn is_multicast(&self) -> bool {
        match self {
            Address::RoceV2(ip) => ip.is_multicast(),
            Address::Ib { lid } => *lid >= Address::FIRST_MULTICAST_LID,
        }
    }

    /// The IP address, if packets with this one have such.
    #[inline]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::RoceV2(ip) => Some(*ip),
            Address::Ib { .. } => None,
        }
    }

    /// What it is, for people. Both ends of a connection need the same.
    pub fn kind(&self) -> &'static str {
        match self {
            Address::RoceV2(IpAddr::V4(_)) => "IPv4",
            Address::RoceV2(IpAddr::V6(ip)) if ip.is_unicast_link_local() => "IPv6 link-local",
            Address::RoceV2(IpAddr::V6(_)) => "IPv6",
            Address::Ib { .. } => "LID",
        }
    }

    /// Bytes of a packet to it in front of the BTH, as the MTU of the way there counts them.
    pub fn header_len(&self) -> u32 {
        let len = match self {
            Address::RoceV2(IpAddr::V4(_)) => Ipv4Header::LEN + UDP_LEN,
            Address::RoceV2(IpAddr::V6(_)) => Grh::LEN + UDP_LEN,
            Address::Ib { .. } => LRH_LEN,
        };
        len as u32
    }
}

/// What leads to a peer: what packets say of their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressVector {
    /// By IP.
    RoceV2(PathSpec),
    /// By LID, without a GRH: within a subnet.
    Ib(IbPath),
}

/// The two ends of a path within an InfiniBand subnet, and what its LRHs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IbPath {
    /// Own LID.
    pub local_lid: u16,
    /// The peer's.
    pub remote_lid: u16,
    /// Service level, 4 bits.
    pub sl: u8,
}

impl From<PathSpec> for AddressVector {
    fn from(spec: PathSpec) -> AddressVector {
        AddressVector::RoceV2(spec)
    }
}

impl AddressVector {
    /// Where it begins.
    pub fn local(&self) -> Address {
        match self {
            AddressVector::RoceV2(spec) => spec.local.into(),
            AddressVector::Ib(path) => Address::Ib {
                lid: path.local_lid,
            },
        }
    }

    /// Where it leads.
    pub fn remote(&self) -> Address {
        match self {
            AddressVector::RoceV2(spec) => spec.remote.into(),
            AddressVector::Ib(path) => Address::Ib {
                lid: path.remote_lid,
            },
        }
    }

    /// The same for another queue pair there.
    pub fn towards(self, dest_qpn: u32) -> AddressVector {
        match self {
            AddressVector::RoceV2(spec) => AddressVector::RoceV2(PathSpec { dest_qpn, ..spec }),
            AddressVector::Ib(_) => self,
        }
    }

    /// What decides where packets go, and how.
    pub(crate) fn key(&self) -> AddressVector {
        match self {
            AddressVector::RoceV2(spec) => AddressVector::RoceV2(spec.key()),
            AddressVector::Ib(_) => *self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_groups_have_addresses_of_their_own() {
        let ip = |ip: [u8; 4]| Address::from(IpAddr::from(ip)).is_multicast();
        assert!(ip([239, 1, 2, 3]) && !ip([127, 0, 0, 1]));
        let lid = |lid| Address::Ib { lid }.is_multicast();
        assert!(lid(0xc000) && !lid(0xbfff));
    }

    #[test]
    fn headers_are_as_long_as_on_the_wire() {
        let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 1u16]);
        let v4 = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(Address::from(v4).header_len(), 28);
        assert_eq!(Address::from(v6).header_len(), 48);
        assert_eq!(Address::Ib { lid: 1 }.header_len(), 8);
    }
}
