//! Errors that only libfabric has (`fi_errno(3)`): beyond those of the C library, and negative where
//! its calls return them.

use super::topic::{Kind, Topic};

const fn fabric(
    number: u32,
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
) -> Topic {
    Topic {
        kind: Kind::Fabric,
        number,
        name,
        text,
        meaning,
        side: "libfabric's own code; its providers give it, the verbs do not",
        causes,
        check: &[LOG],
        follows: "",
    }
}

const LOG: &str =
    "FI_LOG_LEVEL=warn PROGRAM      the provider's own words, often with the verb that failed";

pub const TOPICS: &[Topic] = &[
    fabric(
        256,
        "FI_EOTHER",
        "Unspecified error",
        "The provider names no reason.",
        &[],
    ),
    fabric(
        257,
        "FI_ETOOSMALL",
        "Provided buffer is too small",
        "A buffer for an address or for data is shorter than what goes into it.",
        &["the length that the program passed, for example to fi_getname"],
    ),
    fabric(
        258,
        "FI_EOPBADSTATE",
        "Operation not permitted in current state",
        "The endpoint or queue cannot do this now.",
        &["the endpoint is not enabled or not connected yet, or is shut down already"],
    ),
    Topic {
        check: &["call fi_cq_readerr: prov_errno and its text tell", LOG],
        ..fabric(
            259,
            "FI_EAVAIL",
            "Error available",
            "No failure by itself: an operation failed, and its entry waits in the error queue.",
            &[
                "what fi_cq_readerr or fi_eq_readerr returns; with the verbs its prov_errno is the work completion's status",
            ],
        )
    },
    fabric(
        260,
        "FI_EBADFLAGS",
        "Flags not supported",
        "The provider does not know a flag of the call.",
        &["a capability that fi_getinfo was not asked for"],
    ),
    fabric(
        261,
        "FI_ENOEQ",
        "Missing or unavailable event queue",
        "The endpoint has no event queue, and needs one to connect.",
        &["fi_ep_bind of an event queue is missing"],
    ),
    fabric(
        262,
        "FI_EDOMAIN",
        "Invalid resource domain",
        "Objects of two domains were put together.",
        &["memory, queues and endpoint must be of one fi_domain"],
    ),
    fabric(
        263,
        "FI_ENOCQ",
        "Missing or unavailable completion queue",
        "The endpoint has no completion queue for this direction.",
        &["fi_ep_bind of a completion queue with FI_TRANSMIT or FI_RECV is missing"],
    ),
    fabric(
        264,
        "FI_ECRC",
        "CRC error",
        "Data arrived damaged.",
        &["the network, or the provider"],
    ),
    fabric(
        265,
        "FI_ETRUNC",
        "Truncation error",
        "The message was longer than the receive buffer, and its rest is lost.",
        &["the two sides do not agree on sizes"],
    ),
    fabric(
        266,
        "FI_ENOKEY",
        "Required key not available",
        "There is no memory region of that key.",
        &["the region was closed, or the peer's key is stale"],
    ),
    fabric(
        267,
        "FI_ENOAV",
        "Missing or unavailable address vector",
        "The endpoint has no address vector, and needs one to name peers.",
        &["fi_ep_bind of an address vector is missing"],
    ),
    fabric(
        268,
        "FI_EOVERRUN",
        "Queue has been overrun",
        "A completion or event queue was full, and entries are lost.",
        &["the queue is smaller than what may be under way, or the program reads it too rarely"],
    ),
    fabric(
        269,
        "FI_ENORX",
        "Receiver not ready, no receive buffers available",
        "The peer had no receive posted.",
        &["the peer posts too late or too few: rnic explain 13"],
    ),
];
