//! Protection domains, memory regions and windows, address handles.

use core::ffi::{c_int, c_uint, c_void};

use super::{assert_layout, ibv_context, ibv_gid};

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}
assert_layout!(ibv_pd, 16, context @ 0, handle @ 8);

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
assert_layout!(ibv_mr, 48, context @ 0, pd @ 8, addr @ 16, length @ 24, handle @ 32, lkey @ 36, rkey @ 40);

/// Of `ibv_reg_mr_ex(3)`, rdma-core 60 and later.
#[repr(C)]
pub struct ibv_mr_init_attr {
    pub length: usize,
    pub access: c_int,
    pub comp_mask: u64,
    pub iova: u64,
    pub addr: *mut c_void,
    pub fd: c_int,
    pub fd_offset: u64,
    pub dmah: *mut c_void,
    pub buf: *mut ibv_buf,
}
assert_layout!(ibv_mr_init_attr, 72, length @ 0, access @ 8, comp_mask @ 16, iova @ 24, addr @ 32, fd @ 40,
    fd_offset @ 48, dmah @ 56, buf @ 64);

/// Of `ibv_alloc_buf(3)`: programs see no more than its address.
#[repr(C)]
pub struct ibv_buf {
    pub _opaque: u64,
}

#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub r#type: c_uint,
}
assert_layout!(ibv_mw, 32, context @ 0, pd @ 8, rkey @ 16, handle @ 20, r#type @ 24);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}
assert_layout!(ibv_mw_bind_info, 32, mr @ 0, addr @ 8, length @ 16, mw_access_flags @ 24);

/// Of `ibv_bind_mw(3)`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}
assert_layout!(ibv_mw_bind, 48, wr_id @ 0, send_flags @ 8, bind_info @ 16);

#[repr(C)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}
assert_layout!(ibv_td, 8, context @ 0);

#[repr(C)]
pub struct ibv_td_init_attr {
    pub comp_mask: u32,
}
assert_layout!(ibv_td_init_attr, 4, comp_mask @ 0);

/// Of a parent domain: domain, `pd_context`, size, alignment, resource type.
pub type AllocFn = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
/// Of a parent domain: domain, `pd_context`, memory, resource type.
pub type FreeFn = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

#[repr(C)]
pub struct ibv_parent_domain_init_attr {
    pub pd: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub comp_mask: u32,
    pub alloc: Option<AllocFn>,
    pub free: Option<FreeFn>,
    pub pd_context: *mut c_void,
}
assert_layout!(ibv_parent_domain_init_attr, 48, pd @ 0, td @ 8, comp_mask @ 16, alloc @ 24, free @ 32,
    pd_context @ 40);

#[repr(C)]
pub struct ibv_dm {
    pub context: *mut ibv_context,
    pub memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
    pub memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
    pub comp_mask: u32,
    pub handle: u32,
}
assert_layout!(ibv_dm, 32, context @ 0, memcpy_to_dm @ 8, memcpy_from_dm @ 16, comp_mask @ 24, handle @ 28);

#[repr(C)]
pub struct ibv_alloc_dm_attr {
    pub length: usize,
    pub log_align_req: u32,
    pub comp_mask: u32,
}
assert_layout!(ibv_alloc_dm_attr, 16, length @ 0, log_align_req @ 8, comp_mask @ 12);

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}
assert_layout!(ibv_global_route, 24, dgid @ 0, flow_label @ 16, sgid_index @ 20, hop_limit @ 21, traffic_class @ 22);

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}
assert_layout!(ibv_ah_attr, 32, grh @ 0, dlid @ 24, sl @ 26, src_path_bits @ 27, static_rate @ 28, is_global @ 29,
    port_num @ 30);

#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}
assert_layout!(ibv_ah, 24, context @ 0, pd @ 8, handle @ 16);

#[repr(C)]
pub struct ibv_grh {
    pub version_tclass_flow: u32,
    pub paylen: u16,
    pub next_hdr: u8,
    pub hop_limit: u8,
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
}
assert_layout!(ibv_grh, 40, paylen @ 4, next_hdr @ 6, hop_limit @ 7, sgid @ 8, dgid @ 24);

#[repr(C)]
pub struct ibv_xrcd {
    pub context: *mut ibv_context,
}
assert_layout!(ibv_xrcd, 8, context @ 0);

#[repr(C)]
pub struct ibv_xrcd_init_attr {
    pub comp_mask: u32,
    pub fd: c_int,
    pub oflags: c_int,
}
assert_layout!(ibv_xrcd_init_attr, 12, comp_mask @ 0, fd @ 4, oflags @ 8);

#[repr(C)]
pub struct ibv_ece {
    pub vendor_id: u32,
    pub options: u32,
    pub comp_mask: u32,
}
assert_layout!(ibv_ece, 12, vendor_id @ 0, options @ 4, comp_mask @ 8);

#[repr(C)]
pub struct ibv_values_ex {
    pub comp_mask: u32,
    pub raw_clock: libc::timespec,
}
assert_layout!(ibv_values_ex, 24, comp_mask @ 0, raw_clock @ 8);
