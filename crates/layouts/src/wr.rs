//! Work requests.

use core::ffi::{c_int, c_uint, c_void};

use super::{assert_layout, ibv_mw, ibv_mw_bind_info};

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
assert_layout!(ibv_sge, 16, addr @ 0, length @ 8, lkey @ 12);

/// An [`ibv_sge`] at any address: libiscsi keeps its own in packed structures.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct packed_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
assert_layout!(packed_sge, 16, addr @ 0, length @ 8, lkey @ 12);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}
assert_layout!(ibv_data_buf, 16, addr @ 0, length @ 8);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wr_ud {
    pub ah: *mut c_void,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_wr_args {
    pub rdma: ibv_wr_rdma,
    pub atomic: ibv_wr_atomic,
    pub ud: ibv_wr_ud,
}
const _: () = assert!(size_of::<ibv_wr_args>() == 32);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_wr_tso {
    pub hdr: *mut c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_wr_extra {
    pub bind_mw: ibv_wr_bind_mw,
    pub tso: ibv_wr_tso,
}

/// `struct ibv_send_wr`. `imm_data` is a union with `invalidate_rkey`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: ibv_wr_args,
    pub remote_srqn: u32,
    pub extra: ibv_wr_extra,
}
assert_layout!(ibv_send_wr, 128, next @ 8, sg_list @ 16, num_sge @ 24, opcode @ 28, send_flags @ 32, imm_data @ 36,
    wr @ 40, remote_srqn @ 72, extra @ 80);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}
assert_layout!(ibv_recv_wr, 32, next @ 8, sg_list @ 16, num_sge @ 24);
