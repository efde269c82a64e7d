//! The side that imports another process's objects: asks for them, and waits for the answer without any lock.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_host::PeerId;
use rnic_sys::Fd;
use rnic_transport::Pd;

use super::export::Named;
use super::message::{Message, Object, Token};
use crate::driving::Nic;
use crate::error::{Error, Result};
use crate::memory::{Exported, Foreign};
use crate::sys::{self, Gate};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process that an imported context belongs to.
#[derive(Debug)]
pub(crate) struct Origin {
    peer: PeerId,
    token: Token,
    process: Arc<Foreign>,
}

/// Questions of verbs that wait, and what was answered.
#[derive(Debug, Default)]
pub(super) struct Imported {
    awaited: HashMap<u32, (PeerId, Option<Answer>)>,
    /// Imports whose answer was not waited for: what is granted then is to be given back.
    late: HashMap<u32, (PeerId, Object)>,
    processes: HashMap<PeerId, Arc<Foreign>>,
    /// Domains of other processes: theirs, and what they are here.
    domains: HashMap<(PeerId, u32), u32>,
}

#[derive(Debug)]
struct Answer {
    errno: i32,
    slot: u32,
    region: Exported,
    fds: Vec<Fd>,
}

impl Imported {
    /// [`Message::Told`] has come; what is to be said to it. An answer counts if it comes from whom was asked.
    pub(super) fn told(
        &mut self,
        peer: PeerId,
        message: Message<'_>,
        fds: &mut Vec<Fd>,
    ) -> Option<Vec<u8>> {
        let Message::Told {
            request,
            errno,
            slot,
            region,
        } = message
        else {
            return None;
        };
        if let Some((asked, answer)) = self.awaited.get_mut(&request)
            && *asked == peer
        {
            *answer = Some(Answer {
                errno: errno as i32,
                slot,
                region,
                fds: std::mem::take(fds),
            });
            return None;
        }
        let (_, object) = self
            .late
            .get(&request)
            .filter(|(asked, _)| *asked == peer)?;
        let object = match *object {
            Object::Mr { .. } => granted(slot, region.key),
            other => other,
        };
        self.late.remove(&request);
        (errno == 0).then(|| Message::Unimport { object }.encode())
    }

    /// A process is gone.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.processes.remove(&peer);
        self.late.retain(|_, (who, _)| *who != peer);
        self.domains.retain(|(who, _), _| *who != peer);
    }
}

impl Origin {
    /// Whose context `cmd_fd` is of; `None`: this process's own.
    pub(crate) fn find(nic: &Nic, cmd_fd: RawFd) -> Result<Option<Origin>> {
        const VERB: &str = "ibv_import_device";
        let named = Named::read(cmd_fd).ok_or_else(|| {
            Error::invalid(
                VERB,
                "that descriptor is no cmd_fd of a context of this device",
            )
        })?;
        let token = named.token;
        let peer = {
            let mut engine = nic.lock();
            if engine.neighbours.exports.is_own(&token) {
                return Ok(None);
            }
            if engine
                .link
                .card()
                .is_none_or(|(cookie, _)| cookie != named.cookie)
            {
                return Err(Error::invalid(
                    VERB,
                    "the context belongs to a process of another user, host or network namespace",
                ));
            }
            let peer = engine.link.neighbour(named.door);
            peer.map_err(|_| gone(VERB))?
        };
        let answer = ask(VERB, nic, peer, |request| Message::Hello { request, token })?;
        let nonsense = || Error::new(VERB, libc::EPROTO, "the process answers without sense");
        let [memory, gate] = <[Fd; 2]>::try_from(answer.fds).map_err(|_| nonsense())?;
        if !sys::is_proc(memory.raw()) {
            return Err(nonsense());
        }
        let gate = Gate::open(gate).map_err(|_| {
            Error::new(VERB, libc::EPROTO, "the process shares no page to agree on")
        })?;
        let mut engine = nic.lock();
        let processes = &mut engine.neighbours.imported.processes;
        let process = processes
            .entry(peer)
            .or_insert_with(|| Arc::new(Foreign::new(memory, gate)))
            .clone();
        Ok(Some(Origin {
            peer,
            token,
            process,
        }))
    }

    fn import(&self, verb: &'static str, nic: &Nic, object: Object) -> Result<Answer> {
        let token = self.token;
        ask(verb, nic, self.peer, |request| Message::Import {
            request,
            token,
            object,
        })
    }

    fn unimport(&self, nic: &Nic, object: Object) {
        if let Some(mut engine) = nic.lock_if_alive()
            && let Some(neighbours) = engine.link.neighbours()
        {
            let message = Message::Unimport { object }.encode();
            let _ = neighbours.say(self.peer, &message, Vec::new());
        }
    }

    /// What that domain is here: the same for all who import it.
    pub(crate) fn import_pd(
        &self,
        nic: &Nic,
        number: u32,
        fresh: impl FnOnce() -> u32,
    ) -> Result<u32> {
        self.import("ibv_import_pd", nic, Object::Pd(number))?;
        let domains = &mut nic.lock().neighbours.imported.domains;
        Ok(*domains.entry((self.peer, number)).or_insert_with(fresh))
    }

    pub(crate) fn unimport_pd(&self, nic: &Nic, number: u32) {
        self.unimport(nic, Object::Pd(number));
    }

    /// Key and length of a region, which peers and work requests reach from now on in domain `here`.
    pub(crate) fn import_mr(&self, nic: &Nic, here: Pd, pd: u32, index: u32) -> Result<(u32, u64)> {
        const VERB: &str = "ibv_import_mr";
        let Answer { slot, region, .. } = self.import(VERB, nic, Object::Mr { pd, index })?;
        let fits = slot != 0 && region.key >> 8 == index;
        if fits && nic.import_region(here, &self.process, slot, region) {
            return Ok((region.key, region.len));
        }
        self.unimport(nic, granted(slot, region.key));
        Err(Error::new(
            VERB,
            libc::EBUSY,
            format!("this process has another region with key {:#x}", region.key),
        ))
    }

    pub(crate) fn unimport_mr(&self, nic: &Nic, key: u32) {
        if nic.check_alive("").is_ok()
            && let Some(slot) = nic.unimport_region(key)
        {
            self.unimport(nic, granted(slot, key));
        }
    }

    /// Who has a piece of device memory, where, and its length.
    pub(crate) fn import_dm(&self, nic: &Nic, number: u32) -> Result<(Arc<Foreign>, u64, u64)> {
        let answer = self.import("ibv_import_dm", nic, Object::Dm(number))?;
        let Exported { base, len, .. } = answer.region;
        Ok((self.process.clone(), base, len))
    }

    pub(crate) fn unimport_dm(&self, nic: &Nic, number: u32) {
        self.unimport(nic, Object::Dm(number));
    }
}

/// A region that was imported, as [`Message::Unimport`] names it.
fn granted(slot: u32, key: u32) -> Object {
    Object::Mr {
        pd: slot,
        index: key,
    }
}

fn gone(verb: &'static str) -> Error {
    Error::new(
        verb,
        libc::ENODEV,
        "the process that the context belongs to is gone",
    )
}

/// Asks, and drives the engine until the answer is there. Other threads, and the other process's questions to this one,
/// are served meanwhile.
fn ask<'a>(
    verb: &'static str,
    nic: &Nic,
    peer: PeerId,
    message: impl FnOnce(u32) -> Message<'a>,
) -> Result<Answer> {
    nic.check_alive(verb)?;
    let (request, door, object) = {
        let mut engine = nic.lock();
        let request = engine.neighbours.next_request();
        let message = message(request);
        let bytes = message.encode();
        let object = match message {
            Message::Import { object, .. } => Some(object),
            _ => None,
        };
        let neighbours = engine.link.neighbours().ok_or_else(|| gone(verb))?;
        let said = neighbours.say(peer, &bytes, Vec::new());
        let door = neighbours.raw_fd();
        said.map_err(|_| gone(verb))?;
        let awaited = &mut engine.neighbours.imported.awaited;
        awaited.insert(request, (peer, None));
        (request, door, object)
    };
    let start = Instant::now();
    loop {
        let mut engine = nic.lock();
        engine.hear_neighbours(sys::now_ns(), true);
        let awaited = &mut engine.neighbours.imported.awaited;
        let answer = awaited.get_mut(&request).and_then(|(_, said)| said.take());
        let there = engine
            .link
            .neighbours()
            .is_some_and(|neighbours| neighbours.pid(peer).is_some());
        let late = start.elapsed() > PATIENCE;
        if answer.is_some() || !there || late {
            let imported = &mut engine.neighbours.imported;
            imported.awaited.remove(&request);
            if answer.is_none()
                && there
                && let Some(object) = object
            {
                imported.late.insert(request, (peer, object));
            }
        }
        nic.after_drive(engine);
        match answer {
            Some(answer) if answer.errno == 0 => return Ok(answer),
            Some(answer) => return Err(refused(verb, answer.errno)),
            None if !there => return Err(gone(verb)),
            None if late => {
                return Err(Error::new(
                    verb,
                    libc::ETIMEDOUT,
                    "the process that the context belongs to does not answer (is it stopped?)",
                ));
            }
            None => {}
        }
        // The background thread may take the answer in: so not for long.
        let _ = sys::poll(&[door], Some(Duration::from_millis(1)));
    }
}

fn refused(verb: &'static str, errno: i32) -> Error {
    let why = match errno {
        libc::ENOENT => "its process has no such object in that context",
        libc::EACCES => "its process does not know that context any more",
        libc::EPERM => "its process cannot open its own memory (/proc/self/mem)",
        _ => "its process has no room for one more import",
    };
    Error::new(verb, errno, why)
}
