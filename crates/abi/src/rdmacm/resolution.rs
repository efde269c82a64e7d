//! Addresses by name as an event of an id, and events that a program raises itself.

use core::ffi::{c_char, c_int, c_uint};

use rnic_nic::cm::EventKind;

use super::addrinfo::{self, Answer};
use super::complete::complete;
use super::id::{self, IdObject};
use crate::c::cm::*;
use crate::export::seam::{EBUSY, EINVAL, EOPNOTSUPP, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// What became of the name that an id was asked for. The answer waits here until the program asks
/// for it.
#[derive(Default)]
pub enum Resolution {
    #[default]
    None,
    Asked,
    Found(Answer),
}

/// `rdma_resolve_addrinfo(3)`: looks the name up now, and tells by an event.
///
/// # Safety
/// NULL, or C strings; the hints as `rdma_getaddrinfo` takes them.
unsafe fn resolve(
    id: &IdObject,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<()> {
    if hints.is_some_and(|hints| hints.ai_flags & RAI_SA != 0) {
        // Service records are an InfiniBand subnet's.
        return Err(EOPNOTSUPP.because("RAI_SA asks a subnet administrator"));
    }
    let mut state = id.state();
    if !matches!(state.resolution, Resolution::None) {
        return Err(EBUSY.because("the id looks a name up already, or has an answer"));
    }
    state.resolution = Resolution::Asked;
    drop(state);
    // SAFETY: by contract.
    let outcome = unsafe { addrinfo::resolve(node, service, hints) }
        // SAFETY: by contract.
        .and_then(|answer| answer.map_err(|code| unsafe { failed(code, node, service) }))
        .and_then(|answer| {
            id.state().resolution = Resolution::Found(answer);
            Ok(id.nic().raise(EventKind::AddrInfoResolved, 0, 0)?)
        });
    if outcome.is_err() {
        id.state().resolution = Resolution::None;
    }
    outcome
}

/// The errno for an error of getaddrinfo(3).
///
/// # Safety
/// Strings are NULL or C strings.
unsafe fn failed(code: c_int, node: *const c_char, service: *const c_char) -> Refusal {
    let errno = match code {
        libc::EAI_SYSTEM => std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
        libc::EAI_MEMORY => libc::ENOMEM,
        libc::EAI_AGAIN => libc::EAGAIN,
        libc::EAI_NONAME => libc::ENOENT,
        _ => libc::EINVAL,
    };
    // SAFETY: by contract.
    unsafe { addrinfo::refused(code, node, service) }.with_errno(errno)
}

unsafe extern "C" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    Verb("rdma_resolve_addrinfo").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: the caller's strings and structure, or NULL.
        unsafe { resolve(&id, node, service, hints.as_ref()) }?;
        complete(&id, "rdma_resolve_addrinfo")?;
        Ok(0)
    })
}

/// `rdma_query_addrinfo(3)`: the answer, once; it is the program's to free.
unsafe extern "C" fn query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int {
    Verb("rdma_query_addrinfo").does(|| {
        let id = id::from_c(id)?;
        if info.is_null() {
            return Err(NULL);
        }
        let mut state = id.state();
        match std::mem::take(&mut state.resolution) {
            Resolution::Found(answer) => {
                // SAFETY: the caller's variable.
                unsafe { *info = answer.take() };
                Ok(0)
            }
            other => {
                state.resolution = other;
                Err(Refusal::new(libc::ENOENT)
                    .because("there is no answer, or it was taken")
                    .answer())
            }
        }
    })
}

/// `rdma_write_cm_event(3)`: only for events that mean what the program wants.
extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: c_uint,
    status: c_int,
    argument: u64,
) -> c_int {
    Verb("rdma_write_cm_event").does(|| {
        let id = id::from_c(id)?;
        if event != RDMA_CM_EVENT_USER {
            return Err(EINVAL.because(format!(
                "event {event} is not RDMA_CM_EVENT_USER ({RDMA_CM_EVENT_USER})"
            )));
        }
        id.nic().raise(EventKind::User, status, argument)?;
        Ok(0)
    })
}

export! {
    rdma_query_addrinfo @@ "RDMACM_1.4" => query_addrinfo;
    rdma_resolve_addrinfo @@ "RDMACM_1.4" => resolve_addrinfo;
    rdma_write_cm_event @@ "RDMACM_1.4" => write_cm_event;
}
