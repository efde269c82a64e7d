//! Whole devices in virtual time.

mod calls;
mod connections;
mod oracle;
mod pipe;
mod policies;
mod script;
mod shrink;
mod simulation;
