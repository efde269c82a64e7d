//! `enum rdma_cm_event_type`: events of librdmacm (`rdma_get_cm_event(3)`).

use super::topic::{Kind, Topic};

const fn cm(number: u32, name: &'static str, meaning: &'static str) -> Topic {
    Topic {
        kind: Kind::Cm,
        number,
        name,
        text: "",
        meaning,
        side: "local",
        causes: &[],
        check: &[],
        follows: "Acknowledge it with rdma_ack_cm_event.",
    }
}

pub const TOPICS: &[Topic] = &[
    cm(
        0,
        "RDMA_CM_EVENT_ADDR_RESOLVED",
        "rdma_resolve_addr succeeded: the device is known. Next: rdma_resolve_route.",
    ),
    Topic {
        causes: &[
            "the address is on no RDMA device's interface: event status -19 (ENODEV), often 127.0.0.1 on hardware",
            "no route, or nobody answers ARP: -110 (ETIMEDOUT)",
        ],
        check: &["rnic devices; ip route get ADDRESS"],
        ..cm(
            1,
            "RDMA_CM_EVENT_ADDR_ERROR",
            "The address could not be resolved; the event's status is a negative errno.",
        )
    },
    cm(
        2,
        "RDMA_CM_EVENT_ROUTE_RESOLVED",
        "rdma_resolve_route succeeded. Next: make the queue pair, rdma_connect.",
    ),
    Topic {
        causes: &["no path to that address"],
        check: &["ip route get ADDRESS"],
        ..cm(
            3,
            "RDMA_CM_EVENT_ROUTE_ERROR",
            "The route could not be resolved.",
        )
    },
    cm(
        4,
        "RDMA_CM_EVENT_CONNECT_REQUEST",
        "Somebody wants to connect to this listener. Next: rdma_accept or rdma_reject.",
    ),
    cm(
        5,
        "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "The peer accepted, and the program manages the queue pair itself. Next: rdma_establish.",
    ),
    Topic {
        causes: &["modifying the queue pair failed, or the peer's answer made no sense"],
        ..cm(
            6,
            "RDMA_CM_EVENT_CONNECT_ERROR",
            "Connecting failed at this end; status is a negative errno.",
        )
    },
    Topic {
        causes: &["nobody answers: host down, no RDMA there, UDP port 4791 blocked"],
        check: &["ping PEER; tcpdump -ni any udp port 4791"],
        ..cm(
            7,
            "RDMA_CM_EVENT_UNREACHABLE",
            "The peer did not answer; status is a negative errno, -110 is a timeout.",
        )
    },
    Topic {
        causes: &[
            "status 8 (invalid service ID): nobody listens on that port (or in that port space) at that address",
            "status 28 (consumer reject): the application called rdma_reject; its private data may tell why",
            "status 24, 25 and others: parameters that the two sides do not agree on",
        ],
        check: &["is the server running, and bound to this address or to any?"],
        ..cm(
            8,
            "RDMA_CM_EVENT_REJECTED",
            "The peer's side refused; the event's status is the reason of the reject message.",
        )
    },
    cm(
        9,
        "RDMA_CM_EVENT_ESTABLISHED",
        "Connected: the queue pair may send.",
    ),
    Topic {
        causes: &["the peer called rdma_disconnect, ended, or was killed"],
        follows: "The queue pair is in ERR: what is posted is flushed (status 5). Acknowledge the event.",
        ..cm(
            10,
            "RDMA_CM_EVENT_DISCONNECTED",
            "The connection has ended.",
        )
    },
    cm(
        11,
        "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "The device is gone: destroy everything that belongs to it.",
    ),
    cm(
        12,
        "RDMA_CM_EVENT_MULTICAST_JOIN",
        "Joined the multicast group; the event has its address handle, QPN and Q_Key.",
    ),
    cm(
        13,
        "RDMA_CM_EVENT_MULTICAST_ERROR",
        "Joining the multicast group failed, or it is gone.",
    ),
    cm(
        14,
        "RDMA_CM_EVENT_ADDR_CHANGE",
        "The address's interface changed (bonding): connect again.",
    ),
    cm(
        15,
        "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        "The old connection's packets can no longer arrive: its QPN may be used again.",
    ),
];
