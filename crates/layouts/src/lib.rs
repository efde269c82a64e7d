//! The structures of `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>` as the C compiler lays them
//! out.
//!
//! Both sides of the C ABI use them: `rnic-abi`, which is such a library, and `rnic-libibverbs`,
//! which loads one.
//!
//! Contract: every type is `repr(C)`, carries its C name and compiles to the very size and offsets
//! of rdma-core 15 to 64 on LP64 Linux. What the headers declare as an enum is a plain integer
//! here, because a C program may store anything in it. Each file asserts its figures at compile
//! time; `rnic-abi`'s `tests/layout.rs` compares them, the signedness of the scalars and the enum
//! values with the installed headers.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    non_camel_case_types,
    reason = "the types carry their C names, which the manual pages explain"
)]

pub mod cm;
pub mod consts;
pub mod context;
pub mod cq;
pub mod device;
pub mod memory;
pub mod qp;
pub mod wr;

pub use consts::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use memory::*;
pub use qp::*;
pub use wr::*;

/// Bytes by which a `pthread_mutex_t` is longer than on x86-64: 8 on aarch64.
pub const MUTEX_MORE: usize = size_of::<libc::pthread_mutex_t>() - 40;

/// Asserts size and field offsets at compile time. The figures are those of x86-64; where a
/// structure has a mutex, all behind it lies further on by as much as the mutex is longer
/// elsewhere.
#[macro_export]
macro_rules! assert_layout {
    ($ty:ident, $size:literal, mutex at $mutex:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = {
            use $crate::MUTEX_MORE;
            assert!(::core::mem::size_of::<$ty>() == $size + MUTEX_MORE);
            $(assert!(
                ::core::mem::offset_of!($ty, $field) == $offset + if $offset > $mutex { MUTEX_MORE } else { 0 }
            );)*
        };
    };
    ($ty:ident, $size:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(::core::mem::size_of::<$ty>() == $size);
            $(assert!(::core::mem::offset_of!($ty, $field) == $offset);)*
        };
    };
}
