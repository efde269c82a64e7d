//! `enum ibv_wc_status`: how a work request ended (IBTA vol. 1, 11.6.2).

use super::topic::{Kind, Topic};

const fn status(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Status,
        number,
        name,
        text,
        meaning: "",
        side: "",
        causes: &[],
        check: &[],
        follows: FAILED,
    }
}

const FAILED: &str = "The queue pair is in ERR (a UD or UC send queue: SQE); everything else posted to it completes as flushed \
                      (status 5). To go on: modify it to RESET and connect again.";
const RESERVED: &str =
    "Only for reliable datagram (RD), which no RoCE device has: you should not see it.";
const PCAP: &str = "rnic run --pcap trace.pcap -- PROGRAM      the packets, for Wireshark";
const AGAIN: &str =
    "rnic run -- PROGRAM      after a failure it names the work request, the memory and the peer";

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "The work request is done. On a send queue: the local buffer may be used again (not: the peer's program has seen \
                  the data). On a receive queue: the message is in the buffer.",
        side: "both",
        follows: "Nothing. If the data is not what you expect, look at byte_len, and at the buffer only after this completion.",
        ..status(0, "IBV_WC_SUCCESS", "success")
    },
    Topic {
        meaning: "The length does not fit: a message longer than the posted receive (receive queue), or a send longer than the port's \
                  largest message, on UD longer than the path MTU (send queue).",
        side: "local: this side's work request. The sender of a message that is too long for the receive sees status 9.",
        causes: &[
            "the receive buffer is smaller than what the peer sends (both sides must agree on sizes; UD needs 40 bytes more for the GRH)",
            "a UD message longer than the path MTU, or an RC message longer than 2 GiB",
            "an atomic whose buffer is not 8 bytes",
        ],
        check: &[AGAIN, "ibv_devinfo -v      max_msg_sz, active_mtu"],
        ..status(1, "IBV_WC_LOC_LEN_ERR", "local length error")
    },
    Topic {
        meaning: "The queue pair cannot do this work request as it stands.",
        side: "local: the requester's own queue pair",
        causes: &[
            "READ or atomic on a queue pair with max_rd_atomic 0",
            "an operation that the transport type does not have (READ on UD, atomics on UC), or READ with IBV_SEND_INLINE, where the \
             device lets that be posted: ibv_post_send of rnic refuses it with EINVAL",
            "memory or hardware trouble inside a NIC",
        ],
        check: &[AGAIN],
        ..status(2, "IBV_WC_LOC_QP_OP_ERR", "local QP operation error")
    },
    Topic {
        meaning: RESERVED,
        side: "local",
        follows: "-",
        ..status(
            3,
            "IBV_WC_LOC_EEC_OP_ERR",
            "local EE context operation error",
        )
    },
    Topic {
        meaning: "A scatter/gather entry of the work request names memory that this queue pair may not use.",
        side: "local: lkey, range or right of your own memory region. The peer never heard of a failed send; if a receive has this \
               status, its sender sees status 11.",
        causes: &[
            "addr..addr+length leaves the region of that lkey (off by a header, or sizes that do not match)",
            "the lkey is of another region, is an rkey of the peer, or is 0 because it was never set",
            "the region was deregistered, or the buffer freed, before the completion was polled",
            "the region lacks IBV_ACCESS_LOCAL_WRITE, which receives, READ and atomics need",
            "the region belongs to another protection domain than the queue pair",
        ],
        check: &[AGAIN],
        ..status(4, "IBV_WC_LOC_PROT_ERR", "local protection error")
    },
    Topic {
        meaning: "A consequence, never the cause: the work request was not done because the queue pair was in ERR.",
        side: "local",
        causes: &[
            "another work request of this queue pair failed first: its status tells why; it may be on the other completion queue, or was \
             not signaled and you overlooked its completion",
            "the program itself moved the queue pair to ERR (or disconnected) to drain it: then all is well",
            "as responder, the queue pair refused a request of the peer (asynchronous events 2 and 3)",
        ],
        check: &[
            "rnic run -- PROGRAM      names the work request that failed first",
            "print the first completion that is neither success nor 5, not the last one",
        ],
        follows: "Everything posted comes back with this status, in order. Reset the queue pair to use it again.",
        ..status(5, "IBV_WC_WR_FLUSH_ERR", "Work Request Flushed Error")
    },
    Topic {
        meaning: "Binding a memory window failed.",
        side: "local",
        causes: &[
            "the region lacks IBV_ACCESS_MW_BIND, or IBV_ACCESS_LOCAL_WRITE for a window that grants remote write",
            "the range leaves the region, or region and window are of different protection domains",
            "a type 2 window that is bound already, or a wrong rkey",
        ],
        check: &[AGAIN],
        ..status(6, "IBV_WC_MW_BIND_ERR", "memory management operation error")
    },
    Topic {
        meaning: "The peer answered with something that cannot be an answer to this request.",
        side: "seen by the requester; the peer's NIC or the network is wrong, or the two disagree on PSNs or path MTU",
        causes: &[
            "path_mtu differs between the two sides",
            "an answer of an earlier connection with the same QPN and PSNs: use random start PSNs",
            "a defect in one of the two NICs",
        ],
        check: &[PCAP],
        ..status(7, "IBV_WC_BAD_RESP_ERR", "bad response error")
    },
    Topic {
        meaning: "A protection error while a NIC placed incoming data of a request (iWARP and hardware-specific; not on RoCE).",
        side: "local, receive queue",
        causes: &["key, range or right of the local memory, as with status 4"],
        check: &[AGAIN],
        ..status(8, "IBV_WC_LOC_ACCESS_ERR", "local access error")
    },
    Topic {
        meaning: "The peer's NIC found the request invalid (NAK code 1).",
        side: "seen by the requester; the reason is at the responder",
        causes: &[
            "the message is longer than the receive that the peer had posted (the peer sees status 1)",
            "the peer's queue pair does not allow the operation: qp_access_flags lack REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC or FLUSH_*",
            "more READs or atomics at once than the peer takes: your max_rd_atomic is above its max_dest_rd_atomic",
            "an atomic whose remote address is not a multiple of 8",
            "path_mtu differs between the two sides, so that packet lengths look wrong",
        ],
        check: &[
            "rnic run -- PROGRAM      on the peer: it says what it refused and why",
            PCAP,
        ],
        ..status(9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request error")
    },
    Topic {
        meaning: "The peer's NIC refused access to its memory (NAK code 2).",
        side: "seen by the requester; the reason is at the responder: key, range or right of the peer's region",
        causes: &[
            "wrong rkey: stale (region registered again, peer restarted), of another region, or sent in the wrong byte order",
            "remote_addr..+length leaves the peer's region: wrong base address, or a size that both sides count differently",
            "the peer's region lacks IBV_ACCESS_REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC or FLUSH_*",
            "the peer deregistered the region too early",
            "the peer's region and queue pair belong to different protection domains",
        ],
        check: &[
            "rnic run -- PROGRAM      on the peer: it says which of these, with key and range",
            "compare rkey and address as the peer has them with those of the work request",
        ],
        follows: "Both queue pairs are in ERR; the peer gets the event IBV_EVENT_QP_ACCESS_ERR. Everything else posted is flushed.",
        ..status(10, "IBV_WC_REM_ACCESS_ERR", "remote access error")
    },
    Topic {
        meaning: "The peer's NIC could not do the operation for a reason of its own (NAK code 3).",
        side: "seen by the requester; at the responder a receive failed, usually with status 4",
        causes: &[
            "the peer's posted receive names memory that it may not write: lkey, range, LOCAL_WRITE",
            "the peer's memory is gone (unmapped, on-demand paging failed)",
        ],
        check: &["look at the peer's completions: the receive with status 4 is the cause"],
        ..status(11, "IBV_WC_REM_OP_ERR", "remote operation error")
    },
    Topic {
        meaning: "The peer's NIC did not acknowledge, although the packet was sent retry_cnt times more, each after the timeout \
                  (4.096 us x 2^timeout at least).",
        side: "seen by the requester; the peer is gone, or packets do not get there, or the answers do not come back",
        causes: &[
            "the peer process has ended, crashed, or destroyed its queue pair before this side was done",
            "the peer's queue pair is not in RTR or RTS yet: exchange a message after both sides have modified theirs",
            "wrong destination: QPN, GID or GID index (index 0 is often link-local or RoCE v1; both sides need the same kind)",
            "UDP port 4791 is blocked by a firewall, or a NAT rewrites the packets",
            "wrong start PSN: rq_psn of one side must be sq_psn of the other",
            "timeout and retry_cnt too small for a path that loses packets (14 and 7 are usual)",
        ],
        check: &[
            "rnic run -- PROGRAM      says how often it was sent, what came back, and whether the peer is still there",
            "rnic devices      addresses and GID indices of this host",
            "ping PEER; then: tcpdump -ni any udp port 4791      on both hosts",
            PCAP,
        ],
        ..status(
            12,
            "IBV_WC_RETRY_EXC_ERR",
            "transport retry counter exceeded",
        )
    },
    Topic {
        meaning: "The peer had no receive posted for a SEND or WRITE with immediate, rnr_retry times in a row.",
        side: "seen by the sender; the receiver posts too late or too little",
        causes: &[
            "receives are posted after the sender started: post them before moving to RTR, at least before telling the peer to begin",
            "the receiver reposts slower than messages come: more receives, or flow control by credits",
            "rnr_retry is 0 to 6; 7 waits for ever (and hangs for ever if nobody posts)",
            "min_rnr_timer of the receiver is very short, so that all retries pass within microseconds",
        ],
        check: &[
            "rnic run --stats -- PROGRAM      on the receiver: RNR NAKs sent",
            "rnic run --lint -- PROGRAM      finds receives that are posted too late",
        ],
        ..status(13, "IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded")
    },
    Topic {
        meaning: RESERVED,
        side: "local",
        follows: "-",
        ..status(14, "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation error")
    },
    Topic {
        meaning: RESERVED,
        side: "remote",
        follows: "-",
        ..status(15, "IBV_WC_REM_INV_RD_REQ_ERR", "remote invalid RD request")
    },
    Topic {
        meaning: "The peer aborted the operation (hardware-specific: a UD queue pair that was put in an error by a suspended peer, RD).",
        side: "seen by the requester",
        causes: &["the peer's queue pair was torn down in the middle of the operation"],
        check: &["look at the peer's completions and asynchronous events"],
        ..status(16, "IBV_WC_REM_ABORT_ERR", "aborted error")
    },
    Topic {
        meaning: RESERVED,
        side: "local",
        follows: "-",
        ..status(17, "IBV_WC_INV_EECN_ERR", "invalid EE context number")
    },
    Topic {
        meaning: RESERVED,
        side: "local",
        follows: "-",
        ..status(18, "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state")
    },
    Topic {
        meaning: "The device has failed.",
        side: "local",
        causes: &["the NIC was reset or removed; the event IBV_EVENT_DEVICE_FATAL tells"],
        check: &["dmesg      what the driver says"],
        follows: "Close everything and open the device again.",
        ..status(19, "IBV_WC_FATAL_ERR", "fatal error")
    },
    Topic {
        meaning: "An answer did not come in time (management datagrams, hardware-specific).",
        side: "seen by the requester",
        causes: &["the peer or the path to it is gone, as with status 12"],
        check: &["rnic explain 12"],
        ..status(20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout error")
    },
    Topic {
        meaning: "Something failed that has no status of its own; vendor_err is all there is.",
        side: "local or remote",
        causes: &["depends on the device"],
        check: &[
            "rnic explain vendor NUMBER",
            "dmesg      what the driver says",
        ],
        ..status(21, "IBV_WC_GENERAL_ERR", "general error")
    },
    Topic {
        meaning: "Tag matching of a shared receive queue failed (hardware tag matching only).",
        side: "local",
        causes: &["message longer than the tagged buffer, or wrong use of the tag-matching list"],
        check: &["ibv_post_srq_ops(3)"],
        ..status(22, "IBV_WC_TM_ERR", "TM error")
    },
    Topic {
        meaning: "Tag matching: the message must be fetched by software (rendezvous). Not an error.",
        side: "local",
        follows: "Nothing: fetch the message.",
        ..status(23, "IBV_WC_TM_RNDV_INCOMPLETE", "TM software rendezvous")
    },
];
