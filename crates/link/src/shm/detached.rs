//! Detached payload: it came through memory, and lies apart from the headers of its packet.

use super::carried::Carried;
use super::pointing::Pointed;

/// Of a packet in a budget of packets, beside itself, so many bytes count as another one.
const PACKET: usize = 4096;

/// Where the payload of a packet is that came by memory without it.
#[derive(Clone, Copy, Debug)]
pub enum Detached<'a> {
    /// In the memory of the producer.
    Pointed(Pointed<'a>),
    /// In the ring, pad bytes included.
    Carried(Carried<'a>),
}

impl Detached<'_> {
    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        match self {
            Detached::Pointed(pointed) => pointed.len(),
            Detached::Carried(carried) => carried.len(),
        }
    }

    /// What it counts as in a budget of packets, beside the packet.
    pub(super) fn weight(&self) -> usize {
        self.len() / PACKET
    }
}
