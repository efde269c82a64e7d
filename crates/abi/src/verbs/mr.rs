//! Memory regions: registered, registered anew, advised about, deregistered.

use core::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use rnic_nic::{Access, Advice, Rereg, ReregError};

use crate::c::*;
use crate::export::seam::{EINVAL, EOPNOTSUPP, PARENTS, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::handles::mr::{MrObject, hand_out};
use crate::handles::object::{from_c, take_c};
use crate::handles::pd::PdObject;

/// Registers memory of the program.
///
/// # Safety
/// A protection domain of ours, or NULL; the program keeps the memory until it deregisters it.
pub unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    // SAFETY: by contract; checked for NULL before it is handed on.
    unsafe {
        let object = from_c::<PdObject>(pd)?;
        let nic = object
            .nic()?
            .reg_mr(addr.cast(), length, iova, Access(access))?;
        Ok(hand_out(pd, addr, length, nic))
    }
}

/// Registers a dmabuf.
///
/// # Safety
/// A protection domain of ours, or NULL.
pub unsafe fn register_dmabuf(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    // SAFETY: by contract; checked for NULL before it is handed on.
    unsafe {
        let object = from_c::<PdObject>(pd)?;
        let access = Access(access);
        let nic = object
            .nic()?
            .reg_dmabuf_mr(fd, offset, length, iova, access)?;
        // In place of an address libibverbs has the offset.
        Ok(hand_out(pd, offset as *mut c_void, length, nic))
    }
}

unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract is the same.
    Verb("ibv_reg_mr").makes(dereg_mr, || unsafe {
        register(pd, addr, length, iova, access)
    })
}

unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract is the same.
    unsafe { reg_mr_iova2(pd, addr, length, addr as u64, access as c_uint) }
}

unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract is the same.
    unsafe { reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let access = access as c_uint;
    // SAFETY: the caller's contract is the same.
    Verb("ibv_reg_dmabuf_mr").makes(dereg_mr, || unsafe {
        register_dmabuf(pd, offset, length, iova, fd, access)
    })
}

/// The `alloc_null_mr` operation.
pub unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    Verb("ibv_alloc_null_mr").makes(dereg_mr, || {
        // SAFETY: a protection domain of ours, or NULL.
        let nic = unsafe { from_c::<PdObject>(pd) }?.nic()?.alloc_null_mr()?;
        // SAFETY: checked above.
        Ok(unsafe { hand_out(pd, null_mut(), 0, nic) })
    })
}

/// `IBV_REREG_MR_ERR_INPUT`: refused, the old region is still valid.
const REREG_ERR_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the region is good for nothing but `ibv_dereg_mr`.
const REREG_ERR_CMD: c_int = -4;

/// `ibv_rereg_mr(3)`. The keys stay.
unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut lost = false;
    let outcome = Verb("ibv_rereg_mr").changes(|| {
        let flags = flags as c_uint;
        let known =
            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        let has = |flag| flags & flag != 0;
        if flags == 0 || flags & !known != 0 {
            return Err(EINVAL.because(format!("flags are {flags:#x}")));
        }
        if has(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0) {
            return Err(EINVAL.because("a new translation needs an address and a length"));
        }
        if access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS) {
            return Err(
                EINVAL.because("access is given, and flags lack IBV_REREG_MR_CHANGE_ACCESS")
            );
        }
        // SAFETY: a region of ours, or NULL.
        let object = unsafe { from_c::<MrObject>(mr) }?;
        if !object.context.is_alive() {
            return Err(PARENTS);
        }
        let new_pd = match has(IBV_REREG_MR_CHANGE_PD) {
            // SAFETY: a protection domain of ours, or NULL.
            true => Some(unsafe { from_c::<PdObject>(pd) }?.nic()?),
            false => None,
        };
        let change = Rereg {
            pd: new_pd,
            translation: has(IBV_REREG_MR_CHANGE_TRANSLATION).then_some((addr.cast(), length)),
            access: has(IBV_REREG_MR_CHANGE_ACCESS).then_some(Access(access as c_uint)),
        };
        // SAFETY: what `ibv_rereg_mr` asks of the program.
        unsafe { object.own()?.lock().rereg(change) }.map_err(|error| {
            lost = matches!(error, ReregError::Lost(_));
            let (ReregError::Lost(error) | ReregError::Unchanged(error)) = error;
            Refusal::from(error)
        })?;
        let c = object.c.get();
        // SAFETY: plain fields; the program may not use the region in parallel.
        unsafe {
            if has(IBV_REREG_MR_CHANGE_PD) {
                (*c).pd = pd;
            }
            if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
                (*c).addr = addr;
                (*c).length = length;
            }
        }
        Ok(())
    });
    match outcome {
        0 => 0,
        _ if lost => REREG_ERR_CMD,
        _ => REREG_ERR_INPUT,
    }
}

pub unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    Verb("ibv_dereg_mr").status(|| {
        // SAFETY: a region of ours, or NULL.
        let object = unsafe { from_c::<MrObject>(mr) }?;
        if !object.context.is_alive() {
            return Ok(());
        }
        object.own()?.lock().try_deregister()?;
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<MrObject>(mr) });
        Ok(())
    })
}

/// The `advise_mr` operation.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    Verb("ibv_advise_mr").changes(|| {
        // SAFETY: a protection domain of ours, or NULL.
        let object = unsafe { from_c::<PdObject>(pd) }?;
        let advice = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH => Advice::Prefetch,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Advice::PrefetchWrite,
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Advice::PrefetchNoFault,
            other => return Err(EOPNOTSUPP.because(format!("advice {other} is not there"))),
        };
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || list.is_null() || count == 0 {
            return Err(EINVAL.because(format!(
                "flags are {flags:#x}, the list has {count} entries at {list:?}"
            )));
        }
        // SAFETY: the caller's array, not NULL.
        let list = unsafe { std::slice::from_raw_parts(list.cast::<packed_sge>(), count as usize) };
        let list: Vec<_> = list
            .iter()
            .map(|sge| (sge.lkey, sge.addr, sge.length))
            .collect();
        let flush = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
        Ok(object.nic()?.advise(advice, flush, &list)?)
    })
}

export! {
    ibv_reg_mr @@ "IBVERBS_1.1" => reg_mr;
    ibv_reg_mr_iova @@ "IBVERBS_1.7" => reg_mr_iova;
    ibv_reg_mr_iova2 @@ "IBVERBS_1.8" => reg_mr_iova2;
    ibv_reg_dmabuf_mr @@ "IBVERBS_1.12" => reg_dmabuf_mr;
    ibv_rereg_mr @@ "IBVERBS_1.1" => rereg_mr;
    ibv_dereg_mr @@ "IBVERBS_1.1" => dereg_mr;
}
