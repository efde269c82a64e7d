//! `ibv_import_*(3)`: further handles of a device, a domain, a region, device memory, of this
//! process or of another one of this user that sent the `cmd_fd` of its context.

use core::ffi::c_int;

use super::device::{close_device, open_as};
use super::dm::hand_out_dm;
use crate::c::*;
use crate::export::seam::{self, Refusal, Verb};
use crate::export::symbols::export;
use crate::handles::context::opened;
use crate::handles::dm::DmObject;
use crate::handles::mr::{hand_out_import, take_import};
use crate::handles::object::{from_c, take_c};
use crate::handles::pd::{self, PdObject};

/// A context on a duplicate of another one's `cmd_fd`, which belongs to it from now on.
extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    Verb("ibv_import_device").makes(close_device, || {
        if !rnic_sys::is_open(cmd_fd) {
            return Err(
                Refusal::new(libc::EBADF).because(format!("{cmd_fd} is no open file descriptor"))
            );
        }
        open_as(Some(cmd_fd))
    })
}

unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    Verb("ibv_import_pd").makes(unimport_pd, || {
        // SAFETY: a context of ours, or NULL.
        let pd = unsafe { opened(context) }?.nic.import_pd(handle)?;
        Ok(pd::hand_out_import(context, pd))
    })
}

/// The domain itself, and what was made in the import, stay.
unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    seam::quiet(|| {
        // SAFETY: an imported domain, or NULL; the program gives it up.
        unsafe {
            from_c::<PdObject>(pd)?;
            take_c::<PdObject>(pd).unimport();
        }
        Ok(())
    });
}

unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    Verb("ibv_import_mr").makes(unimport_mr, || {
        // SAFETY: a protection domain of ours, or NULL.
        let object = unsafe { from_c::<PdObject>(pd) }?;
        let domain = object.nic()?;
        let (key, length) = domain.find_mr(handle)?;
        // SAFETY: checked above. Where the memory is, is not told (ibv_import_mr(3)).
        Ok(unsafe { hand_out_import(pd, length as usize, key, domain.clone()) })
    })
}

unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: an imported region, or NULL; the program gives it up.
    seam::quiet(|| unsafe { take_import(mr) });
}

unsafe extern "C" fn import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    Verb("ibv_import_dm").makes(unimport_dm, || {
        // SAFETY: a context of ours, or NULL.
        let dm = unsafe { opened(context) }?.nic.import_dm(handle)?;
        Ok(hand_out_dm(context, dm))
    })
}

unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    seam::quiet(|| {
        // SAFETY: imported device memory, or NULL; the program gives it up.
        unsafe {
            from_c::<DmObject>(dm)?;
            take_c::<DmObject>(dm).nic.unimport();
        }
        Ok(())
    });
}

export! {
    ibv_import_device @@ "IBVERBS_1.10" => import_device;
    ibv_import_pd @@ "IBVERBS_1.10" => import_pd;
    ibv_import_mr @@ "IBVERBS_1.10" => import_mr;
    ibv_import_dm @@ "IBVERBS_1.13" => import_dm;
    ibv_unimport_pd @@ "IBVERBS_1.10" => unimport_pd;
    ibv_unimport_mr @@ "IBVERBS_1.10" => unimport_mr;
    ibv_unimport_dm @@ "IBVERBS_1.13" => unimport_dm;
}
