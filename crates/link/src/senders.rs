//! What is known of those whose packets arrive, and the check of their ICRCs.
//!
//! Two things are kept, in tables of their own: of each flow (addresses and port) the part of the
//! ICRC that its packets share, and what it does with the IPv4 identification; of each source
//! address what its flows do. Flows displace each other where there are many, and what is known of
//! their source stays.
//!
//! Anybody may send, with any source address. Both tables are bounded. An entry that has not had a
//! single packet with a right ICRC displaces none that has. So garbage, and what was corrupted,
//! wash nothing away. Somebody who forges addresses and makes the ICRCs right (everybody can) does
//! displace entries, those least used first. A source that is displaced is as one that never sent:
//! that costs it no packets while there is leeway ([`rnic_wire::Leeway`]); after that, if it counts
//! its packets, the first of a flow, and the first after a second of silence. A host that sends
//! garbage to a queue pair uses the leeway up, for a minute. The hash has a secret, so nobody knows
//! which addresses to forge for a given one.

use std::net::{IpAddr, Ipv6Addr};

use rnic_wire::{Flow, FlowIds, IcrcContext, IcrcError, IcrcOk, Leeway, PeerIds};

use rnic_host::train::IpIds;
use rnic_sys as sys;

/// Entries that a key may lie in.
const WAYS: usize = 8;
/// Sets of as many: at the beginning, and at most.
const FEW: usize = 32;
const MANY: usize = 512;

/// A table that grows to a bound: each key has a set of places, and in a full one the entry least
/// used gives way.
struct Table<K, V> {
    secret: [u64; 2],
    /// Of each set the places lie next to each other.
    places: Vec<Option<Entry<K, V>>>,
    /// One that has to prove itself before it displaces another.
    newcomer: Option<Entry<K, V>>,
    clock: u32,
}

struct Entry<K, V> {
    key: K,
    used: u32,
    value: V,
}

/// What entries are found by.
trait Key: Copy + PartialEq {
    fn hash(&self, secret: [u64; 2]) -> u64;
}

impl Key for IpAddr {
    #[inline]
    fn hash(&self, secret: [u64; 2]) -> u64 {
        match *self {
            IpAddr::V4(v4) => hash([u32::from(v4).into()], secret),
            IpAddr::V6(v6) => hash(halves(v6), secret),
        }
    }
}

impl Key for Flow {
    #[inline]
    fn hash(&self, secret: [u64; 2]) -> u64 {
        let ports = u64::from(self.src_port) << 16 | u64::from(self.dst_port);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let addresses = u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst));
                hash([addresses, ports], secret)
            }
            (src, dst) => hash([src.hash(secret), dst.hash(secret), ports], secret),
        }
    }
}

fn halves(ip: Ipv6Addr) -> [u64; 2] {
    let bits = u128::from(ip);
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
fn hash<const N: usize>(words: [u64; N], [start, factor]: [u64; 2]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(factor);
        (product >> 64) as u64 ^ product as u64
    };
    // The last step spreads neighbouring addresses: with one step, one factor in some hundred lets
    // them share a few sets.
    mix(words.into_iter().fold(start, mix), start)
}

/// An entry that has had a packet with a right ICRC.
trait Proven {
    fn is_proven(&self) -> bool;
}

impl<K, V: Proven> Entry<K, V> {
    fn is_proven(&self) -> bool {
        self.value.is_proven()
    }
}

impl<K: Key, V: Proven> Table<K, V> {
    fn new() -> Table<K, V> {
        Table {
            secret: [sys::random_u64(), sys::random_u64() | 1],
            places: empty(FEW),
            newcomer: None,
            clock: 0,
        }
    }

    /// Where the set of a key begins.
    #[inline]
    fn set_of(&self, key: &K) -> usize {
        let hash = key.hash(self.secret);
        hash as usize % (self.places.len() / WAYS) * WAYS
    }

    /// The entry of a key, a `new` one if there was none.
    #[inline]
    fn get(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        self.clock = self.clock.wrapping_add(1);
        let used = self.clock;
        let start = self.set_of(key);
        let is_its = |entry: &Option<Entry<K, V>>| entry.as_ref().is_some_and(|e| e.key == *key);
        let found = self.places[start..start + WAYS].iter().position(is_its);
        let place = match found {
            Some(place) => Some(start + place),
            None => self.make_room(key),
        };
        let slot = match place {
            Some(place) => &mut self.places[place],
            None => &mut self.newcomer,
        };
        let entry = slot.get_or_insert_with(|| Entry {
            key: *key,
            used,
            value: new(),
        });
        entry.used = used;
        &mut entry.value
    }

    /// Where the entry of a key is to be that has none in its set; `None`: it is the newcomer. The
    /// place is empty or has it.
    #[cold]
    fn make_room(&mut self, key: &K) -> Option<usize> {
        let mut its = None;
        match self.newcomer.take() {
            Some(entry) if entry.is_proven() => {
                let is_its = entry.key == *key;
                let place = self.settle(entry);
                if is_its {
                    return Some(place);
                }
            }
            Some(entry) if entry.key == *key => its = Some(entry),
            _ => {}
        }
        let start = self.set_of(key);
        let is_free = |entry: &Option<Entry<K, V>>| !entry.as_ref().is_some_and(Entry::is_proven);
        let free = self.places[start..start + WAYS].iter().rposition(is_free);
        match free {
            Some(place) => self.places[start + place] = its,
            None => self.newcomer = its,
        }
        free.map(|place| start + place)
    }

    /// Finds a place for a proven entry: another one's, unless the table may still grow. Gives the
    /// place.
    fn settle(&mut self, entry: Entry<K, V>) -> usize {
        loop {
            let start = self.set_of(&entry.key);
            let set = &self.places[start..start + WAYS];
            let age = |place: &usize| match &set[*place] {
                Some(other) if other.is_proven() => entry.used.wrapping_sub(other.used),
                _ => u32::MAX,
            };
            let oldest = (0..WAYS).max_by_key(age).unwrap_or(0);
            if age(&oldest) == u32::MAX || self.places.len() >= MANY * WAYS {
                self.places[start + oldest] = Some(entry);
                return start + oldest;
            }
            self.grow();
        }
    }

    /// Twice as many sets. Each of them becomes two, so there is room for all.
    fn grow(&mut self) {
        let sets = 2 * self.places.len() / WAYS;
        let entries = std::mem::replace(&mut self.places, empty(sets));
        for entry in entries.into_iter().flatten() {
            let start = self.set_of(&entry.key);
            let set = &mut self.places[start..start + WAYS];
            if let Some(place) = set.iter_mut().find(|place| place.is_none()) {
                *place = Some(entry);
            }
        }
    }
}

fn empty<K, V>(sets: usize) -> Vec<Option<Entry<K, V>>> {
    (0..sets * WAYS).map(|_| None).collect()
}

/// All senders.
pub(crate) struct Senders {
    flows: Table<Flow, OneFlow>,
    sources: Table<IpAddr, PeerIds>,
    leeway: Leeway,
}

struct OneFlow {
    icrc: IcrcContext,
    ids: FlowIds,
}

impl Proven for OneFlow {
    fn is_proven(&self) -> bool {
        self.ids.is_known()
    }
}

impl Proven for PeerIds {
    fn is_proven(&self) -> bool {
        self.is_known()
    }
}

impl Default for Senders {
    fn default() -> Senders {
        Senders {
            flows: Table::new(),
            sources: Table::new(),
            leeway: Leeway::default(),
        }
    }
}

impl Senders {
    /// The one whose packets have these addresses and ports.
    #[inline]
    pub(crate) fn of(&mut self, flow: &Flow) -> Sender<'_> {
        let new = || OneFlow {
            icrc: IcrcContext::new(flow),
            ids: FlowIds::default(),
        };
        Sender {
            flow: self.flows.get(flow, new),
            source: self.sources.get(&flow.src, PeerIds::default),
            leeway: &mut self.leeway,
        }
    }
}

/// One flow of a source.
pub(crate) struct Sender<'a> {
    flow: &'a mut OneFlow,
    source: &'a mut PeerIds,
    leeway: &'a mut Leeway,
}

impl Sender<'_> {
    /// Checks the ICRC of a packet, which is the `n`th of its train; gives what the IP header must
    /// have been.
    ///
    /// # Errors
    /// It is not to be believed.
    #[inline]
    pub(crate) fn check(
        &mut self,
        packet: &[u8],
        ids: IpIds,
        n: usize,
        now_ms: u32,
    ) -> Result<IcrcOk, IcrcError> {
        let OneFlow { icrc, ids: known } = &mut *self.flow;
        match ids.of(n) {
            None => known.check(self.source, self.leeway, icrc, packet, now_ms),
            Some(seen) => known.check_seen(self.source, self.leeway, icrc, packet, seen, now_ms),
        }
    }
}

#[cfg(test)]
mod corrupted;
#[cfg(test)]
mod tests;
