//! The port as the device sees it: whatever carries its packets.
//!
//! Which kind it is, is chosen when the device is opened: the host's RoCEv2 port ([`RoceLink`]:
//! UDP sockets, AF_XDP, shared memory), or the end of a network that somebody simulates
//! ([`SimulatedPort`]). The device asks the same of both. What only processes of one host have
//! with each other (`processes`, `one_sided`) a port may lack: then there is nobody else.
//!
//! # Drive contract
//! Sending: [`packet`](Port::packet) gives room, the caller fills it (or
//! [`retract`](Port::retract)s it), and [`flush`](Port::flush) sends; when `packet` gives `None`,
//! flush first. Receiving: [`receive_while`](Port::receive_while) when [`rx_fd`](Port::rx_fd) is
//! readable, or whenever the caller polls. Nothing blocks.

mod one_sided;
mod processes;
mod simulated;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

pub use simulated::{Frame, SimulatedFolder, SimulatedPort, SimulatedPortConfig, Wire};

use crate::roce::{Look, QuickPoll, RoceLink};
use crate::shm::Deliver;
use crate::staging::path::{PathId, PathSpec};
use crate::{AddressVector, LinkCounters, LinkError, Ways};

/// Whatever carries the device's packets. Not `Sync`: the engine's lock guards it.
#[allow(
    clippy::large_enum_variant,
    reason = "a device has one, and a pointer more would be followed for each packet"
)]
pub enum Port {
    /// This process's part of the host's RoCEv2 port.
    Roce(RoceLink),
    /// The end of a simulated network.
    Simulated(SimulatedPort),
}

/// The same call of either kind.
macro_rules! either {
    ($self:ident, $port:ident => $call:expr) => {
        match $self {
            Port::Roce($port) => $call,
            Port::Simulated($port) => $call,
        }
    };
}
use either;

impl From<RoceLink> for Port {
    fn from(link: RoceLink) -> Port {
        Port::Roce(link)
    }
}

impl From<SimulatedPort> for Port {
    fn from(port: SimulatedPort) -> Port {
        Port::Simulated(port)
    }
}

/// What a RoCEv2 port goes by.
fn by_ip(to: &AddressVector) -> io::Result<&PathSpec> {
    match to {
        AddressVector::RoceV2(spec) => Ok(spec),
        AddressVector::Ib(_) => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

/// Only the host's port.
impl Port {
    #[inline]
    fn roce(&self) -> Option<&RoceLink> {
        match self {
            Port::Roce(link) => Some(link),
            Port::Simulated(_) => None,
        }
    }

    #[inline]
    fn roce_mut(&mut self) -> Option<&mut RoceLink> {
        match self {
            Port::Roce(link) => Some(link),
            Port::Simulated(_) => None,
        }
    }
}

/// Paths: see [`RoceLink`]'s methods of the same names for the details of its kind.
impl Port {
    /// Sets up (or finds again) a path; counted, give it back with `release_path`.
    ///
    /// # Errors
    /// There is none, or it is none of this kind of port.
    pub fn path(&mut self, to: &AddressVector) -> Result<PathId, LinkError> {
        match self {
            Port::Roce(link) => link.path(by_ip(to).map_err(LinkError::io("set up a path"))?),
            Port::Simulated(port) => port.path(to),
        }
    }

    /// Gives a path back.
    pub fn release_path(&mut self, path: PathId) {
        either!(self, port => port.release_path(path));
    }

    /// Packets of this path go through memory: none is lost, and they stay in order.
    #[inline]
    pub fn is_by_memory(&self, path: PathId) -> bool {
        either!(self, port => port.is_by_memory(path))
    }

    /// It leads to an address of this host.
    pub fn is_of_this_host(&self, path: PathId) -> bool {
        either!(self, port => port.is_of_this_host(path))
    }

    /// So many bytes of packets of `len` bytes each leave at once; `None` if each leaves by itself.
    #[inline]
    pub fn batch_bytes(&self, path: PathId, len: usize) -> Option<usize> {
        either!(self, port => port.batch_bytes(path, len))
    }

    /// Packets of this path go past the kernel's network stack.
    #[inline]
    pub fn is_past_network_stack(&self, path: PathId) -> bool {
        self.roce()
            .is_some_and(|link| link.is_past_network_stack(path))
    }

    /// Packets of this path come to sockets of processes of this host.
    #[inline]
    pub fn is_local(&self, path: PathId) -> bool {
        self.roce().is_some_and(|link| link.is_local(path))
    }

    /// The LID of an InfiniBand port, by which others reach it without a GRH.
    pub fn lid(&self) -> Option<u16> {
        match self {
            Port::Roce(_) => None,
            Port::Simulated(port) => port.lid(),
        }
    }

    /// A way leads to the peer.
    ///
    /// # Errors
    /// There is none, or the system is [short](crate::shortage) of something.
    pub fn has_way(&self, to: &AddressVector) -> io::Result<()> {
        match self {
            Port::Roce(link) => link.has_way(by_ip(to)?),
            Port::Simulated(port) => port.has_way(to),
        }
    }

    /// The way to the peer takes IP packets of `len` bytes, as far as is known.
    ///
    /// # Errors
    /// The longest that it takes, bytes.
    pub fn takes(&self, to: &AddressVector, len: u32) -> Result<(), u32> {
        match self {
            // What is not by IP has no way that could be too short.
            Port::Roce(link) => by_ip(to).map_or(Ok(()), |spec| link.takes(spec, len)),
            Port::Simulated(port) => port.takes(len),
        }
    }
}

/// Packets that leave.
impl Port {
    /// Room for one packet of `len` bytes (BTH .. last pad byte), with arbitrary content; `None`:
    /// flush first, or, if [`take_blocked`](Port::take_blocked) says so, wait. A packet of a path
    /// that was given back is lost.
    #[inline]
    pub fn packet(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        either!(self, port => port.packet(path, len))
    }

    /// [`packet`](Port::packet) for a row of them, at most `most`, which `build` fills in one after
    /// the other, until it says false and the last is taken back; how many. Fewer than it wanted:
    /// as `None` there.
    #[inline]
    pub fn row(
        &mut self,
        path: PathId,
        len: usize,
        most: usize,
        build: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        either!(self, port => port.row(path, len, most, build))
    }

    /// Takes a short packet, BTH to last pad byte. False: there is no room, or it is one for
    /// [`packet`](Port::packet), and nothing was done.
    #[inline(always)]
    pub fn send_short(&mut self, path: PathId, packet: &[u8]) -> bool {
        either!(self, port => port.send_short(path, packet))
    }

    /// Takes back the packet given out last.
    pub fn retract(&mut self) {
        either!(self, port => port.retract());
    }

    /// The time, for packets that are built before the next call that has one.
    #[inline]
    pub fn set_time(&mut self, now_ns: u64) {
        either!(self, port => port.set_time(now_ns));
    }

    /// Packets are waiting for `flush`.
    #[inline]
    pub fn has_pending(&self) -> bool {
        either!(self, port => port.has_pending())
    }

    /// [`packet`](Port::packet) gave no room since the last call because what was sent has to leave
    /// first: flushing does not help before [`next_timeout`](Port::next_timeout), and another path
    /// may well have room.
    #[inline]
    pub fn take_blocked(&mut self) -> bool {
        either!(self, port => port.take_blocked())
    }

    /// Publishes what was built for rings. False: packets wait for `flush`.
    #[inline]
    pub fn publish(&mut self) -> bool {
        either!(self, port => port.publish())
    }

    /// Sends all packets built since the last flush. Never blocks. What cannot be sent is counted
    /// and lost, as on a wire.
    pub fn flush(&mut self, now_ns: u64) {
        either!(self, port => port.flush(now_ns));
    }

    /// When `flush` must be called for packets that were held back, or `receive_while` for those
    /// that wait to be handed over.
    pub fn next_timeout(&self) -> Option<u64> {
        self.roce()?.next_timeout()
    }

    /// Nothing is sent any more: what was held back has some time to leave.
    pub fn send_what_waits(&mut self) {
        either!(self, port => port.send_what_waits());
    }
}

/// Packets that arrive.
impl Port {
    /// Joins an IP multicast group on an interface.
    ///
    /// # Errors
    /// No such interface, or too many groups.
    pub fn join(&mut self, group: IpAddr, ifindex: u32) -> io::Result<()> {
        either!(self, port => port.join(group, ifindex))
    }

    /// Leaves it; all memberships end with the process.
    pub fn leave(&mut self, group: IpAddr, ifindex: u32) {
        either!(self, port => port.leave(group, ifindex));
    }

    /// A look that costs little, for a thread that polls. What it finds the next call of
    /// [`receive_while`](Port::receive_while) takes in. `socket`: a system call may be made.
    #[inline]
    pub fn quick_poll(&mut self, socket: bool) -> QuickPoll {
        either!(self, port => port.quick_poll(socket))
    }

    /// Receives until nothing is there, or about `budget` packets were handed to `deliver`. If that
    /// breaks, the packet it was offered stays, and all behind it; the next call offers it again
    /// first. Returns packets delivered.
    pub fn receive_while(
        &mut self,
        now_ns: u64,
        budget: usize,
        look: Look,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        either!(self, port => port.receive_while(now_ns, budget, look, deliver))
    }

    /// Half of what the port keeps of packets that nobody takes in, bytes: what all peers together
    /// may have in flight towards us.
    pub fn receive_buffer(&self) -> usize {
        either!(self, port => port.receive_buffer())
    }

    /// Packets lie in memory of this process.
    pub fn has_arrivals(&self) -> bool {
        either!(self, port => port.has_arrivals())
    }

    /// [`receive_while`](Port::receive_while) left packets behind for which no descriptor is
    /// readable.
    #[inline]
    pub fn has_left(&self) -> bool {
        either!(self, port => port.has_left())
    }
}

/// Sleep, and who wakes whom. Packets that arrive at a simulated port wake nobody: whoever
/// simulates knows when they do.
impl Port {
    /// The application polls, so no process has to wake this one for packets (true), or it does not
    /// any more.
    pub fn leave_to_polling(&mut self, polled: bool) {
        either!(self, port => port.leave_to_polling(polled));
    }

    /// Nobody will look for packets from now on unless a descriptor is readable. True: something is
    /// there already.
    pub fn fall_asleep(&mut self) -> bool {
        either!(self, port => port.fall_asleep())
    }

    /// For a thread that slept on descriptors and says which are readable.
    pub fn woken(&mut self, now_ns: u64, rx_readable: bool, wake_readable: bool) {
        match self {
            Port::Roce(link) => link.woken(now_ns, rx_readable, wake_readable),
            Port::Simulated(port) => port.woken(now_ns, wake_readable),
        }
    }

    /// What packets arrive on: readable means call `receive_while`. -1: none.
    pub fn rx_fd(&self) -> RawFd {
        self.roce().map_or(-1, RoceLink::rx_fd)
    }

    /// Readable when a process of this host woke this one; -1 if none ever does.
    pub fn wake_fd(&self) -> RawFd {
        either!(self, port => port.wake_fd())
    }

    /// Descriptors that are readable rarely, of what other processes hand over.
    pub fn handover_fds(&self) -> Vec<RawFd> {
        either!(self, port => port.handover_fds())
    }

    /// What is known of the kernel's routes and neighbours, if packets go past its network stack.
    pub fn ways(&self) -> Option<Arc<Ways>> {
        self.roce()?.ways()
    }

    /// House-keeping, every now and then. Returns after how many nanoseconds it wants to be called
    /// again.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        either!(self, port => port.maintain(now_ns))
    }

    /// In a forked child: close every descriptor without telling anyone. Of a simulated port, its
    /// process is killed.
    pub fn abandon(&mut self) {
        either!(self, port => port.abandon());
    }

    /// Counts since open.
    pub fn counters(&self) -> LinkCounters {
        either!(self, port => port.counters())
    }

    /// The same with what the kernel counts: that may take system calls.
    pub fn all_counters(&self) -> LinkCounters {
        match self {
            Port::Roce(link) => link.all_counters(),
            Port::Simulated(port) => port.counters(),
        }
    }
}
