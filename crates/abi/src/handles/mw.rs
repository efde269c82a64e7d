//! Memory windows.

use std::cell::UnsafeCell;

use rnic_nic::Mw;

use super::object::Object;
use crate::c::*;

#[repr(C)]
pub struct MwObject {
    pub c: UnsafeCell<ibv_mw>,
    pub nic: Mw,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for MwObject {
    type C = ibv_mw;
}
