//! `rdma_create_ep`: a synchronous id from an `rdma_addrinfo`, in one call.

use core::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::complete::complete;
use super::id::{self, IdObject};
use super::{address, options, qp, resolve};
use crate::c::cm::*;
use crate::c::*;
use crate::export::seam::{self, EINVAL, NULL, Result, Verb};
use crate::export::symbols::export;

/// How long address and route may take to be found; librdmacm's own figure.
const RESOLVE_MS: c_int = 2000;

unsafe extern "C" fn create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *mut ibv_qp_init_attr,
) -> c_int {
    const NAME: Verb = Verb("rdma_create_ep");
    NAME.number(|| {
        // SAFETY: NULL or the caller's structure.
        let info = unsafe { info.as_ref() }.ok_or(NULL)?;
        if id.is_null() {
            return Err(NULL);
        }
        let (ps, qp_type) = (
            seam::unsigned("ai_port_space", info.ai_port_space)?,
            seam::unsigned("ai_qp_type", info.ai_qp_type)?,
        );
        // SAFETY: a live id, which nobody else knows of.
        let undo = |object: Arc<IdObject>| unsafe { end(&object) };
        let make = || {
            let object = id::create(None, null_mut(), ps, qp_type)?;
            // SAFETY: the caller's addresses, route, domain and attributes.
            let ready = unsafe {
                match info.ai_flags & RAI_PASSIVE as c_int {
                    0 => reach(&object, info, pd, qp_init),
                    _ => expect(&object, info, pd, qp_init),
                }
            };
            match ready {
                Ok(()) => Ok(object),
                Err(error) => {
                    undo(object);
                    Err(error)
                }
            }
        };
        let object = seam::make(NAME.0, make, undo)?;
        // SAFETY: the caller's variable.
        unsafe { *id = object.c() };
        Ok(0)
    })
}

/// The passive side: bound, and what the ids of its requests are to get.
///
/// # Safety
/// What `info` points to, the domain and the attributes are the caller's.
unsafe fn expect(
    id: &IdObject,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *const ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: by contract; a plain field of a live id.
    unsafe {
        resolve::bind(id, address::from_c(info.ai_src_addr)?)?;
        if !pd.is_null() {
            (*id.c()).pd = pd;
        }
        if let Some(attr) = qp_init.as_ref() {
            let mut attr = *attr;
            attr.qp_type = info.ai_qp_type as c_uint;
            id.state().qp_init = Some(attr);
        }
    }
    Ok(())
}

/// The active side: address and route resolved, and the queue pair made.
///
/// # Safety
/// As [`expect`].
unsafe fn reach(
    id: &IdObject,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: by contract.
    unsafe {
        let source = address::maybe_from_c(info.ai_src_addr)?;
        let peer = address::from_c(info.ai_dst_addr)?;
        resolve::find_peer(id, source, peer, RESOLVE_MS)?;
        if info.ai_route_len == 0 {
            resolve::find_route(id, RESOLVE_MS)?;
        } else {
            options::set_path(id, info.ai_route, info.ai_route_len)?;
            complete(id, "rdma_create_ep")?;
        }
        if let Some(attr) = qp_init.as_mut() {
            attr.qp_type = info.ai_qp_type as c_uint;
            qp::create_plain(id.c(), pd, attr)?;
        }
        id.state().connect_data = bytes(info.ai_connect, info.ai_connect_len)?.to_vec();
    }
    Ok(())
}

/// What goes before the private data. No message has room for more than 255 bytes.
///
/// # Safety
/// NULL, or `len` bytes.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    match len {
        0 => Ok(&[]),
        1..=255 if !data.is_null() => {
            // SAFETY: by contract.
            Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
        }
        _ => Err(EINVAL.because(format!("ai_connect has {len} bytes at {data:?}"))),
    }
}

unsafe extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    seam::quiet(|| {
        let id = id::from_c(id)?;
        // SAFETY: a live id.
        unsafe { end(&id) };
        Ok(())
    });
}

/// # Safety
/// Nobody uses the id any more.
unsafe fn end(id: &IdObject) {
    // SAFETY: by contract; the queues of the id.
    unsafe {
        let c = id.c();
        if !(*c).qp.is_null() {
            qp::destroy(c);
        }
        if !(*c).srq.is_null() {
            qp::destroy_queue(c);
        }
    }
    if !id.is_parents() {
        id.destroy_in("rdma_destroy_ep");
    }
}

export! {
    rdma_create_ep @@ "RDMACM_1.0" => create_ep;
    rdma_destroy_ep @@ "RDMACM_1.0" => destroy_ep;
}
