//! Why an endpoint refuses what its host asks.

use crate::State;
use core::fmt;

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CmError {
    /// There is no such connection or resolution; it may have ended.
    Unknown,
    /// Not in this state.
    State(State),
    /// There is room for so many bytes of private data.
    PrivateData {
        /// The most that this message can carry.
        max: usize,
    },
    /// The service is a port of rdma_cm and there are no addresses for its header, or the reverse.
    IpCmHeader,
    /// Almost all communication ids are in use.
    NoIds,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CmError::Unknown => f.write_str("no such connection"),
            CmError::State(state) => write!(f, "not while the connection is {state}"),
            CmError::PrivateData { max } => write!(f, "more than {max} bytes of private data"),
            CmError::IpCmHeader => f.write_str(
                "addresses belong to services of rdma_cm's port spaces, and to no other",
            ),
            CmError::NoIds => f.write_str("all communication ids are in use"),
        }
    }
}

impl core::error::Error for CmError {}
