//! Starts unmodified verbs programs under `rnic run`, in places where they cannot disturb anybody,
//! and judges what they print. The tests in `tests/` are the point; this library only holds what
//! they share.
//!
//! - [`Trial`] is one test's claim to the machine: a turn, a scratch folder that everybody may
//!   read, and a deadline.
//! - [`Place`] is where programs run: a network namespace (or this machine's own), a user, a
//!   runtime folder.
//! - [`Process`] is a running program with its output collected; it never outlives its handle.
//! - [`Pair`] is a server and a client of one program that meet over TCP.
//! - [`Meeting`] is a server and a client that meet through the connection manager.
//! - [`ceph`] is a cluster of one monitor and one OSD.
//! - [`systems`] are whole systems of other people: what docs/programs.md tells.
//! - [`perftest`], [`pingpong`] and [`devices`] read what programs print.
//!
//! Everything here panics when a test's expectation does not hold, with the commands and what they
//! printed in the message. What the machine cannot do (no root, no namespaces, a program not
//! installed) is not a failure: the [`skip`] module says it in a line that starts with `SKIPPED`,
//! past the test harness's capture.

pub mod ceph;
pub mod compile;
pub mod devices;
pub mod each;
pub mod meeting;
pub mod netns;
pub mod pair;
pub mod perftest;
pub mod pingpong;
pub mod place;
pub mod process;
pub mod situations;
pub mod skip;
pub mod stage;
pub mod systems;
pub mod trial;

pub use devices::Gid;
pub use meeting::Meeting;
pub use pair::{Outcome, Pair};
pub use place::{Place, User};
pub use process::{Finished, Process};
pub use trial::{Trial, full};
