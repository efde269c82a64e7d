//! A flow: two queue pairs that are connected, the programs at its ends, and the oracle that knows
//! how each operation must end.
//!
//! | file | duty |
//! | --- | --- |
//! | `layout` | the memory of an end, and where in it the bytes of each operation are |
//! | `oracle` | what completes next, with what, and what memory holds at the end |
//! | `program` | the program at an end: it polls, posts, and has all of it checked |
//! | `request` | an operation as a work request |
//! | `windows` | what the rules of memory windows make of each operation |

mod layout;
mod oracle;
mod program;
mod request;
mod windows;

pub(crate) use oracle::{Way, has_refusals};
pub(crate) use program::Side;
