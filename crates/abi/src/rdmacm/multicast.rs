//! Multicast groups of datagram ids.

use core::ffi::{c_int, c_uint, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rnic_nic::{Gid, Unacknowledged, cm};

use super::complete::complete;
use super::id::{self, ACK_CM, IdObject};
use super::{address, verbs};
use crate::c::cm::*;
use crate::c::ibv_gid;
use crate::export::seam::{EINVAL, EOPNOTSUPP, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// A group that an id joined, or is about to.
pub struct Group {
    /// What its events carry.
    mark: u64,
    addr: SocketAddr,
    context: usize,
    send_only: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    membership: Option<cm::Multicast>,
    /// Once the queue pair is attached.
    attached: Option<Gid>,
    delivered: u64,
    completed: u64,
    left: bool,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group of an id that an event is about.
    pub fn find(id: &IdObject, mark: u64) -> Option<Arc<Group>> {
        let state = id.state();
        state.groups.iter().find(|g| g.mark == mark).cloned()
    }

    /// Counts an event that the program is about to get; false if it has left the group.
    pub fn deliver(&self) -> bool {
        let mut state = self.state();
        state.delivered += u64::from(!state.left);
        !state.left
    }

    /// Counts an acknowledgement; that of the id follows.
    pub fn acknowledge(&self) {
        self.state().completed += 1;
    }

    /// Whether an event of it that the program took was not acknowledged.
    fn is_owed(&self) -> bool {
        let state = self.state();
        state.completed < state.delivered
    }

    /// What was not.
    fn owed(&self) -> Option<Unacknowledged> {
        let state = self.state();
        (state.completed < state.delivered).then(|| Unacknowledged {
            object: format!("the group {}", self.addr.ip()),
            taken: state.delivered,
            acknowledged: state.completed,
            events: String::new(),
            remedy: ACK_CM,
        })
    }

    /// Detaches the queue pair of the id, if it is attached.
    fn detach(&self, id: &IdObject) {
        let attached = self.state().attached.take();
        // SAFETY: a plain field of a live id.
        let qp = unsafe { (*id.c()).qp };
        if let Some(gid) = attached.filter(|_| !qp.is_null()) {
            // SAFETY: the queue pair of a live id. It may have been detached by hand.
            let _ = unsafe { verbs::detach_mcast(qp, &ibv_gid { raw: gid.0 }) };
        }
    }

    /// What the program named it by.
    pub fn context(&self) -> *const c_void {
        self.context as *const c_void
    }

    /// The group is joined: attaches the queue pair of the id, if it has one and wants to receive.
    pub fn joined(&self, id: &IdObject, gid: Gid) -> Result<()> {
        // SAFETY: a plain field of a live id.
        let qp = unsafe { (*id.c()).qp };
        if qp.is_null() || self.send_only {
            return Ok(());
        }
        // SAFETY: the queue pair of a live id.
        unsafe { verbs::attach_mcast(qp, &ibv_gid { raw: gid.0 }) }?;
        self.state().attached = Some(gid);
        Ok(())
    }
}

fn join(id: &IdObject, addr: SocketAddr, send_only: bool, context: *mut c_void) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let group = Arc::new(Group {
        mark: NEXT.fetch_add(1, Ordering::Relaxed),
        addr,
        context: context as usize,
        send_only,
        state: Mutex::default(),
    });
    // Before its event can come.
    id.state().groups.push(Arc::clone(&group));
    // A thread that gets the event and leaves at once has to find the membership.
    let mut state = group.state();
    let joined = id.nic().join_multicast(addr, send_only, group.mark);
    let outcome = joined.map(|membership| state.membership = Some(membership));
    drop(state);
    if let Err(error) = outcome {
        let mut state = id.state();
        state.groups.retain(|other| !Arc::ptr_eq(other, &group));
        return Err(error.into());
    }
    complete(id, "rdma_join_multicast")
}

fn leave(id: &IdObject, addr: SocketAddr) -> Result<()> {
    let mut state = id.state();
    // The last one that was joined.
    let index = state.groups.iter().rposition(|group| group.addr == addr);
    let index = index.ok_or_else(|| {
        Refusal::new(libc::EADDRNOTAVAIL).because(format!("the id has not joined {}", addr.ip()))
    })?;
    let group = state.groups.remove(index);
    drop(state);
    let mut state = group.state();
    state.left = true;
    let membership = state.membership.take();
    drop(state);
    group.detach(id);
    if let Some(membership) = membership {
        id.nic().leave_multicast(&membership)?;
    }
    if id.is_sync() && group.is_owed() {
        // It is what joining left in the id, where nobody else would acknowledge it.
        id.drop_event();
    }
    id.wait_for("rdma_leave_multicast", || group.owed());
    // A thread that was taking the event meanwhile has attached it.
    group.detach(id);
    Ok(())
}

unsafe extern "C" fn join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    Verb("rdma_join_multicast").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's address.
        join(&id, unsafe { address::from_c(addr) }?, false, context)?;
        Ok(0)
    })
}

unsafe extern "C" fn join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const NEEDED: c_uint = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    Verb("rdma_join_multicast_ex").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        if attr.comp_mask & !NEEDED != 0 {
            return Err(EOPNOTSUPP.because(format!("comp_mask is {:#x}", attr.comp_mask)));
        }
        if attr.comp_mask != NEEDED {
            return Err(EINVAL.because("comp_mask has to name the address and join_flags"));
        }
        let send_only = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
            other => return Err(EINVAL.because(format!("join_flags are {other:#x}"))),
        };
        // SAFETY: the mask says that the address is there.
        let addr = unsafe { address::from_c(attr.addr) }?;
        join(&id, addr, send_only, context)?;
        Ok(0)
    })
}

unsafe extern "C" fn leave_multicast(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    Verb("rdma_leave_multicast").number(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's address.
        leave(&id, unsafe { address::from_c(addr) }?)?;
        Ok(0)
    })
}

export! {
    rdma_join_multicast @@ "RDMACM_1.0" => join_multicast;
    rdma_join_multicast_ex @@ "RDMACM_1.1" => join_multicast_ex;
    rdma_leave_multicast @@ "RDMACM_1.0" => leave_multicast;
}
