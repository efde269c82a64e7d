//! Why the link cannot be opened or a path not be made.

use std::io;

use rnic_host::HostError;

/// Why the link cannot be opened or a path not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Another user's process owns UDP port 4791.
    #[error("UDP port 4791 is taken by {owner}")]
    PortTaken {
        /// Which process, as far as can be found out, and what to do about it.
        owner: String,
    },
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
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file that RNIC_PCAP names cannot be used.
    #[error("RNIC_PCAP: cannot open the capture file {path}: {source}")]
    Capture {
        /// Its name.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The errno of an error that says that the system is short of descriptors or memory, or that a
/// descriptor of ours was closed, and nothing of what was tried.
pub fn shortage(error: &io::Error) -> Option<i32> {
    let short = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EBADF,
    ];
    error.raw_os_error().filter(|errno| short.contains(errno))
}

impl LinkError {
    /// See [`shortage`].
    pub fn shortage(&self) -> Option<i32> {
        match self {
            LinkError::Runtime { source, .. }
            | LinkError::Io { source, .. }
            | LinkError::Capture { source, .. } => shortage(source),
            LinkError::PortTaken { .. } | LinkError::NoQpnRange { .. } => None,
        }
    }

    /// Another process was at the registry: the same call may succeed in a moment.
    pub fn is_busy(&self) -> bool {
        matches!(self, LinkError::Runtime { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// A variable of the environment says what it cannot, and who sets it wants to know.
    pub fn variable(name: &'static str, why: impl std::fmt::Display) -> LinkError {
        LinkError::Io {
            what: name,
            source: io::Error::new(io::ErrorKind::InvalidInput, why.to_string()),
        }
    }

    /// For `map_err`: an [`LinkError::Io`] of what was tried.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> LinkError {
        move |source| LinkError::Io { what, source }
    }
}

impl From<HostError> for LinkError {
    fn from(error: HostError) -> LinkError {
        match error {
            HostError::NoQpnRange { live } => LinkError::NoQpnRange { live },
            HostError::Runtime { path, source } => LinkError::Runtime { path, source },
        }
    }
}

impl From<rnic_settings::Invalid> for LinkError {
    fn from(invalid: rnic_settings::Invalid) -> LinkError {
        LinkError::variable(invalid.variable, invalid.why)
    }
}
