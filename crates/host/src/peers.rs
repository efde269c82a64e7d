//! Conversations between processes of one user on one host, for what one of them has to do on
//! behalf of another.
//!
//! Beside the [hand-over socket](crate::handover), which takes packets and loses some, each process
//! has a socket `neighbour.<number>` in the runtime folder where others connect to it. Such a
//! connection keeps messages whole and in order, carries descriptors, and ends when one of the two
//! does. What is said is the device's business.
//!
//! Nobody ever waits: what the socket does not take is queued, and a peer that lets more than
//! [`QUEUE`] bytes pile up is left; so is the one with most of them when all together have
//! [`QUEUES`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rnic_sys::{self as sys, Accepted, Addr, Fd, FdSet};

/// Most bytes of a message.
pub const MESSAGE_LEN: usize = 96 * 1024;
/// Most bytes that wait for one peer, with what it takes to keep them.
pub const QUEUE: usize = 16 << 20;
/// Most that wait for all.
pub const QUEUES: usize = 64 << 20;
/// What a message takes beside its bytes, and each descriptor: an open file of the kernel's.
const MESSAGE_COST: usize = 128;
const FD_COST: usize = 4096;
/// Most connections.
pub const PEERS: usize = 1024;
/// Connections that nobody has accepted yet.
const BACKLOG: i32 = 128;
const BUFFER: i32 = 1 << 20;
/// Messages taken from one peer before the next has its turn.
const TURN: usize = 32;
/// Connections taken before those that are there have their turn.
const ACCEPT_TURN: usize = 64;
const LISTENER: u64 = u64::MAX;

/// One connection, past ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    slot: u32,
    generation: u32,
}

/// What a peer did.
#[derive(Debug)]
pub enum Heard<'a> {
    /// It said something.
    Message {
        /// What.
        bytes: &'a [u8],
        /// Descriptors that came along.
        fds: &'a mut Vec<Fd>,
    },
    /// It is gone, or was left because it does not listen.
    Gone,
}

/// That peer is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

#[derive(Debug)]
struct Peer {
    socket: Fd,
    pid: u32,
    /// The first range of a process that this one connected to.
    number: Option<u32>,
    queue: VecDeque<(Vec<u8>, Vec<Fd>)>,
    queued: usize,
    /// To be reported.
    lost: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    peer: Option<Peer>,
}

/// This process's connections.
#[derive(Debug)]
pub struct Peers {
    listener: Fd,
    /// It is not in the set: there was no descriptor for the process that came.
    starved: bool,
    set: FdSet,
    slots: Vec<Slot>,
    open: usize,
    /// Of all queues.
    queued: usize,
    lost: Vec<PeerId>,
    buffer: Box<[u8]>,
}

pub(crate) fn file_name(number: u32) -> String {
    format!("neighbour.{number}")
}

pub(crate) fn address(dir: &Fd, path: &Path, number: u32) -> Option<Addr> {
    let name = file_name(number);
    Addr::unix(path.join(&name).as_os_str().as_bytes())
        .or_else(|| Addr::unix(format!("/proc/self/fd/{}/{name}", dir.raw()).as_bytes()))
}

impl Peers {
    /// Takes connections as number `number` in the folder `dir`, whose name is `path`; a stale
    /// socket is replaced.
    pub fn open(dir: &Fd, path: &Path, number: u32) -> io::Result<Peers> {
        sys::remove_at(dir, &file_name(number));
        let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
        let listener = sys::listen(&address, libc::SOCK_SEQPACKET, BACKLOG)?;
        let set = FdSet::new()?;
        set.add(&listener, LISTENER)?;
        Ok(Peers {
            listener,
            starved: false,
            set,
            slots: Vec::new(),
            open: 0,
            queued: 0,
            lost: Vec::new(),
            buffer: Box::default(),
        })
    }

    /// Readable means: call [`Peers::hear`].
    pub fn raw_fd(&self) -> RawFd {
        self.set.raw()
    }

    /// There is somebody to listen to.
    #[inline]
    pub fn has_peers(&self) -> bool {
        self.open > 0
    }

    /// The process with that first range: the connection there is, or a new one.
    pub fn connect(&mut self, dir: &Fd, path: &Path, number: u32) -> io::Result<PeerId> {
        let known = |slot: &Slot| {
            let peer = slot.peer.as_ref();
            peer.is_some_and(|peer| peer.number == Some(number) && !peer.lost)
        };
        if let Some(slot) = self.slots.iter().position(known) {
            return Ok(PeerId {
                slot: slot as u32,
                generation: self.slots[slot].generation,
            });
        }
        let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET)?;
        // Does not block: it fails where it would have to wait.
        sys::connect(&socket, &address)?;
        self.add(socket, Some(number))
    }

    fn add(&mut self, socket: Fd, number: Option<u32>) -> io::Result<PeerId> {
        let (uid, pid) = sys::peer_of(&socket)?;
        if uid != sys::effective_uid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.open >= PEERS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        sys::ask_for_buffers(&socket, BUFFER);
        let slot = match self.slots.iter().position(|slot| slot.peer.is_none()) {
            Some(free) => free,
            None => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
        };
        let generation = self.slots[slot].generation.wrapping_add(1);
        let id = PeerId {
            slot: slot as u32,
            generation,
        };
        self.set.add(&socket, id.pack())?;
        self.slots[slot] = Slot {
            generation,
            peer: Some(Peer {
                socket,
                pid,
                number,
                queue: VecDeque::new(),
                queued: 0,
                lost: false,
            }),
        };
        self.open += 1;
        Ok(id)
    }

    fn peer_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation)
            .then_some(slot.peer.as_mut()?)
            .filter(|peer| !peer.lost)
    }

    /// The process at the other end.
    pub fn pid(&mut self, id: PeerId) -> Option<u32> {
        Some(self.peer_mut(id)?.pid)
    }

    /// Says something: `bytes`, at most [`MESSAGE_LEN`], and up to four descriptors.
    ///
    /// # Errors
    /// The peer is gone, or about to be reported as gone.
    pub fn say(&mut self, id: PeerId, bytes: &[u8], fds: Vec<Fd>) -> Result<(), Gone> {
        debug_assert!(bytes.len() <= MESSAGE_LEN);
        let peer = self.peer_mut(id).ok_or(Gone)?;
        if peer.queue.is_empty() {
            match sys::send_message(&peer.socket, bytes, &fds) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.lose(id),
            }
        }
        let cost = cost(bytes, &fds);
        peer.queued += cost;
        peer.queue.push_back((bytes.to_vec(), fds));
        let full = peer.queued > QUEUE;
        self.queued += cost;
        if full {
            return self.lose(id);
        }
        self.watch(id);
        if self.queued > QUEUES {
            self.lose_the_slowest();
        }
        // It may have been the slowest.
        self.peer_mut(id).map(drop).ok_or(Gone)
    }

    #[cold]
    fn lose_the_slowest(&mut self) {
        let queued = |(_, slot): &(usize, &Slot)| slot.peer.as_ref().map_or(0, |peer| peer.queued);
        let most = self.slots.iter().enumerate().max_by_key(queued);
        if let Some((place, slot)) = most {
            let id = PeerId {
                slot: place as u32,
                generation: slot.generation,
            };
            let _ = self.lose(id);
        }
    }

    fn lose(&mut self, id: PeerId) -> Result<(), Gone> {
        if let Some(peer) = self.peer_mut(id) {
            peer.lost = true;
            peer.queue.clear();
            let queued = std::mem::take(&mut peer.queued);
            self.queued -= queued;
            self.lost.push(id);
        }
        Err(Gone)
    }

    /// Ends a connection whose other end says what makes no sense. It is reported as gone.
    pub fn leave(&mut self, id: PeerId) {
        let _ = self.lose(id);
    }

    fn watch(&mut self, id: PeerId) {
        let Some(slot) = self.slots.get(id.slot as usize) else {
            return;
        };
        let Some(peer) = &slot.peer else { return };
        let wants_room = !peer.queue.is_empty();
        let _ = self.set.set_wants_room(&peer.socket, id.pack(), wants_room);
    }

    /// Somebody was left, which [`Peers::take_losses`] or the next [`Peers::hear`] reports; no
    /// descriptor is readable for it.
    pub fn has_losses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// What peers have done meanwhile, as far as it fits one turn each. `told` gets no access to
    /// the connections, so it notes what is to be answered; gives how much was told.
    pub fn hear(&mut self, told: &mut dyn FnMut(PeerId, Heard<'_>)) -> usize {
        let mut count = 0;
        for data in self.set.ready() {
            if data == LISTENER {
                self.accept();
                continue;
            }
            if self.buffer.is_empty() {
                self.buffer = vec![0; MESSAGE_LEN].into();
            }
            let id = PeerId::unpack(data);
            self.send_queued(id);
            count += self.hear_one(id, told);
        }
        self.take_losses(&mut |id| {
            told(id, Heard::Gone);
            count += 1;
        });
        count
    }

    /// The peers that were left since the last report.
    pub fn take_losses(&mut self, gone: &mut dyn FnMut(PeerId)) {
        for id in std::mem::take(&mut self.lost) {
            if let Some(slot) = self.slots.get_mut(id.slot as usize)
                && slot.generation == id.generation
                && let Some(peer) = slot.peer.take()
            {
                self.set.remove(&peer.socket);
                self.open -= 1;
                gone(id);
            }
        }
    }

    /// Takes connections. What is not taken now is by a later call.
    fn accept(&mut self) {
        for _ in 0..ACCEPT_TURN {
            match sys::accept(&self.listener) {
                // A process that there is no room for finds the connection closed.
                Accepted::Connection(socket) => drop(self.add(socket, None)),
                Accepted::Refused => {}
                Accepted::Nobody => return,
                // A thread that waits for the set would spin for want of a descriptor: `maintain`
                // looks again.
                Accepted::NoRoom => {
                    self.set.remove(&self.listener);
                    self.starved = true;
                    return;
                }
            }
        }
    }

    /// Connections that nothing could be done about may be taken now.
    pub fn maintain(&mut self) {
        if self.starved && self.set.add(&self.listener, LISTENER).is_ok() {
            self.starved = false;
            self.accept();
        }
    }

    fn send_queued(&mut self, id: PeerId) {
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        if peer.queue.is_empty() {
            return;
        }
        let before = peer.queued;
        let mut over = false;
        while let Some((bytes, fds)) = peer.queue.front() {
            match sys::send_message(&peer.socket, bytes, fds) {
                Ok(()) => {
                    peer.queued -= cost(bytes, fds);
                    peer.queue.pop_front();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    over = true;
                    break;
                }
            }
        }
        let sent = before - peer.queued;
        self.queued -= sent;
        if over {
            return self.leave(id);
        }
        self.watch(id);
    }

    fn hear_one(&mut self, id: PeerId, told: &mut dyn FnMut(PeerId, Heard<'_>)) -> usize {
        let Peers { slots, buffer, .. } = self;
        let Some(peer) = slots
            .get_mut(id.slot as usize)
            .filter(|slot| slot.generation == id.generation)
            .and_then(|slot| slot.peer.as_mut())
            .filter(|peer| !peer.lost)
        else {
            return 0;
        };
        for heard in 0..TURN {
            let mut fds = Vec::new();
            match sys::receive_message(&peer.socket, buffer, &mut fds) {
                Ok(Some(len)) if len > 0 => {
                    let bytes = &buffer[..len];
                    let fds = &mut fds;
                    told(id, Heard::Message { bytes, fds });
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return heard,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The end, what is too long, or an error.
                _ => {
                    let _ = self.lose(id);
                    return heard;
                }
            }
        }
        TURN
    }
}

/// What it takes to keep a message.
fn cost(bytes: &[u8], fds: &[Fd]) -> usize {
    MESSAGE_COST + bytes.len() + fds.len() * FD_COST
}

impl PeerId {
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn unpack(data: u64) -> PeerId {
        PeerId {
            slot: data as u32,
            generation: (data >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests;
