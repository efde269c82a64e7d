//! Service identifiers, and the part of them that rdma_cm uses (IBTA annex A11;
//! `rdma_create_id(3)`).

use core::fmt;

/// A port space of rdma_cm: `enum rdma_port_space` of `rdma/rdma_cma.h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// `RDMA_PS_IPOIB`: datagrams and multicast of IP over InfiniBand.
    Ipoib = 0x0002,
    /// `RDMA_PS_TCP`: connections (RC, UC, XRC).
    Tcp = 0x0106,
    /// `RDMA_PS_UDP`: datagrams and multicast (UD).
    Udp = 0x0111,
    /// `RDMA_PS_IB`: any service of InfiniBand.
    Ib = 0x013f,
}

impl PortSpace {
    /// All of them.
    pub const ALL: [PortSpace; 4] = [
        PortSpace::Ipoib,
        PortSpace::Tcp,
        PortSpace::Udp,
        PortSpace::Ib,
    ];

    /// From the number in `rdma_cma.h` and on the wire.
    pub const fn from_code(code: u16) -> Option<PortSpace> {
        match code {
            0x0002 => Some(PortSpace::Ipoib),
            0x0106 => Some(PortSpace::Tcp),
            0x0111 => Some(PortSpace::Udp),
            0x013f => Some(PortSpace::Ib),
            _ => None,
        }
    }

    /// The number in `rdma_cma.h` and on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for PortSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortSpace::Ipoib => "RDMA_PS_IPOIB",
            PortSpace::Tcp => "RDMA_PS_TCP",
            PortSpace::Udp => "RDMA_PS_UDP",
            PortSpace::Ib => "RDMA_PS_IB",
        })
    }
}

/// What a request asks for: 64 bits, of which those of rdma_cm are `port space << 16 | port`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// That of a port.
    pub const fn new(space: PortSpace, port: u16) -> ServiceId {
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// Port space and port, if it is one of rdma_cm's. Requests to these have an
    /// [`IpCmHeader`](super::IpCmHeader) in front of their private data.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        if self.0 >> 32 != 0 {
            return None;
        }
        match PortSpace::from_code((self.0 >> 16) as u16) {
            Some(space) => Some((space, self.0 as u16)),
            None => None,
        }
    }
}

/// `RDMA_PS_TCP port 7471`, or the number.
impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) => write!(f, "{space} port {port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}
