//! Whole devices in virtual time.

mod policies;
mod simulation;
