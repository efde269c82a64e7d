//! XRC domains.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_layouts::*;
use rnic_types::Result;

use crate::objects::context::{Context, extended};

/// An XRC domain (`ibv_open_xrcd`).
#[derive(Clone)]
pub struct Xrcd {
    inner: Arc<Domain>,
}

struct Domain {
    ptr: NonNull<ibv_xrcd>,
    close: unsafe extern "C" fn(*mut ibv_xrcd) -> c_int,
    context: Context,
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Context {
    /// Opens the domain of a file, or one that nobody else can open.
    ///
    /// # Errors
    /// The device has no XRC; ENODEV in a forked child.
    pub fn open_xrcd(&self, file: Option<RawFd>) -> Result<Xrcd> {
        const VERB: &str = "ibv_open_xrcd";
        self.check_alive(VERB)?;
        let open = extended!(self, open_xrcd).ok_or(self.absent(VERB))?;
        let close = extended!(self, close_xrcd).ok_or(self.absent(VERB))?;
        let mut init = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.unwrap_or(-1),
            oflags: libc::O_CREAT,
        };
        // SAFETY: an open device; the attributes are the call's while it lasts.
        let ptr = unsafe { open(self.ptr(), &mut init) };
        Ok(Xrcd {
            inner: Arc::new(Domain {
                ptr: self.made(VERB, ptr)?,
                close,
                context: self.clone(),
            }),
        })
    }
}

impl Xrcd {
    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn ptr(&self) -> *mut ibv_xrcd {
        self.inner.ptr.as_ptr()
    }

    /// Makes a target in RESET (`ibv_create_qp_ex` with `IBV_QPT_XRC_RECV`).
    ///
    /// # Errors
    /// The device refuses; ENODEV in a forked child.
    pub(crate) fn create_target(&self, cookie: u64) -> Result<NonNull<ibv_qp>> {
        const VERB: &str = "ibv_create_qp_ex";
        let context = self.context();
        context.check_alive(VERB)?;
        let create = extended!(context, create_qp_ex).ok_or(context.absent(VERB))?;
        // SAFETY: pointers and numbers, which may all be zero.
        let mut init: ibv_qp_init_attr_ex = unsafe { core::mem::zeroed() };
        init.qp_context = cookie as usize as *mut c_void;
        init.qp_type = IBV_QPT_XRC_RECV;
        init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        init.xrcd = self.ptr();
        // SAFETY: an open device and a domain of it; the attributes are the call's.
        let ptr = unsafe { create(context.ptr(), &mut init) };
        context.made(VERB, ptr)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.context.is_alive() {
            // SAFETY: of this process, and nothing that was made in it is left.
            unsafe { (self.close)(self.ptr.as_ptr()) };
        }
    }
}
