//! Payload that goes from memory right to where the link wants it, without a packet in between.

use rnic_link::Vacant;
use rnic_transport::{IoVecs, Load, RemoteAccess};

use super::MemoryTable;
use super::copies::{Backing, Place};
use super::grants::grant_remote;

/// Granted bytes, in order. They are those of the table, which is borrowed as long as they are
/// known.
pub(crate) struct Loaded<'t> {
    places: [(Place, usize); IoVecs::MOST],
    count: usize,
    _table: &'t MemoryTable,
}

impl MemoryTable {
    /// Where `len` bytes are that a packet of this process is to carry; `None`: they may not be
    /// read, or not all of them are in few pieces of memory that is reached directly. What a window
    /// shows is not, since it may close at any time.
    pub(crate) fn load(&self, load: &Load<'_>, len: usize) -> Option<Loaded<'_>> {
        let nothing = Place {
            at: 0,
            backing: Backing::Null,
        };
        let mut loaded = Loaded {
            places: [(nothing, 0); IoVecs::MOST],
            count: 0,
            _table: self,
        };
        let mut add = |place: Place, len: u64| {
            *loaded.places.get_mut(loaded.count)? = (place, len as usize);
            loaded.count += 1;
            Some(())
        };
        match *load {
            Load::Local { pd, list, offset } => {
                let backing = Backing::Pinned;
                let add = |at, len| add(Place { at, backing }, len);
                self.walk(pd, list, (offset, len as u64), false, add)?;
            }
            Load::Remote { pd, rkey, va } => {
                let entry = self.get(rkey)?;
                let place = grant_remote(entry, pd, va, len as u64, RemoteAccess::Read).ok()?;
                if place.backing != Backing::Pinned {
                    return None;
                }
                add(place, len as u64)?;
            }
        }
        Some(loaded)
    }
}

impl Loaded<'_> {
    /// Copies them to the front of `vacant`. False: not all of them are there any more.
    pub(crate) fn unload(&self, vacant: &Vacant<'_>) -> bool {
        let mut at = 0;
        self.places[..self.count].iter().all(|(place, len)| {
            let from = at;
            at += len;
            place.carry(*len, vacant, from)
        })
    }
}
