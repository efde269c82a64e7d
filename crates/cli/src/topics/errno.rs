//! errno of the verbs: the same number means something else in each.

use super::topic::{Kind, Topic};

const fn errno(number: i32, name: &'static str, text: &'static str) -> Topic {
    Topic {
        kind: Kind::Errno,
        number: number as u32,
        name,
        text,
        meaning: "",
        side: "local: the call did nothing, the peer knows nothing of it",
        causes: &[],
        check: &[WORDS],
        follows: "States are what they were.",
    }
}

const WORDS: &str = "RNIC_LOG=1 rnic run -- PROGRAM      says in words why each verb was refused";

pub const TOPICS: &[Topic] = &[
    Topic {
        meaning: "Not permitted.",
        causes: &[
            "ibv_bind_mw: window, region and queue pair are not of one protection domain; ibv_advise_mr: the region is of another one, or is \
             not to be written",
            "ibv_modify_qp on hardware: a Q_Key with its highest bit set, or raw packets, need CAP_NET_RAW",
            "ibv_open_device on hardware: no permission for /dev/infiniband/uverbs*",
        ],
        ..errno(libc::EPERM, "EPERM", "Operation not permitted")
    },
    Topic {
        meaning: "There is no such thing.",
        causes: &[
            "ibv_get_device_list on hardware: no RDMA driver or no /sys/class/infiniband",
            "ibv_import_pd, ibv_import_mr, ibv_import_dm: this process has nothing of that number",
            "ibv_start_poll, ibv_next_poll: no completion waits. No error",
            "ibv_advise_mr: the lkey is of no region with on-demand paging",
            "rdma_* calls: the id is destroyed",
        ],
        check: &["rnic run -- ibv_devices      on rnic there is always rnic0"],
        ..errno(libc::ENOENT, "ENOENT", "No such file or directory")
    },
    Topic {
        meaning: "A signal came while the call waited (ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event).",
        causes: &["a handler without SA_RESTART: call again"],
        ..errno(libc::EINTR, "EINTR", "Interrupted system call")
    },
    Topic {
        meaning: "Input/output error.",
        causes: &[
            "the device has failed (hardware)",
            "a defect of rnic itself: its panic message is on standard error; please report it",
        ],
        // Not ibv_poll_cq of a queue that overran: that finds no more completions, and events tell.
        check: &[WORDS, "dmesg      what the driver says (hardware)"],
        ..errno(libc::EIO, "EIO", "Input/output error")
    },
    Topic {
        meaning: "Nothing there now.",
        causes: &[
            "ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event on a non-blocking descriptor: no event waits; poll(2) it first",
            "ibv_open_xrcd: nobody has opened the domain of this file yet, and O_CREAT is missing",
            "ibv_reg_mr on hardware: too much locked memory (some kernels)",
        ],
        ..errno(libc::EAGAIN, "EAGAIN", "Resource temporarily unavailable")
    },
    Topic {
        meaning: "No room: in a queue, or within a limit. Rarely is it memory.",
        causes: &[
            "ibv_post_send: the send queue is full. Poll completions; unsignaled requests are freed only by a later signaled one, so signal \
             at least one per queue depth",
            "ibv_post_recv: the receive queue is full (max_recv_wr)",
            "ibv_post_send: more SGEs than max_send_sge, more inline data than max_inline_data (rnic and ConnectX; EINVAL elsewhere)",
            "ibv_reg_mr on hardware: above RLIMIT_MEMLOCK (`ulimit -l`), which rnic does not need",
            "ibv_create_qp, ibv_create_cq: larger than the device allows, or (hardware) above RLIMIT_MEMLOCK",
        ],
        check: &[
            "ulimit -l      KiB that may be locked",
            "rnic run --lint -- PROGRAM      finds both before hardware does",
            WORDS,
        ],
        follows: "ibv_post_*: *bad_wr is the first request that was not taken; those before it were.",
        ..errno(libc::ENOMEM, "ENOMEM", "Cannot allocate memory")
    },
    Topic {
        meaning: "Permission denied.",
        causes: &[
            "/dev/infiniband/* not accessible (hardware)",
            "rdma_bind_addr: a port below 1024 (net.ipv4.ip_unprivileged_port_start) without CAP_NET_BIND_SERVICE",
            "ibv_reg_mr on hardware: write access to memory that is mapped read-only",
        ],
        ..errno(libc::EACCES, "EACCES", "Permission denied")
    },
    Topic {
        meaning: "Bad address.",
        causes: &[
            "ibv_reg_mr: part of addr..addr+length is not mapped, or is read-only although a write right was asked for",
            "memory that cannot be pinned: device memory without peer-memory support, some file mappings",
        ],
        ..errno(libc::EFAULT, "EFAULT", "Bad address")
    },
    Topic {
        meaning: "The object is still in use.",
        causes: &[
            "ibv_dealloc_pd: queue pairs, regions, windows or address handles of it are left",
            "ibv_destroy_cq: queue pairs still use it; ibv_destroy_srq likewise; ibv_destroy_comp_channel: completion queues",
            "ibv_destroy_qp: it is still attached to a multicast group (ibv_detach_mcast)",
            "ibv_free_dm: regions of it are left; ibv_close_xrcd: queue pairs or shared receive queues",
            "ibv_dereg_mr: memory windows are bound to it",
        ],
        check: &[
            "destroy in the reverse order of creation: queue pairs, then completion queues and regions, then the protection domain",
        ],
        ..errno(libc::EBUSY, "EBUSY", "Device or resource busy")
    },
    Topic {
        meaning: "No such device.",
        causes: &[
            "ibv_open_device: no network interface is up with an address (rnic), or the device is gone",
            "the object was made before fork(2) or daemon(3) and is the parent's. A child may go on with a context and a protection domain; \
             what else it needs it makes itself, ids and event channels of rdma_cm too",
            "rdma_create_event_channel, rdma_getaddrinfo, rdma_bind_addr, rdma_resolve_addr: no RDMA device, or none on that address's \
             interface",
        ],
        check: &[
            "rnic devices      which addresses are on the device",
            "ip addr; ip route get ADDRESS      on which interface the address is, or the way to it starts",
            WORDS,
        ],
        ..errno(libc::ENODEV, "ENODEV", "No such device")
    },
    Topic {
        meaning: "An argument or attribute is wrong, missing, or not possible in this state.",
        causes: &[
            "ibv_modify_qp to RTR: is_global is 0 (RoCE needs a GRH), wrong sgid_index, zero dgid, path_mtu above the network's, a missing \
             bit in the mask",
            "ibv_modify_qp: this transition does not exist, or the mask has a bit that it does not allow",
            "ibv_create_qp: sizes above the device's (max_qp_wr, max_sge, max_inline_data)",
            "ibv_post_send: the queue pair is not in RTS yet, it has no such operation (READ on UC, a datagram without address handle), \
             READ or atomic with IBV_SEND_INLINE",
            "ibv_post_recv: the queue pair is in RESET, has a shared receive queue, or more SGEs than max_recv_sge",
            "ibv_reg_mr: remote write or atomic without IBV_ACCESS_LOCAL_WRITE",
            "rdma_resolve_route, rdma_connect, rdma_listen, rdma_accept, rdma_reject, rdma_disconnect: not in this state of the id. The order is \
             resolve_addr, resolve_route, create_qp, connect; and bind_addr, listen, then accept of the id that the request brings",
            "rdma_connect, rdma_accept, rdma_reject: more private data than fits (56 bytes in a connect, 180 with UD, 196 in an accept, 148 in \
             a reject)",
            "rdma_connect, rdma_accept: a null rdma_conn_param, or responder_resources or initiator_depth above the device's",
            "rdma_create_qp: the id has no device yet (resolve or bind it first), or pd is another device's",
        ],
        check: &[
            WORDS,
            "ibv_devinfo -v      the device's limits",
            "rnic explain state rtr      the attributes of the transition",
        ],
        ..errno(libc::EINVAL, "EINVAL", "Invalid argument")
    },
    Topic {
        meaning: "Too many open files.",
        causes: &[
            "ibv_open_device, ibv_create_comp_channel, rdma_create_event_channel, rdma_create_id without a channel: each needs a descriptor",
        ],
        check: &["ulimit -n", "ls -l /proc/PID/fd"],
        ..errno(libc::EMFILE, "EMFILE", "Too many open files")
    },
    Topic {
        meaning: "No space left.",
        causes: &["a table of the device is full (hardware)"],
        ..errno(libc::ENOSPC, "ENOSPC", "No space left on device")
    },
    Topic {
        meaning: "The function is not there.",
        causes: &[
            "the device or the library does not have this verb",
            "rsocket and the other r* calls with rnic: they are those of the stock librdmacm, and it is not installed",
            "rdma_set_option: no such level or option",
        ],
        check: &["docs/support.md: what does not work", WORDS],
        ..errno(libc::ENOSYS, "ENOSYS", "Function not implemented")
    },
    Topic {
        meaning: "Protocol error.",
        causes: &[
            "rdma_accept, rdma_connect: the connection manager chose another RDMA device of the same interface",
        ],
        ..errno(libc::EPROTO, "EPROTO", "Protocol error")
    },
    Topic {
        meaning: "The device cannot do this at all.",
        causes: &[
            "an extended verb, queue pair type or flag that the device lacks: ask with ibv_query_device_ex first",
            "alternate paths, raw Ethernet, flow steering: not on a software NIC",
        ],
        check: &["docs/support.md: what does not work", WORDS],
        ..errno(libc::EOPNOTSUPP, "EOPNOTSUPP", "Operation not supported")
    },
    Topic {
        meaning: "The address is in use.",
        causes: &[
            "ibv_open_device: UDP port 4791 belongs to another user's rnic or to Soft-RoCE of the kernel",
            "rdma_bind_addr, rdma_listen: another id has that port in the same port space, at that address. (At any, 0.0.0.0 or ::, it is \
             EADDRNOTAVAIL.) Ports of rdma_cm are its own: a TCP server on the same port is no obstacle",
            "rdma_listen: the port is shared by RDMA_OPTION_ID_REUSEADDR, and another id listens there",
        ],
        check: &[
            "rnic run -- PROGRAM      at the end, which process has the port",
            "ss -ulpn 'sport = 4791'",
            "rdma link      a Soft-RoCE of the kernel",
            "rnic devices",
        ],
        ..errno(libc::EADDRINUSE, "EADDRINUSE", "Address already in use")
    },
    Topic {
        meaning: "The address is not of this host, or its port is taken for all addresses.",
        causes: &[
            "rdma_bind_addr, rdma_resolve_addr with a source: no interface of this host has it",
            "rdma_bind_addr, rdma_listen: another id has that port in the same port space, one of the two for any address (0.0.0.0, ::)",
            "rdma_resolve_addr, rdma_bind_addr with port 0: no ephemeral port is free",
            "rdma_leave_multicast: the id has not joined that group",
        ],
        check: &[
            "ip addr; rnic devices",
            "rnic run -- PROGRAM      at the end, which process has the port",
        ],
        ..errno(
            libc::EADDRNOTAVAIL,
            "EADDRNOTAVAIL",
            "Cannot assign requested address",
        )
    },
    Topic {
        meaning: "No network to the peer.",
        causes: &["rdma_resolve_addr: no route to the peer's address"],
        check: &["ip route get ADDRESS"],
        ..errno(libc::ENETUNREACH, "ENETUNREACH", "Network is unreachable")
    },
    Topic {
        meaning: "The peer ended the connection.",
        causes: &["rdma_connect, rsend: the peer's program ended"],
        ..errno(libc::ECONNRESET, "ECONNRESET", "Connection reset by peer")
    },
    Topic {
        meaning: "No answer in time.",
        causes: &[
            "ibv_modify_qp to RTR on hardware: the peer's address did not resolve (ARP); wrong GID",
            "rdma_resolve_addr: nobody answers ARP or neighbour discovery for that address",
            "rdma_connect, and status -110 of RDMA_CM_EVENT_UNREACHABLE: nobody answers on UDP port 4791 (16 tries, some 100 s)",
        ],
        check: &[
            "ping PEER",
            "tcpdump -ni any udp port 4791      do requests leave, do answers come?",
            "rnic devices      on both hosts",
        ],
        ..errno(libc::ETIMEDOUT, "ETIMEDOUT", "Connection timed out")
    },
    Topic {
        meaning: "Nobody listens there, or the server refused.",
        causes: &[
            "rdma_connect of a synchronous id: RDMA_CM_EVENT_REJECTED, whatever the reason. 8: no rdma_listen on that port; 28: the application \
             called rdma_reject",
            "the out-of-band TCP connection of a tool: the server is not up yet",
        ],
        check: &[
            "start the server first; check address, port and port space",
            "id->event->status is the reason: rnic explain rej NUMBER",
            "rnic run -- PROGRAM      at the end, which reason it was",
        ],
        ..errno(libc::ECONNREFUSED, "ECONNREFUSED", "Connection refused")
    },
    Topic {
        meaning: "No route to the host.",
        causes: &[
            "ibv_modify_qp to RTR: no route from the chosen GID's address to the peer's",
            "rdma_resolve_addr, rdma_connect: no route from the source address to the peer's",
        ],
        check: &[
            "ip route get ADDRESS",
            "rnic devices      choose the GID of the interface that reaches the peer",
        ],
        ..errno(libc::EHOSTUNREACH, "EHOSTUNREACH", "No route to host")
    },
    Topic {
        meaning: "Not an address of a family that fits.",
        causes: &[
            "rdma_bind_addr, rdma_resolve_addr: neither IPv4, IPv6 nor AF_IB; or source and destination of different families",
        ],
        check: &["ai_family, sa_family of what was passed"],
        ..errno(
            libc::EAFNOSUPPORT,
            "EAFNOSUPPORT",
            "Address family not supported by protocol",
        )
    },
    Topic {
        meaning: "There is no connection.",
        causes: &["rdma_disconnect, rsend, rrecv: it was never made, or has ended"],
        check: &["did RDMA_CM_EVENT_ESTABLISHED come, and not yet RDMA_CM_EVENT_DISCONNECTED?"],
        ..errno(
            libc::ENOTCONN,
            "ENOTCONN",
            "Transport endpoint is not connected",
        )
    },
    Topic {
        meaning: "The descriptor is not open.",
        causes: &[
            "a completion or event channel, or a context, was used after it was destroyed, or after the program closed its descriptor",
        ],
        ..errno(libc::EBADF, "EBADF", "Bad file descriptor")
    },
    Topic {
        meaning: "There is no such data.",
        causes: &[
            "fi_getinfo: no provider of libfabric does what the hints ask for; without `rnic run` there is no RDMA device",
            "ibv_modify_qp to RTR on hardware: no address of the peer (NCCL prints it as \"No data available\")",
        ],
        check: &["rnic run -- fi_info -p verbs", WORDS],
        ..errno(libc::ENODATA, "ENODATA", "No data available")
    },
    Topic {
        meaning: "The message is too long.",
        causes: &[
            "a datagram above the path MTU (UD), or a message above max_msg_sz",
            "fi_send, fi_inject: above the endpoint's max_msg_size or inject_size",
        ],
        check: &["ibv_devinfo -v      max_msg_sz, active_mtu", WORDS],
        ..errno(libc::EMSGSIZE, "EMSGSIZE", "Message too long")
    },
    Topic {
        meaning: "The connection is there already.",
        causes: &["rdma_connect, rconnect: called twice on one id or socket"],
        ..errno(
            libc::EISCONN,
            "EISCONN",
            "Transport endpoint is already connected",
        )
    },
    Topic {
        meaning: "The operation was given up.",
        causes: &[
            "its endpoint, queue pair or connection failed or was closed first: libfabric, SPDK and io_uring print flushed work requests so",
        ],
        check: &["an earlier line names the first failure", "rnic explain 5"],
        ..errno(libc::ECANCELED, "ECANCELED", "Operation canceled")
    },
    Topic {
        meaning: "The other end of the connection is gone.",
        causes: &["the TCP connection of a tool, or an rsocket: the peer's program ended"],
        check: &["the terminal of the other side: its last line tells why it ended"],
        ..errno(libc::EPIPE, "EPIPE", "Broken pipe")
    },
    Topic {
        meaning: "The connection was given up at this end.",
        causes: &["rdma_cm: the request timed out or was withdrawn before it was accepted"],
        ..errno(
            libc::ECONNABORTED,
            "ECONNABORTED",
            "Software caused connection abort",
        )
    },
    Topic {
        meaning: "The kernel's own \"not supported\" (ENOTSUPP), which the C library has no words for.",
        causes: &["rdma_join_multicast on RoCE: an IPv6 group, or another P_Key"],
        check: &["use an IPv4 group (224.0.0.0/4)"],
        ..errno(524, "ENOTSUPP", "Unknown error 524")
    },
];
