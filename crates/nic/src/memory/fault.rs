//! Why access is refused, before it is known who asked.

use rnic_transport::{LocalFault, RemoteFault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    UnknownKey,
    OtherPd,
    OutOfRange,
    NoRight,
    Unmapped,
}

impl From<Fault> for LocalFault {
    fn from(fault: Fault) -> LocalFault {
        match fault {
            Fault::UnknownKey => LocalFault::UnknownKey,
            Fault::OtherPd => LocalFault::OtherPd,
            Fault::OutOfRange => LocalFault::OutOfRange,
            Fault::NoRight => LocalFault::NoLocalWrite,
            Fault::Unmapped => LocalFault::Unmapped,
        }
    }
}

impl From<Fault> for RemoteFault {
    fn from(fault: Fault) -> RemoteFault {
        match fault {
            Fault::UnknownKey => RemoteFault::UnknownKey,
            Fault::OtherPd => RemoteFault::OtherPd,
            Fault::OutOfRange => RemoteFault::OutOfRange,
            Fault::NoRight => RemoteFault::NoRight,
            Fault::Unmapped => RemoteFault::Unmapped,
        }
    }
}
