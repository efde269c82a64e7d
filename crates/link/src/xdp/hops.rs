//! To which Ethernet address of which interface packets to a peer go: what the kernel's tables of routes and neighbours say.
//!
//! The kernel sees none of the packets that leave here, so it would take a neighbour for unused and never ask whether he is still
//! there. It is asked again now and then, and told that he is wanted.

use std::net::IpAddr;

use crate::next_hop::{self, Neighbour};

/// How long what the kernel said is taken for true.
const FRESH_NS: u64 = 250_000_000;
/// How soon it is asked again where it does not know: it is looking for the neighbour.
const ANEW_NS: u64 = 5_000_000;
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    ends: (IpAddr, IpAddr),
    /// `None`: the kernel has to send.
    hop: Option<Hop>,
    until: u64,
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
        let entry = &mut self.entries[place_of(src, dst)];
        match entry {
            Some(entry) if entry.ends == (src, dst) && now < entry.until => entry.hop,
            _ => {
                let hop = ask(src, dst, &self.interfaces);
                let time = if hop.is_some() { FRESH_NS } else { ANEW_NS };
                *entry = Some(Entry {
                    ends: (src, dst),
                    hop,
                    until: now.saturating_add(time),
                });
                hop
            }
        }
    }
}

#[cold]
fn ask(src: IpAddr, dst: IpAddr, interfaces: &[u32]) -> Option<Hop> {
    let hop = next_hop::next_hop_from(src, dst)?;
    let interface = interfaces.iter().position(|&i| i == hop.ifindex())?;
    match next_hop::neighbour(&hop) {
        Neighbour::Known(Some(mac)) => {
            // If it may not be said, so be it: packets that the kernel sends keep him known as well.
            let _ = next_hop::want(&hop);
            Some(Hop { interface, mac })
        }
        _ => None,
    }
}

fn place_of(src: IpAddr, dst: IpAddr) -> usize {
    let fold = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            bits as u64 ^ (bits >> 64) as u64
        }
    };
    let key = fold(src).rotate_left(29) ^ fold(dst);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES
}
