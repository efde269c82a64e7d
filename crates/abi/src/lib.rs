//! Drop-in libibverbs.so.1 and librdmacm.so.1: the C ABI of rdma-core over the software NIC of `rnic_nic`.
//!
//! One shared object, mapped under both names. Programs compiled against rdma-core run unmodified when the dynamic
//! linker finds it first; `rnic run` sets that up.
//!
//! * [`types`]: the structures of the headers, sizes and offsets asserted.
//! * [`symbols`]: how functions get the names and versions that programs ask for.
//! * [`seam`]: how results become errno; no panic passes it.
//! * [`refusal`]: why a verb failed, in words for people.
//! * [`object`]: what stands behind the pointers that programs hold.
//! * the rest: one file per kind of verb.
//!
//! Nothing happens when the library is loaded: it comes into every child of a program that runs under it, shells and
//! Python included. The engine starts with the first `ibv_open_device`.
//!
//! Pointers from the program are trusted as in libibverbs; values are not. NULL, unknown enum values and masks, and
//! counts beyond what was agreed are EINVAL or ENOMEM.
#![allow(
    non_camel_case_types,
    reason = "the types and symbols carry their C names"
)]

mod ah;
mod cancel;
mod cm;
mod compat_1_0;
mod counters;
mod cq;
mod cq_ex;
mod device;
mod event;
mod fork;
mod hooks;
mod memory;
mod netlink;
mod object;
mod per_process;
mod post;
mod private;
mod qp;
mod query;
mod rate;
mod refusal;
mod rsocket;
mod seam;
mod srq;
mod strings;
mod symbols;
mod sysfs;
#[allow(
    dead_code,
    reason = "whole structures and enums, whether all of them is used or not"
)]
mod types;
mod unsupported;
#[cfg_attr(
    any(test, thread_sanitizer),
    allow(dead_code, reason = "the calls are interposed in the library alone")
)]
mod waits;
mod wr;
mod xrc;

/// Small allocations cannot fail, so what the system cannot give comes out of a reserve.
#[global_allocator]
static ALLOCATOR: rnic_nic::reserve::Reserve = rnic_nic::reserve::Reserve;
