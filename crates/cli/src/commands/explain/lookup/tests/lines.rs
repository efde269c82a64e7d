//! Lines of programs: the failing item of a line is explained, or nothing is.

use super::names;

fn all_lead_to(lines: &[(&str, &[&str])]) {
    let wrong: Vec<_> = lines
        .iter()
        .map(|(line, topics)| (line, topics, names(line)))
        .filter(|(_, topics, found)| found != *topics)
        .collect();
    assert!(wrong.is_empty(), "line, wanted, found: {wrong:#?}");
}

/// What was expected, compared with or succeeded gives way to what came.
#[test]
fn the_item_that_failed_wins() {
    all_lead_to(&[
        (
            "expected IBV_WC_SUCCESS, got IBV_WC_REM_ACCESS_ERR",
            &["IBV_WC_REM_ACCESS_ERR"],
        ),
        (
            "got IBV_WC_REM_ACCESS_ERR instead of IBV_WC_SUCCESS",
            &["IBV_WC_REM_ACCESS_ERR"],
        ),
        (
            "IBV_WC_SUCCESS expected, but the completion had IBV_WC_WR_FLUSH_ERR",
            &["IBV_WC_WR_FLUSH_ERR"],
        ),
        (
            "assert(wc.status == IBV_WC_SUCCESS) failed: wc.status = 10",
            &["IBV_WC_REM_ACCESS_ERR"],
        ),
        (
            "Assertion failed: wc->status == 0, wc->status is 12",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "wc status: expected 0 but got 9",
            &["IBV_WC_REM_INV_REQ_ERR"],
        ),
        (
            "test: main.c:72: run: Assertion `wc.status == IBV_WC_SUCCESS' failed.",
            &["failed completion"],
        ),
        ("the status is not IBV_WC_SUCCESS", &["failed completion"]),
        (
            "Expected RDMA_CM_EVENT_ESTABLISHED but received RDMA_CM_EVENT_REJECTED (8) from CM event channel (status = 8)",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_INVALID_SERVICE_ID"],
        ),
        (
            "Expected RDMA_CM_EVENT_ESTABLISHED but received RDMA_CM_EVENT_REJECTED (8) from CM event channel (status = 28)",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_CONSUMER_DEFINED"],
        ),
        (
            "Expected RDMA_CM_EVENT_ADDR_RESOLVED but received RDMA_CM_EVENT_ADDR_ERROR (1) from CM event channel (status = -19)",
            &["RDMA_CM_EVENT_ADDR_ERROR", "ENODEV"],
        ),
        ("still waiting for RDMA_CM_EVENT_ESTABLISHED", &["CM event"]),
        (
            "QP#1: expected state: IBV_QPS_ERR, actual state: IBV_QPS_RESET",
            &["IBV_QPS_RESET"],
        ),
        (
            "completion status success, then IBV_WC_RNR_RETRY_EXC_ERR",
            &["IBV_WC_RNR_RETRY_EXC_ERR"],
        ),
        (
            "Error on CQ 0xffff4c0921f0, (qp state 1 ibv_state 6) request 0x281468000176408, type SEND, opcode 0, status: (12): transport retry counter exceeded rqpair 0x2c1cc180 byte_len 4096",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        // What succeeded alone is explained as it is.
        ("wc.status = IBV_WC_SUCCESS", &["IBV_WC_SUCCESS"]),
        (
            "event RDMA_CM_EVENT_ESTABLISHED",
            &["RDMA_CM_EVENT_ESTABLISHED"],
        ),
    ]);
}

/// A negative status is an errno that a call returned, and -1 is no errno.
#[test]
fn the_sign_of_a_number_counts() {
    all_lead_to(&[
        ("status -14", &["EFAULT"]),
        ("status 14", &["IBV_WC_LOC_RDD_VIOL_ERR"]),
        (
            "Libfabric get failure on command fi_mr_reg with status -14 : Bad address",
            &["EFAULT"],
        ),
        ("fi_mr_reg with status -12", &["ENOMEM"]),
        ("wc status -22", &["EINVAL"]),
        ("-110", &["ETIMEDOUT"]),
        ("-12", &["ENOMEM"]),
        ("errno -12", &["ENOMEM"]),
        ("fi_getinfo: -61", &["ENODATA"]),
        (
            "fi_getinfo: provider verbs returned -61 (No data available)",
            &["ENODATA"],
        ),
        ("fi_cq_read returned -259", &["FI_EAVAIL"]),
        ("-265", &["FI_ETRUNC"]),
        ("error: -FI_ENOCQ", &["FI_ENOCQ"]),
        ("fi_send failed: -FI_EAGAIN", &["EAGAIN"]),
        (
            "ucp_worker_progress() returned -25",
            &["UCS_ERR_CONNECTION_RESET"],
        ),
        ("fi_cq_readerr err: 265 prov_errno: 0", &["FI_ETRUNC"]),
        ("prov_errno: -258", &["FI_EOPBADSTATE"]),
        ("prov_errno: 12", &["IBV_WC_RETRY_EXC_ERR"]),
        (
            "rdma connection establishment failed (-104)",
            &["ECONNRESET"],
        ),
        ("RDMA connect error -99", &["EADDRNOTAVAIL"]),
        ("ibv_post_send returned 12", &["ENOMEM"]),
        ("setup returned -1", &["return value -1"]),
        ("-1", &["EPERM"]),
        ("status -1", &[]),
        ("the offset is -12 bytes", &[]),
    ]);
}

/// Libraries and kernels put the same status in other words.
#[test]
fn other_words_for_a_status_are_known() {
    all_lead_to(&[
        ("Transport retry count exceeded", &["IBV_WC_RETRY_EXC_ERR"]),
        ("RNR retry count exceeded", &["IBV_WC_RNR_RETRY_EXC_ERR"]),
        (
            "transport retry counter exceeded",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "Receive-no-ready retry count exceeded on mlx5_0:1/IB (synd 0x16 vend 0x87 hw_synd 0/0)",
            &["IBV_WC_RNR_RETRY_EXC_ERR", "Mellanox 0x87"],
        ),
        (
            "[host:157231:0:157231] ib_mlx5_log.c:147  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
            &["IBV_WC_RETRY_EXC_ERR", "rnic SEQUENCE_NAK", "Mellanox 0x81"],
        ),
        (
            "Remote access on mlx5_0:1/RoCE (synd 0x13 vend 0x88 hw_synd 0/0)",
            &["IBV_WC_REM_ACCESS_ERR", "Mellanox 0x88"],
        ),
        (
            "Local protection on mlx5_2:1/IB (synd 0x4 vend 0x51 hw_synd 0/0)",
            &["IBV_WC_LOC_PROT_ERR", "Mellanox 0x51"],
        ),
        ("WR flush failure", &["IBV_WC_WR_FLUSH_ERR"]),
        (
            "rc_lat: failed: Remote access failure",
            &["IBV_WC_REM_ACCESS_ERR"],
        ),
        ("status RETRY_EXC_ERR", &["IBV_WC_RETRY_EXC_ERR"]),
        ("ib_wc_rem_op_err", &["IBV_WC_REM_OP_ERR"]),
        (
            "mlx5_0: dump error cqe, syndrome 0x22",
            &["IBV_WC_REM_ABORT_ERR"],
        ),
        ("QP access error", &["IBV_EVENT_QP_ACCESS_ERR"]),
    ]);
}

/// Lines of UCX, libfabric, NCCL, SPDK, Ceph, Mooncake and the kernel.
#[test]
fn lines_of_libraries_lead_to_their_causes() {
    all_lead_to(&[
        // UCX.
        (
            "[1618000000.1] [node:1:0] ib_md.c:309 UCX  ERROR ibv_reg_mr(address=0x7f00, length=4096, access=0xf) failed: Cannot allocate memory",
            &["ENOMEM"],
        ),
        (
            "ibv_reg_mr(address=0x7f00, length=4096, access=0xf) failed",
            &["ibv_reg_mr"],
        ),
        (
            "UCX  ERROR ibv_create_qp failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
            &["register memory", "ENOMEM"],
        ),
        (
            "ucp_context.c:1014 UCX  WARN  network device 'mlx5_0:1' is not available, please use one or more of: 'lo'(tcp)",
            &["device not found"],
        ),
        (
            "ucp_context.c:1014 UCX  WARN  transport 'rc' is not available, please use one or more of: cma, mm, posix",
            &["UCX transports"],
        ),
        (
            "ucp_context.c:1276 UCX  ERROR no usable transports/devices (asked rc on network:mlx5_0:1 )",
            &["UCX transports"],
        ),
        (
            "select.c:499 UCX  ERROR no active messages transport to <no debug data>: Unsupported operation",
            &["UCX transports", "UCS_ERR_UNSUPPORTED"],
        ),
        (
            "ud_iface.c:781  Fatal: transport error: Endpoint timeout",
            &["UCS_ERR_ENDPOINT_TIMEOUT"],
        ),
        (
            "ucp_ep_create failed: Destination is unreachable",
            &["UCS_ERR_UNREACHABLE"],
        ),
        (
            "UCX  ERROR error 'Connection reset by remote peer' will be handled by ep 0x7f",
            &["UCS_ERR_CONNECTION_RESET"],
        ),
        (
            "Fatal: Send completion (wr_id=0x1 with error: local length error",
            &["IBV_WC_LOC_LEN_ERR"],
        ),
        (
            "rdmacm_cm.c:600 UCX ERROR 127.0.0.1:1 got error event RDMA_CM_EVENT_ADDR_ERROR, event status Unknown (-19)",
            &["RDMA_CM_EVENT_ADDR_ERROR", "ENODEV"],
        ),
        (
            "perftest.c:405  UCX  ERROR client failed. connect() failed: Connection refused",
            &["ECONNREFUSED"],
        ),
        (
            "Failed to modify UD QP to RTR: Invalid argument",
            &["modify QP to RTR", "EINVAL"],
        ),
        (
            "ud_iface.c:253 UCX ERROR Failed to modify UD QP to INIT: Invalid argument",
            &["modify QP to INIT", "EINVAL"],
        ),
        (
            "error modifying QP to RTR: Network is unreachable",
            &["modify QP to RTR", "ENETUNREACH"],
        ),
        (
            "ibv_create_ah(dlid=0) for RC on mlx5_0 failed: Connection timed out",
            &["ETIMEDOUT"],
        ),
        (
            "ibv_open_device(rnic0) failed: Address already in use",
            &["EADDRINUSE"],
        ),
        // libfabric.
        (
            "CQ error msg: transport retry counter exceeded",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "libfabric:1:ofi_rxm:cq:rxm_cq_read_write_error():899<warn> msg cq error info: local protection error",
            &["IBV_WC_LOC_PROT_ERR"],
        ),
        (
            "fi_cq_readerr: err 5 (Input/output error), prov_errno 12 (transport retry counter exceeded)",
            &["EIO", "IBV_WC_RETRY_EXC_ERR"],
        ),
        ("fi_cq_sread: Truncation error", &["FI_ETRUNC"]),
        ("fi_getinfo failed", &["fi_getinfo"]),
        (
            "CM error event RDMA_CM_EVENT_UNREACHABLE, status -110",
            &["RDMA_CM_EVENT_UNREACHABLE", "ETIMEDOUT"],
        ),
        (
            "[error] util/pingpong.c:408 : failed to connect: Connection refused",
            &["connect over TCP"],
        ),
        // NCCL.
        (
            "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 192.0.2.8<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:192.0.2.1",
            &["IBV_WC_RETRY_EXC_ERR", "rnic SEQUENCE_NAK", "Mellanox 0x81"],
        ),
        (
            "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
            &["IBV_WC_RETRY_EXC_ERR", "rnic SEQUENCE_NAK", "Mellanox 0x81"],
        ),
        (
            "NCCL WARN NET/IB : Got completion from peer 192.0.2.8<54891> with error 5, opcode 0, len 0, vendor err 249",
            &["IBV_WC_WR_FLUSH_ERR", "Mellanox 0xf9"],
        ),
        (
            "NCCL WARN NET/IB: Got completion from peer 192.0.2.2 with status=IBV_WC_RETRY_EXC_ERR(12)",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
            &["ETIMEDOUT"],
        ),
        (
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
            &["ETIMEDOUT"],
        ),
        (
            "NCCL WARN Call to ibv_modify_qp failed with error No data available errno 61",
            &["ENODATA"],
        ),
        ("NCCL WARN Call to ibv_create_qp failed", &["ibv_create_qp"]),
        ("NCCL WARN NET/IB : No device found.", &["no device"]),
        (
            "transport/net_ib.cc:154 NCCL WARN NET/IB : mlx5_3:1 async fatal event on QP (0x732d78661238): invalid request local work queue error",
            &["IBV_EVENT_QP_REQ_ERR"],
        ),
        (
            "p2p_plugin.c:141 NCCL WARN NET/IB : Got async event : port error",
            &["IBV_EVENT_PORT_ERR"],
        ),
        (
            "RuntimeError: NCCL Error 2: unhandled system error",
            &["NCCL error"],
        ),
        // SPDK.
        (
            "nvme_rdma.c: 805:nvme_rdma_connect: *ERROR*: RDMA connect error",
            &["connect over rdma_cm"],
        ),
        (
            "nvme_rdma.c:1035:nvme_rdma_qpair_connect: *ERROR*: Unable to connect the rqpair",
            &["connect over rdma_cm"],
        ),
        (
            "*ERROR*: RDMA address resolution error",
            &["rdma_resolve_addr"],
        ),
        (
            "Connect command failed, rc -125, trtype:RDMA adrfam:IPv4 traddr:192.0.2.1 trsvcid:4420",
            &["ECANCELED"],
        ),
        ("Error 110 on rdma_accept", &["ETIMEDOUT"]),
        (
            "Failed to post a send for the qpair 0xd10160 with errno -22",
            &["post send", "EINVAL"],
        ),
        (
            "CQ error on Queue Pair 0x55, Response Index 94 (12): transport retry counter exceeded",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "WC error, qid 1, qp state 3, request 0x281 type 1, status: (5): Work Request Flushed Error, vendor_err 0xf4",
            &["IBV_WC_WR_FLUSH_ERR", "Mellanox 0xf4"],
        ),
        (
            "spdk_nvme_qpair_process_completions: *ERROR*: CQ error, abort requests after transport retry counter exceeded",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        // Ceph.
        (
            "RDMADispatcher handle_tx_event send work request returned error for buffer(94240) status(12): RETRY_EXC_ERR",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "QueuePair modify_qp_to_rtr failed to switch to RTR state: (22) Invalid argument",
            &["modify QP to RTR", "EINVAL"],
        ),
        (
            "Infiniband failed to get rdma device list.  (2) No such file or directory",
            &["ENOENT"],
        ),
        (
            "RDMAConnectedSocketImpl handle_connection recv handshake msg failed. (104) Connection reset by peer",
            &["ECONNRESET"],
        ),
        // Others, and the kernel.
        (
            "mlx5: node: got completion with error: 00000000 00000000",
            &["failed completion"],
        ),
        (
            "mlx5_bond_0/1: QP 51291 error: local length error (0x8e 0x0 0x0)",
            &["IBV_WC_LOC_LEN_ERR"],
        ),
        (
            "got bad completion with status: 0xc, vendor syndrome: 0x81",
            &["IBV_WC_RETRY_EXC_ERR", "rnic SEQUENCE_NAK", "Mellanox 0x81"],
        ),
        ("wc error 0xc", &["IBV_WC_RETRY_EXC_ERR"]),
        (
            "ibv_post_recv failed with error 12: Cannot allocate memory",
            &["post receive", "ENOMEM"],
        ),
        (
            "RECV 93B246F7.0.169 failed: IBV_WC_RETRY_EXC_ERR",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "Failed to register memory 0x7f105035d000: Input/output error [5]",
            &["register memory", "EIO"],
        ),
        (
            "nvme nvme0: Connect rejected: status 8 (invalid service ID).",
            &["IB_CM_REJ_INVALID_SERVICE_ID"],
        ),
        (
            "nvme nvme0: MEMREG for CQE 0x00 failed with status local protection error (4)",
            &["IBV_WC_LOC_PROT_ERR"],
        ),
        (
            "Got completion with error 12, errno 110 (Connection timed out)",
            &["IBV_WC_RETRY_EXC_ERR", "ETIMEDOUT"],
        ),
        // perftest over rdma_cm, rdmacm-utils, qperf, libibverbs.
        (
            "Unable to perform rdma_client function",
            &["connect over rdma_cm"],
        ),
        ("RDMA CM event error:", &[]),
        (
            "Event: RDMA_CM_EVENT_REJECTED; error: 8.",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_INVALID_SERVICE_ID"],
        ),
        (
            "cmatose: failure connecting: Connection refused",
            &["ECONNREFUSED"],
        ),
        ("udaddy: failure creating address handle", &["create AH"]),
        ("mckey: failure joining: No such device", &["ENODEV"]),
        ("rstream: rconnect failed", &["connect over rdma_cm"]),
        (
            "rdma_getaddrinfo: Bad value for ai_flags",
            &["name resolution"],
        ),
        ("data mismatch!", &["data differs"]),
        ("failed to find any InfiniBand devices", &["no device"]),
        (
            "Max message size in UD cannot be greater than MTU",
            &["UD message size"],
        ),
        (
            "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': libmlx5-rdmav34.so: cannot open shared object file",
            &["driver of libibverbs"],
        ),
        (
            "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",
            &["locked memory"],
        ),
        ("Couldn't allocate PD", &["allocate PD"]),
    ]);
}

/// What only looks like a failure of the verbs is not explained.
#[test]
fn what_is_not_known_is_not_guessed() {
    for line in [
        "process exited with status 12",
        "exit status 1",
        "HTTP status 404",
        "opcode 128",
        "QP 0x3d04 wqe[96]",
        "temperature: -300",
        "step 12 of 20 done in 3 s",
        "loss 0.12 at step 5",
        "connection accepted successfully",
    ] {
        assert_eq!(names(line), [""; 0], "{line}");
    }
}
