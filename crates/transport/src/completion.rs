//! What a queue pair says of a finished work request.

pub use rnic_types::{Completion, CompletionOpcode, Immediate, NetworkHeader, Status};

use crate::{BindFault, LocalFault};

/// How a work request fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) vendor_err: u32,
}

impl Failure {
    pub(crate) fn local(fault: LocalFault) -> Failure {
        Failure {
            status: Status::LocalProtectionError,
            vendor_err: vendor_err::local_fault(fault),
        }
    }

    pub(crate) fn bind(fault: BindFault) -> Failure {
        Failure {
            status: Status::MemoryWindowBindError,
            vendor_err: vendor_err::bind_fault(fault),
        }
    }
}

/// Values of [`Completion::vendor_err`]: rnic's own, finer than the status.
pub mod vendor_err {
    use crate::{BindFault, LocalFault};

    /// A consequence: another work request of the queue pair failed first, or the queue pair was
    /// moved to ERR.
    pub const FLUSHED: u32 = 0x01;
    /// Base of local memory faults; see [`local_fault`].
    pub const LOCAL: u32 = 0x10;
    /// Message longer than 2^31 bytes.
    pub const MESSAGE_TOO_LONG: u32 = 0x20;
    /// Atomic whose list has no room for 8 bytes, atomic write of another length.
    pub const ATOMIC_TOO_SHORT: u32 = 0x21;
    /// READ or atomic on a queue pair with `max_rd_atomic` 0.
    pub const NO_RD_ATOMIC: u32 = 0x22;
    /// READ or atomic with inline data.
    pub const INLINE_READ: u32 = 0x23;
    /// Message longer than the receive.
    pub const RECEIVE_TOO_SHORT: u32 = 0x24;
    /// The rkey named by SEND with invalidate cannot be invalidated.
    pub const INVALIDATE: u32 = 0x25;
    /// The service has no such operation.
    pub const WRONG_SERVICE: u32 = 0x26;
    /// Datagram longer than the port's MTU.
    pub const DATAGRAM_TOO_LONG: u32 = 0x27;
    /// Base of refused binds and local invalidates; see [`bind_fault`].
    pub const BIND: u32 = 0x30;
    /// Base of NAK codes of the peer: 0x41 invalid request, 0x42 remote access error, 0x43 remote
    /// operational error.
    pub const NAK: u32 = 0x40;
    /// The peer did not answer (retries exceeded by the ACK timeout).
    pub const TIMEOUT: u32 = 0x80;
    /// The peer kept asking for the same packet (retries exceeded).
    pub const SEQUENCE_NAK: u32 = 0x81;
    /// The responses of a READ or atomic kept getting lost (retries exceeded).
    pub const LOST_RESPONSE: u32 = 0x82;
    /// The peer had no receive posted (RNR retries exceeded).
    pub const RNR: u32 = 0x83;
    /// A response of a kind that the request cannot have.
    pub const UNEXPECTED_RESPONSE: u32 = 0xa0;
    /// A READ response of the wrong length.
    pub const RESPONSE_LENGTH: u32 = 0xa1;
    /// An AETH syndrome of a reserved type.
    pub const RESERVED_SYNDROME: u32 = 0xa2;

    /// [`LOCAL`] plus 1 unknown lkey, 2 other protection domain, 3 out of range, 4 no LOCAL_WRITE,
    /// 5 unmapped.
    pub const fn local_fault(fault: LocalFault) -> u32 {
        LOCAL
            + match fault {
                LocalFault::UnknownKey => 1,
                LocalFault::OtherPd => 2,
                LocalFault::OutOfRange => 3,
                LocalFault::NoLocalWrite => 4,
                LocalFault::Unmapped => 5,
            }
    }

    /// [`BIND`] plus the number of the reason.
    ///
    /// * 1 unknown window, 2 unknown region, 9 window of another queue pair.
    /// * 3 window of another protection domain, 10 region of another one.
    /// * 4 out of range, 5 no MW_BIND, 6 no LOCAL_WRITE, 7 already bound.
    /// * 8 a region, 11 a type-1 window: neither can be invalidated.
    pub const fn bind_fault(fault: BindFault) -> u32 {
        BIND + match fault {
            BindFault::UnknownWindow => 1,
            BindFault::UnknownRegion => 2,
            BindFault::OtherPd => 3,
            BindFault::OutOfRange => 4,
            BindFault::NoBindRight => 5,
            BindFault::NoLocalWrite => 6,
            BindFault::AlreadyBound => 7,
            BindFault::InvalidatesRegion => 8,
            BindFault::OtherQp => 9,
            BindFault::RegionOfOtherPd => 10,
            BindFault::InvalidatesType1 => 11,
        }
    }
}
