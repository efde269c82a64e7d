//! Work requests that failed, and the usual causes.

use std::fmt;

use crate::nic::{CompletionOpcode, Status};

/// A work request that failed: what, where, and the usual cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionError {
    /// Status, numbered as in `enum ibv_wc_status`.
    pub status: Status,
    /// What it was; tells only sends from receives.
    pub opcode: CompletionOpcode,
    /// rnic's own detail.
    pub vendor_err: u32,
    /// Local queue pair.
    pub qpn: u32,
    /// Id of the work request.
    pub id: u64,
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "work request {} of QP {:#x} failed with status {} ({:?}",
            self.id, self.qpn, self.status as u32, self.status
        )?;
        if self.vendor_err != 0 {
            write!(f, ", vendor_err {:#x}", self.vendor_err)?;
        }
        write!(f, "): {}", usual_cause(self.status))
    }
}

impl std::error::Error for CompletionError {}

/// The usual cause of a status, for people.
pub fn usual_cause(status: Status) -> &'static str {
    match status {
        Status::Success => "no failure",
        Status::LocalLengthError => {
            "the posted receive is smaller than the message, or the message is larger than 2 GiB"
        }
        Status::LocalQpOperationError => "the queue pair cannot do this operation",
        Status::LocalProtectionError => {
            "the local buffer is not covered by its memory region: wrong lkey, a range past the end, another \
             protection domain, or LOCAL_WRITE missing where the NIC has to write"
        }
        Status::WorkRequestFlushed => {
            "a consequence, not the cause: the queue pair went to ERR because of an earlier failure; look at the \
             first completion of this queue pair that is not flushed, here or at the peer"
        }
        Status::MemoryWindowBindError => "the memory window could not be bound",
        Status::BadResponse => "the peer answered something that does not fit the request",
        Status::LocalAccessError => "a local access failed while data was received",
        Status::RemoteInvalidRequest => {
            "the peer found the request invalid: the message is larger than its receive, the operation is not \
             enabled on its queue pair, or too many READs and atomics were outstanding"
        }
        Status::RemoteAccessError => {
            "the peer refused access: unknown rkey, a range past the end of the region, a right that was not \
             granted (REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC), or another protection domain"
        }
        Status::RemoteOperationError => {
            "the peer could not finish the request, for a fault of its own memory"
        }
        Status::RetryExceeded => {
            "no answer within timeout x retry_cnt: the peer is gone, its queue pair is not in RTR or RTS, the GIDs \
             do not match, or packets to UDP port 4791 are dropped on the way"
        }
        Status::RnrRetryExceeded => {
            "the peer had no receive posted (RNR): post receives before the sender starts, or set rnr_retry to 7 \
             (for ever)"
        }
        Status::RemoteAborted => "the peer aborted the request",
        Status::FatalError => "the device failed",
        Status::ResponseTimeout => "the answer did not come in time",
        Status::GeneralError => "the device gave no detail",
    }
}
