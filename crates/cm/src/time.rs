//! Time as the connection manager sees it.

/// Nanoseconds since an arbitrary zero that the caller chooses. Never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The instant `ns` nanoseconds later; saturates at the end of time.
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}
