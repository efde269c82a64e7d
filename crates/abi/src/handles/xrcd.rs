//! XRC domains.

use std::cell::UnsafeCell;

use rnic_nic::Xrcd;

use super::object::Object;
use crate::c::*;

/// An XRC domain.
#[repr(C)]
pub struct XrcdObject {
    pub c: UnsafeCell<ibv_xrcd>,
    pub nic: Xrcd,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for XrcdObject {
    type C = ibv_xrcd;
}
