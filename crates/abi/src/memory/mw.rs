//! Memory windows. They are bound by work requests; see also `wr/memory.rs`.

use core::ffi::{c_int, c_uint};
use std::cell::UnsafeCell;

use rnic_nic::{BindWindow, Error, Mw, MwType, SendData, SendOp, SendWqe, SgList};

use super::PdObject;
use super::mr::lkey_of;
use crate::object::{Object, from_c, into_c, take_c};
use crate::qp::QpObject;
use crate::seam::{self, EINVAL, NULL, Refusal, Verb};
use crate::types::*;

#[repr(C)]
struct MwObject {
    c: UnsafeCell<ibv_mw>,
    nic: Mw,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for MwObject {
    type C = ibv_mw;
}

/// The `alloc_mw` operation.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    Verb("ibv_alloc_mw").makes(dealloc_mw, || {
        // SAFETY: a protection domain of ours, or NULL.
        let object = unsafe { from_c::<PdObject>(pd) }?;
        let mw_type = match kind {
            IBV_MW_TYPE_1 => MwType::Type1,
            IBV_MW_TYPE_2 => MwType::Type2,
            _ => {
                return Err(EINVAL.because(format!(
                    "type {kind} is none of IBV_MW_TYPE_1 (1), IBV_MW_TYPE_2 (2)"
                )));
            }
        };
        let nic = object.nic()?.alloc_mw(mw_type)?;
        let c = ibv_mw {
            // SAFETY: a live protection domain, whose fields nobody changes.
            context: unsafe { (*pd).context },
            pd,
            rkey: nic.first_rkey(),
            handle: nic.first_rkey() >> 8,
            r#type: kind,
        };
        Ok(into_c(Box::new(MwObject {
            c: UnsafeCell::new(c),
            nic,
        })))
    })
}

/// The `dealloc_mw` operation: a bound window is closed.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    Verb("ibv_dealloc_mw").status(|| {
        // SAFETY: a window of ours, or NULL; the program gives it up.
        unsafe {
            if from_c::<MwObject>(mw)?.nic.pd().context().is_alive() {
                drop(take_c::<MwObject>(mw));
            }
        }
        Ok(())
    })
}

/// The key with the next tag, as `ibv_inc_rkey` of verbs.h counts.
fn next_key(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// The bind that a program describes. What depends on the state of region and window is found out when it is executed.
///
/// # Safety
/// The region in `info` is ours, or NULL.
unsafe fn bind_request(
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

/// The `bind_mw` operation: type 1 (verbs.h has checked that). The new key is in `mw` on return, and opens when the bind
/// completes.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    const VERB: &str = "ibv_bind_mw";
    Verb("ibv_bind_mw").status(|| {
        // SAFETY: ours, or NULL; the structure is the caller's.
        let (object, window, bind) = unsafe {
            let bind = bind.as_ref().ok_or(NULL)?;
            (from_c::<QpObject>(qp)?, from_c::<MwObject>(mw)?, bind)
        };
        if window.nic.mw_type() != MwType::Type1 {
            return Err(EINVAL.because("a window of type 2 is bound with ibv_post_send"));
        }
        // SAFETY: a plain field of a live window, which the program may not bind in parallel.
        let rkey = next_key(unsafe { (*mw).rkey });
        // SAFETY: the region is ours, or NULL.
        let op = unsafe { bind_request(VERB, &window.nic, rkey, &bind.bind_info) }?;
        // SAFETY: regions and domains are ours, or NULL; fields that nobody changes.
        let other_pd = unsafe {
            match bind.bind_info.mr.as_ref() {
                Some(region) => domain_of(region.pd)? != domain_of((*qp).pd)?,
                None => false,
            }
        };
        if other_pd {
            return Err(Refusal::new(libc::EPERM)
                .because("region and queue pair are of different protection domains"));
        }
        let wqe = SendWqe {
            wr_id: bind.wr_id,
            op,
            data: SendData::Gather(SgList::new()),
            signaled: bind.send_flags & IBV_SEND_SIGNALED != 0,
            solicited: false,
            fence: bind.send_flags & IBV_SEND_FENCE != 0,
            srqn: 0,
        };
        object
            .nic
            .post_send(&mut std::iter::once(Ok(wqe)))
            .map_err(|(_, error)| Refusal::from(error))?;
        // SAFETY: as above.
        unsafe { (*mw).rkey = rkey };
        Ok(())
    })
}

/// The number of a domain, the same for its parent domains.
///
/// # Safety
/// Ours, or NULL.
unsafe fn domain_of(pd: *mut ibv_pd) -> seam::Result<u32> {
    // SAFETY: by contract.
    Ok(unsafe { from_c::<PdObject>(pd) }?.nic()?.number())
}
