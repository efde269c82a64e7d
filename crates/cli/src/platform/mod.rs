//! What lies between the commands and the system: output, failures, files, system calls.

pub mod failure;
pub mod out;
pub mod replace;
#[allow(
    unsafe_code,
    reason = "the one place: system calls that the standard library lacks"
)]
pub mod sys;
