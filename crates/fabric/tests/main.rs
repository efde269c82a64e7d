//! Whole devices in virtual time.

mod simulation;
