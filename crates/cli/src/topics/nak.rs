//! Negative acknowledgements: AETH syndromes (IBTA vol. 1, 9.7.5.2).

use super::topic::{Kind, Topic};

const fn nak(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Nak,
        number,
        name,
        text,
        meaning: "",
        side: "sent by the responder's NIC, seen by the requester's",
        causes: &[],
        check: &[],
        follows: "",
    }
}

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "Receiver not ready: no receive is posted for a SEND or WRITE with immediate. The low five bits (0x20 to 0x3f) are the \
                  timer code: how long to wait before the next try (1 is 0.01 ms, 12 is 0.64 ms, 31 is 491.52 ms, 0 is 655.36 ms).",
        causes: &[
            "the receiver posts late or too few",
            "a burst of the sender is longer than the receive queue",
        ],
        check: &[
            "rnic run --stats -- PROGRAM      counts RNR NAKs",
            "rnic explain 13",
        ],
        follows: "The sender waits and sends again, rnr_retry times (7: for ever); then status 13.",
        ..nak(0x20, "RNR NAK", "receiver not ready")
    },
    Topic {
        meaning: "PSN sequence error: a packet is missing; send again from the PSN named.",
        causes: &[
            "packets were lost or overtook one another on the way (a few are normal on a lossy network)",
            "the start PSNs disagree: rq_psn of one side must be sq_psn of the other",
        ],
        check: &[
            "rnic run --stats -- PROGRAM      retransmissions and NAKs by kind",
            "ethtool -S INTERFACE      drops; PFC pauses",
        ],
        follows: "The requester goes back and sends again; nothing completes with an error until retry_cnt is used up (status 12).",
        ..nak(0x60, "NAK PSN sequence error", "PSN sequence error")
    },
    Topic {
        meaning: "Invalid request: the responder's queue pair does not do this.",
        causes: &[
            "message longer than the posted receive",
            "qp_access_flags lack the operation; more READs than max_dest_rd_atomic; unaligned atomic; wrong opcode or length of a packet",
        ],
        check: &["rnic explain 9"],
        follows: "The requester's work request completes with status 9; both queue pairs go to ERR.",
        ..nak(0x61, "NAK invalid request", "invalid request")
    },
    Topic {
        meaning: "Remote access error: key, range or right of the responder's memory.",
        causes: &[
            "rkey unknown or stale; range leaves the region; right missing; other protection domain",
        ],
        check: &["rnic explain 10"],
        follows: "The requester's work request completes with status 10; both queue pairs go to ERR.",
        ..nak(0x62, "NAK remote access error", "remote access error")
    },
    Topic {
        meaning: "Remote operational error: the responder failed at its own end.",
        causes: &["the posted receive names memory that may not be written; the memory is gone"],
        check: &["rnic explain 11"],
        follows: "The requester's work request completes with status 11; both queue pairs go to ERR.",
        ..nak(
            0x63,
            "NAK remote operational error",
            "remote operational error",
        )
    },
    Topic {
        meaning: "Invalid RD request: reliable datagram only, which no RoCE device has.",
        follows: "On RC it means nothing: status 7.",
        ..nak(0x64, "NAK invalid RD request", "invalid RD request")
    },
];
