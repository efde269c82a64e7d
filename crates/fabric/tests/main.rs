//! Whole devices in virtual time.

mod connections;
mod oracle;
mod policies;
mod script;
mod shrink;
mod simulation;
