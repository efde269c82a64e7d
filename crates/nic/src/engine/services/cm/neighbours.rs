//! The neighbour on the way to a peer: whether anybody is there at all. What needs asking (ARP,
//! neighbour discovery) the kernel asks, once something is sent that way.

use std::net::SocketAddr;

use super::entry::{State, Waiting};
use super::queries::KNOCK;
use super::state::Cm;
use crate::host::Host;
use crate::observe;
use rnic_link::next_hop::{Neighbour, NextHop, neighbour, next_hop};
use rnic_types::cm::EventKind;

/// How often to look whether an answer has come.
const LOOK: u64 = 10_000_000;

/// The neighbour that has to be asked for before `peer` can be reached; `None`: nobody. Makes
/// system calls, but for a simulated host, whose neighbours are all known.
pub(crate) fn unknown(source: SocketAddr, peer: SocketAddr, host: &Host) -> Option<NextHop> {
    if host.is_simulated() || peer.ip().is_multicast() || peer.ip() == source.ip() {
        return None;
    }
    let ifindex = match peer {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let hop = next_hop(peer.ip(), ifindex)?;
    if let Neighbour::Known { .. } = neighbour(&hop) {
        return None;
    }
    rnic_sys::knock(source, peer);
    // Some interfaces have no such thing as neighbours: then there is none now, either.
    (neighbour(&hop) == Neighbour::Sought).then_some(hop)
}

impl Cm {
    /// Looks whether neighbours have answered.
    pub(crate) fn look_for_neighbours(&mut self, now: u64) {
        if self.queries.deadline().is_none_or(|at| at > now) {
            return;
        }
        // Of many that wait for the same one, the first asks.
        let mut asked: Vec<(NextHop, bool)> = Vec::new();
        let mut is_absent = |hop: NextHop| match asked.iter().find(|(other, _)| *other == hop) {
            Some((_, absent)) => *absent,
            None => {
                let absent = neighbour(&hop) == Neighbour::Sought;
                asked.push((hop, absent));
                absent
            }
        };
        for mut query in std::mem::take(&mut self.queries.0) {
            if query.look > now {
                self.queries.0.push(query);
                continue;
            }
            let Some(entry) = self.ids.get_mut(query.id) else {
                continue;
            };
            if !is_absent(query.hop) {
                entry.state = State::AddrResolved;
                self.post(Waiting::new(query.id, EventKind::AddrResolved));
            } else if now >= query.until {
                entry.state = State::Bound;
                let status = -libc::ETIMEDOUT;
                self.note(Some(query.id), |attempt| {
                    let why = format!("nobody answers to {} (ARP, neighbour discovery)", query.hop);
                    observe::cm::address_error(attempt, status, &why);
                });
                if let Some(entry) = self.ids.get_mut(query.id) {
                    entry.forget_what_was_found();
                }
                self.post(Waiting {
                    status,
                    ..Waiting::new(query.id, EventKind::AddrError)
                });
            } else {
                if now >= query.knock {
                    rnic_sys::knock(query.source, query.peer);
                    query.knock = now.saturating_add(KNOCK);
                }
                query.look = now.saturating_add(LOOK).min(query.until.max(now + 1));
                self.queries.0.push(query);
            }
        }
    }
}
