//! Objects of other processes: the descriptor that gives the right to them, and how they are asked
//! for (`ibv_import_device(3)` and its kin). An answer is waited for without any lock.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_host::PeerId;
use rnic_sys::Fd;
use rnic_transport::Pd;

use crate::driving::Nic;
use crate::engine::peer_service::{Answer, Message, Named, Object, Token, granted};
use crate::error::{self, Error, Result};
use crate::memory::Gate;
use crate::memory::{Exported, Foreign};

/// How long an answer is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What a context's `cmd_fd` leads to: who holds a descriptor of it may import from the context.
#[derive(Debug)]
pub(crate) struct Card {
    file: Fd,
    /// Known as long as the context is there.
    _token: Arc<Token>,
}

impl Card {
    pub(crate) fn issue(nic: &Nic, context: u64) -> Result<Card> {
        const VERB: &str = "ibv_open_device";
        let mut token = [0; 16];
        token[..8].copy_from_slice(&nic.host().random_u64().to_ne_bytes());
        token[8..].copy_from_slice(&nic.host().random_u64().to_ne_bytes());
        let token = Arc::new(token);
        let mut engine = nic.lock();
        let (cookie, first_range) = engine.link.card().unwrap_or_default();
        let named = Named {
            cookie,
            first_range,
            token: *token,
        };
        let file = rnic_sys::note(&named.encode())
            .map_err(|error| error::os(VERB, "socketpair", &error))?;
        engine.neighbours.exports.add_context(&token, context);
        Ok(Card {
            file,
            _token: token,
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.raw()
    }
}

/// The process that an imported context belongs to.
#[derive(Debug)]
pub(crate) struct Origin {
    peer: PeerId,
    token: Token,
    process: Arc<Foreign>,
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
            let peer = engine.link.neighbour(named.first_range);
            peer.map_err(|_| gone(VERB))?
        };
        let answer = ask(VERB, nic, peer, |request| Message::Hello { request, token })?;
        let nonsense = || Error::new(VERB, libc::EPROTO, "the process answers without sense");
        let [memory, gate] = <[Fd; 2]>::try_from(answer.fds).map_err(|_| nonsense())?;
        if !rnic_sys::process::is_proc(&memory) {
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

    /// Key and length of a region, which peers and work requests reach from now on in domain
    /// `here`.
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

fn gone(verb: &'static str) -> Error {
    Error::new(
        verb,
        libc::ENODEV,
        "the process that the context belongs to is gone",
    )
}

/// Asks, and drives the engine until the answer is there. Other threads, and the other process's
/// questions to this one, are served meanwhile.
fn ask<'a>(
    verb: &'static str,
    nic: &Nic,
    peer: PeerId,
    message: impl FnOnce(u32) -> Message<'a>,
) -> Result<Answer> {
    nic.check_alive(verb)?;
    let (request, socket, object) = {
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
        let socket = neighbours.raw_fd();
        said.map_err(|_| gone(verb))?;
        let awaited = &mut engine.neighbours.imported.awaited;
        awaited.insert(request, (peer, None));
        (request, socket, object)
    };
    let start = Instant::now();
    loop {
        let mut engine = nic.lock();
        engine.hear_neighbours(nic.host().now_ns(), true);
        let awaited = &mut engine.neighbours.imported.awaited;
        let answer = awaited.get_mut(&request).and_then(|(_, said)| said.take());
        let there = engine
            .link
            .neighbours()
            .is_some_and(|neighbours| neighbours.pid(peer).is_some());
        let late = start.elapsed() > ANSWER_TIMEOUT;
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
        let _ = rnic_sys::poll(&[socket], Some(Duration::from_millis(1)));
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
