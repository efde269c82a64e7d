//! What the engine does beside queue pairs: the connection manager, and what processes of one host
//! do for each other.

pub(crate) mod cm;
pub(crate) mod peers;
mod reader;
pub(crate) mod resources;
