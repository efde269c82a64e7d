//! What arrived at a socket as one piece.

use std::net::IpAddr;

use rnic_wire::IcrcOk;

/// A datagram that arrived, or several of the same length from one sender that came as one
/// (UDP_GRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Source address.
    pub src: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Address it was sent to.
    pub dst: IpAddr,
    /// Bytes in the buffer.
    pub len: usize,
    /// Length of each datagram but the last, which may be shorter; at least 1.
    pub segment: usize,
    /// What is known of their IPv4 headers.
    pub ids: IpIds,
    /// What routers look at and change; `None`: the kernel does not tell.
    pub marks: Option<IpMarks>,
}

/// Traffic class and hop limit of an IP packet as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMarks {
    /// DSCP and, in the two lowest bits, ECN; over IPv4 the TOS.
    pub traffic_class: u8,
    /// Over IPv4 the TTL.
    pub hop_limit: u8,
}

impl Train {
    /// What is left of it behind the first `n` datagrams, of which `len` bytes are left.
    pub fn behind(&self, n: usize, len: usize) -> Train {
        Train {
            len,
            ids: self.ids.behind(n),
            ..*self
        }
    }
}

/// Identification and DF of the datagrams of a train, which are under the ICRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpIds {
    /// A socket does not tell.
    #[default]
    Hidden,
    /// Of the first one. In each other one the identification is greater by `step`.
    Seen {
        /// Of the first one.
        first: IcrcOk,
        /// 0 or 1.
        step: u16,
    },
}

impl IpIds {
    /// Of a train of one datagram, or of one that was cut after it left: then each following part
    /// has the next identification.
    pub fn starting(first: IcrcOk) -> IpIds {
        IpIds::Seen { first, step: 1 }
    }

    /// With another one behind the `n` that there are; `None`: it does not continue them.
    #[inline]
    pub fn with(self, n: usize, next: IcrcOk) -> Option<IpIds> {
        let IpIds::Seen { first, step } = self else {
            return None;
        };
        let step = match n {
            1 => next.ip_id.wrapping_sub(first.ip_id),
            _ => step,
        };
        let ids = IpIds::Seen { first, step };
        (step <= 1 && ids.of(n) == Some(next)).then_some(ids)
    }

    /// Of the `n`th one.
    #[inline]
    pub fn of(self, n: usize) -> Option<IcrcOk> {
        match self {
            IpIds::Hidden => None,
            IpIds::Seen { first, step } => Some(IcrcOk {
                ip_id: first.ip_id.wrapping_add(step.wrapping_mul(n as u16)),
                ..first
            }),
        }
    }

    /// Of a train that begins with the `n`th one.
    fn behind(self, n: usize) -> IpIds {
        match (self, self.of(n)) {
            (IpIds::Seen { step, .. }, Some(first)) => IpIds::Seen { first, step },
            _ => IpIds::Hidden,
        }
    }
}
