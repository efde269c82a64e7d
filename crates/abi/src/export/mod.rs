//! How functions reach C: under which names, with which errors.
//!
//! * [`symbols`]: how functions get the names and versions that programs ask for.
//! * [`seam`]: how results become errno; no panic passes it.
//! * [`refusal`]: why a verb failed, in words for people.

pub mod refusal;
pub mod seam;
pub mod symbols;
