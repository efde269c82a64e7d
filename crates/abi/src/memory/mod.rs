//! Protection domains and the memory that belongs to them.
//!
//! * [`pd`]: protection domains, thread domains, parent domains.
//! * [`mr`]: memory regions, advice about them, null regions.
//! * [`mw`]: memory windows.
//! * [`dm`]: device memory.

pub mod dm;
pub mod mr;
pub mod mw;
pub mod pd;

pub use pd::PdObject;
