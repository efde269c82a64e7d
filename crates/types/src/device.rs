//! What a device and its ports are and can do (`ibv_query_device(3)`, `ibv_query_port(3)`).

use alloc::string::String;

use crate::PathMtu;

/// Device attributes (`struct ibv_device_attr`).
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of ibv_query_device(3)")]
pub struct DeviceAttr {
    pub fw_ver: String,
    pub guid: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_dm_size: u64,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_inline_data: u32,
    pub max_ah: u32,
    pub max_mcast_grp: u32,
    pub max_pkeys: u16,
    pub phys_port_cnt: u8,
    pub local_ca_ack_delay: u8,
}

/// State of a port (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PortState {
    Down = 1,
    Active = 4,
}

/// Port attributes (`struct ibv_port_attr`).
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of ibv_query_port(3)")]
pub struct PortAttr {
    pub state: PortState,
    pub max_mtu: PathMtu,
    pub active_mtu: PathMtu,
    pub gid_tbl_len: u32,
    pub pkey_tbl_len: u16,
    pub max_msg_sz: u32,
}
