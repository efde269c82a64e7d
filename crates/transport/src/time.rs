//! Time as the transport sees it.

/// Nanoseconds since an arbitrary zero that the caller chooses. Never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The instant `ns` nanoseconds later; saturates at the end of time.
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

/// The local ACK timeout of a 5-bit code: 4.096 us x 2^code, in nanoseconds; `None` for 0, which
/// means no timeout (IBTA vol. 1, 11.6.2 "Local ACK Timeout"; `ibv_modify_qp(3)`).
pub fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 31 {
        0 => None,
        code => Some(4096 << code),
    }
}
