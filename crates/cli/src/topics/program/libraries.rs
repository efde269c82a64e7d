//! Lines of libraries and of programs that stand on the verbs: calls by their names, libibverbs itself,
//! UCX, libfabric, NCCL, SPDK and Ceph.

use super::line::{DEVICES, Line, OTHER_SIDE, START, WORDS, call, line};

pub const LINES: &[Line] = &[
    call(
        &[
            "ibv_reg_mr",
            "ibv_reg_mr_iova",
            "ibv_reg_mr_iova2",
            "ibv_reg_dmabuf_mr",
            "fi_mr_reg",
        ],
        "ibv_reg_mr",
        "ibv_reg_mr failed",
        "A program could not register memory.",
        &[
            "on hardware: above the limit of locked memory (ENOMEM), which rnic does not need",
            "the range is not mapped, or is device memory that cannot be pinned (EFAULT)",
            "remote write or atomic access without IBV_ACCESS_LOCAL_WRITE (EINVAL)",
        ],
        &[WORDS, "ulimit -l      KiB that may be locked (hardware)"],
    ),
    call(
        &["ibv_create_qp", "ibv_create_qp_ex", "rdma_create_qp"],
        "ibv_create_qp",
        "ibv_create_qp failed",
        "A program could not create a queue pair.",
        &[
            "sizes above the device's: max_qp_wr, max_sge, inline data (EINVAL, ENOMEM)",
            "a type or an extension that the device does not have (EOPNOTSUPP)",
        ],
        &[WORDS, "rnic run -- ibv_devinfo -v      the limits"],
    ),
    call(
        &["ibv_modify_qp"],
        "ibv_modify_qp",
        "ibv_modify_qp failed",
        "A program could not move a queue pair to its next state, most likely to RTR, where the peer's address comes in.",
        &[
            "the two GIDs are of different kinds, or the peer's has no route from here (EINVAL, EHOSTUNREACH, ENETUNREACH)",
            "on hardware: the peer's address did not resolve (ETIMEDOUT)",
            "an attribute is missing, or above the device's (EINVAL)",
        ],
        &[WORDS, DEVICES, "rnic explain state rtr"],
    ),
    call(
        &[
            "ibv_create_srq",
            "ibv_create_srq_ex",
            "couldn't create srq",
            "couldn't get srq num",
        ],
        "ibv_create_srq",
        "ibv_create_srq failed",
        "A program could not create a shared receive queue.",
        &[
            "more receives than max_srq_wr, more SGEs than max_srq_sge (EINVAL)",
            "a type that the device does not have, for example one with tag matching (EOPNOTSUPP)",
        ],
        &[WORDS, "rnic run -- ibv_devinfo -v      the limits"],
    ),
    call(
        &[
            "ibv_open_device",
            "ibv_open_device()",
            "unable to open device",
        ],
        "ibv_open_device",
        "ibv_open_device failed",
        "A program could not open a device that is in the list.",
        &[
            "rnic could not take UDP port 4791: another user or a Soft-RoCE of the kernel has it",
            "no interface is up with an address",
            "on hardware: no permission for /dev/infiniband/uverbs*",
        ],
        &[
            "rnic devices      opens it as well",
            "ss -ulpn 'sport = 4791'      which process has the port",
        ],
    ),
    call(
        &[
            "ibv_get_device_list",
            "failed to get rdma device list",
            "failed to get ib device list",
        ],
        "ibv_get_device_list",
        "ibv_get_device_list failed",
        "A program found no list of RDMA devices.",
        &[
            "the program was started without `rnic run`",
            "something between `rnic run` and the program clears LD_LIBRARY_PATH or LD_PRELOAD (sudo, ssh, a container)",
            "on hardware: no RDMA driver is loaded, or /dev/infiniband is not in the container",
        ],
        &[START, "rnic run -- ibv_devices      lists rnic0"],
    ),
    call(
        &["ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv"],
        "ibv_post_send, ibv_post_recv",
        "ibv_post_send failed",
        "A work request was refused where it was posted.",
        &[
            "the queue is full (ENOMEM): completions are not polled, or more was posted than max_send_wr, max_recv_wr",
            "the request does not fit the queue pair (EINVAL): state, operation, SGEs, inline length",
        ],
        &[WORDS, "rnic explain errno 12; rnic explain errno 22"],
    ),
    line(
        &[
            "rlimit_memlock is #",
            "user memlock ulimit",
            "user memlock (ulimit",
        ],
        "locked memory",
        "RLIMIT_MEMLOCK is N bytes",
        "A warning: on hardware registered memory counts as locked, and this limit may be too small. On rnic it does not matter.",
        &["`ulimit -l` is small, as it is by default for users other than root"],
        &[
            "ulimit -l      KiB that may be locked",
            "/etc/security/limits.conf, or LimitMEMLOCK= of a systemd unit",
        ],
    ),
    line(
        &[
            "couldn't load driver *",
            "no userspace device-specific driver found for",
            "driver * does not support the kernel abi",
        ],
        "driver of libibverbs",
        "couldn't load driver N",
        "libibverbs found a device or a configuration without its user-space driver. On rnic it does not matter.",
        &[
            "the package with the drivers (ibverbs-providers, libibverbs-providers) is missing, or is of another version",
            "a container has another rdma-core than the host's kernel fits",
        ],
        &[
            "rnic run -- ibv_devices      needs no such driver",
            "ls /etc/libibverbs.d",
        ],
    ),
    line(
        &["fork()-safety requested but init failed", "ibv_fork_init"],
        "fork safety",
        "fork()-safety requested but init failed",
        "ibv_fork_init, or RDMAV_FORK_SAFE, came after memory was registered, or the kernel lacks what it needs.",
        &["ibv_fork_init must come before the first registration"],
        &[WORDS],
    ),
    line(
        &[
            "no active messages transport to",
            "no remote memory access transport to",
            "no rma transport to",
            "no auxiliary transport to",
            "no usable transports/devices",
            "no supported transports found",
            "transport * is not available",
            "transports * are not available",
            "none of the devices",
        ],
        "UCX transports",
        "no usable transports/devices",
        "UCX found no transport for what it was asked: with the peer, or on this host at all.",
        &[
            "UCX_TLS or UCX_NET_DEVICES name a transport or device that is not there: those of rnic are rc_verbs, ud_verbs and rnic0:1",
            "the program was started without `rnic run`",
            "UCX was built without verbs, or its module libuct_ib is not installed",
            "the two sides have other values of UCX_TLS",
        ],
        &[
            "rnic run -- ucx_info -d | grep -e Transport -e Device",
            "UCX_LOG_LEVEL=info PROGRAM",
        ],
    ),
    call(
        &[
            "fi_getinfo",
            "fi_getinfo()",
            "no valid providers found",
            "unable to get core info!",
        ],
        "fi_getinfo",
        "fi_getinfo failed",
        "libfabric has no provider that does what the program asks for.",
        &[
            "no RDMA device: the program was started without `rnic run`",
            "the hints ask for an endpoint type or capability that the verbs provider lacks: reliable datagrams need \"verbs;ofi_rxm\"",
            "FI_PROVIDER names another provider",
        ],
        &["rnic run -- fi_info -p verbs", "FI_LOG_LEVEL=warn PROGRAM"],
    ),
    call(
        &[
            "prov_errno",
            "provider errno",
            "fi_cq_readerr",
            "fi_eq_readerr",
            "cq_readerr",
        ],
        "prov_errno of libfabric",
        "prov_errno N",
        "The provider's own number, which each provider defines for itself. With the verbs provider a positive one is the status of the work \
         completion; a negative one, or one of a layer like ofi_rxm, is not known here.",
        &["the verb or the peer; fi_cq_strerror puts the number into words"],
        &[
            "rnic explain wc N      if the provider is verbs",
            "FI_LOG_LEVEL=warn PROGRAM",
        ],
    ),
    call(
        &[
            "unhandled system error",
            "ncclsystemerror",
            "ncclremoteerror",
            "nccl warn net/ib",
            "remote process exited or there was a network error",
        ],
        "NCCL error",
        "unhandled system error",
        "NCCL passes on that something below it failed, or that another rank did. The first line with \"NCCL WARN\" of all ranks tells.",
        &[
            "a verb failed: \"Call to ibv_... failed\"",
            "a work request failed: \"Got completion from peer ... with status=N\"",
            "another rank ended first",
        ],
        &[
            "NCCL_DEBUG=INFO PROGRAM      then look for the first WARN of all ranks",
            "rnic run -- PROGRAM      names what failed first",
        ],
    ),
    call(
        &[
            "connection between server and client not working",
            "this is not a rdma-capable port",
            "port * is not what we want",
        ],
        "Ceph messenger",
        "connection between server and client not working",
        "Ceph's RDMA messenger lost a connection (status 12), or found no port that is up.",
        &[
            "the other daemon ended or is not reached: rnic explain 12",
            "ms_async_rdma_device_name or ms_async_rdma_port_num name a port that is down",
        ],
        &[OTHER_SIDE, DEVICES],
    ),
    line(
        &["returned -1 $", "ret -1 $", "rc -1 $", "return code -1 $"],
        "return value -1",
        "returned -1",
        "The call failed. This number names no reason: many calls return it for any failure, and errno does.",
        &["the program printed the return value instead of errno"],
        &[
            WORDS,
            "strace -f -e trace=network,ioctl PROGRAM      on hardware, what the kernel said",
        ],
    ),
];
