//! Sizes, times, GIDs and settings, as people write and read them.

pub mod gid;
pub mod settings;
pub mod size;
pub mod time;
