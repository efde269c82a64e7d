//! The unsafe part: memory that the NIC touches, and file descriptors.
//!
//! What makes it sound: a [`memory::Buffer`] owns its range alone, and posting moves it out of
//! reach until the device has said that it is done (completion) or has stopped (queue pair
//! destroyed, region deregistered). Memory that peers may write is never given out as a slice.

pub(crate) mod fd;
pub(crate) mod given;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod per_process;
mod words;
