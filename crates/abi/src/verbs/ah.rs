//! Address handles, and multicast groups.

use core::ffi::{c_int, c_void};
use std::cell::UnsafeCell;

use rnic_nic::{AhAttr, Gid, Qp};

use crate::c::*;
use crate::compat::rsocket;
use crate::convert::ah::{ah_from_c, ah_to_c, from_wc};
use crate::export::seam::{NULL, Refusal, Result, Verb};
use crate::export::symbols::{export, export_told_caller};
use crate::handles::ah::AhObject;
use crate::handles::context::nic;
use crate::handles::object::{from_c, into_c, take_c};
use crate::handles::pd::PdObject;
use crate::handles::qp::QpObject;

/// # Safety
/// A protection domain of ours, or NULL.
unsafe fn create(pd: *mut ibv_pd, attr: &AhAttr) -> Result<*mut ibv_ah> {
    // SAFETY: by contract.
    let owner = unsafe { from_c::<PdObject>(pd) }?;
    let nic = owner.nic()?.create_ah(attr)?;
    let c = ibv_ah {
        // SAFETY: a live protection domain, whose fields nobody changes.
        context: unsafe { (*pd).context },
        pd,
        handle: 0,
    };
    Ok(into_c(Box::new(AhObject {
        c: UnsafeCell::new(c),
        nic,
    })))
}

unsafe extern "C" fn create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
    caller: *const c_void,
) -> *mut ibv_ah {
    Verb("ibv_create_ah").makes(destroy_ah, || {
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        let mut attr = ah_from_c(attr);
        if !attr.is_global && rsocket::are_calling(caller) {
            // SAFETY: ours or NULL, by the contract of the verb.
            unsafe { address_own_port(pd, &mut attr) }?;
        }
        // SAFETY: as above.
        unsafe { create(pd, &attr) }
    })
}

/// rsockets for datagrams make a handle of the port's own LID for what they send to themselves,
/// which RoCE, and so every device but InfiniBand's, refuses. Here they get one of the port's first
/// GID, which leads there as well: where RoCE has no datagram rsockets, rnic has.
///
/// # Safety
/// A protection domain of ours, or NULL.
unsafe fn address_own_port(pd: *mut ibv_pd, attr: &mut AhAttr) -> Result<()> {
    // What `ibv_query_port` says.
    const OWN_LID: u16 = 0;
    // SAFETY: by contract.
    let context = unsafe { from_c::<PdObject>(pd) }?.nic()?.context();
    if attr.dlid != OWN_LID {
        return Ok(());
    }
    if let Some(own) = context.gid_table().first() {
        attr.is_global = true;
        attr.dgid = own.gid;
        attr.sgid_index = own.index as u8;
        attr.hop_limit = 1;
    }
    Ok(())
}

unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    Verb("ibv_destroy_ah").status(|| {
        // SAFETY: a handle of ours, or NULL.
        unsafe { from_c::<AhObject>(ah) }?;
        // SAFETY: checked for NULL, and the program gives it up.
        drop(unsafe { take_c::<AhObject>(ah) });
        Ok(())
    })
}

unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    Verb("ibv_init_ah_from_wc").number(|| {
        // SAFETY: a context of ours or NULL, and the caller's structures.
        unsafe {
            let nic = nic(context)?;
            let attr = from_wc(port_num, wc, grh)?;
            // The GID was looked for in that port's table.
            if attr.is_global {
                nic.port_attr(port_num)?;
            }
            if ah_attr.is_null() {
                return Err(NULL);
            }
            *ah_attr = ah_to_c(&attr);
        }
        Ok(0)
    })
}

unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: ours or NULL, and the caller's structures, by the contract of the verb.
    let body = || unsafe { create(pd, &from_wc(port_num, wc, grh)?) };
    Verb("ibv_create_ah_from_wc").makes(destroy_ah, body)
}

/// The LID of a group means nothing over Ethernet (`ibv_attach_mcast(3)`).
///
/// # Safety
/// `qp` and `gid` are ours and the caller's, or NULL.
unsafe fn mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    attach_or_detach: impl FnOnce(&Qp, Gid) -> rnic_nic::Result<()>,
) -> Result<()> {
    // SAFETY: by contract; all bytes are a GID.
    let (object, gid) = unsafe {
        let gid = gid.as_ref().ok_or(NULL)?;
        (from_c::<QpObject>(qp)?, Gid(gid.raw))
    };
    attach_or_detach(&object.nic, gid).map_err(Refusal::from)
}

pub unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_attach_mcast").changes(|| unsafe { mcast(qp, gid, Qp::attach_mcast) })
}

pub unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_detach_mcast").status(|| unsafe { mcast(qp, gid, Qp::detach_mcast) })
}

export_told_caller! {
    ibv_create_ah @@ "IBVERBS_1.1" => create_ah;
}

export! {
    ibv_create_ah_from_wc @@ "IBVERBS_1.1" => create_ah_from_wc;
    ibv_init_ah_from_wc @@ "IBVERBS_1.1" => init_ah_from_wc;
    ibv_destroy_ah @@ "IBVERBS_1.1" => destroy_ah;
    ibv_attach_mcast @@ "IBVERBS_1.1" => attach_mcast;
    ibv_detach_mcast @@ "IBVERBS_1.1" => detach_mcast;
}
