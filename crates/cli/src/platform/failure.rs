//! Errors as people read them: what happened, the most likely cause, what to do next.

use std::error::Error;
use std::io;

/// Why the program ends without success.
#[derive(Debug)]
pub struct Failure {
    what: String,
    cause: Option<String>,
    next: Option<String>,
    /// Printed behind the words.
    machine_line: Option<String>,
    /// Exit status.
    pub status: u8,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// What happened.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            cause: None,
            next: None,
            machine_line: None,
            status: 1,
        }
    }

    /// The most likely cause.
    pub fn cause(mut self, cause: impl Into<String>) -> Failure {
        self.cause = Some(cause.into());
        self
    }

    /// The next command.
    pub fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// With another exit status than 1.
    pub fn status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// Says in front what was being done.
    pub fn during(mut self, what: &str) -> Failure {
        self.what = format!("{what}: {}", self.what);
        self
    }

    /// With a line of JSON behind the words, for who reads the last line of stderr.
    pub fn machine_line(mut self, line: String) -> Failure {
        self.machine_line = Some(line);
        self
    }

    /// In the form of what is said of a program that failed (docs/json.md).
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "what": self.what,
            "seen": [],
            "cause": self.cause,
            "next": self.next.iter().collect::<Vec<_>>(),
        })
    }

    /// Prints it to stderr.
    pub fn print(&self) {
        crate::remark!("{self}");
        if let Some(line) = &self.machine_line {
            crate::remark!("{line}");
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rnic: {}", self.what)?;
        if let Some(cause) = &self.cause {
            write!(f, "\n  cause: {cause}")?;
        }
        if let Some(next) = &self.next {
            write!(f, "\n  next:  {next}")?;
        }
        Ok(())
    }
}

impl From<rnic::Error> for Failure {
    fn from(error: rnic::Error) -> Failure {
        if let rnic::Error::Completion(error) = error {
            return Failure::from(error);
        }
        let failure = Failure::new(error.to_string());
        match &error {
            rnic::Error::Verb { verb, source, .. } => {
                let failure = match failure.what.contains(&source.to_string()) {
                    true => failure,
                    false => failure.cause(source.to_string()),
                };
                match (*verb, source.raw_os_error()) {
                    ("ibv_open_device", Some(libc::EADDRINUSE)) => failure.next(
                        "stop that program, or run as the same user; a Soft-RoCE of the kernel is shown by `rdma link` and \
                         removed by `rdma link delete NAME`",
                    ),
                    _ => failure,
                }
            }
            rnic::Error::Exchange { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => failure
                .cause("the other process ended early; it has said why above or on its own terminal"),
            rnic::Error::Timeout(_) => failure
                .cause("the other process is gone or hangs, or packets to UDP port 4791 are dropped (a firewall?)")
                .next("`rnic devices` shows addresses and whether the port can be used"),
            _ => match error.source() {
                Some(source) => failure.cause(source.to_string()),
                None => failure,
            },
        }
    }
}

impl From<rnic::CompletionError> for Failure {
    fn from(error: rnic::CompletionError) -> Failure {
        let failure = Failure::new(format!(
            "work request {} of QP {:#x} failed with status {} ({:?})",
            error.id, error.qpn, error.status as u32, error.status
        ))
        .cause(rnic::usual_cause(error.status));
        match error.status {
            rnic::Status::RetryExceeded | rnic::Status::WorkRequestFlushed => failure.next(
                "see what the other process says; RNIC_PCAP=trace.pcap keeps the packets of a run, for `rnic dissect trace.pcap`",
            ),
            _ => failure
                .next("RNIC_PCAP=trace.pcap keeps the packets of a run, which `rnic dissect trace.pcap` explains"),
        }
    }
}

impl From<rnic::PostError> for Failure {
    fn from(error: rnic::PostError) -> Failure {
        Failure::from(error.error)
    }
}

impl From<rnic::RecvError> for Failure {
    fn from(error: rnic::RecvError) -> Failure {
        Failure::from(error.error)
    }
}

impl From<rnic::RequestError> for Failure {
    fn from(error: rnic::RequestError) -> Failure {
        Failure::from(error.error)
    }
}

impl<M> From<rnic::AdoptError<M>> for Failure {
    fn from(error: rnic::AdoptError<M>) -> Failure {
        Failure::from(error.error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}
