//! Reasons of the connection manager's reject message (IBTA vol. 1, 12.6.7.2): the status of
//! RDMA_CM_EVENT_REJECTED. And what a resolution of UD says instead (12.11): the status, if
//! positive, of RDMA_CM_EVENT_UNREACHABLE.

use super::topic::{Kind, Topic};

const fn reject(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Reject,
        number,
        name,
        text,
        meaning: "",
        side: "sent by the peer's connection manager, status of RDMA_CM_EVENT_REJECTED here",
        causes: &[],
        check: &[],
        follows: "There is no connection; rdma_connect of a synchronous id fails with ECONNREFUSED. Destroy the id: to try again needs a \
                  new one.",
    }
}

/// One of those that complain of a field of the path. On RoCE most of the fields mean nothing.
const fn path(number: u32, name: &'static str, text: &'static str, meaning: &'static str) -> Topic {
    Topic {
        meaning,
        causes: &[
            "an InfiniBand subnet's rule; on RoCE a defect of the peer's connection manager, or of ours",
        ],
        check: &[PCAP],
        ..reject(number, name, text)
    }
}

const fn sidr(number: u32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Sidr,
        number,
        name,
        text,
        meaning: "",
        side: "sent by the peer's connection manager, status of RDMA_CM_EVENT_UNREACHABLE of a UD id here",
        causes: &[],
        check: &[],
        follows: "The peer's QPN and Q_Key are not known. Destroy the id: to try again needs a new one.",
    }
}

const PCAP: &str = "rnic run --pcap FILE -- PROGRAM; tshark -r FILE      shows the CM's messages";
const LISTENERS: &str = "is the server up, on this port, this port space, and this address or any?";
const ALTERNATE: &str =
    "The same for the alternate path, which rnic never offers and RoCE does not use.";

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "The peer has no queue pair left to give.",
        causes: &["the peer's limit of queue pairs"],
        check: &["the peer's logs; ibv_devinfo -v there: max_qp"],
        ..reject(1, "IB_CM_REJ_NO_QP", "no QP available")
    },
    Topic {
        meaning: "Reliable datagram only, which no RoCE device has.",
        ..reject(2, "IB_CM_REJ_NO_EEC", "no EEC available")
    },
    Topic {
        meaning: "The peer lacks something, memory for example, to serve the request.",
        causes: &["too many connections at once; the listener's backlog is full"],
        check: &["the backlog of rdma_listen; how fast the server takes its events"],
        ..reject(3, "IB_CM_REJ_NO_RESOURCES", "no resources available")
    },
    Topic {
        meaning: "The peer gave up: it answered (REP), and heard nothing more (RTU), or its program took too long.",
        side: "sent by the peer's connection manager, when its own tries are used up",
        causes: &[
            "packets get lost in one direction: firewall, a wrong route back",
            "the program did not take RDMA_CM_EVENT_CONNECT_RESPONSE, or did not call rdma_establish",
        ],
        check: &[PCAP],
        ..reject(4, "IB_CM_REJ_TIMEOUT", "CM timeout")
    },
    Topic {
        meaning: "The peer does not do what was asked, in general.",
        causes: &["the peer's connection manager does not know the message or an option of it"],
        check: &[PCAP],
        ..reject(5, "IB_CM_REJ_UNSUPPORTED", "unsupported request")
    },
    Topic {
        meaning: "The peer has no connection of that number.",
        causes: &["it ended its side, or was started anew, while messages were under way"],
        check: &["did the peer restart?", PCAP],
        ..reject(6, "IB_CM_REJ_INVALID_COMM_ID", "invalid communication ID")
    },
    Topic {
        meaning: "The numbers of the two sides do not belong to the same connection.",
        causes: &["one side was started anew while messages were under way"],
        check: &["did the peer restart?", PCAP],
        ..reject(
            7,
            "IB_CM_REJ_INVALID_COMM_INSTANCE",
            "invalid communication instance",
        )
    },
    Topic {
        meaning: "Nobody listens there: no rdma_listen on that port, in that port space, at that address.",
        causes: &[
            "the server is not up yet, or has ended",
            "another port: rdma_cm's ports are its own, a TCP server on that port does not count",
            "another port space: RDMA_PS_TCP and RDMA_PS_UDP are apart, as TCP and UDP are",
            "the server listens on one address (rdma_bind_addr), and the request went to another one",
            "the server runs in another network namespace (container) than the address that was called",
        ],
        check: &[
            LISTENERS,
            "rnic run -- PROGRAM      at the end, which ports do listen",
        ],
        ..reject(8, "IB_CM_REJ_INVALID_SERVICE_ID", "invalid service ID")
    },
    Topic {
        meaning: "The listener's transport service is another one (RC, UC, XRC).",
        causes: &["qp_type of the two ids differ"],
        check: &["rdma_create_ep, rdma_create_qp: qp_type on both sides"],
        ..reject(
            9,
            "IB_CM_REJ_INVALID_TRANSPORT_TYPE",
            "invalid transport service type",
        )
    },
    Topic {
        meaning: "Stale connection: the peer still has a connection to that very queue pair.",
        causes: &[
            "this end was killed or restarted, and the peer has not noticed; it ends the old connection now",
            "a QPN was used again too early (before RDMA_CM_EVENT_TIMEWAIT_EXIT)",
            "with rnic also: the peer accepted with a queue pair that this end still has a connection to; this end refused that itself, \
             and ends the old connection now",
        ],
        check: &["connect again, with a new queue pair"],
        ..reject(10, "IB_CM_REJ_STALE_CONN", "stale connection")
    },
    Topic {
        meaning: "Reliable datagram only, which no RoCE device has.",
        ..reject(11, "IB_CM_REJ_RDC_NOT_EXIST", "RDC does not exist")
    },
    Topic {
        meaning: "The peer says that the GID that the request names is not its own.",
        causes: &[
            "a router or NAT (containers, port forwarding) carried the packet to a host whose address is another one",
            "the peer's kernel (Soft-RoCE) has lost or not yet got that address in its GID table; it is of another interface, or another \
             kind of GID (RoCE v1)",
        ],
        check: &[
            "on the peer: rnic devices, or ibv_devinfo -v: is the address you called among its GIDs?",
            PCAP,
        ],
        ..reject(12, "IB_CM_REJ_INVALID_GID", "primary remote GID rejected")
    },
    path(
        13,
        "IB_CM_REJ_INVALID_LID",
        "primary remote LID rejected",
        "The peer does not like the LID of the path (RoCE has none).",
    ),
    path(
        14,
        "IB_CM_REJ_INVALID_SL",
        "invalid primary SL",
        "The peer does not like the service level of the path.",
    ),
    path(
        15,
        "IB_CM_REJ_INVALID_TRAFFIC_CLASS",
        "invalid primary traffic class",
        "The peer does not like the traffic class of the path (rdma_set_option, RDMA_OPTION_ID_TOS).",
    ),
    path(
        16,
        "IB_CM_REJ_INVALID_HOP_LIMIT",
        "invalid primary hop limit",
        "The peer does not like the hop limit of the path.",
    ),
    path(
        17,
        "IB_CM_REJ_INVALID_PACKET_RATE",
        "invalid primary packet rate",
        "The peer does not like the packet rate of the path.",
    ),
    path(
        18,
        "IB_CM_REJ_INVALID_ALT_GID",
        "alternate remote GID rejected",
        ALTERNATE,
    ),
    path(
        19,
        "IB_CM_REJ_INVALID_ALT_LID",
        "alternate remote LID rejected",
        ALTERNATE,
    ),
    path(
        20,
        "IB_CM_REJ_INVALID_ALT_SL",
        "invalid alternate SL",
        ALTERNATE,
    ),
    path(
        21,
        "IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS",
        "invalid alternate traffic class",
        ALTERNATE,
    ),
    path(
        22,
        "IB_CM_REJ_INVALID_ALT_HOP_LIMIT",
        "invalid alternate hop limit",
        ALTERNATE,
    ),
    path(
        23,
        "IB_CM_REJ_INVALID_ALT_PACKET_RATE",
        "invalid alternate packet rate",
        ALTERNATE,
    ),
    Topic {
        meaning: "Ask another connection manager and port; the reject message names it.",
        causes: &[
            "a service that moves its clients to another port (InfiniBand); Linux does not follow it",
        ],
        check: &[PCAP],
        ..reject(24, "IB_CM_REJ_PORT_CM_REDIRECT", "port and CM redirection")
    },
    Topic {
        meaning: "Ask the same connection manager for another port; the reject message names it.",
        causes: &[
            "a service that moves its clients to another port (InfiniBand); Linux does not follow it",
        ],
        check: &[PCAP],
        ..reject(25, "IB_CM_REJ_PORT_REDIRECT", "port redirection")
    },
    Topic {
        meaning: "The peer cannot take packets of the path MTU that the request names.",
        causes: &["the MTU of the two ends' interfaces differ, and the smaller one is the peer's"],
        check: &["ip link      on both hosts; rnic devices"],
        ..reject(26, "IB_CM_REJ_INVALID_MTU", "invalid path MTU")
    },
    Topic {
        meaning: "The peer cannot serve so many READs and atomics at once.",
        causes: &["initiator_depth of rdma_conn_param is above the peer's max_qp_rd_atom"],
        check: &["ibv_devinfo -v      max_qp_rd_atom of both hosts"],
        ..reject(
            27,
            "IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES",
            "insufficient responder resources",
        )
    },
    Topic {
        meaning: "The application refused: it called rdma_reject, or destroyed the id of the request without an answer.",
        side: "sent by the peer's program, status of RDMA_CM_EVENT_REJECTED here",
        causes: &[
            "what the program tells in the event's private data: another version of its protocol, too many clients, ...",
            "the server failed when it made its queue pair: look at its output",
            "Linux also says so when the request's private data does not start with the IP header of rdma_cm, or that one's destination \
             is not its own",
        ],
        check: &[
            "the server's output and logs",
            "rnic run -- PROGRAM      at the end, with the private data",
        ],
        ..reject(28, "IB_CM_REJ_CONSUMER_DEFINED", "consumer reject")
    },
    Topic {
        meaning: "The peer does not like rnr_retry_count.",
        causes: &["a rule of the peer's program or connection manager"],
        check: &["rnr_retry_count of rdma_conn_param"],
        ..reject(
            29,
            "IB_CM_REJ_INVALID_RNR_RETRY",
            "RNR retry count rejected",
        )
    },
    Topic {
        meaning: "The peer already has a connection of that number from this host.",
        causes: &["this end was restarted and counts anew; a REQ was repeated with other contents"],
        check: &["connect again", PCAP],
        ..reject(
            30,
            "IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID",
            "duplicate local communication ID",
        )
    },
    Topic {
        meaning: "The peer's connection manager speaks another version of the protocol than ours (class version 2).",
        causes: &[
            "a peer older or newer than all that is in use; something else than RDMA listens on its UDP port 4791",
        ],
        check: &[PCAP],
        ..reject(
            31,
            "IB_CM_REJ_INVALID_CLASS_VERSION",
            "unsupported class version",
        )
    },
    path(
        32,
        "IB_CM_REJ_INVALID_FLOW_LABEL",
        "invalid primary flow label",
        "The peer does not like the flow label of the path.",
    ),
    path(
        33,
        "IB_CM_REJ_INVALID_ALT_FLOW_LABEL",
        "invalid alternate flow label",
        ALTERNATE,
    ),
    Topic {
        meaning: "The peer's program does not take the vendor's extension that was offered (ECE).",
        side: "sent by the peer's program (rdma_reject_ece), status of RDMA_CM_EVENT_REJECTED here",
        causes: &["rdma_set_local_ece with options that the peer's device does not have"],
        check: &["connect without rdma_set_local_ece"],
        ..reject(
            35,
            "IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED",
            "vendor option is not supported",
        )
    },
    Topic {
        meaning: "The peer does not offer that service to datagrams: nobody listens there.",
        causes: &[
            "the server is not up, or listens on another port or address",
            "it listens in another port space (RDMA_PS_TCP instead of RDMA_PS_UDP)",
        ],
        check: &[LISTENERS],
        ..sidr(1, "IB_SIDR_UNSUPPORTED", "service ID not supported")
    },
    Topic {
        meaning: "The application refused: rdma_reject of a request in RDMA_PS_UDP.",
        causes: &["what the program tells in the event's private data"],
        check: &["the server's output and logs"],
        ..sidr(2, "IB_SIDR_REJECT", "rejected by service provider")
    },
    Topic {
        meaning: "The service has no queue pair to give.",
        causes: &["the server has not made its queue pair (rdma_create_qp) before rdma_accept"],
        check: &["the server's output and logs"],
        ..sidr(3, "IB_SIDR_NO_QP", "no QP available for datagrams")
    },
    Topic {
        meaning: "Ask elsewhere; the message says where.",
        causes: &["a service that moves its clients (InfiniBand); Linux does not follow it"],
        check: &[PCAP],
        ..sidr(4, "IB_SIDR_REDIRECT", "redirected")
    },
    Topic {
        meaning: "The peer's connection manager speaks another version of the protocol.",
        causes: &["a peer older or newer than all that is in use"],
        check: &[PCAP],
        ..sidr(5, "IB_SIDR_UNSUPPORTED_VERSION", "unsupported version")
    },
];
