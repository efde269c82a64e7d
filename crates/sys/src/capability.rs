//! What the process may do that others may not (capabilities(7)).

use rustix::thread::{CapabilitySet, capabilities};

/// May the process administer the network (CAP_NET_ADMIN)?
pub fn may_administer_network() -> bool {
    has(CapabilitySet::NET_ADMIN)
}

/// The calling thread has it in effect.
pub(crate) fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}
