//! Attributes and sizes of queue pairs.

use core::ffi::c_uint;

use rnic_nic::{Access, PathMtu, QpAttr, QpCap, QpState};

use super::ah::{ah_from_c, ah_to_c};
use crate::c::*;
use crate::export::seam::{EINVAL, Result};

pub fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

pub fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// The attributes that `mask` names; the others may be anything, so their enums are not looked at.
pub fn attr_from_c(attr: &ibv_qp_attr, mask: c_uint) -> Result<QpAttr> {
    let state = |bit: c_uint, name: &str, value: c_uint| match mask & bit {
        0 => Ok(QpState::Reset),
        _ => QpState::from_ibv(value)
            .ok_or_else(|| EINVAL.because(format!("{name} is {value}, which is no state"))),
    };
    let path_mtu = match mask & IBV_QP_PATH_MTU {
        0 => None,
        _ => Some(PathMtu::from_ibv(attr.path_mtu).ok_or_else(|| {
            EINVAL.because(format!(
                "path_mtu is {}, none of IBV_MTU_256 (1) .. IBV_MTU_4096 (5)",
                attr.path_mtu
            ))
        })?),
    };
    let path_mig_state = match mask & IBV_QP_PATH_MIG_STATE {
        0 => 0,
        _ => u8::try_from(attr.path_mig_state)
            .map_err(|_| EINVAL.because(format!("path_mig_state is {}", attr.path_mig_state)))?,
    };
    Ok(QpAttr {
        qp_state: state(IBV_QP_STATE, "qp_state", attr.qp_state)?,
        cur_qp_state: state(IBV_QP_CUR_STATE, "cur_qp_state", attr.cur_qp_state)?,
        path_mtu,
        path_mig_state,
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
    })
}

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
