//! Files that programs look for past libibverbs: `/sys/class/infiniband/rnic0/...` and
//! `/dev/infiniband/uverbs0`.
//!
//! UCX, NCCL and others read sysfs and stat the character device themselves, and take a device
//! without them for absent. So the path functions of libc are interposed ([`calls`]) and, for those
//! paths alone, look into a private copy of what sysfs would show ([`tree`]). Every other path goes
//! to the kernel or to the C library unchanged, at the cost of comparing its first bytes. Entries
//! of real devices below the same folders stay visible by name; a listing of
//! `/sys/class/infiniband` shows ours alone, as `ibv_get_device_list` does.
//!
//! Sockets of NETLINK_RDMA are made and served here, too ([`sockets`]): see
//! [`crate::system::netlink`].
//!
//! The calls that wait for descriptors are interposed, too ([`waits`]), for sets that hold a
//! completion channel's: see [`crate::system::waits`].
//!
//! The Rust standard library inside this shared object is bound to these functions as well. They
//! therefore make system calls themselves where that is all the C library does, and [`tree`] only
//! touches paths that are not redirected.

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod live;
#[cfg(not(test))]
mod next;
#[cfg(not(test))]
mod sockets;
mod tree;
#[cfg(not(any(test, thread_sanitizer)))]
mod waits;

#[cfg(not(any(test, thread_sanitizer)))]
pub use waits::libc_poll;
