//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod captures;
mod copies;
mod ends;
mod hostile;
mod interop;
mod mtus;
mod network;
mod psns;
mod start_psns;
mod support;
