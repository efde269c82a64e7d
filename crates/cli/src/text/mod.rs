//! Sizes, counts, figures, times, GIDs and settings, as people write and read them.

mod count;
mod figures;
pub mod gid;
mod printable;
pub mod settings;
pub mod size;
pub mod time;

pub use count::count;
pub use figures::{gigabytes, micros, rate};
pub use printable::printable;
