//! Attributes and sizes of queue pairs.

use core::ffi::c_uint;

use rnic_nic::{PathMtu, QpAttr, QpState};

use crate::c::*;
use crate::export::seam::{EINVAL, Result};

pub use rnic_convert::{attr_to_c, cap_from_c, cap_to_c};

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
        ..rnic_convert::attr_from_c(attr)
    })
}
