//! What carries datagrams: the seam between the staging of packets and the sockets.

use std::io;
use std::net::IpAddr;

use rnic_wire::IcrcOk;

use crate::LinkCounters;
use crate::batch::TxBatch;
use crate::path::Route;

/// A datagram that arrived, or several of the same length from one sender that came as one (UDP_GRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Source address.
    pub src: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Address it was sent to.
    pub dst: IpAddr,
    /// Bytes in the buffer.
    pub len: usize,
    /// Length of each datagram but the last, which may be shorter; at least 1.
    pub segment: usize,
    /// What is known of their IPv4 headers.
    pub ids: IpIds,
}

impl Train {
    /// What is left of it behind the first `n` datagrams, of which `len` bytes are left.
    pub(crate) fn behind(&self, n: usize, len: usize) -> Train {
        Train {
            len,
            ids: self.ids.behind(n),
            ..*self
        }
    }
}

/// Identification and DF of the datagrams of a train, which are under the ICRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpIds {
    /// A socket does not tell.
    #[default]
    Hidden,
    /// Of the first one. In each other one the identification is greater by `step`.
    Seen {
        /// Of the first one.
        first: IcrcOk,
        /// 0 or 1.
        step: u16,
    },
}

impl IpIds {
    /// Of a train of one datagram, or of one that was cut after it left: then each following part has the next identification.
    pub(crate) fn starting(first: IcrcOk) -> IpIds {
        IpIds::Seen { first, step: 1 }
    }

    /// With another one behind the `n` that there are; `None`: it does not continue them.
    #[inline]
    pub(crate) fn with(self, n: usize, next: IcrcOk) -> Option<IpIds> {
        let IpIds::Seen { first, step } = self else {
            return None;
        };
        let step = match n {
            1 => next.ip_id.wrapping_sub(first.ip_id),
            _ => step,
        };
        let ids = IpIds::Seen { first, step };
        (step <= 1 && ids.of(n) == Some(next)).then_some(ids)
    }

    /// Of the `n`th one.
    #[inline]
    pub(crate) fn of(self, n: usize) -> Option<IcrcOk> {
        match self {
            IpIds::Hidden => None,
            IpIds::Seen { first, step } => Some(IcrcOk {
                ip_id: first.ip_id.wrapping_add(step.wrapping_mul(n as u16)),
                ..first
            }),
        }
    }

    /// Of a train that begins with the `n`th one.
    fn behind(self, n: usize) -> IpIds {
        match (self, self.of(n)) {
            (IpIds::Seen { step, .. }, Some(first)) => IpIds::Seen { first, step },
            _ => IpIds::Hidden,
        }
    }
}

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
/// The drive contract: `send` when packets are staged or `next_timeout` has passed; `receive` until `Empty`. Neither
/// blocks. What cannot be sent is counted in `tx_errors` and lost; what cannot be sent yet waits.
pub trait Link: Send {
    /// Most packets of one run towards `route`; 1: no GSO.
    fn max_segments(&self, route: &Route) -> usize;

    /// Sends the runs of `batch` in order, ICRCs in place ([`crate::framing`]), and what is due of packets held back.
    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters);

    /// Receives one train into `buffer`, which holds at least 64 KiB. Not `thorough`: the caller is back soon, and what rarely
    /// comes may wait.
    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival>;

    /// Takes note of a message of the [door](crate::door): another process has received it for this one.
    fn adopt(&mut self, _message: &[u8]) {}

    /// Packets that came by memory.
    fn received_by_memory(&self) -> u64 {
        0
    }

    /// Packets that the kernel had no room to keep for this process, since open.
    fn overrun(&self) -> u64 {
        0
    }

    /// Packets lie in memory, where to receive them takes no system call, or came and were not received.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Packets were received that `receive` did not give yet: no descriptor is readable for them.
    fn has_left(&self) -> bool {
        false
    }

    /// Packets came by memory lately, and none is there.
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
    fn received_by_memory(&self) -> u64 {
        (**self).received_by_memory()
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
