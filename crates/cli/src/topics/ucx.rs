//! `ucs_status_t`: what the calls of UCX return, as negative numbers.

use super::topic::{Kind, Topic};

const fn ucs(
    number: u32,
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
) -> Topic {
    Topic {
        kind: Kind::Ucx,
        number,
        name,
        text,
        meaning,
        side: "UCX's own code; the line of its transport before this one names the verb or the status",
        causes,
        check: &[LOG, DEVICES],
        follows: "",
    }
}

const LOG: &str =
    "UCX_LOG_LEVEL=info PROGRAM      which transports UCX takes, and what it says of them";
const DEVICES: &str = "rnic run -- ucx_info -d      the transports and devices that UCX finds";

pub const TOPICS: &[Topic] = &[
    ucs(
        3,
        "UCS_ERR_IO_ERROR",
        "",
        "A system call, or a transport, failed.",
        &["the verb or the work completion that the line before this one names"],
    ),
    ucs(
        4,
        "UCS_ERR_NO_MEMORY",
        "Out of memory",
        "Memory is short, or could not be registered.",
        &["on hardware: above RLIMIT_MEMLOCK (`ulimit -l`), which rnic does not need"],
    ),
    ucs(
        5,
        "UCS_ERR_INVALID_PARAM",
        "Invalid parameter",
        "An argument, or a UCX_* variable, has a value that does not fit.",
        &["a UCX_* variable that names something that is not there"],
    ),
    ucs(
        6,
        "UCS_ERR_UNREACHABLE",
        "Destination is unreachable",
        "The two sides have no transport in common that reaches the peer.",
        &[
            "UCX_TLS or UCX_NET_DEVICES leave out the transport or the device on one side",
            "one side runs under `rnic run`, the other not",
            "the two GIDs are of different kinds (UCX_IB_GID_INDEX), or there is no route between them",
        ],
    ),
    ucs(
        9,
        "UCS_ERR_MESSAGE_TRUNCATED",
        "Message truncated",
        "The message was longer than the posted receive.",
        &["the two sides do not agree on sizes"],
    ),
    ucs(
        14,
        "UCS_ERR_NO_DEVICE",
        "",
        "UCX found no device that it may use.",
        &[
            "UCX_NET_DEVICES names a device that is not there: that of rnic is rnic0:1",
            "the program was started without `rnic run`",
        ],
    ),
    ucs(
        16,
        "UCS_ERR_CANCELED",
        "Request canceled",
        "A request was given up, most likely because its endpoint failed or was closed.",
        &["an earlier error of the same endpoint"],
    ),
    ucs(
        20,
        "UCS_ERR_TIMED_OUT",
        "Operation timed out",
        "The peer did not answer in time.",
        &["the peer ended, or packets do not get there or back: rnic explain 12"],
    ),
    ucs(
        22,
        "UCS_ERR_UNSUPPORTED",
        "Unsupported operation",
        "The transport or the device lacks what was asked for.",
        &["an extension of one vendor's devices; a feature that UCX_TLS leaves no transport for"],
    ),
    ucs(
        23,
        "UCS_ERR_REJECTED",
        "Operation rejected by remote peer",
        "The peer refused the connection.",
        &["no listener at this address and port, or the peer's program called ucp_listener_reject"],
    ),
    ucs(
        24,
        "UCS_ERR_NOT_CONNECTED",
        "Endpoint is not connected",
        "The endpoint is not connected yet, or not any more.",
        &["the peer closed its endpoint or ended"],
    ),
    ucs(
        25,
        "UCS_ERR_CONNECTION_RESET",
        "Connection reset by remote peer",
        "The peer ended the connection: it closed its endpoint, ended or crashed.",
        &["the terminal of the other side tells why it ended"],
    ),
    ucs(
        80,
        "UCS_ERR_ENDPOINT_TIMEOUT",
        "Endpoint timeout",
        "The peer acknowledged nothing for too long. On UD transports UCX itself does what a NIC does on RC.",
        &[
            "the peer ended, or packets do not get there or back: rnic explain 12",
            "UCX_UD_TIMEOUT, UCX_RC_TIMEOUT or the retry counts are too small for the path",
        ],
    ),
];
