//! Device memory.

use std::cell::UnsafeCell;

use rnic_nic::Dm;

use super::object::Object;
use crate::c::*;

#[repr(C)]
pub struct DmObject {
    pub c: UnsafeCell<ibv_dm>,
    pub nic: Dm,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for DmObject {
    type C = ibv_dm;
}
