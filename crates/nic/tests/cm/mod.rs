//! The connection manager as its callers see it: which event, which errno.
//!
//! Both ends are in this process; it needs a namespace or host where 127.0.0.1 is an address of an
//! interface that is up.

mod address;
mod channel;
mod connect;
mod datagram;
mod faults;
mod killed;
mod spoofing;
mod stopped;
mod tools;
