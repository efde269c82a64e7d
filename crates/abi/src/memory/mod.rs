//! Protection domains and the memory that belongs to them.
//!
//! * [`pd`]: protection domains, thread domains, parent domains.
//! * [`allocator`]: where the objects of a parent domain lie.
//! * [`buf`]: buffers that the library allocates, and registration by one structure.
//! * [`mr`]: memory regions, advice about them, null regions.
//! * [`mw`]: memory windows.
//! * [`dm`]: device memory.
//! * [`import`]: further handles of all of these.

pub mod allocator;
pub mod buf;
pub mod dm;
pub mod import;
pub mod mr;
pub mod mw;
pub mod pd;

pub use pd::PdObject;
