//! The world around a queue pair in virtual time: memory, a peer, a network, and somebody who knows
//! how it must end.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod accent;
pub mod memory;
pub mod network;
pub mod oracle;
pub mod pair;
pub mod script;
