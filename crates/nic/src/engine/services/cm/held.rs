//! Requests that find nobody listening, kept for a moment.
//!
//! A program that closes its listener and opens the next one on the same port (perftest with `-R`
//! does, while its client is already on the way) is not to lose the client that comes in between:
//! refused, it gives up. On hardware that gap is as wide, but a client takes longer to cross it.
//! Only when the moment is over is the request refused.

use std::collections::VecDeque;

use rnic_cm::Address;
use rnic_wire::Gid;
use rnic_wire::cm::{Addressee, ServiceId};

use super::qp1::Arrived;
use super::state::Cm;

/// How long a request is kept.
const REQUEST_HOLD_NS: u64 = 20_000_000;
/// The same where somebody listened until lately: on a busy or emulated machine the gap is wider.
const LONGER: u64 = 500_000_000;
/// Services that were listened for until lately; beyond, the oldest are forgotten.
const MOST_ENDED: usize = 64;
/// How often it is looked for a listener meanwhile.
const STEP: u64 = 2_000_000;
/// So many are kept; others are refused at once.
const MOST: usize = 64;

/// The requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held {
    requests: VecDeque<(u64, Arrived)>,
    next: u64,
    /// Until when they are expected to be listened for again.
    ended: VecDeque<(u64, ServiceId)>,
}

impl Held {
    pub(crate) fn deadline(&self) -> Option<u64> {
        (!self.requests.is_empty()).then_some(self.next)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() < MOST
    }

    /// A listener has gone.
    pub(crate) fn note_end(&mut self, service: ServiceId, now: u64) {
        self.ended.retain(|(_, other)| *other != service);
        if self.ended.len() >= MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((now.saturating_add(LONGER), service));
    }

    /// Until when a request for a service is kept that comes now.
    fn until(&self, service: ServiceId, now: u64) -> u64 {
        let soon = now.saturating_add(REQUEST_HOLD_NS);
        let ended = self.ended.iter().find(|(_, other)| *other == service);
        ended.map_or(soon, |(until, _)| soon.max(*until))
    }

    pub(crate) fn keep(&mut self, arrived: Arrived, now: u64) {
        if self.requests.is_empty() {
            self.next = now.saturating_add(STEP);
        }
        let until = match Addressee::of(&arrived.mad) {
            // Half of the places are for those who wait shortly.
            Addressee::Service(service, _) if self.requests.len() < MOST / 2 => {
                self.until(service, now)
            }
            Addressee::Service(..) => now.saturating_add(REQUEST_HOLD_NS),
            _ => now,
        };
        self.requests.push_back((until, arrived));
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
    pub(crate) fn look_at_held(&mut self, now: u64) {
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
    pub(crate) fn let_go(&mut self, now: u64) {
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

    /// It may be sent once more from here, and then reaches whom it is for: a request of another
    /// host may not.
    fn is_of_this_host(&self, arrived: &Arrived) -> bool {
        self.row_of_gid(Gid::from(arrived.src)).is_some()
    }
}

impl Arrived {
    /// From the receiver to the sender.
    pub(crate) fn way_back(&self) -> Address {
        Address {
            pkey: self.pkey,
            ..Address::new(Gid::from(self.dst), Gid::from(self.src))
        }
    }

    /// From the sender to the receiver, as it came.
    pub(crate) fn way_here(&self) -> Address {
        Address {
            pkey: self.pkey,
            ..Address::new(Gid::from(self.src), Gid::from(self.dst))
        }
    }
}

#[cfg(test)]
mod tests {
    //! How long is waited for the next listener.

    use super::*;

    #[test]
    fn who_comes_to_a_service_that_was_listened_for_until_lately_waits_longer() {
        let mut held = Held::default();
        let (ended, never) = (ServiceId(1), ServiceId(2));
        held.note_end(ended, 1000);
        assert_eq!(held.until(never, 2000), 2000 + REQUEST_HOLD_NS);
        assert_eq!(held.until(ended, 2000), 1000 + LONGER);
        let late = 1000 + LONGER;
        assert_eq!(held.until(ended, late), late + REQUEST_HOLD_NS);
        held.note_end(ended, late);
        assert_eq!(held.until(ended, late), late + LONGER);
        for other in 0..2 * MOST_ENDED as u64 {
            held.note_end(ServiceId(10 + other), late);
        }
        assert_eq!(
            (held.ended.len(), held.until(ended, late)),
            (MOST_ENDED, late + REQUEST_HOLD_NS)
        );
    }
}
