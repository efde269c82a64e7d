//! What is still to come: functions that exist and say ENOSYS in their own way.
//!
//! Programs that can also exchange addresses over a socket of their own (perftest without `-R`, `ibv_rc_pingpong`) need
//! nothing of it but the symbols. `rdma_event_str` is in [`crate::strings`].

use core::ffi::c_int;

use crate::seam::{self, Errno};

const ENOSYS: Errno = Errno(libc::ENOSYS);

/// Functions that return -1 and errno.
pub extern "C" fn no_number() -> c_int {
    seam::number(|| Err(ENOSYS))
}
