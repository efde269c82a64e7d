//! Whole packets: which extension headers an opcode has, in which order, and where the payload lies
//! (IBTA 9.2, 9.4).
//!
//! One table says which headers follow the BTH; reading and writing both go by it, so they cannot
//! disagree.

use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Opcode, PathMtu, Rdeth, Reth,
    Service, Xrceth,
};
use core::fmt;

/// The most that BTH and extension headers of one packet can take (atomic request over RD).
pub const MAX_HEADER_LEN: usize = Bth::LEN + Rdeth::LEN + Deth::LEN + AtomicEth::LEN;

/// The longest message (IBTA 9.7.7.1).
const MAX_MESSAGE_LEN: usize = 1 << 31;

/// A packet, decoded. `bth.opcode.operation()` of a parsed packet is always `Some`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers: exactly those that the opcode has.
    pub ext: Ext,
    /// What follows the headers, without pad bytes. An operation that carries no payload may still
    /// come with bytes here (Soft-RoCE accepts such ACKs); a receiver ignores them.
    pub payload: Payload<'a>,
}

/// The payload of a packet, or a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// Its bytes.
    Here(&'a [u8]),
    /// It came through shared memory and still lies there: bytes `from..from + len` of the packet,
    /// counted from its BTH. The code that handed the packet over can say more.
    Detached {
        /// Where in the packet it begins.
        from: usize,
        /// Bytes.
        len: usize,
        /// The sender's path MTU: over the wire each of its packets but the last of a message would
        /// have had so many.
        mtu: PathMtu,
    },
}

impl<'a> Payload<'a> {
    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::Detached { len, .. } => *len,
        }
    }

    /// No bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that are here: all, or none.
    #[inline]
    pub const fn here(&self) -> &'a [u8] {
        match self {
            Payload::Here(bytes) => bytes,
            Payload::Detached { .. } => &[],
        }
    }

    /// The first `mid` bytes, or all if there are fewer, and the others.
    #[inline]
    pub fn split_at(self, mid: usize) -> (Payload<'a>, Payload<'a>) {
        let mid = mid.min(self.len());
        match self {
            Payload::Here(bytes) => {
                let (front, back) = bytes.split_at(mid);
                (Payload::Here(front), Payload::Here(back))
            }
            Payload::Detached { from, len, mtu } => (
                Payload::Detached {
                    from,
                    len: mid,
                    mtu,
                },
                Payload::Detached {
                    from: from + mid,
                    len: len - mid,
                    mtu,
                },
            ),
        }
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload::Here(bytes)
    }
}

/// Extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "each is the header of its type's name")]
pub struct Ext {
    pub feth: Option<Feth>,
    pub reth: Option<Reth>,
    pub aeth: Option<Aeth>,
    pub atomic: Option<AtomicEth>,
    pub atomic_ack: Option<AtomicAckEth>,
    pub imm: Option<ImmDt>,
    pub ieth: Option<Ieth>,
    pub deth: Option<Deth>,
    pub xrceth: Option<Xrceth>,
    pub rdeth: Option<Rdeth>,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PacketError {
    /// Shorter than the headers that its opcode has.
    Truncated,
    /// Transport header version other than 0.
    Version,
    /// The opcode means nothing, or not over this service.
    UnknownOpcode,
    /// More pad bytes than bytes after the headers.
    BadPad,
    /// More payload than any message has.
    TooLong,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::Truncated => "shorter than its headers",
            PacketError::Version => "transport header version is not 0",
            PacketError::UnknownOpcode => "unknown opcode",
            PacketError::BadPad => "more padding than payload",
            PacketError::TooLong => "more payload than any message has",
        })
    }
}

impl core::error::Error for PacketError {}

impl<'a> Packet<'a> {
    /// Decodes a packet: `bytes` from the first byte of the BTH up to the last pad byte, without
    /// ICRC.
    ///
    /// The payload need not end at a multiple of four; pad bytes need not be zero (a receiver has
    /// no use for them).
    ///
    /// # Errors
    /// One [`PacketError`] per cause, in the order version, opcode, length, pad.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        let (bth, layout, headers, rest) = split(bytes)?;
        let len = unpadded(rest.len(), &bth)?;
        let payload = Payload::Here(&rest[..len]);
        if headers.is_empty() {
            let ext = Ext::NONE;
            return Ok(Packet { bth, ext, payload });
        }
        Ok(Packet {
            bth,
            ext: Ext::parse(layout, headers),
            payload,
        })
    }

    /// Decodes a packet of `len` bytes of which only the `front` is here, [`MAX_HEADER_LEN`] bytes
    /// of it or all; its payload is detached, and comes from who has that path MTU.
    ///
    /// # Errors
    /// As [`Packet::parse`], and [`PacketError::TooLong`].
    #[inline]
    pub fn parse_front(
        front: &'a [u8],
        len: usize,
        mtu: PathMtu,
    ) -> Result<Packet<'a>, PacketError> {
        let (bth, layout, headers, rest) = split(front)?;
        let from = front.len() - rest.len();
        let behind = len.checked_sub(from).ok_or(PacketError::Truncated)?;
        let len = unpadded(behind, &bth)?;
        if len > MAX_MESSAGE_LEN {
            return Err(PacketError::TooLong);
        }
        Ok(Packet {
            bth,
            ext: Ext::parse(layout, headers),
            payload: Payload::Detached { from, len, mtu },
        })
    }

    /// Bytes that [`Packet::emit`] writes.
    #[inline]
    pub fn wire_len(&self) -> usize {
        header_len(self.bth.opcode) + self.payload.len() + usize::from(self.bth.pad & 3)
    }

    /// Writes headers, payload and `bth.pad` zero bytes to the front of `out`; returns
    /// [`Packet::wire_len`]. In place of a detached payload it writes nothing.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.wire_len()];
        let at = emit(&self.bth, &self.ext, out);
        let (payload, pad) = out[at..].split_at_mut(self.payload.len());
        if let Payload::Here(bytes) = self.payload {
            payload.copy_from_slice(bytes);
        }
        pad.fill(0);
        self.wire_len()
    }
}

/// A BTH, the extension headers that its opcode has, as bytes, and what follows them.
type Parts<'a> = (Bth, Layout, &'a [u8], &'a [u8]);

/// Takes `bytes` apart, without judging what follows the headers.
#[inline(always)]
fn split(bytes: &[u8]) -> Result<Parts<'_>, PacketError> {
    let bth = Bth::parse(bytes)?;
    if bth.version != 0 {
        return Err(PacketError::Version);
    }
    let layout = Layout::of(bth.opcode);
    if layout.has(Layout::UNKNOWN) {
        return Err(PacketError::UnknownOpcode);
    }
    let (headers, rest) = bytes
        .split_at_checked(header_len(bth.opcode))
        .ok_or(PacketError::Truncated)?;
    Ok((bth, layout, &headers[Bth::LEN..], rest))
}

impl Ext {
    /// Most packets are in the middle of a message and have none.
    const NONE: Ext = Ext {
        feth: None,
        reth: None,
        aeth: None,
        atomic: None,
        atomic_ack: None,
        imm: None,
        ieth: None,
        deth: None,
        xrceth: None,
        rdeth: None,
    };

    /// Reads what the layout has. As one expression: what is put together piece by piece and then
    /// moved as a whole waits for its own stores.
    #[inline(always)]
    fn parse(layout: Layout, headers: &[u8]) -> Ext {
        let rest = &mut { headers };
        Ext {
            rdeth: layout.take(Layout::RDETH, rest, Rdeth::parse),
            deth: layout.take(Layout::DETH, rest, Deth::parse),
            xrceth: layout.take(Layout::XRCETH, rest, Xrceth::parse),
            feth: layout.take(Layout::FETH, rest, Feth::parse),
            reth: layout.take(Layout::RETH, rest, Reth::parse),
            atomic: layout.take(Layout::ATOMIC_ETH, rest, AtomicEth::parse),
            imm: layout.take(Layout::IMM_DT, rest, ImmDt::parse),
            ieth: layout.take(Layout::IETH, rest, Ieth::parse),
            aeth: layout.take(Layout::AETH, rest, Aeth::parse),
            atomic_ack: layout.take(Layout::ATOMIC_ACK_ETH, rest, AtomicAckEth::parse),
        }
    }
}

/// Length of what follows the headers without its pad bytes.
#[inline]
pub(crate) fn unpadded(behind_headers: usize, bth: &Bth) -> Result<usize, PacketError> {
    behind_headers
        .checked_sub(usize::from(bth.pad))
        .ok_or(PacketError::BadPad)
}

/// Writes the BTH and the extension headers of `bth.opcode` to the front of `out`; returns how many
/// bytes they take.
///
/// `bth.pad` is written as it is: set it to [`pad_len`] of the payload. `ext` should hold what the
/// opcode needs (a missing header is written as its default, one that the opcode does not have is
/// left out; a debug build panics).
///
/// # Panics
/// If `out` is shorter than [`header_len`] of the opcode.
#[inline]
pub fn emit(bth: &Bth, ext: &Ext, out: &mut [u8]) -> usize {
    let layout = Layout::of(bth.opcode);
    debug_assert!(layout.matches(ext), "{bth:?} with {ext:?}");
    bth.emit(out);
    let mut at = Bth::LEN;
    if layout.0 & !Layout::UNKNOWN == 0 {
        return at;
    }
    if layout.has(Layout::RDETH) {
        ext.rdeth.unwrap_or_default().emit(&mut out[at..]);
        at += Rdeth::LEN;
    }
    if layout.has(Layout::DETH) {
        ext.deth.unwrap_or_default().emit(&mut out[at..]);
        at += Deth::LEN;
    }
    if layout.has(Layout::XRCETH) {
        ext.xrceth.unwrap_or_default().emit(&mut out[at..]);
        at += Xrceth::LEN;
    }
    if layout.has(Layout::FETH) {
        ext.feth.unwrap_or_default().emit(&mut out[at..]);
        at += Feth::LEN;
    }
    if layout.has(Layout::RETH) {
        ext.reth.unwrap_or_default().emit(&mut out[at..]);
        at += Reth::LEN;
    }
    if layout.has(Layout::ATOMIC_ETH) {
        ext.atomic.unwrap_or_default().emit(&mut out[at..]);
        at += AtomicEth::LEN;
    }
    if layout.has(Layout::IMM_DT) {
        ext.imm.unwrap_or_default().emit(&mut out[at..]);
        at += ImmDt::LEN;
    }
    if layout.has(Layout::IETH) {
        ext.ieth.unwrap_or_default().emit(&mut out[at..]);
        at += Ieth::LEN;
    }
    if layout.has(Layout::AETH) {
        ext.aeth.unwrap_or_default().emit(&mut out[at..]);
        at += Aeth::LEN;
    }
    if layout.has(Layout::ATOMIC_ACK_ETH) {
        ext.atomic_ack.unwrap_or_default().emit(&mut out[at..]);
        at += AtomicAckEth::LEN;
    }
    at
}

/// Length of the BTH and the extension headers of `opcode`; of the BTH alone where the opcode means
/// nothing.
#[inline]
pub fn header_len(opcode: Opcode) -> usize {
    static LENGTHS: [u8; 256] = Layout::LENGTHS;
    usize::from(LENGTHS[usize::from(opcode.0)])
}

/// Pad bytes behind a payload of this length, 0..=3.
#[inline]
pub const fn pad_len(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// The set of extension headers that an opcode has.
#[derive(Clone, Copy)]
struct Layout(u16);

impl Layout {
    // In the order of the wire.
    const RDETH: u16 = 1;
    const DETH: u16 = 1 << 1;
    const XRCETH: u16 = 1 << 2;
    const FETH: u16 = 1 << 3;
    const RETH: u16 = 1 << 4;
    const ATOMIC_ETH: u16 = 1 << 5;
    const IMM_DT: u16 = 1 << 6;
    const IETH: u16 = 1 << 7;
    const AETH: u16 = 1 << 8;
    const ATOMIC_ACK_ETH: u16 = 1 << 9;
    const UNKNOWN: u16 = 1 << 15;

    const TABLE: [Layout; 256] = {
        let mut table = [Layout(0); 256];
        let mut code = 0;
        while code < 256 {
            table[code] = Layout::work_out(Opcode(code as u8));
            code += 1;
        }
        table
    };

    const LENGTHS: [u8; 256] = {
        let mut table = [0; 256];
        let mut code = 0;
        while code < 256 {
            let layout = Layout::TABLE[code];
            table[code] = (Bth::LEN
                + layout.len_of(Layout::RDETH, Rdeth::LEN)
                + layout.len_of(Layout::DETH, Deth::LEN)
                + layout.len_of(Layout::XRCETH, Xrceth::LEN)
                + layout.len_of(Layout::FETH, Feth::LEN)
                + layout.len_of(Layout::RETH, Reth::LEN)
                + layout.len_of(Layout::ATOMIC_ETH, AtomicEth::LEN)
                + layout.len_of(Layout::IMM_DT, ImmDt::LEN)
                + layout.len_of(Layout::IETH, Ieth::LEN)
                + layout.len_of(Layout::AETH, Aeth::LEN)
                + layout.len_of(Layout::ATOMIC_ACK_ETH, AtomicAckEth::LEN))
                as u8;
            code += 1;
        }
        table
    };

    const fn work_out(opcode: Opcode) -> Layout {
        let Some(operation) = opcode.operation() else {
            return Layout(Layout::UNKNOWN);
        };
        let service = opcode.service();
        let (rd, ud, xrc) = (
            matches!(service, Service::Rd),
            matches!(service, Service::Ud),
            matches!(service, Service::Xrc),
        );
        let request = operation.is_request();
        Layout(
            Layout::when(rd, Layout::RDETH)
                | Layout::when(ud || rd && request, Layout::DETH)
                | Layout::when(xrc && request, Layout::XRCETH)
                | Layout::when(operation.has_feth(), Layout::FETH)
                | Layout::when(operation.has_reth(), Layout::RETH)
                | Layout::when(operation.has_atomic_eth(), Layout::ATOMIC_ETH)
                | Layout::when(operation.has_immediate(), Layout::IMM_DT)
                | Layout::when(operation.has_ieth(), Layout::IETH)
                | Layout::when(operation.has_aeth(), Layout::AETH)
                | Layout::when(operation.has_atomic_ack(), Layout::ATOMIC_ACK_ETH),
        )
    }

    const fn when(present: bool, header: u16) -> u16 {
        if present { header } else { 0 }
    }

    const fn len_of(self, header: u16, len: usize) -> usize {
        if self.has(header) { len } else { 0 }
    }

    #[inline]
    fn of(opcode: Opcode) -> Layout {
        static TABLE: [Layout; 256] = Layout::TABLE;
        TABLE[usize::from(opcode.0)]
    }

    #[inline]
    const fn has(self, header: u16) -> bool {
        self.0 & header != 0
    }

    /// Whether `ext` holds the headers of this layout and no other.
    fn matches(self, ext: &Ext) -> bool {
        let present = Layout::when(ext.rdeth.is_some(), Layout::RDETH)
            | Layout::when(ext.deth.is_some(), Layout::DETH)
            | Layout::when(ext.xrceth.is_some(), Layout::XRCETH)
            | Layout::when(ext.feth.is_some(), Layout::FETH)
            | Layout::when(ext.reth.is_some(), Layout::RETH)
            | Layout::when(ext.atomic.is_some(), Layout::ATOMIC_ETH)
            | Layout::when(ext.imm.is_some(), Layout::IMM_DT)
            | Layout::when(ext.ieth.is_some(), Layout::IETH)
            | Layout::when(ext.aeth.is_some(), Layout::AETH)
            | Layout::when(ext.atomic_ack.is_some(), Layout::ATOMIC_ACK_ETH);
        present == self.0 & !Layout::UNKNOWN
    }

    /// Reads the header at the front of `rest` if this layout has it.
    #[inline(always)]
    fn take<const N: usize, H>(
        self,
        header: u16,
        rest: &mut &[u8],
        parse: impl FnOnce(&[u8; N]) -> H,
    ) -> Option<H> {
        if !self.has(header) {
            return None;
        }
        let (front, behind) = rest.split_first_chunk::<N>()?;
        *rest = behind;
        Some(parse(front))
    }
}

#[cfg(test)]
mod tests;
