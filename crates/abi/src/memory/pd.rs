//! Protection domains.

use core::ffi::c_int;
use std::cell::UnsafeCell;

use rnic_nic::Pd;

use crate::device::nic;
use crate::object::{Object, from_c, into_c, take_c};
use crate::seam::{self, EBUSY};
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

export! {
    ibv_alloc_pd @@ "IBVERBS_1.1" => alloc_pd;
    ibv_dealloc_pd @@ "IBVERBS_1.1" => dealloc_pd;
}
