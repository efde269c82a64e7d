//! How functions of libc are interposed, and how what they stand in front of is found.

use core::ffi::c_void;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::export::seam::set_errno;

/// libc's own function of this name, or that of the next library which stands in front of it.
pub fn next(name: &'static CStr, cache: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    let mut function = cache.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: a C string; the result is only compared with NULL here.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        cache.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        set_errno(libc::ENOSYS);
        return None;
    }
    Some(function)
}

/// Calls libc's own function; `$failure` if it cannot be found.
macro_rules! call_next {
    ($name:literal as fn($($ty:ty),* $(,)?) -> $ret:ty, ($($arg:expr),* $(,)?), $failure:expr) => {{
        static NEXT: std::sync::atomic::AtomicPtr<core::ffi::c_void>
            = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        match $crate::system::hooks::next::next($name, &NEXT) {
            // SAFETY: libc's function of that name has this signature.
            Some(function) => unsafe {
                std::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(function)($($arg),*)
            },
            None => $failure,
        }
    }};
}

/// Defines exported functions of libc. The safety contract of each is that of its man page. With
/// "C-unwind" a thread may be cancelled in them: they are plain old frames then (RFC 2945), with
/// nothing to clean up where libc's function waits.
macro_rules! hook {
    (extern $abi:literal; $($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern $abi fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller keeps the contract of libc's function of this name.
            #[allow(unused_unsafe, reason = "some bodies are safe")]
            unsafe { $body }
        }
    )*};
}

pub(super) use {call_next, hook};
