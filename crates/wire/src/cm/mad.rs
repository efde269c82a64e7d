//! The MAD header (IBTA 13.4.3), and the message behind it.

use super::field::{be16, be32, be64, put};
use super::{Drep, Dreq, MAD_LEN, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use core::fmt;

/// Which message (IBTA 16.7.1 "Attributes").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u16)]
#[allow(missing_docs, reason = "the specification's names of the messages")]
pub enum Attribute {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
}

impl Attribute {
    /// From the number in the header.
    pub const fn from_code(code: u16) -> Option<Attribute> {
        Some(match code {
            0x10 => Attribute::Req,
            0x11 => Attribute::Mra,
            0x12 => Attribute::Rej,
            0x13 => Attribute::Rep,
            0x14 => Attribute::Rtu,
            0x15 => Attribute::Dreq,
            0x16 => Attribute::Drep,
            0x17 => Attribute::SidrReq,
            0x18 => Attribute::SidrRep,
            0x19 => Attribute::Lap,
            0x1a => Attribute::Apr,
            _ => return None,
        })
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Attribute::Req => "REQ",
            Attribute::Mra => "MRA",
            Attribute::Rej => "REJ",
            Attribute::Rep => "REP",
            Attribute::Rtu => "RTU",
            Attribute::Dreq => "DREQ",
            Attribute::Drep => "DREP",
            Attribute::SidrReq => "SIDR_REQ",
            Attribute::SidrRep => "SIDR_REP",
            Attribute::Lap => "LAP",
            Attribute::Apr => "APR",
        }
    }
}

/// A management datagram of the communication management class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Transaction id, the sender's choice; an answer has that of what it answers.
    pub tid: u64,
    /// 0, or vendor options of enhanced connection establishment, which who does not know them
    /// ignores.
    pub attr_modifier: u32,
    /// The message.
    pub message: Message,
}

/// The message of a [`Mad`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a MAD has one length, and so has all it may hold"
)]
#[allow(missing_docs, reason = "each is documented as a struct")]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

impl Message {
    /// Which it is.
    pub const fn attribute(&self) -> Attribute {
        match self {
            Message::Req(_) => Attribute::Req,
            Message::Mra(_) => Attribute::Mra,
            Message::Rej(_) => Attribute::Rej,
            Message::Rep(_) => Attribute::Rep,
            Message::Rtu(_) => Attribute::Rtu,
            Message::Dreq(_) => Attribute::Dreq,
            Message::Drep(_) => Attribute::Drep,
            Message::SidrReq(_) => Attribute::SidrReq,
            Message::SidrRep(_) => Attribute::SidrRep,
        }
    }
}

/// Why bytes are no message of the communication manager, or none that is understood. None of these
/// is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MadError {
    /// Not [`MAD_LEN`] bytes.
    Length(usize),
    /// Base version other than 1.
    BaseVersion(u8),
    /// Another management class.
    Class(u8),
    /// Class version other than 2.
    ClassVersion(u8),
    /// Another method than Send.
    Method(u8),
    /// A message that does not exist.
    UnknownAttribute(u16),
    /// LAP or APR: automatic path migration does not exist over RoCE.
    PathMigration(Attribute),
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MadError::Length(len) => write!(f, "{len} bytes, where a MAD has {MAD_LEN}"),
            MadError::BaseVersion(version) => write!(f, "MAD base version {version}"),
            MadError::Class(class) => write!(f, "management class {class:#04x}"),
            MadError::ClassVersion(version) => write!(f, "version {version} of the CM class"),
            MadError::Method(method) => write!(f, "method {method:#04x}"),
            MadError::UnknownAttribute(code) => write!(f, "unknown attribute {code:#06x}"),
            MadError::PathMigration(attribute) => {
                write!(f, "{}: path migration is not supported", attribute.name())
            }
        }
    }
}

impl core::error::Error for MadError {}

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

impl Mad {
    /// Length of the header.
    pub const HEADER_LEN: usize = 24;

    /// Checks the header and says which message follows.
    pub fn attribute(bytes: &[u8; MAD_LEN]) -> Result<Attribute, MadError> {
        if bytes[0] != BASE_VERSION {
            return Err(MadError::BaseVersion(bytes[0]));
        }
        if bytes[1] != CLASS {
            return Err(MadError::Class(bytes[1]));
        }
        if bytes[2] != CLASS_VERSION {
            return Err(MadError::ClassVersion(bytes[2]));
        }
        if bytes[3] != METHOD_SEND {
            return Err(MadError::Method(bytes[3]));
        }
        let code = be16(bytes, 16);
        Attribute::from_code(code).ok_or(MadError::UnknownAttribute(code))
    }

    /// Reads the payload of a packet to QP 1. Reserved bits are ignored, and so is the status
    /// field, which only responses to Get and Set use.
    ///
    /// # Errors
    /// One [`MadError`] per cause, in the order of its variants.
    pub fn parse(bytes: &[u8]) -> Result<Mad, MadError> {
        let bytes: &[u8; MAD_LEN] = bytes
            .try_into()
            .map_err(|_| MadError::Length(bytes.len()))?;
        let body = &bytes[Self::HEADER_LEN..];
        let message = match Self::attribute(bytes)? {
            Attribute::Req => Message::Req(Req::parse(body)),
            Attribute::Mra => Message::Mra(Mra::parse(body)),
            Attribute::Rej => Message::Rej(Rej::parse(body)),
            Attribute::Rep => Message::Rep(Rep::parse(body)),
            Attribute::Rtu => Message::Rtu(Rtu::parse(body)),
            Attribute::Dreq => Message::Dreq(Dreq::parse(body)),
            Attribute::Drep => Message::Drep(Drep::parse(body)),
            Attribute::SidrReq => Message::SidrReq(SidrReq::parse(body)),
            Attribute::SidrRep => Message::SidrRep(SidrRep::parse(body)),
            migration @ (Attribute::Lap | Attribute::Apr) => {
                return Err(MadError::PathMigration(migration));
            }
        };
        Ok(Mad {
            tid: be64(bytes, 8),
            attr_modifier: be32(bytes, 20),
            message,
        })
    }

    /// Writes header and message. Fields wider than on the wire are cut, reserved bits are zero.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        put(
            &mut bytes,
            0,
            [BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND],
        );
        put(&mut bytes, 8, self.tid.to_be_bytes());
        let attribute = self.message.attribute() as u16;
        put(&mut bytes, 16, attribute.to_be_bytes());
        put(&mut bytes, 20, self.attr_modifier.to_be_bytes());
        let body = &mut bytes[Self::HEADER_LEN..];
        match &self.message {
            Message::Req(message) => message.emit(body),
            Message::Mra(message) => message.emit(body),
            Message::Rej(message) => message.emit(body),
            Message::Rep(message) => message.emit(body),
            Message::Rtu(message) => message.emit(body),
            Message::Dreq(message) => message.emit(body),
            Message::Drep(message) => message.emit(body),
            Message::SidrReq(message) => message.emit(body),
            Message::SidrRep(message) => message.emit(body),
        }
        bytes
    }
}
