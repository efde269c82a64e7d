//! Sizes, times and GIDs, as people write and read them.

pub mod gid;
pub mod size;
pub mod time;
