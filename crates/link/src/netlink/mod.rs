//! What the kernel says of routes, interfaces and neighbours (rtnetlink(7)).

pub mod next_hop;
pub(crate) mod rtnetlink;
