//! Whole devices in a simulated network and in virtual time.
//!
//! A [`Scenario`] says which hosts there are, which queue pairs connect them, what their programs
//! post, and what the network does to packets. [`run`] plays it: each host has a device of its own
//! (`rnic_nic::SimulatedDevice`: verbs, engine, timers, transport), the network is a queue of
//! packets with times, and no time passes but from one event to the next. An oracle checks every
//! byte that is received, read or written, every completion exactly once and in order, and that no
//! byte outside of what was granted has changed. If everybody waits and nothing is due, a wake-up
//! was lost.
//!
//! [`connections`] plays the connection manager: processes that connect, end and die.
//!
//! The same scenario gives the same [digest](Outcome::digest), packet by packet. One that fails is
//! made [smaller](shrink) as long as it fails in the same way, and prints as a script, which may be
//! read, changed and kept ([`script`]).
//!
//! | file | duty |
//! | --- | --- |
//! | `scenario` | what is played; a random one from a seed |
//! | `script` | the same as text |
//! | `network` | delay, loss, duplication, reordering |
//! | `memory`, `inbox` | registered memory with guards around it; the buffers of receives |
//! | `pattern` | what it holds |
//! | `flow` | two queue pairs, the programs at its ends, and the oracle that checks them |
//! | `datagrams` | the same for queue pairs of UD |
//! | `shared_receives` | a shared receive queue, its receives and its limit event |
//! | `world` | hosts, events, time |
//! | `pair` | two hosts whose programs a test writes out, call by call |
//! | `world/processes` | processes of one host: who wakes whom, who is stopped or killed |
//! | `folder` | the files that they share |
//! | `connect` | takes a queue pair to RTS |
//! | `connections` | the same for connections: processes, what their programs do, its laws |
//! | `shrink` | the smallest scenario that still fails |

mod connect;
mod connections;
mod datagrams;
mod digest;
mod flow;
mod folder;
mod inbox;
mod memory;
mod network;
mod pair;
mod pattern;
mod scenario;
pub mod script;
mod shared_receives;
mod shrink;
mod world;

pub use connections::{ConnectionCounts, ConnectionOutcome, ConnectionShape, connections};
pub use network::NetworkCounters;
pub use pair::{Pair, Waits, Work};
pub use scenario::{
    Bound, Datagram, Direction, Endpoint, Fate, Flow, Grant, HostSpec, Impairments, Incident, Kind,
    Marked, Measure, Op, Relation, Scenario, Service, Shape, SharedReceives, To, What, Window,
};
pub use shrink::shrink;
pub use world::{Failure, Outcome, run};
