//! `<rdma/rdma_cma.h>`.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::{
    assert_layout, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp,
    ibv_srq,
};

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}
assert_layout!(rdma_event_channel, 4, fd @ 0);

#[repr(C)]
pub struct rdma_ib_addr {
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
    pub pkey: u16,
}
assert_layout!(rdma_ib_addr, 40, sgid @ 0, dgid @ 16, pkey @ 32);

/// Source and destination are unions over `sockaddr_storage`, the third over one variant.
#[repr(C)]
pub struct rdma_addr {
    pub src_storage: libc::sockaddr_storage,
    pub dst_storage: libc::sockaddr_storage,
    pub addr: rdma_ib_addr,
}
assert_layout!(rdma_addr, 296, src_storage @ 0, dst_storage @ 128, addr @ 256);

#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}
assert_layout!(rdma_route, 312, addr @ 0, path_rec @ 296, num_paths @ 304);

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_uint,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: c_uint,
}
assert_layout!(rdma_cm_id, 416, verbs @ 0, channel @ 8, context @ 16, qp @ 24, route @ 32, ps @ 344, port_num @ 348,
    event @ 352, send_cq_channel @ 360, send_cq @ 368, recv_cq_channel @ 376, recv_cq @ 384, srq @ 392, pd @ 400,
    qp_type @ 408);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}
assert_layout!(rdma_conn_param, 24, private_data @ 0, private_data_len @ 8, responder_resources @ 9,
    initiator_depth @ 10, flow_control @ 11, retry_count @ 12, rnr_retry_count @ 13, srq @ 14, qp_num @ 16);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct rdma_ud_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}
assert_layout!(rdma_ud_param, 56, private_data @ 0, private_data_len @ 8, ah_attr @ 16, qp_num @ 48, qkey @ 52);

#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_event_param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}

#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_uint,
    pub status: c_int,
    pub param: rdma_event_param,
}
assert_layout!(rdma_cm_event, 80, id @ 0, listen_id @ 8, event @ 16, status @ 20, param @ 24);

#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: libc::socklen_t,
    pub ai_dst_len: libc::socklen_t,
    pub ai_src_addr: *mut libc::sockaddr,
    pub ai_dst_addr: *mut libc::sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}
assert_layout!(rdma_addrinfo, 96, ai_src_len @ 16, ai_src_addr @ 24, ai_route_len @ 56, ai_next @ 88);
