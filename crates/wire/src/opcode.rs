//! BTH opcodes (IBTA 9.2.1, table 38; XRC: annex A14; CNP: annex A17; FLUSH and ATOMIC WRITE: annex
//! A19).

/// The opcode byte of a BTH. Any value is representable; [`Opcode::operation`] says whether it
/// means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Opcode(pub u8);

/// Transport service: the top three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Manufacturer specific: 6 or 7.
    Other(u8),
}

/// What a packet does: the low five bits of the opcode. The discriminant is the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum Operation {
    SendFirst = 0,
    SendMiddle = 1,
    SendLast = 2,
    SendLastImm = 3,
    SendOnly = 4,
    SendOnlyImm = 5,
    WriteFirst = 6,
    WriteMiddle = 7,
    WriteLast = 8,
    WriteLastImm = 9,
    WriteOnly = 10,
    WriteOnlyImm = 11,
    ReadRequest = 12,
    ReadResponseFirst = 13,
    ReadResponseMiddle = 14,
    ReadResponseLast = 15,
    ReadResponseOnly = 16,
    Acknowledge = 17,
    AtomicAcknowledge = 18,
    CompareSwap = 19,
    FetchAdd = 20,
    /// Reliable datagram alone.
    Resync = 21,
    SendLastInvalidate = 22,
    SendOnlyInvalidate = 23,
    /// Answered like a READ of nothing. 24 to 27 are reserved.
    Flush = 28,
    /// Of 8 bytes; answered like a READ of nothing.
    AtomicWrite = 29,
}

impl Service {
    /// From the three-bit code; higher bits are ignored.
    #[inline]
    pub const fn from_code(code: u8) -> Service {
        match code & 7 {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            3 => Service::Ud,
            4 => Service::Cnp,
            5 => Service::Xrc,
            other => Service::Other(other),
        }
    }

    /// The three-bit code.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Service::Rc => 0,
            Service::Uc => 1,
            Service::Rd => 2,
            Service::Ud => 3,
            Service::Cnp => 4,
            Service::Xrc => 5,
            Service::Other(code) => code & 7,
        }
    }
}

impl Opcode {
    /// The congestion notification packet. It has no [`Operation`]; code that handles it compares
    /// the opcode.
    pub const CNP: Opcode = Opcode(0x81);

    /// The opcode of `operation` over `service`, also where the specification defines none.
    #[inline]
    pub const fn new(service: Service, operation: Operation) -> Opcode {
        Opcode(service.code() << 5 | operation as u8)
    }

    /// The transport service.
    #[inline]
    pub const fn service(self) -> Service {
        Service::from_code(self.0 >> 5)
    }

    /// The operation; `None` where the code point is reserved or its service does not define the
    /// operation.
    #[inline]
    pub const fn operation(self) -> Option<Operation> {
        let Some(operation) = Operation::from_code(self.0 & 0x1f) else {
            return None;
        };
        let defined = match self.service() {
            Service::Rc | Service::Xrc => !matches!(operation, Operation::Resync),
            Service::Uc => operation.is_send_or_write() && !operation.has_ieth(),
            Service::Rd => operation as u8 <= Operation::Resync as u8,
            Service::Ud => matches!(operation, Operation::SendOnly | Operation::SendOnlyImm),
            Service::Cnp | Service::Other(_) => false,
        };
        if defined { Some(operation) } else { None }
    }
}

impl Operation {
    /// All operations, in the order of their codes.
    pub const ALL: [Operation; 26] = [
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLast,
        Operation::SendLastImm,
        Operation::SendOnly,
        Operation::SendOnlyImm,
        Operation::WriteFirst,
        Operation::WriteMiddle,
        Operation::WriteLast,
        Operation::WriteLastImm,
        Operation::WriteOnly,
        Operation::WriteOnlyImm,
        Operation::ReadRequest,
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
        Operation::ReadResponseOnly,
        Operation::Acknowledge,
        Operation::AtomicAcknowledge,
        Operation::CompareSwap,
        Operation::FetchAdd,
        Operation::Resync,
        Operation::SendLastInvalidate,
        Operation::SendOnlyInvalidate,
        Operation::Flush,
        Operation::AtomicWrite,
    ];

    /// Codes below this are all in use: [`Operation::ALL`] begins with them.
    const DENSE: u8 = 24;

    /// From the five-bit code; `None` where it is reserved.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Operation> {
        if code < Self::DENSE {
            Some(Self::ALL[code as usize])
        } else if code == Operation::Flush as u8 {
            Some(Operation::Flush)
        } else if code == Operation::AtomicWrite as u8 {
            Some(Operation::AtomicWrite)
        } else {
            None
        }
    }

    /// Sent by the requester.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Sent by the responder: READ responses and acknowledges.
    #[inline]
    pub const fn is_response(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ReadResponseFirst
                | ReadResponseMiddle
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
        )
    }

    /// A SEND of any kind.
    #[inline]
    pub const fn is_send(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendOnly
                | SendOnlyImm
                | SendLastInvalidate
                | SendOnlyInvalidate
        )
    }

    /// An RDMA WRITE of any kind.
    #[inline]
    pub const fn is_write(self) -> bool {
        use Operation::*;
        matches!(
            self,
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm
        )
    }

    const fn is_send_or_write(self) -> bool {
        self.is_send() || self.is_write()
    }

    /// A READ response of any kind.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly
        )
    }

    /// An atomic request.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }

    /// First packet of a message of several.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(
            self,
            Operation::SendFirst | Operation::WriteFirst | Operation::ReadResponseFirst
        )
    }

    /// Neither first nor last packet of its message.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(
            self,
            Operation::SendMiddle | Operation::WriteMiddle | Operation::ReadResponseMiddle
        )
    }

    /// Last packet of a message of several.
    #[inline]
    pub const fn is_last(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendLast
                | SendLastImm
                | SendLastInvalidate
                | WriteLast
                | WriteLastImm
                | ReadResponseLast
        )
    }

    /// A message in one packet: the `Only` operations, and all that have no first, middle and last.
    #[inline]
    pub const fn is_only(self) -> bool {
        !(self.is_first() || self.is_middle() || self.is_last())
    }

    /// May carry payload: SENDs, WRITEs, ATOMIC WRITE and READ responses.
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.is_send_or_write() || self.is_read_response() || matches!(self, Operation::AtomicWrite)
    }

    /// Carries immediate data.
    #[inline]
    pub const fn has_immediate(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm
        )
    }

    /// Carries an RDMA extended header.
    #[inline]
    pub const fn has_reth(self) -> bool {
        use Operation::*;
        matches!(
            self,
            WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest | Flush | AtomicWrite
        )
    }

    /// Carries a FLUSH extended header.
    #[inline]
    pub const fn has_feth(self) -> bool {
        matches!(self, Operation::Flush)
    }

    /// Carries an ACK extended header.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self, Operation::ReadResponseMiddle)
    }

    /// Carries an rkey to invalidate.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(
            self,
            Operation::SendLastInvalidate | Operation::SendOnlyInvalidate
        )
    }

    /// Carries an atomic extended header.
    #[inline]
    pub const fn has_atomic_eth(self) -> bool {
        self.is_atomic()
    }

    /// Carries an atomic ACK extended header.
    #[inline]
    pub const fn has_atomic_ack(self) -> bool {
        matches!(self, Operation::AtomicAcknowledge)
    }
}

#[cfg(test)]
mod tests;
