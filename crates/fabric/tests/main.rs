//! Whole devices in virtual time.

mod policies;
mod script;
mod simulation;
