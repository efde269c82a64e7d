//! The objects behind the pointers that programs hold, a file for each. They have no verbs.
//!
//! * [`object`]: how a C structure and the object around it find each other.
//! * [`allocator`]: where objects lie: in our memory, or in that of the program's allocator.
//! * [`per_process`], [`open`]: what a forked child has of its parent's objects.

pub mod ah;
pub mod allocator;
pub mod buf;
pub mod context;
pub mod cq;
pub mod dm;
pub mod mr;
pub mod mw;
pub mod object;
pub mod open;
pub mod pd;
pub mod per_process;
pub mod qp;
pub mod srq;
pub mod xrcd;
