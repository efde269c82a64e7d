//! Which process has which ports: for words about a failure, where time does not matter.

use std::net::IpAddr;

use super::{FILE_LEN, HEADER_LEN, PIECE_LEN, Ports, bucket_of, place_at};
use super::{SLOT_LEN, Slot};
use rnic_sys as sys;

/// A port that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortUse {
    /// Port space and port, as in a service id: `space << 16 | port`.
    pub service: u32,
    /// For which address, or the wildcard of its family.
    pub addr: IpAddr,
    /// First QPN range of the process; [`crate::registry::owner`] of `range << 12` has its process
    /// id.
    pub range: u32,
    /// It takes requests.
    pub listening: bool,
}

impl PortUse {
    fn of(slot: &Slot) -> PortUse {
        PortUse {
            service: slot.service,
            addr: slot.addr,
            range: slot.owner.into(),
            listening: slot.listening,
        }
    }
}

impl Ports {
    /// The processes that have a port now, at whatever address.
    pub fn holders(&self, service: u64) -> Vec<PortUse> {
        let Ok(service) = u32::try_from(service) else {
            return Vec::new();
        };
        let Ok(bucket) = self.0.read(bucket_of(service as u16)) else {
            return Vec::new();
        };
        let mut living = self.0.living();
        let claims = bucket.claims_of(service).map(|(_, slot)| slot);
        claims
            .filter(|slot| living.is_alive(slot.owner))
            .map(|slot| PortUse::of(&slot))
            .collect()
    }

    /// All ports on which somebody listens now, by number; the whole table is read.
    pub fn listeners(&self) -> Vec<PortUse> {
        let table = &*self.0;
        let mut living = table.living();
        let mut found = Vec::new();
        let mut piece = vec![0; PIECE_LEN];
        let mut at = HEADER_LEN as u64;
        while let Ok(Some(data)) = sys::next_data(&table.file, at) {
            at = (data - data % SLOT_LEN as u64).max(HEADER_LEN as u64);
            let n = match sys::read_at(&table.file, &mut piece, at) {
                Ok(n) if n >= SLOT_LEN && at < FILE_LEN as u64 => n,
                _ => break,
            };
            let (slots, _) = piece[..n].as_chunks::<SLOT_LEN>();
            for (place, bytes) in (place_at(at)..).zip(slots) {
                let slot = Slot::decode(bytes, place).filter(|slot| slot.listening);
                found.extend(slot.filter(|slot| living.is_alive(slot.owner)));
            }
            at += PIECE_LEN as u64;
        }
        found.sort_by_key(|slot| slot.service);
        found.iter().map(PortUse::of).collect()
    }
}
