//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod hostile;
mod simulation;
mod support;
mod unreliable;
