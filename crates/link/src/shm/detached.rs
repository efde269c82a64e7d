//! Detached payload: it came through memory, and lies apart from the headers of its packet.

use super::by_reference::ByReference;
use super::by_value::ByValue;

/// Of a packet in a budget of packets, beside itself, so many bytes count as another one.
const PACKET: usize = 4096;

/// Where the payload of a packet is that came through shared memory without it.
#[derive(Clone, Copy, Debug)]
pub enum Detached<'a> {
    /// In the memory of the producer.
    ByReference(ByReference<'a>),
    /// In the ring, pad bytes included.
    ByValue(ByValue<'a>),
}

impl Detached<'_> {
    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        match self {
            Detached::ByReference(payload) => payload.len(),
            Detached::ByValue(payload) => payload.len(),
        }
    }

    /// What it counts as in a budget of packets, beside the packet.
    pub(super) fn weight(&self) -> usize {
        self.len() / PACKET
    }
}
