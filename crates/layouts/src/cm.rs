//! `<rdma/rdma_cma.h>`, and of `<infiniband/sa.h>` what it uses.

#![allow(non_upper_case_globals, reason = "C names")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::consts::constants;
use super::{
    assert_layout, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp,
    ibv_srq,
};

constants! {
    RDMA_CM_EVENT_ADDR_RESOLVED = 0;
    RDMA_CM_EVENT_ADDR_ERROR = 1;
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
    RDMA_CM_EVENT_ROUTE_ERROR = 3;
    RDMA_CM_EVENT_CONNECT_REQUEST = 4;
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
    RDMA_CM_EVENT_CONNECT_ERROR = 6;
    RDMA_CM_EVENT_UNREACHABLE = 7;
    RDMA_CM_EVENT_REJECTED = 8;
    RDMA_CM_EVENT_ESTABLISHED = 9;
    RDMA_CM_EVENT_DISCONNECTED = 10;
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
    RDMA_CM_EVENT_MULTICAST_JOIN = 12;
    RDMA_CM_EVENT_MULTICAST_ERROR = 13;
    RDMA_CM_EVENT_ADDR_CHANGE = 14;
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;

    RDMA_PS_IPOIB = 0x0002;
    RDMA_PS_TCP = 0x0106;
    RDMA_PS_UDP = 0x0111;
    RDMA_PS_IB = 0x013F;

    RDMA_UDP_QKEY = 0x01234567;
    RDMA_MAX_RESP_RES = 0xff;
    RDMA_MAX_INIT_DEPTH = 0xff;

    RDMA_OPTION_ID = 0;
    RDMA_OPTION_IB = 1;
    RDMA_OPTION_ID_TOS = 0;
    RDMA_OPTION_ID_REUSEADDR = 1;
    RDMA_OPTION_ID_AFONLY = 2;
    RDMA_OPTION_ID_ACK_TIMEOUT = 3;
    RDMA_OPTION_IB_PATH = 1;

    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1;
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1;
    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0;
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1;

    RAI_PASSIVE = 1;
    RAI_NUMERICHOST = 1 << 1;
    RAI_NOROUTE = 1 << 2;
    RAI_FAMILY = 1 << 3;
}

// What rdma-core 60 and later append to the enums: events that a program raises itself, and names
// as addresses.
pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: c_uint = 16;
pub const RDMA_CM_EVENT_ADDRINFO_ERROR: c_uint = 17;
pub const RDMA_CM_EVENT_USER: c_uint = 18;
pub const RAI_SA: c_int = 1 << 4;
pub const RAI_DNS: c_int = 1 << 5;

/// A path record as librdmacm keeps it: not the wire's form.
#[repr(C)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}
assert_layout!(ibv_sa_path_rec, 64, dgid @ 0, sgid @ 16, dlid @ 32, raw_traffic @ 36, flow_label @ 40, hop_limit @ 44,
    reversible @ 48, numb_path @ 52, pkey @ 54, sl @ 56, preference @ 63);

/// A path record in the wire's form, as `RDMA_OPTION_IB_PATH` and `rdma_addrinfo` carry it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_path_record {
    pub service_id: u64,
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub flowlabel_hoplimit: u32,
    pub tclass: u8,
    pub reversible_numpath: u8,
    pub pkey: u16,
    pub qosclass_sl: u16,
    pub mtu: u8,
    pub rate: u8,
    pub packetlifetime: u8,
    pub preference: u8,
    pub reserved: [u8; 6],
}
assert_layout!(ibv_path_record, 64, service_id @ 0, dgid @ 8, sgid @ 24, dlid @ 40, flowlabel_hoplimit @ 44,
    tclass @ 48, pkey @ 50, mtu @ 54, preference @ 57);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_path_data {
    pub flags: u32,
    pub reserved: u32,
    pub path: ibv_path_record,
}
assert_layout!(ibv_path_data, 72, flags @ 0, path @ 8);

#[repr(C)]
pub struct rdma_cm_join_mc_attr_ex {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut libc::sockaddr,
}
assert_layout!(rdma_cm_join_mc_attr_ex, 16, comp_mask @ 0, join_flags @ 4, addr @ 8);

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
    pub path_rec: *mut ibv_sa_path_rec,
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
    /// Of `RDMA_CM_EVENT_USER`.
    pub arg: u64,
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
