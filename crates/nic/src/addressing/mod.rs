//! Which addresses the device has, and which a packet may have.

pub(crate) mod address;
pub(crate) mod gid_table;
pub(crate) mod group;
pub(crate) mod pkey_table;
