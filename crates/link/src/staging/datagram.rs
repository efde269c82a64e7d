//! What carries datagrams: the seam between the staging of packets and the sockets.

use std::io;

use crate::LinkCounters;
use crate::staging::batch::TxBatch;
use crate::staging::path::Route;
use rnic_host::train::Train;

/// What one look at the link brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Datagrams, in the buffer.
    Train(Train),
    /// Something that cannot be a packet (longer than the buffer, no address); look again.
    Useless,
    /// Nothing is there.
    Empty,
}

/// Carries datagrams, packets including their ICRC.
///
/// The drive contract: `send` when packets are staged or `next_timeout` has passed; `receive` until
/// `Empty`. Neither blocks. What cannot be sent is counted in `tx_errors` and lost; what cannot be
/// sent yet waits.
pub trait Link: Send {
    /// Most packets of one run towards `route`; 1: no GSO.
    fn max_segments(&self, route: &Route) -> usize;

    /// Sends the runs of `batch` in order, ICRCs in place ([`crate::staging::framing`]), and what
    /// is due of packets held back.
    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters);

    /// Receives one train into `buffer`, which holds at least 64 KiB. Not `thorough`: the caller is
    /// back soon, and what rarely comes may wait.
    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival>;

    /// Takes note of a message of the [hand-over socket](rnic_host::handover): another process has
    /// received it for this one.
    fn adopt(&mut self, _message: &[u8]) {}

    /// Packets that came by AF_XDP.
    fn received_by_xdp(&self) -> u64 {
        0
    }

    /// Packets that the kernel had no room to keep for this process, since open.
    fn overrun(&self) -> u64 {
        0
    }

    /// Packets lie in memory, where to receive them takes no system call, or came and were not
    /// received.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Packets were received that `receive` did not give yet: no descriptor is readable for them.
    fn has_left(&self) -> bool {
        false
    }

    /// Packets came by AF_XDP lately, and none is there.
    fn is_still(&self) -> bool {
        false
    }

    /// When `send` must be called though nothing new is staged.
    fn next_timeout(&self) -> Option<u64> {
        None
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn max_segments(&self, route: &Route) -> usize {
        (**self).max_segments(route)
    }
    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters) {
        (**self).send(batch, now_ns, counters);
    }
    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival> {
        (**self).receive(buffer, thorough)
    }
    fn adopt(&mut self, message: &[u8]) {
        (**self).adopt(message);
    }
    fn received_by_xdp(&self) -> u64 {
        (**self).received_by_xdp()
    }
    fn overrun(&self) -> u64 {
        (**self).overrun()
    }
    fn has_arrivals(&self) -> bool {
        (**self).has_arrivals()
    }
    fn has_left(&self) -> bool {
        (**self).has_left()
    }
    fn is_still(&self) -> bool {
        (**self).is_still()
    }
    fn next_timeout(&self) -> Option<u64> {
        (**self).next_timeout()
    }
}
