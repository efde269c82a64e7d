//! Drop-in libibverbs.so.1 and librdmacm.so.1: the C ABI of rdma-core over the software NIC of
//! `rnic_nic`.
//!
//! One shared object, mapped under both names. Programs compiled against rdma-core run unmodified
//! when the dynamic linker finds it first; `rnic run` sets that up.
//!
//! The rooms, from the bottom up. Each uses rooms that stand before it in this list alone:
//!
//! * [`c`]: the structures of the headers, which are `rnic-layouts`.
//! * [`export`]: names, versions and errors of the functions that C calls.
//! * [`compat`]: symbols that other libraries want to find.
//! * [`system`]: sysfs, netlink, fork(2), threads that wait.
//! * [`handles`]: the objects behind the pointers that programs hold.
//! * [`convert`]: values of C become those of the device, and back.
//! * [`verbs`]: the calls of libibverbs, a file for each kind of object.
//! * [`rdmacm`]: the calls of librdmacm.
//!
//! Nothing happens when the library is loaded: it comes into every child of a program that runs
//! under it, shells and Python included. The engine starts with the first `ibv_open_device`.
//!
//! Pointers from the program are trusted as in libibverbs; values are not. NULL, unknown enum
//! values and masks, and counts beyond what was agreed are EINVAL or ENOMEM.
#![allow(
    non_camel_case_types,
    reason = "the types and symbols carry their C names"
)]

use rnic_layouts as c;

mod compat;
mod convert;
mod export;
mod handles;
mod rdmacm;
mod system;
mod verbs;

/// Small allocations cannot fail, so what the system cannot give comes out of a reserve.
#[global_allocator]
static ALLOCATOR: rnic_nic::reserve::Reserve = rnic_nic::reserve::Reserve;
