//! Values of C become those of the device, and the other way round.

pub mod ah;
pub mod bind;
pub mod qp_attr;
pub mod rate;
pub mod strings;
pub mod wc;
pub mod wr;
