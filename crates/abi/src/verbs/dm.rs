//! Device memory.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use rnic_nic::{Access, Dm};

use super::mr::dereg_mr;
use crate::c::*;
use crate::export::seam::{EBUSY, EINVAL, NULL, PARENTS, Refusal, Verb};
use crate::handles::context::opened;
use crate::handles::dm::DmObject;
use crate::handles::mr::hand_out;
use crate::handles::object::{from_c, into_c, take_c};
use crate::handles::pd::PdObject;

/// Largest alignment that may be asked for: a page. Where in the device its memory lies shows
/// nowhere.
const MAX_LOG_ALIGN: u32 = 12;

/// Gives device memory to the program.
pub fn hand_out_dm(context: *mut ibv_context, nic: Dm) -> *mut ibv_dm {
    let handle = nic.number();
    let c = UnsafeCell::new(ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle,
    });
    into_c(Box::new(DmObject { c, nic }))
}

/// The `alloc_dm` operation.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    Verb("ibv_alloc_dm").makes(free_dm, || {
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        if attr.comp_mask != 0 || attr.log_align_req > MAX_LOG_ALIGN {
            return Err(EINVAL.because(format!(
                "comp_mask is {:#x}, log_align_req {}: 0, and at most {MAX_LOG_ALIGN}",
                attr.comp_mask, attr.log_align_req
            )));
        }
        // SAFETY: a context of ours, or NULL.
        let owner = unsafe { opened(context) }?;
        let nic = owner.nic.alloc_dm(attr.length as u64)?;
        Ok(hand_out_dm(context, nic))
    })
}

/// The `free_dm` operation.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    Verb("ibv_free_dm").status(|| {
        // SAFETY: device memory of ours, or NULL.
        let object = unsafe { from_c::<DmObject>(dm) }?;
        if !object.nic.context().is_alive() {
            return Ok(());
        }
        if object.nic.in_use() {
            return Err(EBUSY.because("memory regions of it are left").consequence());
        }
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<DmObject>(dm) });
        Ok(())
    })
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    Verb("ibv_memcpy_to_dm").status(|| {
        // SAFETY: device memory of ours, or NULL.
        let object = unsafe { from_c::<DmObject>(dm) }?;
        if from.is_null() && length > 0 {
            return Err(Refusal::new(libc::EFAULT).because("the buffer is NULL"));
        }
        let data = match length {
            0 => &[],
            // SAFETY: not NULL, and the caller's buffer of that length.
            _ => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) },
        };
        Ok(object.nic.write(offset, data)?)
    })
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    Verb("ibv_memcpy_from_dm").status(|| {
        // SAFETY: device memory of ours, or NULL.
        let object = unsafe { from_c::<DmObject>(dm) }?;
        if to.is_null() && length > 0 {
            return Err(Refusal::new(libc::EFAULT).because("the buffer is NULL"));
        }
        let out = match length {
            0 => &mut [],
            // SAFETY: not NULL, and the caller's buffer of that length.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) },
        };
        Ok(object.nic.read(offset, out)?)
    })
}

/// The `reg_dm_mr` operation.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    Verb("ibv_reg_dm_mr").makes(dereg_mr, || {
        // SAFETY: ours, or NULL.
        let (object, dm) = unsafe { (from_c::<PdObject>(pd)?, from_c::<DmObject>(dm)?) };
        if !dm.nic.context().is_alive() {
            return Err(PARENTS);
        }
        let nic = object
            .nic()?
            .reg_dm_mr(&dm.nic, offset, length, Access(access))?;
        // SAFETY: checked above.
        Ok(unsafe { hand_out(pd, null_mut(), length, nic) })
    })
}
