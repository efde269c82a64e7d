//! Protection domains, registered memory, windows.

use core::ffi::c_int;
use core::ptr::NonNull;
use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_layouts::*;
use rnic_types::{Access, Result};

use crate::objects::context::Context;

/// A protection domain (`ibv_alloc_pd`).
#[derive(Clone)]
pub struct Pd {
    pub(crate) inner: Arc<Allocated>,
}

pub(crate) struct Allocated {
    ptr: NonNull<ibv_pd>,
    context: Context,
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Allocated {}
// SAFETY: as above.
unsafe impl Sync for Allocated {}

impl Context {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// The device has none left; ENODEV in a forked child.
    pub fn alloc_pd(&self) -> Result<Pd> {
        const VERB: &str = "ibv_alloc_pd";
        self.check_alive(VERB)?;
        // SAFETY: an open device.
        let ptr = unsafe { (self.library().alloc_pd)(self.ptr()) };
        Ok(Pd {
            inner: Arc::new(Allocated {
                ptr: self.made(VERB, ptr)?,
                context: self.clone(),
            }),
        })
    }
}

impl Pd {
    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The library's object, alive as long as the handle.
    pub fn as_ptr(&self) -> *mut core::ffi::c_void {
        self.ptr().cast()
    }

    pub(crate) fn ptr(&self) -> *mut ibv_pd {
        self.inner.ptr.as_ptr()
    }

    /// Registers memory (`ibv_reg_mr`), by whose `iova` work requests and peers name the first byte
    /// (`ibv_reg_mr_iova`); `None`: by its address.
    ///
    /// # Errors
    /// The device refuses the range or the rights, or has no room; the library has no such call;
    /// ENODEV in a forked child.
    ///
    /// # Safety
    /// The memory stays until [`Mr::end`] has given true, or for ever. Nothing in the program takes
    /// bytes for its own that the device may write, or for constant; see [`Access`].
    pub unsafe fn reg_mr(
        &self,
        ptr: *mut u8,
        len: usize,
        iova: Option<u64>,
        access: Access,
    ) -> Result<Mr> {
        let (verb, context) = match iova {
            None => ("ibv_reg_mr", self.context()),
            Some(_) => ("ibv_reg_mr_iova", self.context()),
        };
        context.check_alive(verb)?;
        let (library, access) = (context.library(), access.0 as c_int);
        let mr = match iova {
            // SAFETY: the domain is alive; the range is the caller's by contract.
            None => unsafe { (library.reg_mr)(self.ptr(), ptr.cast(), len, access) },
            Some(iova) => {
                let register = library.reg_mr_iova.ok_or_else(|| context.absent(verb))?;
                // SAFETY: as above.
                unsafe { register(self.ptr(), ptr.cast(), len, iova, access) }
            }
        };
        let mr = context.made(verb, mr)?;
        // SAFETY: just made.
        Ok(unsafe { self.hand_out(mr, iova.unwrap_or(ptr as u64)) })
    }

    /// Registers `len` bytes of a dmabuf from `offset` (`ibv_reg_dmabuf_mr`), which goes by `iova`.
    ///
    /// # Errors
    /// It is no dmabuf, or the device refuses it; the library has no such call; ENODEV in a forked
    /// child.
    pub fn reg_dmabuf_mr(
        &self,
        fd: RawFd,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        const VERB: &str = "ibv_reg_dmabuf_mr";
        let context = self.context();
        context.check_alive(VERB)?;
        let register = context.library().reg_dmabuf_mr;
        let register = register.ok_or_else(|| context.absent(VERB))?;
        // SAFETY: the domain is alive; the kernel keeps what the descriptor is of, and none of it is
        // memory of the program.
        let mr = unsafe { register(self.ptr(), offset, len, iova, fd, access.0 as c_int) };
        let mr = context.made(VERB, mr)?;
        // SAFETY: just made.
        Ok(unsafe { self.hand_out(mr, iova) })
    }

    /// # Safety
    /// It was just made in this domain.
    unsafe fn hand_out(&self, mr: NonNull<ibv_mr>, addr: u64) -> Mr {
        // SAFETY: by contract; the keys never change.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        Mr {
            ptr: Some(mr),
            addr,
            lkey,
            rkey,
            pd: self.clone(),
        }
    }

    /// Makes a window of type 2 that is bound to nothing (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// The device has no windows, or none left; ENODEV in a forked child.
    pub fn alloc_mw(&self) -> Result<Mw> {
        const VERB: &str = "ibv_alloc_mw";
        let context = self.context();
        context.check_alive(VERB)?;
        // SAFETY: an open device, whose table does not change.
        let ops = unsafe { &context.inner.ptr.as_ref().ops };
        let (Some(alloc), Some(dealloc)) = (ops.alloc_mw, ops.dealloc_mw) else {
            return Err(context.absent(VERB));
        };
        // SAFETY: the domain is alive.
        let mw = unsafe { alloc(self.ptr(), IBV_MW_TYPE_2) };
        let ptr = context.made(VERB, mw)?;
        Ok(Mw {
            ptr,
            // SAFETY: just made.
            first_rkey: unsafe { ptr.as_ref().rkey },
            dealloc,
            pd: self.clone(),
        })
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        if self.context.is_alive() {
            // SAFETY: of this process, and nothing that was made in it is left. If the device
            // refuses, it stays.
            unsafe { (self.context.library().dealloc_pd)(self.ptr.as_ptr()) };
        }
    }
}

/// Registered memory (`ibv_reg_mr`). Its registration ends when it is dropped.
pub struct Mr {
    /// `None`: it has ended.
    ptr: Option<NonNull<ibv_mr>>,
    addr: u64,
    lkey: u32,
    rkey: u32,
    pd: Pd,
}

// SAFETY: see `Opened`.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Address of the first byte, as work requests name it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The library's object, alive as long as the handle; NULL: it has ended.
    pub fn as_ptr(&self) -> *mut core::ffi::c_void {
        self.ptr
            .map_or(core::ptr::null_mut(), NonNull::as_ptr)
            .cast()
    }

    pub(crate) fn ptr(&self) -> Option<*mut ibv_mr> {
        self.ptr.map(NonNull::as_ptr)
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Ends the registration (`ibv_dereg_mr`). False: the device refused, so the memory may still
    /// be written to, and has to stay for ever.
    pub fn end(&mut self) -> bool {
        let Some(ptr) = self.ptr else {
            return true;
        };
        let context = self.pd.context();
        if !context.is_alive() {
            // The child's copy of the memory is nobody's but its own.
            self.ptr = None;
            return true;
        }
        // SAFETY: registered in this process, and not ended yet.
        let given = unsafe { (context.library().dereg_mr)(ptr.as_ptr()) };
        if given == 0 {
            self.ptr = None;
        }
        given == 0
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.end();
    }
}

/// A memory window of type 2 (`ibv_alloc_mw`). Closed when dropped.
pub struct Mw {
    ptr: NonNull<ibv_mw>,
    first_rkey: u32,
    dealloc: unsafe extern "C" fn(*mut ibv_mw) -> c_int,
    pd: Pd,
}

// SAFETY: see `Opened`.
unsafe impl Send for Mw {}
// SAFETY: as above.
unsafe impl Sync for Mw {}

impl Mw {
    /// The key it was made with: the upper 24 bits are those of all its keys.
    pub fn first_rkey(&self) -> u32 {
        self.first_rkey
    }

    pub(crate) fn ptr(&self) -> *mut ibv_mw {
        self.ptr.as_ptr()
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if self.pd.context().is_alive() {
            // SAFETY: of this process, and deallocated once.
            unsafe { (self.dealloc)(self.ptr.as_ptr()) };
        }
    }
}

impl std::fmt::Debug for Mw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mw")
            .field("first_rkey", &self.first_rkey)
            .finish_non_exhaustive()
    }
}
