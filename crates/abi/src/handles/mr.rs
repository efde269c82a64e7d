//! Memory regions, and imports of them.

use core::ffi::c_void;
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use rnic_nic::{Context, Error, Mr, Pd};
use rustix_futex_sync::Mutex;

use super::object::{Object, from_c, into_c, take_c};
use crate::c::*;
use crate::export::seam::{EINVAL, Result};

#[repr(C)]
pub struct MrObject {
    pub c: UnsafeCell<ibv_mr>,
    pub nic: Handle,
    /// What it was made in: tells whose it is without the region's lock, which a thread of the
    /// parent may hold for ever.
    pub context: Context,
}

pub enum Handle {
    Own(Mutex<Mr>),
    /// Of `ibv_import_mr`, in that domain: another object stands for the region.
    Imported(Pd),
}

impl MrObject {
    /// EINVAL for an import, which is not the region itself.
    pub fn own(&self) -> Result<&Mutex<Mr>> {
        match &self.nic {
            Handle::Own(nic) => Ok(nic),
            Handle::Imported(_) => {
                Err(EINVAL.because("the region is an import: ibv_unimport_mr ends it"))
            }
        }
    }
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for MrObject {
    type C = ibv_mr;
}

/// Gives a region to the program.
///
/// # Safety
/// `pd` is a live protection domain of ours.
pub unsafe fn hand_out(pd: *mut ibv_pd, addr: *mut c_void, length: usize, nic: Mr) -> *mut ibv_mr {
    let c = ibv_mr {
        // SAFETY: live by contract; nobody changes its fields.
        context: unsafe { (*pd).context },
        pd,
        addr,
        length,
        handle: nic.lkey() >> 8,
        lkey: nic.lkey(),
        rkey: nic.rkey(),
    };
    into_c(Box::new(MrObject {
        c: UnsafeCell::new(c),
        context: nic.pd().context().clone(),
        nic: Handle::Own(Mutex::new(nic)),
    }))
}

/// Gives one more handle of a region to the program.
///
/// # Safety
/// `pd` is a live protection domain of ours.
pub unsafe fn hand_out_import(pd: *mut ibv_pd, length: usize, key: u32, domain: Pd) -> *mut ibv_mr {
    let c = ibv_mr {
        // SAFETY: live by contract; nobody changes its fields.
        context: unsafe { (*pd).context },
        pd,
        // Where the memory is, is not told (ibv_import_mr(3)).
        addr: null_mut(),
        length,
        handle: key >> 8,
        lkey: key,
        rkey: key,
    };
    into_c(Box::new(MrObject {
        c: UnsafeCell::new(c),
        context: domain.context().clone(),
        nic: Handle::Imported(domain),
    }))
}

/// Takes such a handle back.
///
/// # Safety
/// From [`hand_out_import`], or NULL; the program gives it up.
pub unsafe fn take_import(mr: *mut ibv_mr) -> Result<()> {
    // SAFETY: by contract.
    unsafe {
        let object = from_c::<MrObject>(mr)?;
        if let Handle::Imported(domain) = &object.nic {
            domain.forget_mr((*mr).lkey);
            drop(take_c::<MrObject>(mr));
        }
    }
    Ok(())
}

/// The lkey of a region that a window is to be bound to.
///
/// # Safety
/// A region of ours, not NULL.
pub unsafe fn lkey_of(mr: *mut ibv_mr) -> rnic_nic::Result<u32> {
    // SAFETY: by contract.
    match unsafe { from_c::<MrObject>(mr) } {
        // SAFETY: a plain field that is never changed.
        Ok(object) => Ok(unsafe { (*object.c.get()).lkey }),
        Err(_) => Err(Error::invalid("ibv_bind_mw", "no memory region")),
    }
}
