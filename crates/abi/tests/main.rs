//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

#[path = "../src/c/mod.rs"]
#[allow(
    dead_code,
    non_camel_case_types,
    unused_imports,
    reason = "the library's own types"
)]
mod c;
mod common;
mod layout;
mod programs;
mod symbolic;
mod symbols;
