//! Whole devices in virtual time.

mod connections;
mod simulation;
