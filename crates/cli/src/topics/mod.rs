//! What numbers, names and messages of the verbs mean: a table for each kind.
//!
//! * [`topic`]: what a table has to say of one thing.
//! * [`catalogue`]: all of them, and those of a number.
//! * [`program`]: lines that programs print.
//! * [`words`]: the words of the field.

mod cm;
mod errno;
mod event;
mod fabric;
mod nak;
mod reject;
mod request;
mod state;
mod status;
mod ucx;
mod vendor;

pub mod catalogue;
pub mod program;
pub mod topic;
pub mod words;
