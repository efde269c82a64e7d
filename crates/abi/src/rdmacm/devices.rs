//! The devices that ids can be on: ours. All ids share one context, and while there are any on it,
//! one protection domain and one XRC domain, as librdmacm has it.

use core::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::verbs;
use crate::c::*;
use crate::export::seam::{self, ENOMEM, Result, Verb};
use crate::export::symbols::export;
use crate::handles::context::is_parents;
use crate::system::fork::{self, Lock};
use crate::verbs::device;

/// What ids on the device share.
pub struct Shared {
    /// Opened once, never closed: programs keep `id->verbs`.
    context: *mut ibv_context,
    /// While there are users, once somebody wanted it.
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
    users: usize,
}

// SAFETY: pointers to objects that any thread may use.
unsafe impl Send for Shared {}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    context: null_mut(),
    pd: null_mut(),
    xrcd: null_mut(),
    users: 0,
});

/// Held across fork(2), so that the child finds it free.
pub fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has forks take the lock.
pub fn guard_forks() -> Result<()> {
    fork::hold_at_forks(Lock::Devices, || Box::new(lock()))
}

impl Shared {
    fn open(&mut self) -> Result<*mut ibv_context> {
        // SAFETY: a context of ours that nobody closes. In a forked child it is the parent's, as is
        // all that hangs on it.
        if self.context.is_null() || unsafe { is_parents(self.context) }? {
            *self = Shared {
                context: device::open_as(None)
                    .map_err(|error| error.because("the device cannot be opened"))?,
                pd: null_mut(),
                xrcd: null_mut(),
                users: 0,
            };
        }
        Ok(self.context)
    }

    fn leave(&mut self) {
        self.users = self.users.saturating_sub(1);
        if self.users == 0 {
            // One that is still in use is the program's from now on.
            // SAFETY: made here, or NULL; by the contract of librdmacm they end with the last id.
            unsafe {
                let _ = verbs::dealloc_pd(std::mem::replace(&mut self.pd, null_mut()));
                let _ = verbs::close_xrcd(std::mem::replace(&mut self.xrcd, null_mut()));
            }
        }
    }
}

/// A share in the device; it ends with [`leave`].
pub struct Membership {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
}

// SAFETY: pointers to objects that any thread may use.
unsafe impl Send for Membership {}

/// Opens the device if nobody has, and makes the protection domain that ids have by default.
pub fn join() -> Result<Membership> {
    guard_forks()?;
    let mut shared = lock();
    let context = shared.open()?;
    if shared.pd.is_null() {
        // SAFETY: a live context.
        shared.pd = unsafe { verbs::alloc_pd(context) }?;
    }
    shared.users += 1;
    Ok(Membership {
        context,
        pd: shared.pd,
    })
}

/// Gives a share back.
pub fn leave(membership: &Membership) {
    let mut shared = lock();
    // Else it is the parent's.
    if shared.context == membership.context {
        shared.leave();
    }
}

/// The XRC domain that ids share.
pub fn xrcd() -> Result<*mut ibv_xrcd> {
    let mut shared = lock();
    let context = shared.open()?;
    if shared.xrcd.is_null() {
        // SAFETY: a live context.
        shared.xrcd = unsafe { verbs::open_xrcd(context) }?;
    }
    Ok(shared.xrcd)
}

unsafe extern "C" fn get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let list = Verb("rdma_get_devices").makes(free_devices, || {
        guard_forks()?;
        let mut shared = lock();
        let context = shared.open()?;
        // SAFETY: two zeroed pointers, the second of which ends the list.
        let list =
            unsafe { libc::calloc(2, size_of::<*mut ibv_context>()) }.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(ENOMEM);
        }
        shared.users += 1;
        // SAFETY: room for two.
        unsafe { *list = context };
        Ok(list)
    });
    if !num_devices.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *num_devices = c_int::from(!list.is_null()) };
    }
    list
}

unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    seam::quiet(|| {
        if list.is_null() {
            return Ok(());
        }
        let mut shared = lock();
        // SAFETY: from `get_devices`: one context and NULL.
        if unsafe { *list } == shared.context {
            shared.leave();
        }
        drop(shared);
        // SAFETY: from `get_devices`, and the program gives it up.
        unsafe { libc::free(list.cast()) };
        Ok(())
    });
}

export! {
    rdma_get_devices @@ "RDMACM_1.0" => get_devices;
    rdma_free_devices @@ "RDMACM_1.0" => free_devices;
}
