//! Buffers that the library allocates for the program (rdma-core 64 and later), and registration by
//! one structure.
//!
//! Both are libibverbs' own: every device has them. A device may give memory of another kind,
//! shared with the host of a confidential virtual machine; ours takes ordinary memory for all
//! protection domains, as most do.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use super::mr::{dereg_mr, register, register_dmabuf};
use crate::c::consts::newest::*;
use crate::c::*;
use crate::export::seam::{EINVAL, EOPNOTSUPP, NULL, Refusal, Result, Verb, make};
use crate::export::symbols::export;
use crate::handles::buf::BufObject;
use crate::handles::object::{from_c, into_c, take_c};
use crate::handles::pd::PdObject;

unsafe extern "C" fn alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    const VERB: &str = "ibv_alloc_buf";
    Verb(VERB).pointer(|| {
        // SAFETY: a protection domain of ours, or NULL.
        unsafe { from_c::<PdObject>(pd) }?;
        if buf.is_null() {
            return Err(NULL);
        }
        // SAFETY: what has just been made, which the program does not know of.
        let undo = |(object, _)| unsafe { free_buf(object) };
        let (object, addr) = make(VERB, || allocate(pd, size), undo)?;
        // SAFETY: the caller's place, not NULL.
        unsafe { *buf = object };
        Ok(addr)
    })
}

/// The buffer, and where its memory is.
fn allocate(pd: *mut ibv_pd, size: usize) -> Result<(*mut ibv_buf, *mut c_void)> {
    let mut addr = null_mut();
    // SAFETY: `addr` is a place for the result; sysconf takes no pointer.
    let errno = unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE).max(1) as usize;
        libc::posix_memalign(&raw mut addr, page, size)
    };
    if errno != 0 {
        return Err(Refusal::new(errno).because(format!("no memory for {size} bytes")));
    }
    let object = into_c(Box::new(BufObject {
        c: UnsafeCell::new(ibv_buf { _opaque: 0 }),
        pd,
        addr,
        size,
    }));
    Ok((object, addr))
}

unsafe extern "C" fn free_buf(buf: *mut ibv_buf) {
    crate::export::seam::quiet(|| {
        if !buf.is_null() {
            // SAFETY: checked for NULL, from `alloc_buf`, and the program gives it up; so it does
            // its memory.
            unsafe { libc::free(take_c::<BufObject>(buf).addr) };
        }
        Ok(())
    });
}

/// No buffer of ours stands on a dmabuf.
unsafe extern "C" fn export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    Verb("ibv_export_buf_dmabuf_fd").number(|| {
        // SAFETY: a buffer of ours, or NULL.
        unsafe { from_c::<BufObject>(buf) }?;
        Err(Refusal::new(libc::ENODATA).because("the buffer is ordinary memory"))
    })
}

/// # Safety
/// The domain and what `attr` points to are ours, or NULL; the program keeps the memory until it
/// deregisters it.
unsafe fn reg(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<*mut ibv_mr> {
    let mut mask = attr.comp_mask;
    let has = |mask: u64, bit: u32| mask & u64::from(bit) != 0;
    if has(mask, IBV_REG_MR_MASK_BUF) {
        // SAFETY: by contract.
        let buf = unsafe { from_c::<BufObject>(attr.buf) }?;
        let of_descriptor = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
        let why_not = match () {
            () if buf.pd != pd => "the buffer is of another protection domain",
            () if !has(mask, IBV_REG_MR_MASK_ADDR) => "IBV_REG_MR_MASK_BUF needs an address",
            () if !buf.holds(attr.addr, attr.length) => "the range leaves the buffer",
            () if has(mask, of_descriptor) => "it is of a buffer and of a descriptor",
            () => "",
        };
        if !why_not.is_empty() {
            return Err(EINVAL.because(why_not));
        }
        mask &= !u64::from(IBV_REG_MR_MASK_BUF);
    }
    let known = IBV_REG_MR_MASK_IOVA
        | IBV_REG_MR_MASK_ADDR
        | IBV_REG_MR_MASK_FD
        | IBV_REG_MR_MASK_FD_OFFSET;
    if has(mask, IBV_REG_MR_MASK_DMAH) {
        return Err(EOPNOTSUPP.because("the device has no DMA handles"));
    }
    if mask & !u64::from(known) != 0 {
        return Err(EOPNOTSUPP.because(format!("comp_mask is {:#x}", attr.comp_mask)));
    }
    let access = attr.access as c_uint;
    let of_memory = has(mask, IBV_REG_MR_MASK_ADDR);
    let offset = has(mask, IBV_REG_MR_MASK_FD_OFFSET);
    let iova = has(mask, IBV_REG_MR_MASK_IOVA);
    match has(mask, IBV_REG_MR_MASK_FD) {
        true if of_memory || !offset || !iova => {
            Err(EINVAL
                .because("a descriptor needs an offset and an iova, and goes without an address"))
        }
        // SAFETY: by contract.
        true => unsafe {
            register_dmabuf(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, access)
        },
        false if !of_memory || offset => {
            Err(EINVAL.because("it needs an address, or a descriptor and its offset"))
        }
        false => {
            let iova = if iova { attr.iova } else { attr.addr as u64 };
            // SAFETY: by contract.
            unsafe { register(pd, attr.addr, attr.length, iova, access) }
        }
    }
}

unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    Verb("ibv_reg_mr_ex").makes(dereg_mr, || {
        // SAFETY: the caller's structure, or NULL; the rest is its contract.
        unsafe { reg(pd, attr.as_ref().ok_or(NULL)?) }
    })
}

unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    Verb("ibv_reg_buf_mr").makes(dereg_mr, || {
        let attr = ibv_mr_init_attr {
            length,
            access,
            comp_mask: u64::from(IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR),
            iova: 0,
            addr,
            fd: -1,
            fd_offset: 0,
            dmah: null_mut(),
            buf,
        };
        // SAFETY: the caller's contract.
        unsafe { reg(pd, &attr) }
    })
}

export! {
    ibv_reg_mr_ex @@ "IBVERBS_1.15" => reg_mr_ex;
    ibv_alloc_buf @@ "IBVERBS_1.17" => alloc_buf;
    ibv_free_buf @@ "IBVERBS_1.17" => free_buf;
    ibv_reg_buf_mr @@ "IBVERBS_1.17" => reg_buf_mr;
    ibv_export_buf_dmabuf_fd @@ "IBVERBS_1.18" => export_buf_dmabuf_fd;
}
