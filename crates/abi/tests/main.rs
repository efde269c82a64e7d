//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

use rnic_layouts as c;

mod common;
mod layout;
mod programs;
mod symbolic;
mod symbols;
