//! Addresses and routes.

use core::ffi::c_int;
use std::net::SocketAddr;

use super::complete::complete;
use super::id::{self, IdObject};
use super::{address, route};
use crate::c::cm::rdma_cm_id;
use crate::export::seam::{Result, Verb};
use crate::export::symbols::export;

/// `rdma_bind_addr(3)`. The port that was given is in the id afterwards, and if the address is the
/// device's, `verbs`.
pub fn bind(id: &IdObject, addr: SocketAddr) -> Result<()> {
    id.nic().bind(addr)?;
    route::refresh(id)
}

/// `rdma_resolve_addr(3)`.
pub fn find_peer(
    id: &IdObject,
    source: Option<SocketAddr>,
    peer: SocketAddr,
    timeout_ms: c_int,
) -> Result<()> {
    // SAFETY: a plain field of a live id.
    let field = unsafe { &raw mut (*id.c()).route.addr.dst_storage };
    // Before another thread can have the event, which says more exactly what is meant.
    // SAFETY: as above.
    let before = unsafe { field.replace(address::to_c(peer)) };
    if let Err(error) = id.nic().resolve_addr(source, peer, timeout(timeout_ms)) {
        // SAFETY: as above.
        unsafe { field.write(before) };
        return Err(error.into());
    }
    complete(id, "rdma_resolve_addr")
}

/// `rdma_resolve_route(3)`.
pub fn find_route(id: &IdObject, timeout_ms: c_int) -> Result<()> {
    id.nic().resolve_route(timeout(timeout_ms))?;
    complete(id, "rdma_resolve_route")
}

unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    Verb("rdma_bind_addr").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's address.
        bind(&id, unsafe { address::from_c(addr) }?)?;
        Ok(0)
    })
}

unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    peer: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    Verb("rdma_resolve_addr").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's addresses.
        let (source, peer) = unsafe { (address::maybe_from_c(source)?, address::from_c(peer)?) };
        find_peer(&id, source, peer, timeout_ms)?;
        Ok(0)
    })
}

extern "C" fn resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    Verb("rdma_resolve_route").does(|| {
        find_route(&*id::from_c(id)?, timeout_ms)?;
        Ok(0)
    })
}

/// Milliseconds; less than none is for ever, as the kernel has it.
fn timeout(timeout_ms: c_int) -> u32 {
    timeout_ms as u32
}

export! {
    rdma_bind_addr @@ "RDMACM_1.0" => bind_addr;
    rdma_resolve_addr @@ "RDMACM_1.0" => resolve_addr;
    rdma_resolve_route @@ "RDMACM_1.0" => resolve_route;
}
