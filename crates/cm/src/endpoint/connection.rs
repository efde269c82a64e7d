//! One connection, and the table of them.

use super::State;
use crate::{Address, Time};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use rnic_wire::Gid;
use rnic_wire::cm::MAD_LEN;

/// A channel adapter as its messages name it. Two hosts may have no GUID, or the same (containers): the GID tells them
/// apart.
pub(super) type Peer = (u64, Gid);

/// What an endpoint knows of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Changed by [`Connections::set_state`] only.
    state: State,
    /// We asked for it.
    pub active: bool,
    /// The host has destroyed it: no event names it.
    pub orphan: bool,
    /// The host was told that it has ended.
    pub told: bool,
    /// Passive, and closed before the peer said that it was ready: it may still be asking.
    pub half_open: bool,
    /// Its REQ or DREQ waits for others to be answered, see [`super::pacing`].
    pub held: bool,
    /// We said "wait longer".
    pub asked_to_wait: bool,
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
    /// The same until the next repetition, since the peer said "wait longer" (MRA), which counts once.
    pub patience_ns: Option<u64>,
    /// Repetitions of each message.
    pub max_retries: u8,
    /// What this is to become once something has come from where the answers go: the REQ came from elsewhere, and whoever
    /// it names may know nothing of it.
    pub claimed_retries: Option<u8>,
    /// Of the message under way.
    pub retries_left: u8,
    /// How long it stays in time-wait.
    pub time_wait_ns: u64,
    /// What is repeated by timer (REQ, REP, DREQ) or when the peer shows that it missed it (RTU, REJ, DREP).
    pub mad: Option<Box<[u8; MAD_LEN]>>,
    /// When the timer fires.
    pub deadline: Option<Time>,
    /// Its place in the queue of those that are over.
    over: Option<u64>,
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
            told: false,
            half_open: false,
            held: false,
            asked_to_wait: false,
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
            over: None,
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

    /// An answer to what it has asked or answered itself, before it is established, is of the same transaction. There is
    /// none to a request that was not sent yet.
    pub fn is_of(&self, tid: u64) -> bool {
        self.tid == tid && !self.held
    }

    /// A message that came on this path may be about it: any host can guess the ids of other hosts' connections.
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

    /// It has said something that is repeated until it is answered, and the peer has not asked for patience.
    pub fn is_waiting(&self) -> bool {
        let repeats = matches!(
            self.state,
            State::ReqSent | State::RepSent | State::DreqSent
        );
        repeats && !self.held && self.patience_ns.is_none()
    }

    fn is_asking(&self) -> bool {
        matches!(self.state, State::ReqSent | State::DreqSent) && !self.held
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::TimeWait | State::Refused)
    }
}

/// All connections, by whatever a message may name.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: BTreeMap<u32, Connection>,
    /// Passive ones by the peer and its communication id, as long as they exist: duplicates of a REQ.
    by_request: BTreeMap<(Peer, u32), u32>,
    /// By the peer and its queue pair, until time-wait: stale connections.
    by_queue_pair: BTreeMap<(Peer, u32), u32>,
    /// Those in time-wait or refused, oldest first.
    over: BTreeMap<u64, u32>,
    next_over: u64,
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

    pub fn over(&self) -> usize {
        self.over.len()
    }

    pub fn oldest_over(&self) -> Option<u32> {
        self.over.first_key_value().map(|(_, id)| *id)
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

    pub fn insert(&mut self, id: u32, connection: Connection) {
        self.unanswered += usize::from(connection.state == State::ReqReceived);
        self.asking += usize::from(connection.is_asking());
        if let Some(peer) = connection.peer {
            self.by_request.insert((peer, connection.remote_id), id);
            self.by_queue_pair.insert((peer, connection.remote_qpn), id);
        }
        self.by_id.insert(id, connection);
    }

    /// Its request waits.
    pub fn set_held(&mut self, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            self.asking -= usize::from(connection.is_asking());
            connection.held = true;
        }
    }

    /// A held request is sent after all. `false`: it is not held.
    pub fn release(&mut self, id: u32) -> bool {
        let held = self.by_id.get_mut(&id).filter(|connection| connection.held);
        let Some(connection) = held else {
            return false;
        };
        connection.held = false;
        self.asking += usize::from(connection.is_asking());
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
        self.asking -= usize::from(connection.is_asking());
        // Whatever it was to say is past.
        connection.held = false;
        connection.state = state;
        self.asking += usize::from(connection.is_asking());
        if connection.is_over() && connection.over.is_none() {
            connection.over = Some(self.next_over);
            self.over.insert(self.next_over, id);
            self.next_over += 1;
            if let Some(peer) = connection.peer {
                let key = (peer, connection.remote_qpn);
                remove_if(&mut self.by_queue_pair, key, id);
            }
        }
    }

    pub fn remove(&mut self, id: u32) -> Option<Connection> {
        let connection = self.by_id.remove(&id)?;
        self.unanswered -= usize::from(connection.state == State::ReqReceived);
        self.asking -= usize::from(connection.is_asking());
        if let Some(over) = connection.over {
            self.over.remove(&over);
        }
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
