//! What the device is and can do: constants that `ibv_query_device(3)` and `ibv_query_port(3)`
//! report.

use rnic_types::{DeviceAttr, PortAttr, PortState};
use rnic_wire::PathMtu;

use crate::addressing::gid_table::{GidEntry, active_mtu, device_guid};
use crate::addressing::pkey_table::PkeyTable;

/// The device's name.
pub const DEVICE_NAME: &str = "rnic0";
/// Locally administered OUI: no hardware vendor's, so that no program takes a vendor's special
/// path.
pub const VENDOR_ID: u32 = 0x0002_524e;
/// Clear of all part numbers that perftest treats specially.
pub const VENDOR_PART_ID: u32 = 0x4e43;

pub(crate) const MAX_QP: u32 = 1 << 16;
pub(crate) const MAX_QP_WR: u32 = 1 << 15;
pub(crate) const MAX_AH: u32 = 1 << 20;
/// What Linux allows a socket by default (net.ipv4.igmp_max_memberships).
const MAX_MCAST_GRP: u32 = 20;
pub(crate) const MAX_SGE: u32 = 32;
pub(crate) const MAX_SRQ: u32 = (1 << 16) - 1;
pub(crate) const MAX_SRQ_WR: u32 = (1 << 15) - 1;
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;
pub(crate) const MAX_INLINE: u32 = 1024;
/// Half of what the memory table holds: regions and windows share it.
pub(crate) const MAX_MR: u32 = 1 << 22;
pub(crate) const MAX_RD_ATOM: u8 = 16;
pub(crate) const MAX_MSG: u32 = 1 << 31;
pub(crate) const LOCAL_CA_ACK_DELAY: u8 = 15;

/// What the device's attributes are, whether it is open or not.
pub fn device_attr() -> DeviceAttr {
    device_attr_with(PkeyTable::of_process())
}

/// With that P_Key table.
pub(crate) fn device_attr_with(pkeys: &PkeyTable) -> DeviceAttr {
    const BAD_PKEY_CNTR: u32 = 1 << 1;
    const BAD_QKEY_CNTR: u32 = 1 << 2;
    const CURR_QP_STATE_MOD: u32 = 1 << 7;
    const RC_RNR_NAK_GEN: u32 = 1 << 12;
    const SRQ_RESIZE: u32 = 1 << 13;
    const MEM_WINDOW: u32 = 1 << 17;
    const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    const XRC: u32 = 1 << 20;
    DeviceAttr {
        fw_ver: env!("CARGO_PKG_VERSION").to_string(),
        guid: device_guid(),
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 1,
        max_mr_size: u64::MAX >> 1,
        page_size_cap: 0xffff_f000,
        max_qp: MAX_QP,
        max_qp_wr: MAX_QP_WR,
        device_cap_flags: BAD_PKEY_CNTR
            | BAD_QKEY_CNTR
            | CURR_QP_STATE_MOD
            | RC_RNR_NAK_GEN
            | SRQ_RESIZE
            | MEM_WINDOW
            | XRC
            | MEM_WINDOW_TYPE_2B,
        max_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_srq: MAX_SRQ,
        max_srq_wr: MAX_SRQ_WR,
        max_srq_sge: MAX_SGE,
        max_cq: 1 << 16,
        max_cqe: MAX_CQE,
        max_mr: MAX_MR,
        max_mw: MAX_MR,
        max_dm_size: crate::memory::DEVICE_MEMORY,
        max_pd: 1 << 16,
        max_qp_rd_atom: u32::from(MAX_RD_ATOM),
        max_res_rd_atom: u32::from(MAX_RD_ATOM) * MAX_QP,
        max_qp_init_rd_atom: u32::from(MAX_RD_ATOM),
        max_inline_data: MAX_INLINE,
        max_ah: MAX_AH,
        max_mcast_grp: MAX_MCAST_GRP,
        max_pkeys: pkeys.len(),
        phys_port_cnt: 1,
        local_ca_ack_delay: LOCAL_CA_ACK_DELAY,
    }
}

/// The one port is up while any of the interfaces behind it has an address and can carry packets.
pub fn port_state(table: &[GidEntry]) -> PortState {
    match table.iter().any(|entry| entry.running) {
        true => PortState::Active,
        false => PortState::Down,
    }
}

/// The port's attributes with these tables.
pub(crate) fn port_attr(table: &[GidEntry], pkeys: &PkeyTable) -> PortAttr {
    PortAttr {
        state: port_state(table),
        max_mtu: PathMtu::M4096,
        active_mtu: active_mtu(table),
        gid_tbl_len: GID_TABLE_LEN.max(table.last().map_or(0, |entry| entry.index + 1)),
        pkey_tbl_len: pkeys.len(),
        max_msg_sz: MAX_MSG,
    }
}

/// Rows that a GID table shows at least; unused ones are empty.
const GID_TABLE_LEN: u32 = 16;
