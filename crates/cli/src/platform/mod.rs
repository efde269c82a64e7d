//! What lies between the commands and the system: output, failures, files, system calls.

pub mod failure;
pub mod files;
pub mod machine;
pub mod out;
pub mod progress;
pub mod replace;
pub mod signals;
