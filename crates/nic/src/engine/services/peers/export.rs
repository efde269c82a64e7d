//! The side whose objects another process imports: who may, what they use, and what is taken from
//! them again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rnic_host::PeerId;
use rnic_sys::Fd;
use rnic_transport::Pd;

use super::message::{Message, Object, Token};
use crate::memory::domains;
use crate::memory::pieces::{self, DmShared};
use crate::memory::{Exported, MemoryTable};
use crate::memory::{Gate, SLOTS};

/// Most domains, and pieces of device memory, that one process may import.
const OBJECTS: usize = 4096;
const MAGIC: [u8; 8] = *b"rnicCTX1";
const CARD_LEN: usize = 8 + 8 + 4 + 16;

/// What stands on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The runtime folder's.
    pub(crate) cookie: u64,
    pub(crate) first_range: u32,
    pub(crate) token: Token,
}

impl Named {
    pub(crate) fn encode(&self) -> [u8; CARD_LEN] {
        let mut out = [0; CARD_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.cookie.to_ne_bytes());
        out[16..20].copy_from_slice(&self.first_range.to_ne_bytes());
        out[20..].copy_from_slice(&self.token);
        out
    }

    /// Reads a card; `None`: it is none.
    pub(crate) fn read(fd: RawFd) -> Option<Named> {
        let mut bytes = [0; CARD_LEN];
        if !rnic_sys::peek(fd, &mut bytes) || bytes[..8] != MAGIC {
            return None;
        }
        Some(Named {
            cookie: u64::from_ne_bytes(bytes[8..16].try_into().ok()?),
            first_range: u32::from_ne_bytes(bytes[16..20].try_into().ok()?),
            token: bytes[20..].try_into().ok()?,
        })
    }
}

/// What other processes use of this one.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    contexts: Vec<(Weak<Token>, u64)>,
    importers: HashMap<PeerId, Importer>,
    /// Those whose connection ended while a copy was under way: what they used is kept until it has
    /// come to an end.
    departing: Vec<Importer>,
}

#[derive(Debug)]
struct Importer {
    gate: Arc<Gate>,
    pid: u32,
    /// Keys of regions, by slot; slot 0 is none.
    regions: Vec<Option<Region>>,
    domains: Vec<(u32, Arc<AtomicU32>)>,
    pieces: Vec<Arc<DmShared>>,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    key: u32,
    imports: u32,
    revoked: bool,
}

/// Copies that may still be under way in other processes.
#[derive(Default)]
pub(crate) struct Imports(Vec<(Arc<Gate>, u32)>);

impl Imports {
    pub(crate) fn join(&mut self, more: Imports) {
        self.0.extend(more.0);
    }

    /// To be called without the engine's lock: until none of them is. False: a process was stopped
    /// in the middle.
    pub(crate) fn wait(self) -> bool {
        self.0.iter().all(|(gate, pid)| gate.wait(*pid))
    }
}

impl Exports {
    /// A context was opened: whoever knows its token may import from it, as long as the token
    /// lives.
    pub(crate) fn add_context(&mut self, token: &Arc<Token>, context: u64) {
        let contexts = &mut self.contexts;
        contexts.retain(|(token, _)| token.strong_count() > 0);
        contexts.push((Arc::downgrade(token), context));
    }

    pub(crate) fn contexts(&self) -> impl Iterator<Item = u64> {
        let open = |(token, id): &(Weak<Token>, u64)| (token.strong_count() > 0).then_some(*id);
        self.contexts.iter().filter_map(open)
    }

    /// The context that a token is of.
    fn context(&self, token: &Token) -> Option<u64> {
        let known = |(known, _): &&(Weak<Token>, u64)| {
            known.upgrade().is_some_and(|known| *known == *token)
        };
        self.contexts.iter().find(known).map(|(_, id)| *id)
    }

    pub(crate) fn is_own(&self, token: &Token) -> bool {
        self.context(token).is_some()
    }

    /// The answer to [`Message::Hello`].
    pub(crate) fn hello(
        &mut self,
        peer: PeerId,
        pid: u32,
        request: u32,
        token: &Token,
    ) -> (Vec<u8>, Vec<Fd>) {
        let mut fds = Vec::new();
        let errno = match self.welcome(peer, pid, token) {
            Ok(given) => {
                fds = given;
                0
            }
            Err(errno) => errno,
        };
        let region = Exported::default();
        (import_answer(request, errno, 0, region), fds)
    }

    fn welcome(&mut self, peer: PeerId, pid: u32, token: &Token) -> Result<Vec<Fd>, i32> {
        if !self.is_own(token) {
            return Err(libc::EACCES);
        }
        let memory = rnic_sys::process::own_memory().map_err(|_| libc::EPERM)?;
        let importer = match self.importers.entry(peer) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let gate = Gate::new().map_err(|_| libc::ENOMEM)?;
                place.insert(Importer {
                    gate: Arc::new(gate),
                    pid,
                    regions: vec![None],
                    domains: Vec::new(),
                    pieces: Vec::new(),
                })
            }
        };
        let gate = importer.gate.descriptor().map_err(|_| libc::EMFILE)?;
        Ok(vec![memory, gate])
    }

    /// The answer to [`Message::Import`].
    pub(crate) fn import(
        &mut self,
        peer: PeerId,
        request: u32,
        token: &Token,
        object: Object,
        memory: &MemoryTable,
    ) -> Vec<u8> {
        match self.grant(peer, token, object, memory) {
            Ok((slot, region)) => import_answer(request, 0, slot, region),
            Err(errno) => import_answer(request, errno, 0, Exported::default()),
        }
    }

    fn grant(
        &mut self,
        peer: PeerId,
        token: &Token,
        object: Object,
        memory: &MemoryTable,
    ) -> Result<(u32, Exported), i32> {
        let context = self.context(token).ok_or(libc::EACCES)?;
        let importer = self.importers.get_mut(&peer).ok_or(libc::EACCES)?;
        match object {
            Object::Pd(number) => {
                let users = domains::users_of(number, context).ok_or(libc::ENOENT)?;
                if importer.domains.len() >= OBJECTS {
                    return Err(libc::ENOMEM);
                }
                users.fetch_add(1, Ordering::AcqRel);
                importer.domains.push((number, users));
                Ok((0, Exported::default()))
            }
            Object::Mr { pd, index } => {
                domains::users_of(pd, context).ok_or(libc::ENOENT)?;
                let region = memory.export(Pd(pd), index).ok_or(libc::ENOENT)?;
                let slot = importer.slot(region.key).ok_or(libc::ENOMEM)?;
                Ok((slot, region))
            }
            Object::Dm(number) => {
                let piece = pieces::find_of(number, context).ok_or(libc::ENOENT)?;
                let base = piece.address().ok_or(libc::ENOENT)? as u64;
                if importer.pieces.len() >= OBJECTS {
                    return Err(libc::ENOMEM);
                }
                let len = piece.len();
                importer.pieces.push(piece);
                let region = Exported {
                    base,
                    len,
                    ..Exported::default()
                };
                Ok((0, region))
            }
        }
    }

    pub(crate) fn unimport(&mut self, peer: PeerId, object: Object) {
        let Some(importer) = self.importers.get_mut(&peer) else {
            return;
        };
        match object {
            Object::Pd(number) => {
                let found = importer.domains.iter().position(|(pd, _)| *pd == number);
                if let Some(found) = found {
                    let (_, users) = importer.domains.swap_remove(found);
                    users.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Object::Mr {
                pd: slot,
                index: key,
            } => importer.release(slot, key),
            Object::Dm(number) => {
                let found = importer.pieces.iter().position(|dm| dm.number() == number);
                if let Some(found) = found {
                    importer.pieces.swap_remove(found);
                }
            }
        }
    }

    /// A process is gone, and with it what it used; or only its connection is, and then nothing
    /// passes its gate any more.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.departing.retain(Importer::is_busy);
        if let Some(mut importer) = self.importers.remove(&peer) {
            for (_, users) in std::mem::take(&mut importer.domains) {
                users.fetch_sub(1, Ordering::AcqRel);
            }
            importer.gate.revoke_all();
            if importer.is_busy() {
                self.departing.push(importer);
            }
        }
    }

    /// Nobody reaches a region any more that is deregistered. Whoever asks once more has to wait
    /// once more.
    pub(crate) fn revoke(&mut self, key: u32) -> Imports {
        let mut waits = Vec::new();
        for importer in &self.departing {
            if importer
                .regions
                .iter()
                .flatten()
                .any(|region| region.key == key)
            {
                waits.push((importer.gate.clone(), importer.pid));
            }
        }
        for importer in self.importers.values_mut() {
            for (slot, region) in importer.regions.iter_mut().enumerate() {
                if let Some(region) = region
                    && region.key == key
                {
                    region.revoked = true;
                    importer.gate.revoke(slot as u32);
                    waits.push((importer.gate.clone(), importer.pid));
                }
            }
        }
        Imports(waits)
    }
}

impl Importer {
    fn is_busy(&self) -> bool {
        self.gate.is_busy(self.pid)
    }

    /// The slot that guards a region.
    fn slot(&mut self, key: u32) -> Option<u32> {
        let known = |region: &Option<Region>| {
            region.is_some_and(|region| region.key == key && !region.revoked)
        };
        if let Some(slot) = self.regions.iter().position(known) {
            if let Some(region) = &mut self.regions[slot] {
                region.imports += 1;
            }
            return Some(slot as u32);
        }
        let slot = match self.regions.iter().skip(1).position(Option::is_none) {
            Some(free) => free + 1,
            None if self.regions.len() < SLOTS as usize => {
                self.regions.push(None);
                self.regions.len() - 1
            }
            None => return None,
        };
        self.gate.allow(slot as u32);
        self.regions[slot] = Some(Region {
            key,
            imports: 1,
            revoked: false,
        });
        Some(slot as u32)
    }

    /// The importer has forgotten one import of a region, revoked or not. A key may have several
    /// slots, of before and after it was registered anew, and one that is still in use must not
    /// become another region's.
    fn release(&mut self, slot: u32, key: u32) {
        let Some(place) = self.regions.get_mut(slot as usize) else {
            return;
        };
        if let Some(region) = place
            && region.key == key
        {
            region.imports -= 1;
            if region.imports == 0 {
                *place = None;
            }
        }
    }
}

fn import_answer(request: u32, errno: i32, slot: u32, region: Exported) -> Vec<u8> {
    let errno = errno as u32;
    let answer = Message::ImportAnswer {
        request,
        errno,
        slot,
        region,
    };
    answer.encode()
}
