//! Buffers that the library allocates for the program.

use core::ffi::c_void;
use std::cell::UnsafeCell;

use super::object::Object;
use crate::c::*;

#[repr(C)]
pub struct BufObject {
    pub c: UnsafeCell<ibv_buf>,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub size: usize,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for BufObject {
    type C = ibv_buf;
}

impl BufObject {
    /// That many bytes at `addr` lie within it.
    pub fn holds(&self, addr: *mut c_void, length: usize) -> bool {
        let offset = (addr as usize).checked_sub(self.addr as usize);
        let rest = offset.and_then(|offset| self.size.checked_sub(offset));
        rest.is_some_and(|rest| length <= rest)
    }
}
