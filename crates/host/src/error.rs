//! Why a process cannot have a part in what the processes of its host share.

use std::io;
use std::path::PathBuf;

/// Why a process cannot have a part in what the processes of its host share.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// All QPN ranges of this host are claimed.
    #[error("no free QPN range: {live} processes have the device open")]
    NoQpnRange {
        /// Live processes.
        live: usize,
    },
    /// The runtime folder cannot be used.
    #[error("cannot use the runtime folder {path}: {source}")]
    Runtime {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
