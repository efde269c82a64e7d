//! Addresses of peers.

use rnic_nic::AhAttr;

use crate::c::*;
use crate::export::seam::{EINVAL, NULL, Result};

pub use rnic_convert::{ah_from_c, ah_to_c};

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
