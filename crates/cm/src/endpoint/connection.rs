//! One connection, and the table of them.

use super::State;
use crate::{Address, Time};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use rnic_wire::Gid;
use rnic_wire::cm::{MAD_LEN, Transport};

/// A channel adapter as its messages name it. Two hosts may have no GUID, or the same (containers):
/// the GID tells them apart.
pub(super) type Peer = (u64, Gid);

/// What an endpoint knows of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Changed by [`Connections::set_state`] only.
    state: State,
    /// We asked for it.
    pub active: bool,
    /// The host has destroyed it: no event names it. Changed by [`Connections::disown`] only.
    pub orphan: bool,
    /// The host was told that it has ended.
    pub notified: bool,
    /// Passive, and closed before the peer said that it was ready: it may still be asking.
    pub half_open: bool,
    /// Its REQ or DREQ waits for others to be answered, see [`super::pacing`].
    pub held: bool,
    /// We said "wait longer".
    pub asked_to_wait: bool,
    /// Asked for by its REQ: XRC has a REP of its own.
    pub transport: Transport,
    /// Transaction of REQ, REP and RTU.
    pub tid: u64,
    /// The peer's communication id; 0 as long as it is not known.
    pub remote_id: u32,
    /// The peer's channel adapter, once it is known.
    pub peer: Option<Peer>,
    /// Our queue pair; 0 before `accept`.
    pub local_qpn: u32,
    /// The peer's queue pair.
    pub remote_qpn: u32,
    /// PSN in the peer's REQ or REP: with the queue pair, what tells one request from another.
    pub remote_psn: u32,
    /// The path.
    pub address: Address,
    /// Time between repetitions.
    pub interval_ns: u64,
    /// The same until the next repetition, since the peer said "wait longer" (MRA), which counts
    /// once.
    pub patience_ns: Option<u64>,
    /// Repetitions of each message.
    pub max_retries: u8,
    /// What this is to become once something has come from where the answers go: the REQ came from
    /// elsewhere, and whoever it names may know nothing of it.
    pub claimed_retries: Option<u8>,
    /// Of the message under way.
    pub retries_left: u8,
    /// How long it stays in time-wait.
    pub time_wait_ns: u64,
    /// What is repeated by timer (REQ, REP, DREQ) or when the peer shows that it missed it (RTU,
    /// REJ, DREP).
    pub mad: Option<Box<[u8; MAD_LEN]>>,
    /// When the timer fires.
    pub deadline: Option<Time>,
    /// How many connections there had been before it.
    pub age: u64,
    /// Its place in the queue of those that are over.
    over: Option<u64>,
    /// Its place in the queue of those that were left.
    left: Option<u64>,
    /// It is one of those that were counted as asking.
    counted: bool,
}

impl Connection {
    pub fn new(active: bool, tid: u64, address: Address) -> Connection {
        Connection {
            state: if active {
                State::ReqSent
            } else {
                State::ReqReceived
            },
            active,
            orphan: false,
            notified: false,
            half_open: false,
            held: false,
            asked_to_wait: false,
            transport: Transport::Rc,
            tid,
            remote_id: 0,
            peer: None,
            local_qpn: 0,
            remote_qpn: 0,
            remote_psn: 0,
            address,
            interval_ns: 0,
            patience_ns: None,
            max_retries: 0,
            claimed_retries: None,
            retries_left: 0,
            time_wait_ns: 0,
            mad: None,
            deadline: None,
            age: 0,
            over: None,
            left: None,
            counted: false,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Until the message under way is repeated.
    pub fn wait_ns(&self) -> u64 {
        self.patience_ns.unwrap_or(self.interval_ns)
    }

    /// Its transaction is that of its REQ, on both sides.
    pub fn may_be_answered(&self) -> bool {
        matches!(
            self.state,
            State::ReqSent | State::RepReceived | State::ReqReceived | State::RepSent
        )
    }

    /// An answer to what it has asked or answered itself, before it is established, is of the same
    /// transaction. There is none to a request that was not sent yet.
    pub fn is_of(&self, tid: u64) -> bool {
        self.tid == tid && !self.held
    }

    /// A message that came on this path may be about it: any host can guess the ids of other hosts'
    /// connections.
    pub fn is_between_ends_of(&self, from: &Address) -> bool {
        self.address.joins_same_ends(from)
    }

    /// Something has come from where its messages go.
    pub fn is_heard_of(&mut self) {
        if let Some(retries) = self.claimed_retries.take() {
            self.max_retries = retries;
            self.retries_left = retries;
        }
    }

    /// It has said something that is repeated until it is answered, and the peer has not asked for
    /// patience.
    pub fn is_waiting(&self) -> bool {
        let repeats = matches!(
            self.state,
            State::ReqSent | State::RepSent | State::DreqSent
        );
        repeats && !self.held && self.patience_ns.is_none()
    }

    /// Others have to wait for its answer. Not for that of a peer that may never have been ready,
    /// when nobody here cares any more: it would hold them up for as long as it pleases.
    fn is_asking(&self) -> bool {
        let asks = matches!(self.state, State::ReqSent | State::DreqSent) && !self.held;
        asks && !(self.orphan && self.half_open)
    }

    /// The host has destroyed it, and only the peer's answer to its DREQ is missing.
    fn is_left(&self) -> bool {
        self.orphan && self.state == State::DreqSent && !self.held
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::TimeWait | State::Refused)
    }
}

/// Connections of one kind, oldest first.
#[derive(Debug, Default)]
struct Queue {
    places: BTreeMap<u64, u32>,
    next: u64,
}

impl Queue {
    /// Takes a connection in, or lets go of it. `place` is its own.
    fn sort_in(&mut self, id: u32, place: &mut Option<u64>, belongs: bool) {
        match *place {
            None if belongs => {
                *place = Some(self.next);
                self.places.insert(self.next, id);
                self.next += 1;
            }
            Some(old) if !belongs => {
                *place = None;
                self.places.remove(&old);
            }
            _ => {}
        }
    }

    /// The oldest, if there are more than `most`.
    fn excess(&self, most: usize) -> Option<u32> {
        let (_, oldest) = self.places.first_key_value()?;
        (self.places.len() > most).then_some(*oldest)
    }
}

/// All connections, by whatever a message may name.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: BTreeMap<u32, Connection>,
    /// Passive ones by the peer and its communication id, as long as they exist: duplicates of a
    /// REQ.
    by_request: BTreeMap<(Peer, u32), u32>,
    /// By the peer and its queue pair, until time-wait: stale connections.
    by_queue_pair: BTreeMap<(Peer, u32), u32>,
    /// Those in time-wait or refused.
    over: Queue,
    /// Those that the host has destroyed and the peer has not.
    left: Queue,
    /// How many there ever were.
    born: u64,
    /// How many wait for the host's first word.
    unanswered: usize,
    /// How many REQs and DREQs were sent that have no answer.
    asking: usize,
}

impl Connections {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub fn asking(&self) -> usize {
        self.asking
    }

    /// One to be forgotten: there are more than `most` that are over, or that were left.
    pub fn excess(&self, most: usize) -> Option<u32> {
        self.over.excess(most).or_else(|| self.left.excess(most))
    }

    pub fn contains(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    pub fn get(&self, id: u32) -> Option<&Connection> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.by_id.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.by_id.iter().map(|(id, connection)| (*id, connection))
    }

    /// The connection that came of a peer's REQ.
    pub fn of_request(&self, peer: Peer, remote_id: u32) -> Option<u32> {
        self.by_request.get(&(peer, remote_id)).copied()
    }

    /// The connection that a peer's queue pair has.
    pub fn of_queue_pair(&self, peer: Peer, qpn: u32) -> Option<u32> {
        self.by_queue_pair.get(&(peer, qpn)).copied()
    }

    pub fn insert(&mut self, id: u32, mut connection: Connection) {
        connection.age = self.born;
        self.born += 1;
        self.unanswered += usize::from(connection.state == State::ReqReceived);
        if let Some(peer) = connection.peer {
            self.by_request.insert((peer, connection.remote_id), id);
            self.by_queue_pair.insert((peer, connection.remote_qpn), id);
        }
        self.by_id.insert(id, connection);
        self.sort_in(id);
    }

    /// Counts it, and queues it, as what it has become.
    fn sort_in(&mut self, id: u32) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        let asking = connection.is_asking();
        match (asking, core::mem::replace(&mut connection.counted, asking)) {
            (true, false) => self.asking += 1,
            (false, true) => self.asking -= 1,
            _ => {}
        }
        let (over, left) = (connection.is_over(), connection.is_left());
        self.over.sort_in(id, &mut connection.over, over);
        self.left.sort_in(id, &mut connection.left, left);
    }

    /// The host has destroyed it.
    pub fn disown(&mut self, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.orphan = true;
            self.sort_in(id);
        }
    }

    /// The peer has proved that it got our REP.
    pub fn is_open(&mut self, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.half_open = false;
            self.sort_in(id);
        }
    }

    /// Its request waits.
    pub fn set_held(&mut self, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.held = true;
            self.sort_in(id);
        }
    }

    /// A held request is sent after all. `false`: it is not held.
    pub fn release(&mut self, id: u32) -> bool {
        let held = self.by_id.get_mut(&id).filter(|connection| connection.held);
        let Some(connection) = held else {
            return false;
        };
        connection.held = false;
        self.sort_in(id);
        true
    }

    /// The active side has learned who its peer is.
    pub fn learn_peer(&mut self, id: u32, peer: Peer) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        connection.peer = Some(peer);
        self.by_queue_pair.insert((peer, connection.remote_qpn), id);
    }

    pub fn set_state(&mut self, id: u32, state: State) {
        let Some(connection) = self.by_id.get_mut(&id) else {
            return;
        };
        self.unanswered -= usize::from(connection.state == State::ReqReceived);
        self.unanswered += usize::from(state == State::ReqReceived);
        // Whatever it was to say is past.
        connection.held = false;
        connection.state = state;
        if connection.is_over()
            && connection.over.is_none()
            && let Some(peer) = connection.peer
        {
            let key = (peer, connection.remote_qpn);
            remove_if(&mut self.by_queue_pair, key, id);
        }
        self.sort_in(id);
    }

    pub fn remove(&mut self, id: u32) -> Option<Connection> {
        let mut connection = self.by_id.remove(&id)?;
        self.unanswered -= usize::from(connection.state == State::ReqReceived);
        self.asking -= usize::from(connection.counted);
        self.over.sort_in(id, &mut connection.over, false);
        self.left.sort_in(id, &mut connection.left, false);
        if let Some(peer) = connection.peer {
            remove_if(&mut self.by_queue_pair, (peer, connection.remote_qpn), id);
            if !connection.active {
                remove_if(&mut self.by_request, (peer, connection.remote_id), id);
            }
        }
        Some(connection)
    }
}

/// Removes a key that still means `id`.
fn remove_if(index: &mut BTreeMap<(Peer, u32), u32>, key: (Peer, u32), id: u32) {
    if index.get(&key) == Some(&id) {
        index.remove(&key);
    }
}
