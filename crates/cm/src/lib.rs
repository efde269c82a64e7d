//! The connection manager: how two processes that know only a service and an address learn each
//! other's queue pairs.
//!
//! This crate knows no socket, no clock, no thread and no queue pair. An [`Endpoint`] is one
//! process's share of QP 1. It is *fed* with MADs ([`Endpoint::handle`]), with time
//! ([`Endpoint::handle_timeout`]) and with what the application wants ([`Endpoint::connect`],
//! [`Endpoint::accept`] ...), and *drained* of MADs ([`Endpoint::poll_transmit`]), of events
//! ([`Endpoint::poll_event`]) and of the next deadline ([`Endpoint::poll_timeout`]). After anything
//! was fed in, all three may have something new. Time is the caller's: nanoseconds from an
//! arbitrary zero.
//!
//! Messages, states and answers are those of IBTA vol. 1, chapter 12; timeouts, retry counts and
//! whatever the specification leaves open are those of Linux. Where this differs, on purpose:
//!
//! * A DREQ is repeated until it is answered or the retries are used up, although the application
//!   has destroyed the connection. Linux forgets it with the `rdma_cm_id`, and a lost DREQ leaves
//!   the peer connected.
//! * What Linux only says once, a REJ, is said again when the peer shows that it did not hear it.
//! * A DREQ that arrives before the RTU proves that the peer was ready: [`Event::Established`]
//!   comes before [`Event::Disconnected`].
//! * A DREQ that arrives before the application has answered the REP ends the connection
//!   ([`Event::Rejected`]). Linux ignores it, and is established alone if the peer's process was
//!   killed.
//! * Of the REQs and DREQs that are asked for at once only [`Config::request_window`] are on the
//!   way, so that a burst of them does not overrun the peer's receive buffer.
//! * An answer to a REQ or SIDR_REQ has to name its transaction, not only its communication id,
//!   which a process that is started anew may use again.
//! * An MRA postpones one repetition; the peer, if it is still there, asks for more when that one
//!   comes.
//! * A REP for a connection that does not exist is answered with REJ ("invalid communication id"),
//!   so that the peer need not time out.
//!
//! # A connection
//! ```text
//! active                                                              passive
//! connect(Connect)          -- REQ -->                  Event::Request
//! Event::Response           <-- REP --                  accept(Accept), QP in RTS
//! ready(), QP in RTS        -- RTU -->                  Event::Established
//!   ...
//! disconnect()              -- DREQ -->                 Event::Disconnected
//! Event::Disconnected       <-- DREP --                 disconnect() or destroy()
//! Event::TimeWaitExit                                   Event::TimeWaitExit
//! ```
//! Each connection that was begun ends for the application with exactly one of [`Event::Rejected`],
//! [`Event::Unreachable`] and [`Event::Disconnected`], unless it destroys the connection earlier,
//! after which no event names it.
//!
//! Messages of a connection go where its REQ's path leads, whatever address that came from, as in
//! Linux: REP, RTU, MRA, DREQ. A refusal of what is no connection (yet), and a DREP for what is
//! none any more, go back to where the message came from. Messages about a connection, or the
//! answer to a question, are taken from the other end of that path only, from where Linux sends
//! them, too: ids can be guessed, and no third host is to end or to take over what is not its own.
//!
//! What answers a REQ that came from elsewhere is not repeated until something comes from there:
//! nobody is to have this host write again and again to one that knows of nothing.
//!
//! # Hostile peers
//! Nothing that arrives makes this crate panic, and it bounds the memory: a REQ costs some only if
//! the host admits it ([`Admission`]), up to [`Config::max_requests`] unanswered ones; connections
//! in time-wait and refusals that are kept in mind are bounded by [`Config::max_time_wait`], and so
//! are those that the application has destroyed and the peer does not confirm, which wait for no
//! longer than our own requests do; answers that were not drained yet by [`Config::max_replies`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod config;
mod counters;
mod endpoint;
mod error;
mod event;
mod last_words;
mod parameters;
mod state;
mod time;

pub use address::{Address, Transmit};
pub use config::Config;
pub use counters::Counters;
pub use endpoint::{Admission, Endpoint, Incoming};
pub use error::CmError;
pub use event::{Ended, Event, Rejection, Reply, Request, SidrReply, SidrRequest};
pub use last_words::LastWords;
pub use parameters::{Accept, Connect, SidrAnswer, SidrConnect};
pub use state::State;
pub use time::Time;

/// A connection of an [`Endpoint`]: its local communication id. Not used again before all others of
/// the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ConnId(pub u32);

/// A service ID resolution of an [`Endpoint`]. Its numbers come from the same source as those of
/// [`ConnId`]: on the requester's side they are the request ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SidrId(pub u32);
