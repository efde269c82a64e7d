//! Messages of the InfiniBand communication manager (IBTA vol. 1, chapter 12; annex A11 for the
//! rdma_cm port spaces).
//!
//! Each is a MAD of [`MAD_LEN`] bytes that travels as the payload of a UD SEND_ONLY packet between
//! two QPs 1 ([`QP1_QKEY`]). [`Mad::parse`] checks the header and reads the message, [`Mad::emit`]
//! writes it; [`Addressee::of`] only says whom it is for. Values are not judged here: which of them
//! a connection manager refuses, and with which [`RejectReason`], is the protocol's business.
//!
//! Private data has a fixed length in each message, [`private_data`] fills one.

mod addressee;
mod connect;
mod disconnect;
mod field;
mod ip_cm;
mod mad;
mod path;
mod reason;
mod service_id;
mod sidr;

pub use addressee::Addressee;
pub use connect::{Answered, Mra, Rej, Rep, Req, Rtu, Transport};
pub use disconnect::{Drep, Dreq};
pub use ip_cm::{IpCmError, IpCmHeader};
pub use mad::{Attribute, Mad, MadError, Message};
pub use path::ReqPath;
pub use reason::{RejectReason, SidrStatus};
pub use service_id::{PortSpace, ServiceId};
pub use sidr::{SidrRep, SidrReq};

/// Length of every management datagram (IBTA 13.4.2).
pub const MAD_LEN: usize = 256;

/// The well-known Q_Key of QP 1 (IBTA 10.2.5).
pub const QP1_QKEY: u32 = 0x8001_0000;

/// Private data as it lies in a message: what there is, then zeros. `None` if it does not fit.
///
/// A receiver cannot tell how much of it the sender meant.
pub fn private_data<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut all = [0; N];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(all)
}

/// The approximation of 4.096 us x 2^code that Linux's connection manager uses for all its
/// timeouts: 2^(code - 8) ms, one millisecond at least. In nanoseconds; only the lower five bits
/// count.
pub const fn timeout_ns(code: u8) -> u64 {
    let code = (code & 31) as u32;
    1_000_000 << code.saturating_sub(8)
}
