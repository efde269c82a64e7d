//! What a program asks for when it binds a memory window.

use rnic_nic::{BindWindow, Error, Mw, MwType, SendOp};

use crate::c::*;
use crate::handles::mr::lkey_of;
use crate::handles::mw::MwObject;
use crate::handles::object::from_c;

/// The bind that a program describes. What depends on the state of region and window is found out
/// when it is executed.
///
/// # Safety
/// The region in `info` is ours, or NULL.
pub unsafe fn bind_request(
    verb: &'static str,
    window: &Mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Error> {
    let rights = info.mw_access_flags;
    // LOCAL_WRITE says nothing of a window, and is taken as ConnectX takes it.
    let mut known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC;
    if window.mw_type() == MwType::Type2 {
        known |= IBV_ACCESS_ZERO_BASED;
    }
    if rights & !known != 0 {
        return Err(Error::invalid(
            verb,
            format!(
                "a window of {:?} cannot have access flags {rights:#x}",
                window.mw_type()
            ),
        ));
    }
    if !window.owns(rkey) {
        return Err(Error::invalid(
            verb,
            format!(
                "rkey {rkey:#x} differs from the window's {:#x} in more than the last byte",
                window.first_rkey()
            ),
        ));
    }
    let lkey = match (info.mr.is_null(), info.addr, info.length) {
        // SAFETY: not NULL, so a region of ours.
        (false, ..) => unsafe { lkey_of(info.mr) }?,
        (true, 0, 0) => 0,
        (true, ..) => return Err(Error::invalid(verb, "the memory region is NULL")),
    };
    Ok(SendOp::BindWindow(BindWindow {
        rkey,
        lkey,
        addr: info.addr,
        length: info.length,
        read: rights & IBV_ACCESS_REMOTE_READ != 0,
        write: rights & IBV_ACCESS_REMOTE_WRITE != 0,
        atomic: rights & IBV_ACCESS_REMOTE_ATOMIC != 0,
        zero_based: rights & IBV_ACCESS_ZERO_BASED != 0,
    }))
}

/// The operation of `IBV_WR_BIND_MW` and `ibv_wr_bind_mw`, which are for type 2.
///
/// # Safety
/// Window, and region in `info`, are ours or NULL.
pub unsafe fn bind_type_2(
    verb: &'static str,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Error> {
    // SAFETY: by contract.
    let Ok(window) = (unsafe { from_c::<MwObject>(mw) }) else {
        return Err(Error::invalid(verb, "the memory window is NULL"));
    };
    if window.nic.mw_type() != MwType::Type2 {
        return Err(Error::invalid(
            verb,
            "a window of type 1 is bound with ibv_bind_mw",
        ));
    }
    // SAFETY: by contract.
    unsafe { bind_request(verb, &window.nic, rkey, info) }
}
