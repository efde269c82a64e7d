//! Event channels.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rnic_nic::cm;

use super::id;
use crate::c::cm::rdma_event_channel;
use crate::export::seam::{self, EINVAL, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::handles::context::explain;
use crate::system::fork::{self, Lock};

/// An event channel. Ids hold a share in theirs, and so does a thread that waits for its events.
#[repr(C)]
pub struct ChannelObject {
    c: UnsafeCell<rdma_event_channel>,
    nic: cm::EventChannel,
}

// SAFETY: the C part is written before it is shared; the handle may be used from any thread.
unsafe impl Send for ChannelObject {}
// SAFETY: as above.
unsafe impl Sync for ChannelObject {}

pub type Channels = BTreeMap<usize, Arc<ChannelObject>>;

/// The channels that programs hold, by their C address.
static CHANNELS: LazyLock<Mutex<Channels>> = LazyLock::new(Mutex::default);

/// The table of channels, locked.
pub type Guard = MutexGuard<'static, Channels>;

/// Held across fork(2), so that the child finds it free.
pub fn lock() -> Guard {
    CHANNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has forks take the lock.
pub fn guard_forks() -> Result<()> {
    fork::hold_at_forks(Lock::Channels, || Box::new(lock()))
}

impl ChannelObject {
    /// Makes a channel and the program's pointer to it.
    pub fn new() -> Result<Arc<ChannelObject>> {
        guard_forks()?;
        id::guard_forks()?;
        let nic = cm::EventChannel::new().inspect_err(explain)?;
        let channel = Arc::new(ChannelObject {
            c: UnsafeCell::new(rdma_event_channel { fd: nic.fd() }),
            nic,
        });
        lock().insert(channel.c() as usize, Arc::clone(&channel));
        Ok(channel)
    }

    /// What the program knows it by.
    pub fn c(&self) -> *mut rdma_event_channel {
        self.c.get()
    }

    /// The handle.
    pub fn nic(&self) -> &cm::EventChannel {
        &self.nic
    }

    /// The next event, waiting for it in that call unless the program set O_NONBLOCK.
    pub fn next(&self, verb: &'static str) -> Result<cm::Event> {
        self.nic.get_in(verb).map_err(|error| match error.errno() {
            // Nothing was refused.
            errno @ (libc::EAGAIN | libc::EINTR) => Refusal::silent(errno),
            _ => Refusal::from(error),
        })
    }

    /// Takes the pointer back from the program. The descriptor is closed when nobody waits on it
    /// any more.
    pub fn retire(&self) {
        lock().remove(&(self.c() as usize));
    }
}

/// The channel behind a pointer; EINVAL for NULL and for what is none (any more).
pub fn from_c(channel: *mut rdma_event_channel) -> Result<Arc<ChannelObject>> {
    lock().get(&(channel as usize)).cloned().ok_or_else(|| {
        EINVAL
            .because("NULL or a destroyed one in place of an event channel")
            .consequence()
    })
}

extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    Verb("rdma_create_event_channel").makes(destroy_event_channel, || Ok(ChannelObject::new()?.c()))
}

/// `rdma_destroy_event_channel(3)`. Ids that are still on it end here, as when the kernel's file is
/// closed; what is left to `rdma_destroy_id` is their memory.
extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    seam::quiet(|| {
        let channel = from_c(channel)?;
        channel.retire();
        id::end_those_on(&channel);
        Ok(())
    });
}

export! {
    rdma_create_event_channel @@ "RDMACM_1.0" => create_event_channel;
    rdma_destroy_event_channel @@ "RDMACM_1.0" => destroy_event_channel;
}
