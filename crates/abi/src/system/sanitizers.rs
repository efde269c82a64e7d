//! What the run-time libraries of sanitizers are told, which look for these functions when they
//! start (`sanitizer/asan_interface.h`). A program's own functions of these names come first.

use core::ffi::c_char;

/// AddressSanitizer wants to be the first library, to see all memory that is allocated. A library
/// that is preloaded comes before it. This one allocates by what the program has, so the order does
/// not matter.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// ThreadSanitizer sees what the C library's functions do here (memcpy, free), and not what orders
/// them: this library is not built with it. What it would say of that is nobody's mistake.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_default_suppressions() -> *const c_char {
    c"called_from_lib:verbs-*/libibverbs.so.1\n\
      called_from_lib:librnic_verbs.so\n\
      called_from_lib:/rnic/libibverbs.so.1\n\
      race:verbs-*/libibverbs.so.1\n\
      race:librnic_verbs.so\n\
      race:/rnic/libibverbs.so.1\n"
        .as_ptr()
}
