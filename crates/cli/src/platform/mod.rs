//! What lies between the commands and the system: output, failures, files, system calls.

pub mod failure;
pub mod out;
pub mod replace;
pub mod signals;
