//! Address handles.

use std::cell::UnsafeCell;

use rnic_nic::Ah;

use super::object::Object;
use crate::c::*;

/// An address handle.
#[repr(C)]
pub struct AhObject {
    pub c: UnsafeCell<ibv_ah>,
    pub nic: Ah,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for AhObject {
    type C = ibv_ah;
}
