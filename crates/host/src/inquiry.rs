//! The same question to all processes of this user on this host, from outside: a process that asks
//! needs no link of its own.
//!
//! The question goes to the sockets where [`crate::peers`] take connections, and each process
//! answers when its engine has its turn. Here somebody waits, but not for long: a process that is
//! stopped, or has more to do than to answer, is left out, and the asker learns that.

use std::time::{Duration, Instant};

use crate::peers::{self, MESSAGE_LEN};
use crate::registry::{Entry, QpnRange, Registry};
use rnic_sys::{self as sys, Fd, FdSet};

/// How long each next answer of a process is waited for.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long all of it may take.
const LONGEST: Duration = Duration::from_secs(4);
/// Processes that are asked at a time: each takes a descriptor.
const AT_ONCE: usize = 64;

/// The process that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Respondent {
    /// The process, as this one sees it.
    pub pid: u32,
    /// Its first range: of several engines of one process, each has one.
    pub first_range: u32,
}

/// Takes an answer, and gives the next question for the process that it came from; `None`: that was
/// all.
pub type Hearing<'a> = &'a mut dyn FnMut(Respondent, &[u8]) -> Option<Vec<u8>>;

/// Asks `question` of all but those whose first numbers are `own`, until each has said all. Gives
/// the processes that did not answer, or not to the end.
pub fn ask_all(
    question: &[u8],
    own: &dyn Fn(QpnRange) -> bool,
    heard: Hearing<'_>,
) -> Vec<Respondent> {
    Registry::of_user().map_or(Vec::new(), |registry| {
        ask_those_of(&registry, question, own, heard)
    })
}

fn ask_those_of(
    registry: &Registry,
    question: &[u8],
    own: &dyn Fn(QpnRange) -> bool,
    heard: Hearing<'_>,
) -> Vec<Respondent> {
    let mut processes: Vec<(u32, Entry)> = registry.live().unwrap_or_default();
    processes.retain(|(range, entry)| *range == entry.first_range && !own(QpnRange::of(*range)));
    let end = Instant::now() + LONGEST;
    let mut silent = Vec::new();
    let mut buffer = vec![0; MESSAGE_LEN];
    for some in processes.chunks(AT_ONCE) {
        let mut round = Round {
            set: match FdSet::new() {
                Ok(set) => set,
                Err(_) => {
                    silent.extend(some.iter().map(|(_, entry)| Respondent::of(entry)));
                    continue;
                }
            },
            peers: Vec::new(),
            end,
        };
        for (_, entry) in some {
            match round.ask(registry, entry.first_range, question) {
                Some(peer) => round.peers.push(Some(peer)),
                None => silent.push(Respondent::of(entry)),
            }
        }
        silent.extend(round.listen(&mut buffer, heard));
    }
    // A process that has ended meanwhile has nothing to say.
    silent.retain(|who| !sys::has_ended(who.pid));
    silent
}

impl Respondent {
    fn of(entry: &Entry) -> Respondent {
        Respondent {
            pid: entry.pid,
            first_range: entry.first_range,
        }
    }
}

/// Some processes that were asked.
struct Round {
    set: FdSet,
    peers: Vec<Option<Peer>>,
    end: Instant,
}

struct Peer {
    who: Respondent,
    socket: Fd,
    deadline: Instant,
}

impl Round {
    fn ask(&self, registry: &Registry, first_range: u32, question: &[u8]) -> Option<Peer> {
        let address = peers::address(registry.dir(), registry.path(), first_range)?;
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET).ok()?;
        // Fails where it would have to wait.
        sys::connect(&socket, &address).ok()?;
        let (uid, pid) = sys::peer_of(&socket).ok()?;
        if uid != sys::effective_uid() {
            return None;
        }
        sys::send_message(&socket, question, &[] as &[Fd]).ok()?;
        self.set.add(&socket, self.peers.len() as u64).ok()?;
        Some(Peer {
            who: Respondent { pid, first_range },
            socket,
            deadline: self.deadline(),
        })
    }

    fn deadline(&self) -> Instant {
        (Instant::now() + PATIENCE).min(self.end)
    }

    /// Takes answers until all have come; gives the processes whose have not.
    fn listen(mut self, buffer: &mut [u8], heard: Hearing<'_>) -> Vec<Respondent> {
        let mut silent = Vec::new();
        loop {
            for name in self.set.ready() {
                let place = name as usize;
                let Some(peer) = self.peers.get(place).and_then(Option::as_ref) else {
                    continue;
                };
                match self.hear(peer, buffer, heard) {
                    Heard::Nothing => {}
                    Heard::More => {
                        let deadline = self.deadline();
                        if let Some(peer) = &mut self.peers[place] {
                            peer.deadline = deadline;
                        }
                    }
                    Heard::All => self.peers[place] = None,
                    Heard::Lost => {
                        silent.push(peer.who);
                        self.peers[place] = None;
                    }
                }
            }
            let now = Instant::now();
            for place in &mut self.peers {
                if let Some(late) = place.take_if(|peer| peer.deadline <= now) {
                    silent.push(late.who);
                }
            }
            let Some(next) = self.peers.iter().flatten().map(|peer| peer.deadline).min() else {
                return silent;
            };
            let wait = next.saturating_duration_since(now).as_millis() as i32;
            self.set.wait(wait.saturating_add(1));
        }
    }

    fn hear(&self, peer: &Peer, buffer: &mut [u8], heard: Hearing<'_>) -> Heard {
        // Descriptors that come along close again.
        let mut fds = Vec::new();
        match sys::receive_message(&peer.socket, buffer, &mut fds) {
            Ok(Some(len)) if len > 0 => match heard(peer.who, &buffer[..len]) {
                None => Heard::All,
                Some(next) => match sys::send_message(&peer.socket, &next, &[] as &[Fd]) {
                    Ok(()) => Heard::More,
                    Err(_) => Heard::Lost,
                },
            },
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Heard::Nothing,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Heard::Nothing,
            _ => Heard::Lost,
        }
    }
}

enum Heard {
    Nothing,
    More,
    All,
    Lost,
}

#[cfg(test)]
mod tests;
