//! Protection domains, thread domains, parent domains.

use core::ffi::{c_int, c_void};
use std::cell::UnsafeCell;

use crate::c::consts::newest::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
use crate::c::*;
use crate::export::seam::{EBUSY, EINVAL, NULL, PARENTS, Result, Verb};
use crate::export::symbols::export;
use crate::handles::allocator::Allocator;
use crate::handles::context::opened;
use crate::handles::object::{from_c, into_c, take_c, to_end};
use crate::handles::pd::{Made, PdObject, TdObject, hand_out};
use crate::handles::per_process::PerProcess;

pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Verb("ibv_alloc_pd").makes(dealloc_pd, || {
        // SAFETY: a context of ours, or NULL.
        let owner = unsafe { opened(context) }?;
        Ok(hand_out(context, owner.nic.alloc_pd(), Made::Alone))
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn dealloc(pd: *mut ibv_pd) -> Result<()> {
    // SAFETY: a protection domain of ours, or NULL.
    let object = unsafe { from_c::<PdObject>(pd) }?;
    let Some(here) = object.nic.here() else {
        return Ok(());
    };
    if here.in_use() {
        return Err(EBUSY
            .because("queue pairs, memory regions or other objects of it are left")
            .consequence());
    }
    if object.nic.is_own_here() {
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<PdObject>(pd) });
    } else {
        // SAFETY: as above; what is the parent's of it stays.
        unsafe { to_end::<PdObject>(pd) }.nic.end_here();
    }
    Ok(())
}

/// `ibv_dealloc_pd(3)`, of parent domains too.
pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_dealloc_pd").status(|| unsafe { dealloc(pd) })
}

/// The `alloc_td` operation.
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    Verb("ibv_alloc_td").makes(dealloc_td, || {
        // SAFETY: a context of ours, or NULL; the caller's structure, or NULL.
        let attr = unsafe { attr.as_ref().ok_or(NULL)? };
        if attr.comp_mask != 0 {
            return Err(EINVAL.because("comp_mask is not 0"));
        }
        // SAFETY: as above.
        let owner = unsafe { opened(context) }?;
        Ok(into_c(Box::new(TdObject {
            c: UnsafeCell::new(ibv_td { context }),
            nic: owner.nic.alloc_td(),
        })))
    })
}

/// The `dealloc_td` operation.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    Verb("ibv_dealloc_td").status(|| {
        // SAFETY: a thread domain of ours, or NULL.
        if unsafe { from_c::<TdObject>(td) }?.nic.in_use() {
            return Err(EBUSY.because("parent domains of it are left").consequence());
        }
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<TdObject>(td) });
        Ok(())
    })
}

/// The `alloc_parent_domain` operation.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    Verb("ibv_alloc_parent_domain").makes(dealloc_pd, || {
        // SAFETY: ours, or NULL; the caller's structure, or NULL.
        let (attr, owner) = unsafe {
            opened(context)?;
            let attr = attr.as_ref().ok_or(NULL)?;
            (attr, from_c::<PdObject>(attr.pd)?)
        };
        // The last one allows a device to take memory that a confidential virtual machine shares
        // with its host. Ours needs none such: the processor copies.
        let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
            | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
            | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
        if attr.comp_mask & !known != 0 {
            return Err(EINVAL.because(format!("comp_mask is {:#x}", attr.comp_mask)));
        }
        let td = match attr.td.is_null() {
            true => None,
            // SAFETY: not NULL, so ours.
            false => Some(&unsafe { from_c::<TdObject>(attr.td) }?.nic),
        };
        let allocator = allocator(attr)?;
        if td.is_some_and(|td| !td.is_alive()) {
            return Err(PARENTS);
        }
        let nic = owner.nic()?.alloc_parent(td)?;
        let handle = nic.number();
        Ok(into_c(Box::new(PdObject {
            c: UnsafeCell::new(ibv_pd { context, handle }),
            nic: PerProcess::new(nic),
            allocator,
            made: Made::ParentOf(attr.pd),
        })))
    })
}

/// The functions that an attribute names: both, or EINVAL.
fn allocator(attr: &ibv_parent_domain_init_attr) -> Result<Option<Allocator>> {
    if attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS == 0 {
        return Ok(None);
    }
    let (Some(alloc), Some(free)) = (attr.alloc, attr.free) else {
        return Err(EINVAL.because("an allocator needs both functions, alloc and free"));
    };
    let pd_context: *mut c_void = match attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT {
        0 => std::ptr::null_mut(),
        _ => attr.pd_context,
    };
    Ok(Some(Allocator {
        alloc,
        free,
        pd_context,
    }))
}

export! {
    ibv_alloc_pd @@ "IBVERBS_1.1" => alloc_pd;
    ibv_dealloc_pd @@ "IBVERBS_1.1" => dealloc_pd;
}
