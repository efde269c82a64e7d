//! To which Ethernet address of which interface packets to a peer go: what is said of the
//! [way](super::ways) to it.
//!
//! What the kernel still has to send for an unknown neighbour may lie in another queue of the card
//! than what leaves here once it is known, and would be overtaken. So packets to it go on by the
//! kernel until there was a pause.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use rnic_wire::Flow;

use super::ways::{Ends, Way, Ways};
use crate::staging::path::Route;
use rnic_host::addresses::fold;

/// After so long it is noted that packets still go there.
const FRESH_NS: u64 = 250_000_000;
/// How soon is asked again where the kernel does not know: it is looking for the neighbour.
const ANEW_NS: u64 = 5_000_000;
/// After so long without packets none is left in a queue of the kernel's.
const PAUSE_NS: u64 = 1_000_000;
/// Peers that are remembered; those that fall to one place displace each other.
const PLACES: usize = 1024;

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    /// Which of the interfaces.
    pub(super) interface: usize,
    /// The Ethernet address.
    pub(super) mac: [u8; 6],
}

/// What is known of the way to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    ends: Ends,
    /// The interface on the way, if it is one of ours.
    interface: Option<usize>,
    /// `None`: the kernel has to send.
    pub(super) hop: Option<Hop>,
    until: u64,
    /// What had [changed](Ways::changes) by then.
    seen: u64,
    /// When the kernel had the last packet; 0: it had none.
    by_kernel: u64,
}

/// What is known of all peers.
#[derive(Debug)]
pub(super) struct Hops {
    /// The route that was asked for last, if its packets pass the kernel. Its memory is no other's
    /// as long as this is here.
    last: Option<(Weak<Route>, Entry)>,
    entries: Box<[Option<Entry>]>,
    ways: Arc<Ways>,
}

impl Hops {
    pub(super) fn new(ways: Arc<Ways>) -> Hops {
        Hops {
            last: None,
            entries: vec![None; PLACES].into(),
            ways,
        }
    }

    /// The hop of a route's packets; `None`: leave them to the kernel.
    #[inline]
    pub(super) fn of(&mut self, route: &Arc<Route>, now: u64) -> Option<Hop> {
        match &self.last {
            Some((last, entry))
                if last.as_ptr() == Arc::as_ptr(route) && entry.holds(now, self.ways.changes()) =>
            {
                entry.hop
            }
            _ => self.find(route, now),
        }
    }

    #[inline(never)]
    fn find(&mut self, route: &Arc<Route>, now: u64) -> Option<Hop> {
        if !route.may_pass_network_stack() {
            return None;
        }
        let Flow { src, dst, .. } = route.flow;
        let entry = self.entry(src, dst, now);
        let hop = entry.hop?;
        self.last = Some((Arc::downgrade(route), entry));
        Some(hop)
    }

    /// What is known of the way from an address of this host to a peer.
    pub(super) fn entry(&mut self, src: IpAddr, dst: IpAddr, now: u64) -> Entry {
        let place = &mut self.entries[place_of(src, dst)];
        let entry = match place {
            Some(entry) if entry.ends == (src, dst) => entry,
            _ => place.insert(Entry::new((src, dst))),
        };
        let changes = self.ways.changes();
        if !entry.holds(now, changes) {
            entry.seen = changes;
            entry.look(now, || self.ways.of((src, dst)));
        }
        if entry.hop.is_none() {
            entry.by_kernel = now;
        }
        *entry
    }

    /// The interface from an address of this host to a peer, whichever path has to send, as it was
    /// when [asked for](Hops::of) the last time.
    pub(super) fn interface(&self, src: IpAddr, dst: IpAddr) -> Option<usize> {
        let entry = self.entries[place_of(src, dst)].as_ref()?;
        entry.interface.filter(|_| entry.ends == (src, dst))
    }
}

impl Entry {
    /// Nothing yet.
    fn new(ends: Ends) -> Entry {
        Entry {
            ends,
            interface: None,
            hop: None,
            until: 0,
            seen: 0,
            by_kernel: 0,
        }
    }

    /// It need not be asked for anew. `changes`: see [`Ways::changes`].
    #[inline]
    fn holds(&self, now: u64, changes: u64) -> bool {
        now < self.until && self.seen == changes
    }

    #[cold]
    fn look(&mut self, now: u64, ask: impl FnOnce() -> Way) {
        let pauses = self.hop.is_some() || now.saturating_sub(self.by_kernel) >= PAUSE_NS;
        let Way { interface, mac } = ask();
        self.interface = interface;
        let hop = interface.zip(mac);
        self.hop = hop
            .map(|(interface, mac)| Hop { interface, mac })
            .filter(|_| pauses);
        let time = if self.hop.is_some() {
            FRESH_NS
        } else {
            ANEW_NS
        };
        self.until = now.saturating_add(time);
    }
}

fn place_of(src: IpAddr, dst: IpAddr) -> usize {
    let key = fold(src).rotate_left(29) ^ fold(dst);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES
}

#[cfg(test)]
mod tests {
    //! A packet overtakes none that went another way.

    use super::*;
    use crate::staging::path::tests::{route, spec};

    /// Or its packets would go on to the host that the address belonged to before.
    #[test]
    fn what_was_said_of_a_route_is_asked_for_again() {
        let (src, dst) = ("10.77.0.1", "10.77.0.2");
        let of = |dest_qpn| {
            let socket = route("127.0.0.1", "127.0.0.1", dest_qpn).socket.clone();
            let spec = spec(src, dst, dest_qpn);
            Arc::new(Route::new(&spec, socket, true, false, true))
        };
        let (one, other) = (of(0x5000), of(0x6000));
        let ends = (src.parse().expect("one"), dst.parse().expect("another"));
        let mut hops = Hops::new(Arc::new(Ways::open(Vec::new()).expect("rtnetlink")));
        let hop = Hop {
            interface: 0,
            mac: [2; 6],
        };
        hops.entries[place_of(ends.0, ends.1)] = Some(Entry {
            interface: Some(0),
            hop: Some(hop),
            until: FRESH_NS,
            ..Entry::new(ends)
        });
        for route in [&one, &one, &other, &one] {
            assert_eq!(hops.of(route, FRESH_NS - 1), Some(hop));
        }
        // None of our interfaces leads there any more.
        assert_eq!(hops.of(&one, FRESH_NS), None);
        assert_eq!(hops.of(&one, FRESH_NS + 1), None);
    }

    #[test]
    fn packets_go_by_the_kernel_until_there_was_a_pause() {
        let known = || Way {
            interface: Some(0),
            mac: Some([2; 6]),
        };
        let sought = || Way {
            mac: None,
            ..known()
        };
        let mut entry = Entry::new(([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        let start = 10 * PAUSE_NS;
        // One that was known before anything was sent.
        entry.look(start, known);
        assert!(entry.hop.is_some());
        // One that was not.
        entry.look(start, sought);
        assert_eq!((entry.hop, entry.interface), (None, Some(0)));
        entry.by_kernel = start;
        entry.look(start + PAUSE_NS - 1, known);
        assert_eq!(entry.hop, None);
        entry.look(start + PAUSE_NS, known);
        assert!(entry.hop.is_some());
        // One that stays known needs no pause.
        entry.by_kernel = start + FRESH_NS;
        entry.look(start + FRESH_NS, known);
        assert!(entry.hop.is_some());
    }
}
