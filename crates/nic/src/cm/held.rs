//! Requests that find nobody listening, kept for a moment.
//!
//! A program that closes its listener and opens the next one on the same port (perftest with `-R` does, while its client
//! is already on the way) is not to lose the client that comes in between: refused, it gives up. On hardware that gap is
//! as wide, but a client takes longer to cross it. Only when the moment is over is the request refused.

use std::collections::VecDeque;

use rnic_cm::Address;
use rnic_wire::Gid;
use rnic_wire::cm::Addressee;

use super::qp1::Arrived;
use super::state::Cm;

/// How long a request is kept.
const PATIENCE: u64 = 20_000_000;
/// How often it is looked for a listener meanwhile.
const STEP: u64 = 2_000_000;
/// So many are kept; others are refused at once.
const MOST: usize = 64;

/// The requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held {
    requests: VecDeque<(u64, Arrived)>,
    next: u64,
}

impl Held {
    pub(super) fn deadline(&self) -> Option<u64> {
        (!self.requests.is_empty()).then_some(self.next)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < MOST
    }

    pub(super) fn keep(&mut self, arrived: Arrived, now: u64) {
        if self.requests.is_empty() {
            self.next = now.saturating_add(STEP);
        }
        self.requests
            .push_back((now.saturating_add(PATIENCE), arrived));
    }
}

/// Who listens by now.
enum Found {
    Nobody,
    Here,
    /// Another process of this host.
    There,
}

impl Cm {
    /// Looks whether somebody listens by now.
    pub(super) fn look_at_held(&mut self, now: u64) {
        if self.held.deadline().is_none_or(|at| at > now) {
            return;
        }
        self.held.next = now.saturating_add(STEP);
        for (until, arrived) in std::mem::take(&mut self.held.requests) {
            match self.found(&arrived) {
                Found::There if self.is_of_this_host(&arrived) => self.forwards.push(arrived),
                Found::Nobody if now < until => self.held.requests.push_back((until, arrived)),
                _ => self.hear(arrived, now, true),
            }
        }
    }

    /// The process ends: whom it kept waiting is refused at once.
    pub(super) fn let_go(&mut self, now: u64) {
        for (_, arrived) in std::mem::take(&mut self.held.requests) {
            self.hear(arrived, now, true);
        }
    }

    fn found(&self, arrived: &Arrived) -> Found {
        let Addressee::Service(service, addr) = Addressee::of(&arrived.mad) else {
            return Found::Here;
        };
        let wanted = addr.unwrap_or(arrived.dst);
        if self.listeners.find(&self.ids, service, wanted).is_some() {
            return Found::Here;
        }
        let own = u32::from(self.endpoint.config().range);
        match self
            .ports
            .as_ref()
            .and_then(|ports| ports.listener_of(service, addr))
        {
            Some(range) if range != own => Found::There,
            _ => Found::Nobody,
        }
    }

    /// It may be sent once more from here, and then reaches whom it is for: a request of another host may not.
    fn is_of_this_host(&self, arrived: &Arrived) -> bool {
        self.row_of_gid(Gid::from(arrived.src)).is_some()
    }
}

impl Arrived {
    /// From the receiver to the sender.
    pub(super) fn way_back(&self) -> Address {
        Address::new(Gid::from(self.dst), Gid::from(self.src))
    }

    /// From the sender to the receiver, as it came.
    pub(super) fn way_here(&self) -> Address {
        Address::new(Gid::from(self.src), Gid::from(self.dst))
    }
}
