//! Addresses of peers.

use rnic_nic::{AhAttr, Gid};

use crate::c::*;
use crate::export::seam::{EINVAL, NULL, Result};

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

/// The sender's address. Without a GRH it has none, as over InfiniBand, and no handle can be made
/// of it.
///
/// # Safety
/// `wc` is NULL or the caller's; `grh` is too, if `wc` says that there is one.
pub unsafe fn from_wc(port_num: u8, wc: *const ibv_wc, grh: *const ibv_grh) -> Result<AhAttr> {
    // SAFETY: by contract.
    let wc = unsafe { wc.as_ref() }.ok_or(NULL)?;
    let local = AhAttr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num,
        ..AhAttr::default()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(local);
    }
    // SAFETY: by contract; a GRH is 40 bytes, without alignment.
    let header = unsafe { grh.cast::<[u8; 40]>().as_ref() }.ok_or_else(|| {
        EINVAL.because("the completion says that there is a GRH, and its address is NULL")
    })?;
    let attr = rnic_nic::ah_attr_from_header(header, port_num)?;
    Ok(AhAttr {
        dlid: local.dlid,
        sl: local.sl,
        src_path_bits: local.src_path_bits,
        ..attr
    })
}
