//! The handles. Each owns one object of the library, and what that was made of.

pub mod clock;
pub mod cm;
pub mod context;
pub mod cq;
mod cq_ex;
pub mod memory;
pub mod probe;
pub mod qp;
pub mod srq;
pub mod ud;
pub mod xrcd;
