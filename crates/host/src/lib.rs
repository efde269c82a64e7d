//! What the processes of one user and host share: QPN ranges, ports, one UDP port, what they do for
//! each other, and what is left to say when one of them is killed.
//!
//! All processes of one user in one network namespace share the host's addresses and UDP port 4791.
//! They have no server: they meet in a folder that only this user can open
//! ([`registry::runtime_dir`]), and the kernel's file locks say which processes are there, so a
//! process that is killed leaves nothing behind that others have to wait for.
//!
//! * [`registry`]: which process has which range of 4096 QPNs.
//! * [`steering`]: the program by which the kernel gives packets to the process whose QPN they
//!   name. What lands in the wrong process is handed to the right one through its
//!   [hand-over socket](handover).
//!   Steering is speed, hand-over is correctness.
//! * [`qp1`] and [`ports`]: QP 1 is everybody's; its messages go to the process that has the
//!   connection or listens at the port.
//! * [`source_ports`]: which process a packet of this host came from.
//! * [`peers`]: what a process has to do on behalf of another one; [`inquiry`] asks all of them
//!   from outside.
//! * [`domains`]: XRC domains. [`last_words`]: what a killed process would have said to its
//!   peers. [`stopped`]: which processes are stopped.
//! * [`membership`] is a process's part in all that.
//!
//! This crate carries no packets, and knows of packets no more than their QPN, and messages to QP
//! 1.
//!
//! # Hostile input
//! Nothing that comes through a socket or stands in a file makes this crate panic, block, or read
//! or write out of range.

#![cfg_attr(not(test), forbid(unsafe_code))]

pub mod addresses;
pub mod domains;
mod error;
pub mod handover;
pub mod inquiry;
pub mod last_words;
mod log;
pub mod membership;
pub mod peers;
pub mod ports;
pub mod qp1;
pub mod registry;
pub mod source_ports;
pub mod steering;
pub mod stopped;
pub mod train;

pub use domains::{DomainError, DomainKey};
pub use error::HostError;
pub use last_words::{DeadProcess, LAST_WORDS_LEN, LastWords, LastWordsId};
pub use log::log;
pub use peers::{Heard, PeerId, Peers};
pub use ports::{BindFlags, PortClaim, Ports};
pub use qp1::QP1;
pub use registry::QpnRange;
pub use source_ports::SourcePorts;
pub use steering::MULTICAST_QPN;
pub use stopped::is_stopped;
