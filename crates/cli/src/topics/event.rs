//! `enum ibv_event_type`: what the device tells beside completions (`ibv_get_async_event(3)`).

use super::topic::{Kind, Topic};

const fn event(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Event,
        number,
        name,
        text,
        meaning: "",
        side: "local",
        causes: &[],
        check: &[],
        follows: "Call ibv_ack_async_event, else destroying the object waits for ever.",
    }
}

const BROKEN: &str = "The queue pair is in ERR; everything posted completes as flushed (status 5). Acknowledge the event, reset the \
                      queue pair or destroy it.";
const REFUSED: &str =
    "rnic run -- PROGRAM      says what was refused and why, when the program ends";

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "The completion queue overran: a completion came when it was full, and is lost.",
        causes: &[
            "the completion queue is smaller than the depths of the queues that feed it (send plus receive, of all its queue pairs)",
            "the program polls too rarely, or stops polling while the peer goes on",
        ],
        check: &["rnic run --lint -- PROGRAM      compares the sizes"],
        follows: "Completions are lost for good, and the queue pairs that should have had them are in ERR (IBV_EVENT_QP_FATAL). \
                  What the queue holds can still be polled; then it stays empty.",
        ..event(0, "IBV_EVENT_CQ_ERR", "CQ error")
    },
    Topic {
        meaning: "The queue pair broke without a work request to blame.",
        causes: &["its completion queue overran", "a failure inside the NIC"],
        check: &[REFUSED],
        follows: BROKEN,
        ..event(
            1,
            "IBV_EVENT_QP_FATAL",
            "local work queue catastrophic error",
        )
    },
    Topic {
        meaning: "As responder, the queue pair got a request that is invalid; the peer sees status 9.",
        side: "local, caused by the peer's request",
        causes: &[
            "qp_access_flags of this queue pair lack the operation that the peer tried",
            "the peer has more READs or atomics under way than max_dest_rd_atomic",
            "an unaligned atomic; an opcode out of sequence; path_mtu different on both sides",
        ],
        check: &[REFUSED],
        follows: BROKEN,
        ..event(
            2,
            "IBV_EVENT_QP_REQ_ERR",
            "invalid request local work queue error",
        )
    },
    Topic {
        meaning: "As responder, the queue pair refused the peer access to memory; the peer sees status 10.",
        side: "local, caused by the peer's request",
        causes: &[
            "the peer used a wrong or stale rkey, or left the region",
            "the region lacks the remote right, belongs to another protection domain, or was deregistered",
        ],
        check: &[REFUSED],
        follows: BROKEN,
        ..event(
            3,
            "IBV_EVENT_QP_ACCESS_ERR",
            "local access violation work queue error",
        )
    },
    Topic {
        meaning: "The first packet arrived on a queue pair in RTR: the peer is there. No error.",
        follows: "A server may move to RTS now.",
        ..event(4, "IBV_EVENT_COMM_EST", "communication established")
    },
    Topic {
        meaning: "The send queue, moved to SQD, has finished what was under way. No error.",
        follows: "Attributes may be changed now; then modify back to RTS.",
        ..event(5, "IBV_EVENT_SQ_DRAINED", "send queue drained")
    },
    Topic {
        meaning: "The connection moved to its alternate path (InfiniBand; RoCE has no such thing).",
        follows: "Load a new alternate path.",
        ..event(6, "IBV_EVENT_PATH_MIG", "path migrated")
    },
    Topic {
        meaning: "Moving to the alternate path failed (InfiniBand; RoCE has no such thing).",
        ..event(7, "IBV_EVENT_PATH_MIG_ERR", "path migration request error")
    },
    Topic {
        meaning: "The device has failed or was removed.",
        causes: &["driver reset, hot unplug, firmware crash"],
        check: &["dmesg"],
        follows: "All objects of it are dead: destroy them, close, open again.",
        ..event(8, "IBV_EVENT_DEVICE_FATAL", "local catastrophic error")
    },
    Topic {
        meaning: "The port came up.",
        check: &["rnic devices", "ip link"],
        ..event(9, "IBV_EVENT_PORT_ACTIVE", "port active")
    },
    Topic {
        meaning: "The port went down: nothing is sent or received until it is up; retries may run out (status 12).",
        causes: &["the network interface was set down, or lost its carrier or last address"],
        check: &["ip link; ip addr; rnic devices"],
        ..event(10, "IBV_EVENT_PORT_ERR", "port error")
    },
    Topic {
        meaning: "The port's LID changed (InfiniBand).",
        follows: "Connect again.",
        ..event(11, "IBV_EVENT_LID_CHANGE", "LID change")
    },
    Topic {
        meaning: "The port's P_Key table changed.",
        follows: "Look up P_Key indices again.",
        ..event(12, "IBV_EVENT_PKEY_CHANGE", "P_Key change")
    },
    Topic {
        meaning: "The subnet manager changed (InfiniBand).",
        ..event(13, "IBV_EVENT_SM_CHANGE", "SM change")
    },
    Topic {
        meaning: "A shared receive queue failed.",
        causes: &["a failure inside the NIC"],
        follows: "Its queue pairs cannot receive: destroy them and it.",
        ..event(14, "IBV_EVENT_SRQ_ERR", "SRQ catastrophic error")
    },
    Topic {
        meaning: "The receives in the shared receive queue fell below its limit. No error: time to post more.",
        follows: "The limit is off now: post, then arm it again with ibv_modify_srq.",
        ..event(15, "IBV_EVENT_SRQ_LIMIT_REACHED", "SRQ limit reached")
    },
    Topic {
        meaning: "A queue pair with a shared receive queue is in ERR and takes no receive from it any more.",
        follows: "The queue pair may be destroyed without losing a receive.",
        ..event(16, "IBV_EVENT_QP_LAST_WQE_REACHED", "last WQE reached")
    },
    Topic {
        meaning: "The subnet manager asks to register again (InfiniBand).",
        ..event(17, "IBV_EVENT_CLIENT_REREGISTER", "client reregistration")
    },
    Topic {
        meaning: "The GID table changed: an address was added or removed.",
        causes: &["ip addr add or del; DHCP; a container network that came or went"],
        check: &["rnic devices      GID indices now"],
        follows: "Look up the GID index again; connections over a removed address stop.",
        ..event(18, "IBV_EVENT_GID_CHANGE", "GID table change")
    },
    Topic {
        meaning: "A raw work queue failed (raw packet queue pairs).",
        ..event(19, "IBV_EVENT_WQ_FATAL", "WQ fatal")
    },
];
