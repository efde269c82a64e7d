//! Whole devices in virtual time.

mod connections;
mod policies;
mod script;
mod shrink;
mod simulation;
