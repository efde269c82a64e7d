//! One claim as it stands in the table, and the rules of which claims may stand beside each other.
//!
//! The rules are those of Linux's RDMA CM (drivers/infiniband/core/cma.c, `cma_check_port`), but
//! for loopback: Linux takes its addresses for wildcards, since no RDMA device has them. Here `lo`
//! has GIDs of its own.

use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a slot.
pub(super) const SLOT_LEN: usize = 32;

const V6: u16 = 1;
const REUSE: u16 = 2;
const AF_ONLY: u16 = 4;
const LISTENING: u16 = 8;
const ALL: u16 = V6 | REUSE | AF_ONLY | LISTENING;

/// A claimed port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Port space and port, as in a service id: `space << 16 | port`.
    pub service: u32,
    /// The address, or the wildcard of its family. IPv4 is never mapped here.
    pub addr: IpAddr,
    /// Interface of a link-local address, else 0.
    pub scope: u32,
    /// First QPN range of the owner.
    pub owner: u16,
    /// Others that say the same may have the port too, until somebody listens.
    pub reuse: bool,
    /// Keeps to its address family.
    pub af_only: bool,
    /// Takes requests.
    pub listening: bool,
}

/// Why two claims of a port cannot both be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collision {
    /// One of them is for all addresses.
    Wildcard,
    /// Both are for the same address.
    SameAddress,
}

impl Collision {
    pub(super) fn errno(self) -> i32 {
        match self {
            Collision::Wildcard => libc::EADDRNOTAVAIL,
            Collision::SameAddress => libc::EADDRINUSE,
        }
    }
}

impl Slot {
    /// In place `place` of the table: a slot that was copied elsewhere, or torn, does not decode.
    pub(super) fn encode(&self, place: u32) -> [u8; SLOT_LEN] {
        let mut out = [0; SLOT_LEN];
        let octets = match self.addr {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let flag = |bit, set: bool| if set { bit } else { 0 };
        let flags = flag(V6, self.addr.is_ipv6())
            | flag(REUSE, self.reuse)
            | flag(AF_ONLY, self.af_only)
            | flag(LISTENING, self.listening);
        out[..4].copy_from_slice(&self.service.to_ne_bytes());
        out[4..8].copy_from_slice(&self.scope.to_ne_bytes());
        out[8..24].copy_from_slice(&octets);
        out[24..26].copy_from_slice(&self.owner.to_ne_bytes());
        out[26..28].copy_from_slice(&flags.to_ne_bytes());
        let check = check(&out, place);
        out[28..].copy_from_slice(&check.to_ne_bytes());
        out
    }

    /// What it says of the port, if it decodes: cheaper than that.
    pub(super) fn service_in(bytes: &[u8; SLOT_LEN]) -> u32 {
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// `None`: free, or nothing that this program wrote there.
    pub(super) fn decode(bytes: &[u8; SLOT_LEN], place: u32) -> Option<Slot> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        // Most slots are free.
        if word(0) == 0 || word(28) != check(bytes, place) {
            return None;
        }
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let flags = half(26);
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[8..24]);
        let addr = Ipv6Addr::from(octets);
        let addr = if flags & V6 != 0 {
            IpAddr::V6(addr)
        } else {
            IpAddr::V4(addr.to_ipv4_mapped()?)
        };
        (flags & !ALL == 0).then_some(Slot {
            service: word(0),
            scope: word(4),
            addr,
            owner: half(24),
            reuse: flags & REUSE != 0,
            af_only: flags & AF_ONLY != 0,
            listening: flags & LISTENING != 0,
        })
    }

    /// Why the two cannot both be, if so: `self` wants to come, `other` is there.
    pub(super) fn collision(&self, other: &Slot) -> Option<Collision> {
        if self.service != other.service || self.reuse && other.reuse {
            return None;
        }
        if self.af_only && other.af_only && self.addr.is_ipv4() != other.addr.is_ipv4() {
            return None;
        }
        if self.addr.is_unspecified() || other.addr.is_unspecified() {
            return Some(Collision::Wildcard);
        }
        (self.addr == other.addr && self.scope == other.scope).then_some(Collision::SameAddress)
    }

    /// Requests to `addr` are for this listener. Requests without an address are for any: it knows
    /// what to answer.
    pub(super) fn takes(&self, service: u32, addr: Option<IpAddr>) -> bool {
        if !self.listening || self.service != service {
            return false;
        }
        match addr {
            None => true,
            Some(_) if self.addr.is_unspecified() && !self.af_only => true,
            Some(addr) if self.addr.is_unspecified() => addr.is_ipv4() == self.addr.is_ipv4(),
            // The interface is not in the request.
            Some(addr) => addr == self.addr,
        }
    }
}

/// Tells a slot from garbage, torn writes and the slots of another version; not from malice.
fn check(bytes: &[u8; SLOT_LEN], place: u32) -> u32 {
    let mut hash = 0x5072_7473_0001_u64 ^ u64::from(place) << 32;
    for word in bytes[..SLOT_LEN - 4].chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    (hash >> 16) as u32
}
