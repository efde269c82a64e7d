//! One process's share of QP 1.

mod active;
mod closing;
mod connection;
mod pacing;
mod passive;
mod refusal;
mod sidr;
mod timers;

use crate::{
    Address, CmError, Config, ConnId, Counters, Ended, Event, LastWords, SidrId, State, Time,
    Transmit,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use connection::{Connection, Connections};
use pacing::Pacing;
use passive::speaks_for_itself;
use rnic_wire::Gid;
use rnic_wire::cm::{
    IpCmError, IpCmHeader, MAD_LEN, Mad, Message, RejectReason, ServiceId, Transport, timeout_ns,
};
use sidr::Resolutions;
use timers::Timers;

/// A request that came, as the host needs it to say whether anybody listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Which service.
    pub service: ServiceId,
    /// `None` for a service ID resolution.
    pub transport: Option<Transport>,
    /// The header that requests to ports of rdma_cm have; `None` for other services. Whoever
    /// listens to the port must be asked for even if it is an error: only then is the request
    /// refused because of it.
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
    gids: Vec<Gid>,
    connections: Connections,
    resolutions: Resolutions,
    timers: Timers,
    pacing: Pacing,
    events: VecDeque<Event>,
    out: VecDeque<Transmit>,
    /// Of which the upper halves of the ids of our transactions are made.
    secret: u64,
    /// How many communication ids were looked at, from anywhere on: what is made of it are their
    /// lower 20 bits.
    next_id: u32,
}

/// Bits of a communication id below the range.
const COUNTER_BITS: u32 = 20;

/// Whether there is an id beside so many in use. One in 16 stays free: the last ones would have to
/// be looked for among all others.
const fn leaves_ids(in_use: usize) -> bool {
    in_use < (1 << COUNTER_BITS) / 16 * 15
}

/// No peer's word makes us wait longer than 2^(24 - 8) ms = 65 s: more is not meant seriously.
const MAX_TIMEOUT: u8 = 24;

/// Nor repeat what we say more often than every 2^(16 - 8) ms = 0.26 s.
const MIN_INTERVAL: u8 = 16;

/// The time that a code in a peer's message stands for.
fn peer_timeout_ns(code: u8) -> u64 {
    timeout_ns((code & 31).min(MAX_TIMEOUT))
}

impl Endpoint {
    /// An endpoint without connections, and without addresses: see [`Endpoint::set_gids`].
    pub fn new(config: Config) -> Endpoint {
        let random = scramble(config.seed);
        Endpoint {
            config,
            counters: Counters::default(),
            gids: Vec::new(),
            connections: Connections::default(),
            resolutions: Resolutions::default(),
            timers: Timers::default(),
            pacing: Pacing::default(),
            events: VecDeque::new(),
            out: VecDeque::new(),
            secret: scramble(random),
            next_id: random as u32,
        }
    }

    /// The addresses of this host. A request to another one is refused with "invalid GID".
    pub fn set_gids(&mut self, gids: &[Gid]) {
        self.gids.clear();
        self.gids.extend_from_slice(gids);
        self.gids.sort_unstable();
    }

    /// Feeds in the payload of a packet to QP 1 whose DETH has source QP 1, with the path on which
    /// an answer would go: both ends and the P_Key from the packet, but not the hop limit that is
    /// left of the sender's ([`Address::new`]). `admit` is asked at most once: when the packet is a
    /// request that is no repetition and for which there is room. It does not count towards the
    /// host's backlog until [`Event::Request`] comes of it. `is_from(id)`: for all that the host
    /// knows, whoever has this communication id sent the packet. Where others may send from the
    /// peer's address, it can tell them apart.
    pub fn handle(
        &mut self,
        now: Time,
        from: &Address,
        is_from: &dyn Fn(u32) -> bool,
        mad: &[u8],
        admit: &mut dyn FnMut(&Incoming) -> Admission,
    ) {
        let Ok(mad) = Mad::parse(mad) else {
            self.counters.malformed += 1;
            return;
        };
        match &mad.message {
            Message::Req(req) => {
                let own = speaks_for_itself(from, req) && is_from(req.local_id);
                self.handle_req(now, from, own, mad.tid, req, admit);
            }
            Message::Rep(rep) => self.handle_rep(now, from, mad.tid, rep),
            Message::Rtu(rtu) => self.handle_rtu(now, from, rtu),
            Message::Mra(mra) => self.handle_mra(now, from, mad.tid, mra),
            Message::Rej(rej) => self.handle_rej(now, from, mad.tid, rej),
            Message::Dreq(dreq) => self.handle_dreq(now, from, mad.tid, dreq),
            Message::Drep(drep) => self.handle_drep(now, from, drep),
            Message::SidrReq(req) => self.handle_sidr_req(now, from, mad.tid, req, admit),
            Message::SidrRep(rep) => self.handle_sidr_rep(from, mad.tid, rep),
        }
        self.release_requests(now);
    }

    /// Time has passed. Does nothing before [`Endpoint::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop();
            if self.deadline(id) != Some(at) {
                continue;
            }
            if self.connections.contains(id) {
                self.connection_timeout(now, id);
            } else {
                self.resolution_timeout(now, id);
            }
        }
        self.release_requests(now);
    }

    /// When [`Endpoint::handle_timeout`] has something to do.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        while let Some((at, id)) = self.timers.first() {
            if self.deadline(id) == Some(at) {
                return Some(at);
            }
            self.timers.pop();
        }
        None
    }

    /// The next MAD to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// The next event. None of a connection after it was destroyed.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// State of a connection; `None` once it is forgotten or was destroyed.
    pub fn state(&self, conn: ConnId) -> Option<State> {
        let connection = self.connections.get(conn.0)?;
        (!connection.orphan).then_some(connection.state())
    }

    /// Connections there are, with those in time-wait, destroyed ones that still have something to
    /// say, and refusals.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Service ID resolutions there are, with answers kept for peers that ask again.
    pub fn resolutions(&self) -> usize {
        self.resolutions.len()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What has to be said in the name of this process should it die now: a connection that the
    /// peer may think of as established, even if it was destroyed here. `None` before (the peer's
    /// retries end by themselves) and after.
    pub fn last_words(&self, conn: ConnId) -> Option<LastWords> {
        let connection = self.connections.get(conn.0)?;
        matches!(
            connection.state(),
            State::RepSent | State::Established | State::DreqSent
        )
        .then_some(LastWords {
            local_id: conn.0,
            remote_id: connection.remote_id,
            remote_qpn: connection.remote_qpn,
            address: connection.address,
        })
    }

    /// Says once more what has no answer yet: something that messages may have been lost with has
    /// gone. So many as may be on the way at once are said now, the others a millisecond after
    /// another. What the timers do is not changed.
    pub fn repeat_all(&mut self, now: Time) {
        let mut waiting: Vec<(u64, u32)> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_waiting())
            .map(|(id, connection)| (connection.age, id))
            .collect();
        // Whoever has waited longest comes first.
        waiting.sort_unstable();
        for (place, (_, id)) in waiting.into_iter().enumerate() {
            if place < self.config.request_window {
                self.counters.retransmits += 1;
                self.say_again(id);
                continue;
            }
            let later = (place - self.config.request_window + 1) as u64;
            let at = now.after(later * pacing::STEP_NS);
            let connection = self.connections.get_mut(id);
            if let Some(connection) = connection.filter(|c| c.deadline.is_some_and(|due| due > at))
            {
                // One more than its timer would have sent.
                connection.retries_left = connection.retries_left.saturating_add(1);
                self.arm(id, at);
            }
        }
        for id in self.resolutions.asking() {
            self.counters.retransmits += 1;
            self.answer_again(id);
        }
    }

    /// How often a connection's last message, one that is repeated until it is answered, was sent
    /// so far.
    pub fn tries(&self, conn: ConnId) -> Option<u32> {
        let connection = self.connections.get(conn.0)?;
        let repeats = connection
            .max_retries
            .saturating_sub(connection.retries_left);
        Some(u32::from(repeats) + u32::from(!connection.held))
    }

    /// The same of a question for a datagram service.
    pub fn sidr_tries(&self, sidr: SidrId) -> Option<u32> {
        let left = self.resolutions.get(sidr.0)?.retries_left();
        Some(u32::from(self.config.max_retries.min(15).saturating_sub(left)) + 1)
    }

    /// Something was said that has no answer yet.
    pub fn is_waiting(&self) -> bool {
        self.connections
            .iter()
            .any(|(_, connection)| connection.is_waiting())
            || self.resolutions.asking().next().is_some()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A communication id that is not in use.
    fn new_id(&mut self) -> Result<u32, CmError> {
        if !leaves_ids(self.connections.len() + self.resolutions.len()) {
            return Err(CmError::NoIds);
        }
        for _ in 0..1u32 << COUNTER_BITS {
            let counter = disorder(self.secret, self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            let id = u32::from(self.config.range) << COUNTER_BITS | counter;
            if id != 0 && !self.connections.contains(id) && !self.resolutions.contains(id) {
                return Ok(id);
            }
        }
        Err(CmError::NoIds)
    }

    /// The transaction that we begin in the name of a communication id. Whoever has heard of others
    /// cannot tell its upper half.
    fn transaction(&self, id: u32) -> u64 {
        let own = scramble(self.secret ^ u64::from(id));
        let upper = scramble(own ^ self.secret.rotate_left(32)) >> 32;
        upper << 32 | u64::from(id)
    }

    /// How often a REQ is repeated, and a DREQ of the active side.
    fn request_interval_ns(&self) -> u64 {
        2 * timeout_ns(self.config.packet_life) + timeout_ns(self.config.response_timeout)
    }

    /// How long a refusal is kept in mind: as long as the peer, should it have missed it, goes on
    /// asking.
    fn refusal_ns(&self, asked_to_wait: bool) -> u64 {
        let interval = if asked_to_wait {
            timeout_ns(self.config.service_timeout) + timeout_ns(self.config.packet_life)
        } else {
            self.request_interval_ns()
        };
        interval * (u64::from(self.config.max_retries.min(15)) + 1)
    }

    fn is_ours(&self, gid: &Gid) -> bool {
        self.gids.binary_search(gid).is_ok()
    }

    /// Why a request that somebody listens for is refused all the same: its header names an address
    /// that is not ours, or is none.
    fn has_good_header(&self, ip: &Option<Result<IpCmHeader, IpCmError>>) -> bool {
        match ip {
            None => true,
            Some(Ok(header)) => self.is_ours(&Gid::from(header.dst)),
            Some(Err(_)) => false,
        }
    }

    fn has_room_for_a_request(&self) -> bool {
        self.connections.unanswered() + self.resolutions.unanswered() < self.config.max_requests
    }

    /// The deadline that counts.
    fn deadline(&self, id: u32) -> Option<Time> {
        match self.connections.get(id) {
            Some(connection) => connection.deadline,
            None => self.resolutions.get(id)?.deadline,
        }
    }

    fn arm(&mut self, id: u32, at: Time) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.deadline = Some(at);
        } else if let Some(resolution) = self.resolutions.get_mut(id) {
            resolution.deadline = Some(at);
        }
        self.timers.arm(id, at);
        let live = self.connections.len() + self.resolutions.len();
        if self.timers.is_cluttered(live) {
            let connections = self.connections.iter().map(|(id, c)| (c.deadline, id));
            let resolutions = self.resolutions.iter().map(|(id, r)| (r.deadline, id));
            let live = connections
                .chain(resolutions)
                .filter_map(|(at, id)| at.map(|at| (at, id)));
            self.timers.rebuild(live);
        }
    }

    /// Tells the host, if it still wants to hear of the connection.
    fn tell(&mut self, id: u32, event: Event) {
        if self.connections.get(id).is_none_or(|c| !c.orphan) {
            self.events.push_back(event);
        }
    }

    fn send(&mut self, address: Address, mad: [u8; MAD_LEN]) {
        self.out.push_back(Transmit { address, mad });
    }

    /// An answer to what the peer will say again if the answer is lost.
    fn reply(&mut self, to: &Address, tid: u64, message: Message) {
        if self.out.len() >= self.config.max_replies {
            self.counters.replies_dropped += 1;
            return;
        }
        let mad = Mad {
            tid,
            attr_modifier: 0,
            message,
        };
        self.send(*to, mad.emit());
    }

    /// Says again what the connection said last.
    fn say_again(&mut self, id: u32) {
        if let Some(connection) = self.connections.get(id)
            && let Some(mad) = connection.mad.as_deref()
        {
            if self.out.len() >= self.config.max_replies {
                self.counters.replies_dropped += 1;
                return;
            }
            let (address, mad) = (connection.address, *mad);
            self.send(address, mad);
        }
    }

    /// Sends the message, and again by timer until something stops that.
    fn say_until_answered(&mut self, now: Time, id: u32, tid: u64, message: Message) {
        let at = self.say(id, tid, message).map(|ns| now.after(ns));
        if let Some(at) = at {
            self.arm(id, at);
        }
    }

    /// Sends the message and keeps it; gives the interval of its repetitions.
    fn say(&mut self, id: u32, tid: u64, message: Message) -> Option<u64> {
        let connection = self.connections.get_mut(id)?;
        let mad = Mad {
            tid,
            attr_modifier: 0,
            message,
        }
        .emit();
        connection.mad = Some(Box::new(mad));
        connection.retries_left = connection.max_retries;
        connection.deadline = None;
        connection.patience_ns = None;
        let (address, interval) = (connection.address, connection.interval_ns);
        self.send(address, mad);
        Some(interval)
    }

    /// The host's handle, if the connection exists for it.
    fn own(&self, conn: ConnId) -> Result<&Connection, CmError> {
        self.connections
            .get(conn.0)
            .filter(|connection| !connection.orphan)
            .ok_or(CmError::Unknown)
    }

    fn connection_timeout(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.deadline = None;
        if connection.held {
            self.release_in_time(now, id);
            return;
        }
        // To wait longer was said of this time only.
        connection.patience_ns = None;
        let state = connection.state();
        let repeats = matches!(state, State::ReqSent | State::RepSent | State::DreqSent);
        if repeats && connection.retries_left > 0 {
            connection.retries_left -= 1;
            let at = now.after(connection.wait_ns());
            let address = connection.address;
            let mad = connection.mad.as_deref().copied();
            self.counters.retransmits += 1;
            if let Some(mad) = mad {
                self.send(address, mad);
            }
            self.arm(id, at);
            return;
        }
        let conn = ConnId(id);
        match state {
            State::ReqSent => {
                self.tell(id, Event::Unreachable { conn });
                self.give_up_request(id);
            }
            State::RepSent => {
                self.tell(id, Event::Unreachable { conn });
                self.abandon(now, id, RejectReason::TIMEOUT);
            }
            State::DreqSent => {
                self.tell_ended(id, Ended::Unanswered);
                self.enter_time_wait(now, id);
            }
            State::TimeWait | State::Refused => self.forget(id),
            State::RepReceived | State::ReqReceived | State::Established | State::DreqReceived => {}
        }
    }
}

/// The lower [`COUNTER_BITS`] of `counter`, in an order that only who has the secret knows: who has
/// heard one id cannot tell the next, and none comes again before all others have (a Feistel
/// network: each round can be undone, whatever its function).
fn disorder(secret: u64, counter: u32) -> u32 {
    const HALF: u32 = COUNTER_BITS / 2;
    const MASK: u32 = (1 << HALF) - 1;
    let (left, right) = (counter >> HALF & MASK, counter & MASK);
    let (left, right) = (0..6u64).fold((left, right), |(left, right), round| {
        let mixed = scramble(secret ^ scramble(round << 32 | u64::from(right)));
        (right, left ^ (mixed >> 32) as u32 & MASK)
    });
    left << HALF | right
}

/// A number that tells nothing about the next one (splitmix64).
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests;
