//! Whole devices in virtual time.

mod policies;
mod script;
mod shrink;
mod simulation;
