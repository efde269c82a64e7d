//! One process's share of QP 1.

mod active;
mod closing;
mod passive;
mod sidr;

use crate::{Address, Config, ConnId, Counters, Event, Time, Transmit, Will};
use core::fmt;
use rnic_wire::Gid;
use rnic_wire::cm::{IpCmError, IpCmHeader, RejectReason, ServiceId, Transport};

/// State of a connection (IBTA 12.9.6, without those of path migration).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Active: a REQ was sent.
    ReqSent,
    /// Active: a REP has come; the host was told.
    RepReceived,
    /// Passive: a REQ has come; the host was told.
    ReqReceived,
    /// Passive: a REP was sent.
    RepSent,
    /// Both sides are ready.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// A DREQ has come; the host was told.
    DreqReceived,
    /// Over, but packets may still be on their way.
    TimeWait,
    /// Refused by us, and kept in mind only to say so again.
    Refused,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::ReqSent => "being requested",
            State::RepReceived => "accepted by the peer and waits for us",
            State::ReqReceived => "requested by the peer and waits for us",
            State::RepSent => "accepted and waits for the peer",
            State::Established => "established",
            State::DreqSent => "being disconnected",
            State::DreqReceived => "disconnected by the peer",
            State::TimeWait => "in time-wait",
            State::Refused => "refused",
        })
    }
}

/// A request that came, as the host needs it to say whether anybody listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Which service.
    pub service: ServiceId,
    /// `None` for a service ID resolution.
    pub transport: Option<Transport>,
    /// The header that requests to ports of rdma_cm have; `None` for other services. Whoever listens to the port must
    /// be asked for even if it is an error: only then is the request refused because of it.
    pub ip: Option<Result<IpCmHeader, IpCmError>>,
    /// Where the request wants to be.
    pub local_gid: Gid,
    /// Where it comes from.
    pub remote_gid: Gid,
}

/// What the host says to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Somebody listens, and has room. The number comes back in the event.
    Admit(u64),
    /// Nobody listens: REJ "invalid service id", or SIDR status "unsupported".
    NobodyListens,
    /// REJ with this reason, or SIDR status "rejected".
    Refuse(RejectReason),
    /// No answer, as if it were lost: the peer asks again. For who has no room at the moment.
    Drop,
}

/// One process's share of QP 1: its connections and service ID resolutions.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint without connections, and without addresses: see [`Endpoint::set_gids`].
    pub fn new(config: Config) -> Endpoint {
        Endpoint {
            config,
            counters: Counters::default(),
        }
    }

    /// The addresses of this host. A request to another one is refused with "invalid GID".
    pub fn set_gids(&mut self, _gids: &[Gid]) {}

    /// Feeds in the payload of a packet to QP 1 whose DETH has source QP 1, with the path it came on. `admit` is asked
    /// at most once: when the packet is a request that is no repetition and for which there is room.
    pub fn handle(
        &mut self,
        _now: Time,
        _from: &Address,
        _mad: &[u8],
        _admit: &mut dyn FnMut(&Incoming) -> Admission,
    ) {
    }

    /// Time has passed. Does nothing before [`Endpoint::poll_timeout`].
    pub fn handle_timeout(&mut self, _now: Time) {}

    /// When [`Endpoint::handle_timeout`] has something to do.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        None
    }

    /// The next MAD to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }

    /// The next event. Those of connections that were destroyed meanwhile are left out.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// State of a connection; `None` once it is forgotten or was destroyed.
    pub fn state(&self, _conn: ConnId) -> Option<State> {
        None
    }

    /// Connections there are, with those in time-wait, destroyed ones that still have something to say, and refusals.
    pub fn connections(&self) -> usize {
        0
    }

    /// Service ID resolutions there are, with answers kept for peers that ask again.
    pub fn resolutions(&self) -> usize {
        0
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What has to be said in the name of this process should it die now: a connection that the peer may think of as
    /// established. `None` before (the peer's retries end by themselves) and after.
    pub fn will(&self, _conn: ConnId) -> Option<Will> {
        None
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
