//! Pages for finding one's way; there is no code in this module.
//!
//! * [`buffers`]: which kind of memory for what.
//! * [`from_c`]: the calls of `<infiniband/verbs.h>`, and what they are here.
//! * [`from_ibverbs`] and [`from_sideway`]: the same for programs that use those crates.

#[doc = include_str!("guide/buffers.md")]
pub mod buffers {}
#[doc = include_str!("guide/from_c.md")]
pub mod from_c {}
#[doc = include_str!("guide/from_ibverbs.md")]
pub mod from_ibverbs {}
#[doc = include_str!("guide/from_sideway.md")]
pub mod from_sideway {}
