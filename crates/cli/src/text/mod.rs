//! Sizes, counts, times, GIDs and settings, as people write and read them.

mod count;
pub mod gid;
pub mod settings;
pub mod size;
pub mod time;

pub use count::count;
