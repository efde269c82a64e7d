//! Symbols that stand here so that other libraries find them.
//!
//! * [`compat_1_0`]: the first version of libibverbs.
//! * [`private`]: what rdma-core's own libraries ask of libibverbs.
//! * [`rsocket`]: `rsocket(3)` and its kin, which are the installed librdmacm's.
//! * [`unsupported`]: verbs that only other kinds of devices have.

pub mod compat_1_0;
pub mod private;
pub mod rsocket;
pub mod unsupported;
