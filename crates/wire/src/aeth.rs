//! The ACK extended header and the codes inside it (IBTA 9.3.5 table 44, 9.7.5.1.2, 9.7.5.2.8).

/// ACK extended header: what became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: messages completed by the responder.
    pub msn: u32,
}

/// The syndrome byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Syndrome {
    /// Positive acknowledge.
    Ack {
        /// Five-bit credit code ([`credit_count`]); [`CREDITS_INVALID`] where the responder does no
        /// flow control.
        credits: u8,
    },
    /// Receiver not ready.
    RnrNak {
        /// Five-bit code of the time to wait ([`rnr_timer_ns`]).
        timer: u8,
    },
    /// Negative acknowledge.
    Nak(NakCode),
    /// Anything else, as it came: type 2, or the top bit set.
    Reserved(u8),
}

/// Why a request was refused: five bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NakCode {
    /// 0: a PSN is missing; the AETH's packet carries the expected one.
    PsnSequenceError,
    /// 1: the request is malformed, out of sequence or not allowed by the QP.
    InvalidRequest,
    /// 2: rkey, range or right.
    RemoteAccessError,
    /// 3: the responder failed.
    RemoteOperationalError,
    /// 4: reliable datagram alone.
    InvalidRdRequest,
    /// 5..=31, reserved.
    Other(u8),
}

/// The credit code that says "no end-to-end flow control".
pub const CREDITS_INVALID: u8 = 31;

impl Aeth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Aeth {
        Aeth {
            syndrome: Syndrome::from_u8(bytes[0]),
            msn: u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]),
        }
    }

    /// Writes the header to the front of `out`. Only the low 24 bits of the MSN are sent.
    ///
    /// # Panics
    /// If `out` is shorter than [`Aeth::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let word = u32::from(self.syndrome.to_u8()) << 24 | self.msn & 0x00ff_ffff;
        out[..Self::LEN].copy_from_slice(&word.to_be_bytes());
    }
}

impl Default for Aeth {
    /// A positive acknowledge without flow control.
    fn default() -> Aeth {
        Aeth {
            syndrome: Syndrome::Ack {
                credits: CREDITS_INVALID,
            },
            msn: 0,
        }
    }
}

impl Syndrome {
    /// Reads the byte; every value is some syndrome.
    #[inline]
    pub const fn from_u8(byte: u8) -> Syndrome {
        match byte >> 5 {
            0 => Syndrome::Ack {
                credits: byte & 0x1f,
            },
            1 => Syndrome::RnrNak { timer: byte & 0x1f },
            3 => Syndrome::Nak(NakCode::from_u8(byte)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte. Codes are cut to five bits.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::RnrNak { timer } => 0x20 | timer & 0x1f,
            Syndrome::Nak(code) => 0x60 | code.to_u8(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl NakCode {
    /// From the low five bits of `code`.
    #[inline]
    pub const fn from_u8(code: u8) -> NakCode {
        match code & 0x1f {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Other(other),
        }
    }

    /// The five-bit code.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Other(code) => code & 0x1f,
        }
    }
}

/// The time an RNR NAK asks the requester to wait, in nanoseconds (IBTA table 45). Only the low
/// five bits count.
#[inline]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    /// In units of 10 microseconds.
    const TABLE: [u16; 32] = [
        65_535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    match code & 0x1f {
        // 65536 units, one more than the table's type holds.
        0 => 655_360_000,
        code => TABLE[code as usize] as u64 * 10_000,
    }
}

/// Receives that a credit code stands for (IBTA table 46); `None` for [`CREDITS_INVALID`]. Only the
/// low five bits count.
#[inline]
pub const fn credit_count(code: u8) -> Option<u32> {
    match code & 0x1f {
        31 => None,
        code @ 0..=4 => Some(code as u32),
        // Powers of two and their halves more: 6, 8, 12, 16, 24, ...
        code => {
            let power = 1 << (code / 2);
            Some(if code % 2 == 0 {
                power
            } else {
                power + power / 2
            })
        }
    }
}

/// The largest credit code that promises no more than `count` receives.
#[inline]
pub const fn credit_code(count: u32) -> u8 {
    if count < 2 {
        return count as u8;
    }
    // The highest power of two in it, and whether its half is in it as well.
    let power = count.ilog2();
    let code = 2 * power + (count >> (power - 1) & 1);
    if code > 30 { 30 } else { code as u8 }
}

#[cfg(test)]
mod tests;
