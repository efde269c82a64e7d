//! Packets on their way to what carries them: routes, the buffer in which they are built, and their
//! ICRCs.

pub mod address;
pub mod batch;
pub mod datagram;
pub mod framing;
pub mod path;
pub(crate) mod socket;
