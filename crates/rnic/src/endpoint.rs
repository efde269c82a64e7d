//! What two queue pairs have to tell each other before they can talk, and what one tells of its
//! memory.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::nic::{Gid, PathMtu};

/// One end of a connection: everything the other side needs for its handshake.
///
/// Send it over any channel: [`Endpoint::to_bytes`] is a fixed format of 32 bytes; with the feature
/// `serde` it also serialises as those bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "[u8; 32]", try_from = "[u8; 32]"))]
pub struct Endpoint {
    /// GID: the address packets go to.
    pub gid: Gid,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN this side will send, 24 bits.
    pub psn: u32,
    /// Largest path MTU this side can take; a connection uses the smaller of the two.
    pub path_mtu: PathMtu,
}

const MAGIC: [u8; 4] = *b"RNEP";
const VERSION: u8 = 1;

impl Endpoint {
    /// Length of [`Endpoint::to_bytes`].
    pub const BYTES: usize = 32;

    /// `"RNEP"`, version, MTU code (1 = 256 .. 5 = 4096), two zeros, GID, QPN, PSN; numbers big
    /// endian.
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut out = [0; 32];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.path_mtu.to_ibv() as u8;
        out[8..24].copy_from_slice(&self.gid.0);
        out[24..28].copy_from_slice(&self.qpn.to_be_bytes());
        out[28..32].copy_from_slice(&self.psn.to_be_bytes());
        out
    }

    /// Reads what [`Endpoint::to_bytes`] wrote; refuses everything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Endpoint> {
        let decode = |reason| Error::Decode {
            what: "an endpoint",
            reason,
        };
        let bytes: &[u8; 32] = bytes
            .try_into()
            .map_err(|_| decode("its length is not 32 bytes"))?;
        if bytes[..4] != MAGIC || bytes[6..8] != [0, 0] {
            return Err(decode("it does not start with RNEP"));
        }
        if bytes[4] != VERSION {
            return Err(decode("its version is not 1"));
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..24]);
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (qpn, psn) = (word(24), word(28));
        if qpn >> 24 != 0 || psn >> 24 != 0 {
            return Err(decode("QPN or PSN has more than 24 bits"));
        }
        Ok(Endpoint {
            gid: Gid(gid),
            qpn,
            psn,
            path_mtu: PathMtu::from_ibv(bytes[5].into())
                .ok_or_else(|| decode("its path MTU is unknown"))?,
        })
    }

    /// The GID as an address.
    pub fn addr(&self) -> IpAddr {
        self.gid.ip()
    }
}

impl From<Endpoint> for [u8; 32] {
    fn from(endpoint: Endpoint) -> [u8; 32] {
        endpoint.to_bytes()
    }
}

impl TryFrom<[u8; 32]> for Endpoint {
    type Error = Error;
    fn try_from(bytes: [u8; 32]) -> Result<Endpoint> {
        Endpoint::from_bytes(&bytes)
    }
}

/// A range of a peer's memory, as the peer advertised it; the argument of WRITE, READ and atomics.
///
/// Whether the range may be touched is decided by the peer's NIC when the request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteMemory {
    /// Address of the first byte in the peer's terms.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The peer's key.
    pub rkey: u32,
}

impl RemoteMemory {
    /// Length of [`RemoteMemory::to_bytes`].
    pub const BYTES: usize = 20;

    /// Address, length, key; big endian.
    pub fn to_bytes(&self) -> [u8; 20] {
        let mut out = [0; 20];
        out[..8].copy_from_slice(&self.addr.to_be_bytes());
        out[8..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..].copy_from_slice(&self.rkey.to_be_bytes());
        out
    }

    /// Reads what [`RemoteMemory::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<RemoteMemory> {
        let bytes: &[u8; 20] = bytes.try_into().map_err(|_| Error::Decode {
            what: "a remote memory range",
            reason: "its length is not 20 bytes",
        })?;
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Ok(RemoteMemory {
            addr: long(0),
            len: long(8),
            rkey: u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
        })
    }

    /// Part of the range.
    pub fn slice(&self, offset: u64, len: u64) -> Result<RemoteMemory> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(RemoteMemory {
                addr: self.addr.wrapping_add(offset),
                len,
                rkey: self.rkey,
            }),
            _ => Err(Error::OutOfRange {
                what: "slice of remote memory",
                offset,
                len,
                size: self.len,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
