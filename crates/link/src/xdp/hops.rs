//! To which Ethernet address of which interface packets to a peer go: what the kernel's tables of routes and neighbours say.
//!
//! The kernel sees none of the packets that leave here, so it would take a neighbour for unused and never ask whether he is still
//! there. It is asked again now and then, and told that he is wanted.
//!
//! What the kernel still has to send for an unknown neighbour may lie in another queue of the card than what leaves here once he is known, and
//! would be overtaken. So packets to him go on by the kernel until there was a pause.

use std::net::IpAddr;

use crate::next_hop::{self, Neighbour};
use crate::path::fold;

/// How long what the kernel said is taken for true.
const FRESH_NS: u64 = 250_000_000;
/// How soon it is asked again where it does not know: it is looking for the neighbour.
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

/// What the kernel says of the way to a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Which of our interfaces.
    interface: Option<usize>,
    /// The neighbour's Ethernet address, if it is known.
    mac: Option<[u8; 6]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ends: (IpAddr, IpAddr),
    /// The interface on the way, if it is one of ours.
    interface: Option<usize>,
    /// `None`: the kernel has to send.
    hop: Option<Hop>,
    until: u64,
    /// When the kernel had the last packet; 0: it had none.
    by_kernel: u64,
}

/// What is known of all peers.
#[derive(Debug)]
pub(super) struct Hops {
    entries: Box<[Option<Entry>]>,
    /// The interfaces' numbers.
    interfaces: Vec<u32>,
}

impl Hops {
    pub(super) fn new(interfaces: Vec<u32>) -> Hops {
        Hops {
            entries: vec![None; PLACES].into(),
            interfaces,
        }
    }

    /// The hop from an address of this host to a peer; `None`: leave it to the kernel.
    #[inline]
    pub(super) fn of(&mut self, src: IpAddr, dst: IpAddr, now: u64) -> Option<Hop> {
        let place = &mut self.entries[place_of(src, dst)];
        let entry = match place {
            Some(entry) if entry.ends == (src, dst) => entry,
            _ => place.insert(Entry {
                ends: (src, dst),
                interface: None,
                hop: None,
                until: 0,
                by_kernel: 0,
            }),
        };
        if now >= entry.until {
            entry.look(now, || ask(src, dst, &self.interfaces));
        }
        if entry.hop.is_none() {
            entry.by_kernel = now;
        }
        entry.hop
    }

    /// The interface from an address of this host to a peer, whoever has to send, as it was when [asked for](Hops::of) the last time.
    pub(super) fn interface(&self, src: IpAddr, dst: IpAddr) -> Option<usize> {
        let entry = self.entries[place_of(src, dst)].as_ref()?;
        entry.interface.filter(|_| entry.ends == (src, dst))
    }
}

impl Entry {
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

/// Has the kernel look for the neighbour on the way to a peer, before there is anything to send.
pub(super) fn look_for(src: IpAddr, dst: IpAddr) {
    if let Some(hop) = next_hop::next_hop_from(src, dst)
        && !matches!(next_hop::neighbour(&hop), Neighbour::Known { .. })
    {
        // If it may not be said, the first packet does it.
        let _ = next_hop::want(&hop);
    }
}

#[cold]
fn ask(src: IpAddr, dst: IpAddr, interfaces: &[u32]) -> Way {
    let Some(hop) = next_hop::next_hop_from(src, dst) else {
        return Way::default();
    };
    let interface = interfaces.iter().position(|&i| i == hop.ifindex());
    if interface.is_none() {
        return Way::default();
    }
    let mac = match next_hop::neighbour(&hop) {
        Neighbour::Known {
            mac: Some(mac),
            lasting,
        } => {
            if !lasting {
                // If it may not be said, so be it: packets that the kernel sends keep him known as well.
                let _ = next_hop::want(&hop);
            }
            Some(mac)
        }
        _ => None,
    };
    Way { interface, mac }
}

fn place_of(src: IpAddr, dst: IpAddr) -> usize {
    let key = fold(src).rotate_left(29) ^ fold(dst);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES
}

#[cfg(test)]
mod tests {
    //! A packet overtakes none that went another way.

    use super::*;

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
        let mut entry = Entry {
            ends: ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            interface: None,
            hop: None,
            until: 0,
            by_kernel: 0,
        };
        let start = 10 * PAUSE_NS;
        // One who was known before anything was sent.
        entry.look(start, known);
        assert!(entry.hop.is_some());
        // One who was not.
        entry.look(start, sought);
        assert_eq!((entry.hop, entry.interface), (None, Some(0)));
        entry.by_kernel = start;
        entry.look(start + PAUSE_NS - 1, known);
        assert_eq!(entry.hop, None);
        entry.look(start + PAUSE_NS, known);
        assert!(entry.hop.is_some());
        // Who stays known needs no pause.
        entry.by_kernel = start + FRESH_NS;
        entry.look(start + FRESH_NS, known);
        assert!(entry.hop.is_some());
    }
}
