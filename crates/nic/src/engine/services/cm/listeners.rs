//! Which ids listen for which service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rnic_wire::cm::ServiceId;

use super::entry::Entry;
use super::slab::{Key, Slab};

/// The ids that listen, by service.
#[derive(Debug, Default)]
pub(crate) struct Listeners(BTreeMap<u64, Vec<Key>>);

impl Listeners {
    pub(super) fn add(&mut self, service: ServiceId, key: Key) {
        self.0.entry(service.0).or_default().push(key);
    }

    pub(super) fn remove(&mut self, service: ServiceId, key: Key) {
        if let Some(listeners) = self.0.get_mut(&service.0) {
            listeners.retain(|listener| *listener != key);
            if listeners.is_empty() {
                self.0.remove(&service.0);
            }
        }
    }

    /// Who listens for a service at an address of this host: for that address before all of them.
    pub(crate) fn find(&self, ids: &Slab<Entry>, service: ServiceId, addr: IpAddr) -> Option<Key> {
        let listeners = self.0.get(&service.0)?;
        let rank = |key: &Key| {
            let entry = ids.get(*key)?;
            match entry.local?.ip() {
                ip if ip == addr => Some(2),
                IpAddr::V4(ip) => (ip.is_unspecified() && addr.is_ipv4()).then_some(1),
                IpAddr::V6(ip) => {
                    let takes = addr.is_ipv6() || entry.options.af_only != Some(true);
                    (ip.is_unspecified() && takes).then(|| i32::from(addr.is_ipv6()))
                }
            }
        };
        let ranked = listeners.iter().filter_map(|key| Some((rank(key)?, *key)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, key)| key)
    }
}
