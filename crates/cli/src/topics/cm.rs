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
            "status -19 (ENODEV): the way to that address starts on an interface without RDMA device (with rnic: without a usable \
             address), or the address bound to is on no device; on hardware often 127.0.0.1",
            "status -110 (ETIMEDOUT): nobody answers ARP or neighbour discovery",
            "status -101, -113 (ENETUNREACH, EHOSTUNREACH): no route",
        ],
        check: &["rnic devices; ip route get ADDRESS; ping ADDRESS"],
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
        causes: &[
            "status -110 (ETIMEDOUT): the resolution took longer than the timeout of rdma_resolve_route",
            "status -22 (EINVAL) or -2: the subnet administrator knows no path (InfiniBand only; RoCE needs none)",
        ],
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
        causes: &[
            "the id's queue pair could not be moved to RTR or RTS: status is the errno of ibv_modify_qp",
            "the peer's answer made no sense",
        ],
        check: &["RNIC_LOG=1 rnic run -- PROGRAM      says in words why each verb was refused"],
        ..cm(
            6,
            "RDMA_CM_EVENT_CONNECT_ERROR",
            "Connecting failed at this end; status is a negative errno.",
        )
    },
    Topic {
        causes: &[
            "status -110 (ETIMEDOUT): nobody answers. Host down, no RDMA on that address (nothing on UDP port 4791), port 4791 blocked by a \
             firewall; Linux and rnic give up after 16 tries, some 100 s",
            "status 1 to 5, UD only: the peer answered that it does not offer the service (rnic explain sidr 1): nobody listens there",
        ],
        check: &[
            "ping PEER; tcpdump -ni any udp port 4791      do requests leave, do answers come?",
            "on the peer: rnic devices, ibv_devices, ss -ulpn 'sport = 4791'",
        ],
        ..cm(
            7,
            "RDMA_CM_EVENT_UNREACHABLE",
            "The peer did not answer, or has no such service; status is a negative errno, or for UD the answer's status.",
        )
    },
    Topic {
        causes: &[
            "status 8 (invalid service ID): nobody listens on that port (or in that port space) at that address",
            "status 28 (consumer reject): the application called rdma_reject; its private data may tell why",
            "status 10 (stale connection): the peer still has an old connection to this queue pair; connect again",
            "status 12 (primary remote GID rejected): the address called is not one of the peer's GIDs",
            "others: parameters that the two sides do not agree on",
        ],
        check: &[
            "rnic explain rej STATUS      each reason",
            "is the server running, and bound to this address or to any?",
        ],
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
        causes: &[
            "the peer called rdma_disconnect, destroyed its id, ended, or was killed",
            "this program called rdma_disconnect, and the peer has answered",
        ],
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
    Topic {
        causes: &[
            "no interface of the device can join the group: status is a negative errno",
            "an IPv6 group: Linux's rdma_cm has none on RoCE (rdma_join_multicast fails with 524)",
        ],
        check: &["ip maddr; ip route get GROUP"],
        ..cm(
            13,
            "RDMA_CM_EVENT_MULTICAST_ERROR",
            "Joining the multicast group failed, or it is gone.",
        )
    },
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
