//! Locks that suit one thread that comes again and again, and waiting for what others hold.

pub(crate) mod bias;
pub(crate) mod busy;
pub(crate) mod within;
