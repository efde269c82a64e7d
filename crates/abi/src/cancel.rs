//! Waiting for events where a thread may be cancelled.
//!
//! `pthread_cancel(3)` ends a thread that waits in read(2) by unwinding its stack, our frames among it. That is sound if
//! they have nothing to clean up ("plain old frames", RFC 2945): while the thread waits, what prepared the wait has
//! returned with all that it held, and what follows has not begun. The bounds `Copy` see to it, as what is copied has no
//! destructor.

use core::ffi::{c_int, c_void};

use crate::seam::{self, Result};

unsafe extern "C-unwind" {
    /// The declaration in the libc crate promises that it does not unwind.
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
}

/// What a verb does that takes an event: `prepare` gives the descriptor, one token of which is an event; `take` takes the
/// event of a token, or says that there is none any more; `give_up` follows a wait that failed. 0, or -1 and errno.
///
/// A cancellation point, as in libibverbs. Callers are plain old frames themselves.
#[inline(always)]
pub fn event(
    prepare: impl Fn() -> Result<c_int> + Copy,
    take: impl Fn() -> Result<bool> + Copy,
    give_up: impl Fn() + Copy,
) -> c_int {
    loop {
        let fd = seam::number(prepare);
        if fd < 0 {
            return -1;
        }
        let mut token = 0u64;
        // SAFETY: eight bytes of a local variable.
        if unsafe { read(fd, (&raw mut token).cast(), 8) } != 8 {
            seam::keeping_errno(give_up);
            return -1;
        }
        match seam::number(|| take().map(c_int::from)) {
            0 => {}
            1 => return 0,
            _ => return -1,
        }
    }
}
