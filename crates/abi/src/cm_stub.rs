//! librdmacm, to come: every function exists and says ENOSYS in its own way.
//!
//! Programs that can also exchange addresses over a socket of their own (perftest without `-R`, `ibv_rc_pingpong`) need
//! nothing of it but the symbols. `rdma_event_str` is in [`crate::strings`].

use core::ffi::{c_int, c_void};

use crate::seam::{self, Errno};
use crate::symbols::export;

const ENOSYS: Errno = Errno(libc::ENOSYS);

/// Functions that return a pointer.
extern "C" fn no_object() -> *mut c_void {
    seam::pointer(|| Err(ENOSYS))
}

/// Functions that return -1 and errno.
extern "C" fn no_number() -> c_int {
    seam::number(|| Err(ENOSYS))
}

/// Functions that return a byte count or offset, or -1 and errno.
extern "C" fn no_bytes() -> isize {
    no_number() as isize
}

/// Functions that return a port number.
extern "C" fn no_port() -> u16 {
    0
}

/// Functions without a result: there is no object that they could be called for.
extern "C" fn no_effect() {}

export! {
    rdma_accept @@ "RDMACM_1.0" => no_number;
    rdma_ack_cm_event @@ "RDMACM_1.0" => no_number;
    rdma_bind_addr @@ "RDMACM_1.0" => no_number;
    rdma_connect @@ "RDMACM_1.0" => no_number;
    rdma_create_ep @@ "RDMACM_1.0" => no_number;
    rdma_create_event_channel @@ "RDMACM_1.0" => no_object;
    rdma_create_id @@ "RDMACM_1.0" => no_number;
    rdma_create_qp @@ "RDMACM_1.0" => no_number;
    rdma_create_qp_ex @@ "RDMACM_1.0" => no_number;
    rdma_create_srq @@ "RDMACM_1.0" => no_number;
    rdma_create_srq_ex @@ "RDMACM_1.0" => no_number;
    rdma_destroy_ep @@ "RDMACM_1.0" => no_effect;
    rdma_destroy_event_channel @@ "RDMACM_1.0" => no_effect;
    rdma_destroy_id @@ "RDMACM_1.0" => no_number;
    rdma_destroy_qp @@ "RDMACM_1.0" => no_effect;
    rdma_destroy_srq @@ "RDMACM_1.0" => no_effect;
    rdma_disconnect @@ "RDMACM_1.0" => no_number;
    rdma_establish @@ "RDMACM_1.2" => no_number;
    rdma_free_devices @@ "RDMACM_1.0" => no_effect;
    rdma_freeaddrinfo @@ "RDMACM_1.0" => no_effect;
    rdma_get_cm_event @@ "RDMACM_1.0" => no_number;
    rdma_get_devices @@ "RDMACM_1.0" => no_object;
    rdma_get_dst_port @@ "RDMACM_1.0" => no_port;
    rdma_get_remote_ece @@ "RDMACM_1.3" => no_number;
    rdma_get_request @@ "RDMACM_1.0" => no_number;
    rdma_get_src_port @@ "RDMACM_1.0" => no_port;
    rdma_getaddrinfo @@ "RDMACM_1.0" => no_number;
    rdma_init_qp_attr @@ "RDMACM_1.2" => no_number;
    rdma_join_multicast @@ "RDMACM_1.0" => no_number;
    rdma_join_multicast_ex @@ "RDMACM_1.1" => no_number;
    rdma_leave_multicast @@ "RDMACM_1.0" => no_number;
    rdma_listen @@ "RDMACM_1.0" => no_number;
    rdma_migrate_id @@ "RDMACM_1.0" => no_number;
    rdma_notify @@ "RDMACM_1.0" => no_number;
    rdma_query_addrinfo @@ "RDMACM_1.4" => no_number;
    rdma_reject @@ "RDMACM_1.0" => no_number;
    rdma_reject_ece @@ "RDMACM_1.3" => no_number;
    rdma_resolve_addr @@ "RDMACM_1.0" => no_number;
    rdma_resolve_addrinfo @@ "RDMACM_1.4" => no_number;
    rdma_resolve_route @@ "RDMACM_1.0" => no_number;
    rdma_set_local_ece @@ "RDMACM_1.3" => no_number;
    rdma_set_option @@ "RDMACM_1.0" => no_number;
    rdma_write_cm_event @@ "RDMACM_1.4" => no_number;
    raccept @@ "RDMACM_1.0" => no_number;
    rbind @@ "RDMACM_1.0" => no_number;
    rclose @@ "RDMACM_1.0" => no_number;
    rconnect @@ "RDMACM_1.0" => no_number;
    repoll_create @@ "RDMACM_1.5" => no_number;
    repoll_ctl @@ "RDMACM_1.5" => no_number;
    repoll_wait @@ "RDMACM_1.5" => no_number;
    rfcntl @@ "RDMACM_1.0" => no_number;
    rgetpeername @@ "RDMACM_1.0" => no_number;
    rgetsockname @@ "RDMACM_1.0" => no_number;
    rgetsockopt @@ "RDMACM_1.0" => no_number;
    riomap @@ "RDMACM_1.0" => no_bytes;
    riounmap @@ "RDMACM_1.0" => no_number;
    riowrite @@ "RDMACM_1.0" => no_bytes;
    rlisten @@ "RDMACM_1.0" => no_number;
    rpoll @@ "RDMACM_1.0" => no_number;
    rread @@ "RDMACM_1.0" => no_bytes;
    rreadv @@ "RDMACM_1.0" => no_bytes;
    rrecv @@ "RDMACM_1.0" => no_bytes;
    rrecvfrom @@ "RDMACM_1.0" => no_bytes;
    rrecvmsg @@ "RDMACM_1.0" => no_bytes;
    rselect @@ "RDMACM_1.0" => no_number;
    rsend @@ "RDMACM_1.0" => no_bytes;
    rsendmsg @@ "RDMACM_1.0" => no_bytes;
    rsendto @@ "RDMACM_1.0" => no_bytes;
    rsetsockopt @@ "RDMACM_1.0" => no_number;
    rshutdown @@ "RDMACM_1.0" => no_number;
    rsocket @@ "RDMACM_1.0" => no_number;
    rwrite @@ "RDMACM_1.0" => no_bytes;
    rwritev @@ "RDMACM_1.0" => no_bytes;
}
