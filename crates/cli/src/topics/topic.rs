//! What there is to explain: one entry per number, name or code, in tables by kind.

use serde::{Serialize, Serializer};

/// Where a number comes from: the same 12 means different things in a completion and in errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `enum ibv_wc_status`.
    Status,
    /// errno of a verb.
    Errno,
    /// `enum ibv_event_type`.
    Event,
    /// `enum ibv_qp_state`.
    State,
    /// AETH syndrome of a negative acknowledgement.
    Nak,
    /// `ibv_wc.vendor_err`.
    Vendor,
    /// `enum ibv_wr_opcode`.
    Request,
    /// `enum rdma_cm_event_type`.
    Cm,
    /// Reason of a CM reject message.
    Reject,
    /// Status of the answer to a CM service ID resolution (UD).
    Sidr,
    /// An error of libfabric that no errno stands for.
    Fabric,
    /// `ucs_status_t` of UCX, without its sign.
    Ucx,
    /// A line that a program prints when something fails. It has no number.
    Program,
}

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Status,
        Kind::Errno,
        Kind::Event,
        Kind::State,
        Kind::Nak,
        Kind::Vendor,
        Kind::Request,
        Kind::Cm,
        Kind::Reject,
        Kind::Sidr,
        Kind::Fabric,
        Kind::Ucx,
        Kind::Program,
    ];

    /// The word to put before a number, on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Status => "wc",
            Kind::Errno => "errno",
            Kind::Event => "event",
            Kind::State => "state",
            Kind::Nak => "nak",
            Kind::Vendor => "vendor",
            Kind::Request => "wr",
            Kind::Cm => "cm",
            Kind::Reject => "rej",
            Kind::Sidr => "sidr",
            Kind::Fabric => "fi",
            Kind::Ucx => "ucs",
            Kind::Program => "program",
        }
    }

    /// What it is called in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Status => "work completion status",
            Kind::Errno => "errno of a verb or rdma_* call",
            Kind::Event => "asynchronous event",
            Kind::State => "queue pair state",
            Kind::Nak => "NAK (AETH syndrome)",
            Kind::Vendor => "vendor_err",
            Kind::Request => "work request opcode",
            Kind::Cm => "connection manager event",
            Kind::Reject => "reason of a CM reject (REJ)",
            Kind::Sidr => "status of a CM service ID resolution (SIDR_REP)",
            Kind::Fabric => "error of libfabric",
            Kind::Ucx => "status of UCX (ucs_status_t)",
            Kind::Program => "line of a program",
        }
    }

    /// Words that people and programs put before such a number.
    fn aliases(self) -> &'static [&'static str] {
        match self {
            Kind::Status => &["wc", "status", "completion", "wc_status", "ibv_wc_status"],
            Kind::Errno => &["errno", "err", "ret", "returned", "return", "retval"],
            Kind::Event => &["event", "async", "event_type", "ibv_event_type"],
            Kind::State => &["state", "qps", "qp_state", "ibv_qp_state"],
            Kind::Nak => &["nak", "aeth", "syndrome"],
            // perftest spells it "syndrom".
            Kind::Vendor => &[
                "vendor",
                "vendor_err",
                "vendor_error",
                "vend_err",
                "vend",
                "syndrom",
                "vendor_syndrome",
                "vendor-err",
            ],
            Kind::Request => &["wr", "opcode", "wr_opcode"],
            Kind::Cm => &["cm", "cm_event", "rdma_cm_event"],
            Kind::Reject => &["rej", "reject", "rejected", "reason", "ib_cm_rej"],
            Kind::Sidr => &["sidr", "sidr_rep", "ib_sidr"],
            Kind::Fabric => &["fi", "fi_errno", "libfabric"],
            Kind::Ucx => &["ucs", "ucs_status", "ucx"],
            Kind::Program => &["program"],
        }
    }

    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.aliases().contains(&word))
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One thing that can be explained.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Topic {
    pub kind: Kind,
    /// 0 for a line of a program.
    pub number: u32,
    /// As C programs spell it.
    pub name: &'static str,
    /// The string that the library gives for it, or that programs print.
    pub text: &'static str,
    /// What it says.
    pub meaning: &'static str,
    /// Whose doing it is, and who sees it.
    pub side: &'static str,
    /// Usual causes, the most likely first.
    pub causes: &'static [&'static str],
    /// What to look at, with which command.
    pub check: &'static [&'static str],
    /// What follows from it: states, flushes.
    pub follows: &'static str,
}
