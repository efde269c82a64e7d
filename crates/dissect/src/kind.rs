//! Kinds of messages.

use rnic_wire::Opcode;

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    Other,
}

impl Kind {
    /// From a request's opcode.
    pub fn of(opcode: Opcode) -> Kind {
        use rnic_wire::Operation::*;
        match opcode.operation() {
            Some(SendLastImm | SendOnlyImm) => Kind::SendImm,
            Some(SendLastInvalidate | SendOnlyInvalidate) => Kind::SendInvalidate,
            Some(WriteLastImm | WriteOnlyImm) => Kind::WriteImm,
            Some(ReadRequest) => Kind::Read,
            Some(CompareSwap) => Kind::CompareSwap,
            Some(FetchAdd) => Kind::FetchAdd,
            Some(Flush) => Kind::Flush,
            Some(AtomicWrite) => Kind::AtomicWrite,
            Some(op) if op.is_send() => Kind::Send,
            Some(op) if op.is_write() => Kind::Write,
            _ => Kind::Other,
        }
    }

    /// Answered by a READ response or an atomic acknowledgement, not by an ACK.
    pub fn has_answer(self) -> bool {
        matches!(
            self,
            Kind::Read | Kind::CompareSwap | Kind::FetchAdd | Kind::Flush | Kind::AtomicWrite
        )
    }

    /// Of the same family, so that packets of one can continue the other.
    pub fn continues(self, earlier: Kind) -> bool {
        let family = |kind| match kind {
            Kind::Send | Kind::SendImm | Kind::SendInvalidate => Kind::Send,
            Kind::Write | Kind::WriteImm => Kind::Write,
            other => other,
        };
        family(self) == family(earlier)
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Send => "SEND",
            Kind::SendImm => "SEND with immediate",
            Kind::SendInvalidate => "SEND with invalidate",
            Kind::Write => "RDMA WRITE",
            Kind::WriteImm => "RDMA WRITE with immediate",
            Kind::Read => "RDMA READ",
            Kind::CompareSwap => "COMPARE-AND-SWAP",
            Kind::FetchAdd => "FETCH-AND-ADD",
            Kind::Flush => "FLUSH",
            Kind::AtomicWrite => "ATOMIC WRITE",
            Kind::Other => "unknown",
        }
    }
}
