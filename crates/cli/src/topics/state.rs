//! `enum ibv_qp_state` (IBTA vol. 1, 10.3.1).

use super::topic::{Kind, Topic};

const fn state(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::State,
        number,
        name,
        text,
        meaning: "",
        side: "local",
        causes: &[],
        check: &[],
        follows: "",
    }
}

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "As created. Nothing can be posted.",
        follows: "ibv_modify_qp to INIT: IBV_QP_STATE | PKEY_INDEX | PORT, and ACCESS_FLAGS (RC, UC) or QKEY (UD).",
        ..state(0, "IBV_QPS_RESET", "reset")
    },
    Topic {
        meaning: "Receives may be posted; nothing is received yet. Post them here: a peer may send as soon as this side is in RTR.",
        follows: "To RTR. RC: IBV_QP_STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER; UC: without the last \
                  two; UD: STATE only. On RoCE the AV needs is_global = 1, dgid and sgid_index.",
        ..state(1, "IBV_QPS_INIT", "initialized")
    },
    Topic {
        meaning: "Ready to receive: requests of the peer are executed and answered. Sending is not possible yet.",
        causes: &[
            "\"Failed to modify QP to RTR\": is_global is 0, a wrong sgid_index, a zero or unreachable dgid, IPv4 and IPv6 mixed, or a \
             path_mtu that the network does not carry",
        ],
        check: &[
            "rnic run -- PROGRAM      gives the reason in words",
            "rnic devices      GID indices and MTU",
        ],
        follows: "To RTS. RC: IBV_QP_STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC; UC and UD: STATE | SQ_PSN.",
        ..state(2, "IBV_QPS_RTR", "ready to receive")
    },
    Topic {
        meaning: "Ready to send: the working state.",
        follows: "An error of a work request or a refused request leads to ERR (send errors on UC and UD: SQE).",
        ..state(3, "IBV_QPS_RTS", "ready to send")
    },
    Topic {
        meaning: "Send queue drained (or draining): what is posted waits, what was begun ends; IBV_EVENT_SQ_DRAINED tells when. Receiving \
                  goes on.",
        follows: "ibv_modify_qp back to RTS.",
        ..state(4, "IBV_QPS_SQD", "send queue drained")
    },
    Topic {
        meaning: "Send queue error (UC and UD only): a send failed, later sends were flushed; receiving goes on.",
        causes: &["status 1 or 4 of a send: length or local memory"],
        follows: "ibv_modify_qp to RTS with IBV_QP_CUR_STATE, once the completions are polled.",
        ..state(5, "IBV_QPS_SQE", "send queue error")
    },
    Topic {
        meaning: "Error: everything posted completes as flushed (status 5); packets are ignored, so the peer will see status 12.",
        causes: &[
            "a work request failed: the first completion that is neither success nor 5",
            "a request of the peer was refused: events IBV_EVENT_QP_REQ_ERR and IBV_EVENT_QP_ACCESS_ERR",
            "the program (or the connection manager's disconnect) moved it here",
        ],
        check: &["rnic run -- PROGRAM      names what failed first"],
        follows: "ibv_modify_qp to RESET, or destroy it.",
        ..state(6, "IBV_QPS_ERR", "error")
    },
];
