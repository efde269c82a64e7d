//! Protection domains and memory regions.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::UnsafeCell;

use parking_lot::Mutex;
use rnic_nic::{Access, Mr, Pd};

use crate::device::nic;
use crate::object::{Object, from_c, into_c, take_c};
use crate::seam::{self, EBUSY, EINVAL, EOPNOTSUPP, Result};
use crate::symbols::export;
use crate::types::*;

#[repr(C)]
pub struct PdObject {
    c: UnsafeCell<ibv_pd>,
    pub nic: Pd,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for PdObject {
    type C = ibv_pd;
}

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    seam::pointer(|| {
        // SAFETY: a context of ours, or NULL.
        let nic = unsafe { nic(context) }?.alloc_pd();
        let c = UnsafeCell::new(ibv_pd { context, handle: 0 });
        Ok(into_c(Box::new(PdObject { c, nic })))
    })
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    seam::status(|| {
        // SAFETY: a protection domain of ours, or NULL.
        if unsafe { from_c::<PdObject>(pd) }?.nic.in_use() {
            return Err(EBUSY);
        }
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<PdObject>(pd) });
        Ok(())
    })
}

/// What a region is made of; `ibv_rereg_mr` makes it anew from the old parts and the changed ones.
struct Registration {
    nic: Mr,
    access: Access,
    iova: u64,
}

#[repr(C)]
struct MrObject {
    c: UnsafeCell<ibv_mr>,
    registration: Mutex<Option<Registration>>,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for MrObject {
    type C = ibv_mr;
}

/// Registers `length` bytes at `addr`.
///
/// # Safety
/// As [`Pd::reg_mr`]: the program keeps the memory until it deregisters it.
unsafe fn register(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<Registration> {
    // Flags of the optional range are hints that a device may ignore (ibv_reg_mr(3)).
    let access = Access(access & !IBV_ACCESS_OPTIONAL_RANGE);
    // SAFETY: by contract.
    let nic = unsafe { pd.reg_mr(addr.cast(), length, iova, access) }?;
    Ok(Registration { nic, access, iova })
}

unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    seam::pointer(|| {
        // SAFETY: a protection domain of ours, or NULL.
        let object = unsafe { from_c::<PdObject>(pd) }?;
        // SAFETY: what `ibv_reg_mr` asks of the program.
        let registration = unsafe { register(&object.nic, addr, length, iova, access) }?;
        let c = ibv_mr {
            // SAFETY: a live protection domain, whose fields nobody changes.
            context: unsafe { (*pd).context },
            pd,
            addr,
            length,
            handle: 0,
            lkey: registration.nic.lkey(),
            rkey: registration.nic.rkey(),
        };
        Ok(into_c(Box::new(MrObject {
            c: UnsafeCell::new(c),
            registration: Mutex::new(Some(registration)),
        })))
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

extern "C" fn reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    seam::pointer(|| Err(EOPNOTSUPP))
}

/// `IBV_REREG_MR_ERR_INPUT`: refused, the old region is still valid.
const REREG_ERR_INPUT: c_int = -1;

/// `ibv_rereg_mr(3)`. The keys change, as they may; the old region is valid until the new one is.
unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let outcome = seam::status(|| {
        let flags = flags as c_uint;
        let known =
            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        if flags == 0 || flags & !known != 0 {
            return Err(EINVAL);
        }
        // SAFETY: a region of ours, or NULL.
        let object = unsafe { from_c::<MrObject>(mr) }?;
        let c = object.c.get();
        let mut registration = object.registration.lock();
        let old = registration.as_ref().ok_or(EINVAL)?;
        let access = match flags & IBV_REREG_MR_CHANGE_ACCESS {
            0 => old.access.0,
            _ => access as c_uint,
        };
        let (addr, length, iova) = match flags & IBV_REREG_MR_CHANGE_TRANSLATION {
            // SAFETY: the program may not use the region in parallel.
            0 => unsafe { ((*c).addr, (*c).length, old.iova) },
            _ if addr.is_null() || length == 0 => return Err(EINVAL),
            _ => (addr, length, addr as u64),
        };
        let new_pd = match flags & IBV_REREG_MR_CHANGE_PD {
            // SAFETY: as above.
            0 => unsafe { (*c).pd },
            _ => pd,
        };
        // SAFETY: a protection domain of ours, or NULL.
        let nic_pd = &unsafe { from_c::<PdObject>(new_pd) }?.nic;
        // SAFETY: what `ibv_rereg_mr` asks of the program.
        let new = unsafe { register(nic_pd, addr, length, iova, access) }?;
        // SAFETY: as above; plain fields.
        unsafe {
            (*c).pd = new_pd;
            (*c).addr = addr;
            (*c).length = length;
            (*c).lkey = new.nic.lkey();
            (*c).rkey = new.nic.rkey();
        }
        if let Some(old) = registration.replace(new) {
            old.nic.deregister();
        }
        Ok(())
    });
    if outcome == 0 { 0 } else { REREG_ERR_INPUT }
}

unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    seam::status(|| {
        // SAFETY: a region of ours, or NULL.
        unsafe { from_c::<MrObject>(mr) }?;
        // SAFETY: checked for NULL, and the program gives it up.
        let object = unsafe { take_c::<MrObject>(mr) };
        if let Some(registration) = object.registration.into_inner() {
            registration.nic.deregister();
        }
        Ok(())
    })
}

export! {
    ibv_alloc_pd @@ "IBVERBS_1.1" => alloc_pd;
    ibv_dealloc_pd @@ "IBVERBS_1.1" => dealloc_pd;
    ibv_reg_mr @@ "IBVERBS_1.1" => reg_mr;
    ibv_reg_mr_iova @@ "IBVERBS_1.7" => reg_mr_iova;
    ibv_reg_mr_iova2 @@ "IBVERBS_1.8" => reg_mr_iova2;
    ibv_reg_dmabuf_mr @@ "IBVERBS_1.12" => reg_dmabuf_mr;
    ibv_rereg_mr @@ "IBVERBS_1.1" => rereg_mr;
    ibv_dereg_mr @@ "IBVERBS_1.1" => dereg_mr;
}
