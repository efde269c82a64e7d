//! Synchronous ids: a call that started something waits for what comes of it.

use super::event;
use super::id::IdObject;
use crate::c::cm::{RDMA_CM_EVENT_REJECTED, rdma_cm_event};
use crate::export::seam::{Refusal, Result};

/// Waits in that call for the outcome if the id is synchronous, leaves the event in `id->event`, and makes a
/// failure of it an error: a rejection is ECONNREFUSED, everything else what the status says.
pub fn complete(id: &IdObject, verb: &'static str) -> Result<()> {
    if !id.is_sync() {
        return Ok(());
    }
    id.drop_event();
    let channel = id.channel()?;
    let event = event::next(&channel, verb)?;
    // SAFETY: a plain field of a live id; an event of ours that nobody has acknowledged.
    unsafe {
        (*id.c()).event = event;
        outcome(&*event)
    }
}

/// The error that an event means to a synchronous call.
pub fn outcome(event: &rdma_cm_event) -> Result<()> {
    match (event.event, event.status) {
        (_, 0) => Ok(()),
        (RDMA_CM_EVENT_REJECTED, _) => Err(Refusal::new(libc::ECONNREFUSED)
            .because("the peer rejected it")
            .answer()),
        (kind, status) => Err(Refusal::new(status.saturating_abs())
            .because(format!("event {kind} came with status {status}"))
            .answer()),
    }
}

#[cfg(test)]
mod tests;
