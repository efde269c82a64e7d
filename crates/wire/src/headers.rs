//! The BTH and the extension headers (IBTA 9.2 and 9.3; XRCETH: annex A14, FETH: annex A19), except
//! the [`Aeth`](crate::Aeth).
//!
//! Each is a small struct of valid values with `LEN`, `parse` and `emit`. All numbers are big
//! endian on the wire. Reserved bits are sent as zero and ignored on receipt. `emit` writes to the
//! front of its output and panics if that is shorter than `LEN`.

use crate::{Opcode, PacketError, Psn};

/// Base transport header: in front of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Bth {
    /// Service and operation.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state; Soft-RoCE sends 0, and nobody without path migration cares.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0..=3.
    pub pad: u8,
    /// Transport header version, four bits; 0.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination QP number, 24 bits.
    pub dest_qp: u32,
    /// The responder shall acknowledge.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// The destination QPN of a packet without its ICRC, or of its beginning; `None`: it is too
    /// short for a BTH.
    #[inline]
    pub fn dest_qpn(packet: &[u8]) -> Option<u32> {
        (packet.len() >= Bth::LEN).then(|| u32::from_be_bytes([0, packet[5], packet[6], packet[7]]))
    }

    /// Reads the header at the front of a packet, without judging the values in it.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] if there are fewer than [`Bth::LEN`] bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Bth, PacketError> {
        let b: &[u8; Self::LEN] = bytes.first_chunk().ok_or(PacketError::Truncated)?;
        Ok(Bth {
            opcode: Opcode(b[0]),
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            version: b[1] & 0x0f,
            pkey: u16::from_be_bytes([b[2], b[3]]),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qp: u32::from_be_bytes([0, b[5], b[6], b[7]]),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, b[9], b[10], b[11]])),
        })
    }

    /// Writes the header. Fields wider than on the wire are cut.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad & 3) << 4
            | self.version & 0x0f;
        let [_, q0, q1, q2] = self.dest_qp.to_be_bytes();
        let [_, p0, p1, p2] = self.psn.value().to_be_bytes();
        let [k0, k1] = self.pkey.to_be_bytes();
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        let ack_req = u8::from(self.ack_req) << 7;
        out[..Self::LEN].copy_from_slice(&[
            self.opcode.0,
            flags,
            k0,
            k1,
            congestion,
            q0,
            q1,
            q2,
            ack_req,
            p0,
            p1,
            p2,
        ]);
    }

    /// Puts another PSN into a header that was written.
    ///
    /// # Panics
    /// If `header` is shorter than [`Bth::LEN`].
    #[inline]
    pub fn set_psn(header: &mut [u8], psn: Psn) {
        let [_, psn @ ..] = psn.value().to_be_bytes();
        header[9..Self::LEN].copy_from_slice(&psn);
    }
}

/// RDMA extended header: where in the responder's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// Key of the memory region.
    pub rkey: u32,
    /// Length of the whole message in bytes.
    pub dma_len: u32,
}

impl Reth {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Reth {
        Reth {
            va: be64(bytes, 0),
            rkey: be32(bytes, 8),
            dma_len: be32(bytes, 12),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..].copy_from_slice(&self.dma_len.to_be_bytes());
    }
}

/// FLUSH extended header (annex A19).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Feth {
    /// What is asked for, four bits: [`Feth::GLOBAL`], [`Feth::PERSISTENT`], or both; the others
    /// are reserved.
    pub placement: u8,
    /// For which bytes, two bits: [`Feth::RANGE`] or [`Feth::REGION`]; the others are reserved.
    pub selectivity: u8,
}

impl Feth {
    /// Length in bytes.
    pub const LEN: usize = 4;
    /// Placement: whoever reads the memory sees what was written.
    pub const GLOBAL: u8 = 1;
    /// Placement: what was written outlasts the loss of power.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: those that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: all of the region of the RETH's key; its address and length mean nothing.
    pub const REGION: u8 = 1;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Feth {
        Feth {
            placement: bytes[3] & 0x0f,
            selectivity: bytes[3] >> 4 & 3,
        }
    }

    /// Writes the header. Fields wider than on the wire are cut.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let bits = (self.selectivity & 3) << 4 | self.placement & 0x0f;
        out[..Self::LEN].copy_from_slice(&[0, 0, 0, bits]);
    }
}

/// Atomic extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Key of the memory region.
    pub rkey: u32,
    /// Compare-and-swap: the new value. Fetch-and-add: the addend.
    pub swap_or_add: u64,
    /// Compare-and-swap: the value to compare with. Fetch-and-add: unused.
    pub compare: u64,
}

impl AtomicEth {
    /// Length in bytes.
    pub const LEN: usize = 28;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> AtomicEth {
        AtomicEth {
            va: be64(bytes, 0),
            rkey: be32(bytes, 8),
            swap_or_add: be64(bytes, 12),
            compare: be64(bytes, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        out[20..].copy_from_slice(&self.compare.to_be_bytes());
    }
}

/// Atomic ACK extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct AtomicAckEth {
    /// What the memory held before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> AtomicAckEth {
        AtomicAckEth {
            original: be64(bytes, 0),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.original.to_be_bytes());
    }
}

/// Immediate data, in the order of the wire: no byte order is implied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> ImmDt {
        ImmDt(*bytes)
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.0);
    }
}

/// Invalidate extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Ieth {
    /// The rkey that the responder shall invalidate.
    pub rkey: u32,
}

impl Ieth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Ieth {
        Ieth {
            rkey: be32(bytes, 0),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.rkey.to_be_bytes());
    }
}

/// Datagram extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source QP number, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Deth {
        Deth {
            qkey: be32(bytes, 0),
            src_qp: be32(bytes, 4) & 0x00ff_ffff,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..].copy_from_slice(&(self.src_qp & 0x00ff_ffff).to_be_bytes());
    }
}

/// Reliable datagram extended header. No device of today has the service; here so that a dissector
/// can skip it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Rdeth {
    /// End-to-end context, 24 bits.
    pub ee_context: u32,
}

impl Rdeth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Rdeth {
        Rdeth {
            ee_context: be32(bytes, 0) & 0x00ff_ffff,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&(self.ee_context & 0x00ff_ffff).to_be_bytes());
    }
}

/// XRC extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Xrceth {
    /// Number of the responder's XRC shared receive queue, 24 bits.
    pub srqn: u32,
}

impl Xrceth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Xrceth {
        Xrceth {
            srqn: be32(bytes, 0) & 0x00ff_ffff,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&(self.srqn & 0x00ff_ffff).to_be_bytes());
    }
}

#[inline]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests;
