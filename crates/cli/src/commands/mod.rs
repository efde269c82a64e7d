//! The commands of `rnic`: a file or folder for each, of its name.

pub mod advise;
pub mod bench;
pub mod course;
pub mod demo;
pub mod devices;
pub mod dissect;
pub mod explain;
pub mod pages;
pub mod part;
pub mod run;
pub mod study;
pub mod top;
pub mod verify;
