//! Memory windows. They are bound by work requests; see also `wr/memory.rs`.

use core::ffi::{c_int, c_uint};
use std::cell::UnsafeCell;

use rnic_nic::{MwType, SendData, SendWqe, SgList};

use crate::c::*;
use crate::convert::bind::bind_request;
use crate::export::seam::{self, EINVAL, NULL, Refusal, Verb};
use crate::handles::mw::MwObject;
use crate::handles::object::{from_c, into_c, take_c};
use crate::handles::pd::PdObject;
use crate::handles::qp::QpObject;

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

/// The `bind_mw` operation: type 1 (verbs.h has checked that). The new key is in `mw` on return,
/// and opens when the bind completes.
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
