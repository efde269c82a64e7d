//! Handles of the layer beneath, for what this crate does not cover.

use crate::nic;
use crate::{CompletionQueue, ProtectionDomain, QueuePair};

impl ProtectionDomain {
    /// The domain's handle.
    ///
    /// # Safety
    /// Work requests on queue pairs created from it must not name the memory of a [`Buffer`](crate::Buffer) that
    /// somebody can reach as a slice.
    pub unsafe fn as_raw(&self) -> &nic::Pd {
        self.nic()
    }
}

impl CompletionQueue {
    /// The queue's handle.
    ///
    /// # Safety
    /// A completion polled through it is lost to this crate, and with it the posted buffer. A queue pair made with it
    /// is subject to the terms of [`ProtectionDomain::as_raw`].
    pub unsafe fn as_raw(&self) -> &nic::Cq {
        self.nic()
    }
}

impl QueuePair {
    /// The queue pair's handle, for `modify`, `query` and raw work requests.
    ///
    /// # Safety
    /// * Raw work requests must not name memory of a [`Buffer`](crate::Buffer) that somebody can reach as a slice, and
    ///   their completions are not this crate's: they surface with the id given here and without a buffer, so ids must
    ///   be at least `1 << 63`.
    /// * No clone of the handle may outlive the [`QueuePair`], whose buffers are freed with it.
    pub unsafe fn as_raw(&self) -> &nic::Qp {
        self.nic()
    }
}
