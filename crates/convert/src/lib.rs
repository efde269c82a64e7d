//! Values of the C structures of libibverbs become those of `rnic-types`, and back.
//!
//! Both sides of the C ABI use these: `rnic-abi`, which is such a library, and `rnic-libibverbs`,
//! which loads one. What only one of them converts is there.
#![forbid(unsafe_code)]

use core::ffi::c_uint;

use rnic_layouts::*;
use rnic_types::{Access, AhAttr, Gid, PathMtu, QpAttr, QpCap, QpState};

/// An address vector of a program or a device.
pub fn ah_from_c(ah: &ibv_ah_attr) -> AhAttr {
    AhAttr {
        dgid: Gid(ah.grh.dgid.raw),
        flow_label: ah.grh.flow_label,
        sgid_index: ah.grh.sgid_index,
        hop_limit: ah.grh.hop_limit,
        traffic_class: ah.grh.traffic_class,
        dlid: ah.dlid,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: ah.is_global != 0,
        port_num: ah.port_num,
    }
}

/// The C form of an address vector.
pub fn ah_to_c(ah: &AhAttr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: ah.dgid.0 },
            flow_label: ah.flow_label,
            sgid_index: ah.sgid_index,
            hop_limit: ah.hop_limit,
            traffic_class: ah.traffic_class,
        },
        dlid: ah.dlid,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: u8::from(ah.is_global),
        port_num: ah.port_num,
    }
}

/// Sizes of a queue pair.
pub fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// The C form of sizes of a queue pair.
pub fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Attributes of a queue pair. What C declares as an enum is for the caller to judge, who knows
/// whether it means anything: of numbers that are none of its values a state is RESET here, a path
/// MTU none, and a state of migration 0.
pub fn attr_from_c(attr: &ibv_qp_attr) -> QpAttr {
    QpAttr {
        qp_state: QpState::from_ibv(attr.qp_state).unwrap_or_default(),
        cur_qp_state: QpState::from_ibv(attr.cur_qp_state).unwrap_or_default(),
        path_mtu: PathMtu::from_ibv(attr.path_mtu),
        path_mig_state: u8::try_from(attr.path_mig_state).unwrap_or(0),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: Access(attr.qp_access_flags),
        cap: cap_from_c(&attr.cap),
        ah: ah_from_c(&attr.ah_attr),
        alt_ah: ah_from_c(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: attr.sq_draining != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    }
}

/// The C form of attributes of a queue pair.
pub fn attr_to_c(attr: &QpAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state as c_uint,
        cur_qp_state: attr.cur_qp_state as c_uint,
        path_mtu: attr.path_mtu.map_or(0, PathMtu::to_ibv),
        path_mig_state: c_uint::from(attr.path_mig_state),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags.0,
        cap: cap_to_c(&attr.cap),
        ah_attr: ah_to_c(&attr.ah),
        alt_ah_attr: ah_to_c(&attr.alt_ah),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: u8::from(attr.sq_draining),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: what is converted and converted back is what it was, each field.
    #[test]
    fn attributes_come_back_as_they_were() {
        let path = |n: u8| AhAttr {
            dgid: Gid([n; 16]),
            flow_label: 0x1234 + u32::from(n),
            sgid_index: n + 1,
            hop_limit: n + 2,
            traffic_class: n + 3,
            dlid: 0x100 + u16::from(n),
            sl: n + 4,
            src_path_bits: n + 5,
            static_rate: n + 6,
            is_global: true,
            port_num: n + 7,
        };
        let attr = QpAttr {
            qp_state: QpState::Sqd,
            cur_qp_state: QpState::Rts,
            path_mtu: Some(PathMtu::M2048),
            path_mig_state: 2,
            qkey: 3,
            rq_psn: 4,
            sq_psn: 5,
            dest_qp_num: 6,
            qp_access_flags: Access(7),
            cap: QpCap {
                max_send_wr: 8,
                max_recv_wr: 9,
                max_send_sge: 10,
                max_recv_sge: 11,
                max_inline_data: 12,
            },
            ah: path(20),
            alt_ah: path(40),
            pkey_index: 13,
            alt_pkey_index: 14,
            en_sqd_async_notify: true,
            sq_draining: true,
            max_rd_atomic: 15,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 17,
            port_num: 18,
            timeout: 19,
            retry_cnt: 20,
            rnr_retry: 21,
            alt_port_num: 22,
            alt_timeout: 23,
            rate_limit: 24,
        };
        let back = attr_from_c(&attr_to_c(&attr));
        assert_eq!(format!("{back:?}"), format!("{attr:?}"));
    }

    /// Promise: numbers that mean nothing become what the contract says.
    #[test]
    fn numbers_that_are_no_values_are_told_apart() {
        let odd = ibv_qp_attr {
            qp_state: 77,
            cur_qp_state: 77,
            path_mtu: 77,
            path_mig_state: 777,
            ..ibv_qp_attr::default()
        };
        let attr = attr_from_c(&odd);
        assert_eq!(attr.qp_state, QpState::Reset);
        assert_eq!(attr.cur_qp_state, QpState::Reset);
        assert_eq!((attr.path_mtu, attr.path_mig_state), (None, 0));
    }
}
