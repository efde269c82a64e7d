//! What the device makes of access rights.

use rnic_types::Access;

/// All bits that are no hints.
const MANDATORY: u32 = Access::OPTIONAL_FIRST.0 - 1;

/// Bits that are neither known nor optional.
pub(crate) const fn unknown(access: Access) -> u32 {
    access.0 & MANDATORY & !0x3ff
}

/// Without the optional bits: they are hints that a device may ignore (ibv_reg_mr(3)).
pub(crate) const fn mandatory(access: Access) -> Access {
    Access(access.0 & MANDATORY)
}

/// Asks for a right to write that only who may write locally can give away (IBTA 10.6.3.3).
pub(crate) const fn writes_without_local_write(access: Access) -> bool {
    access.intersects(Access(Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0))
        && !access.contains(Access::LOCAL_WRITE)
}
