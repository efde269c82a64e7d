//! Completion queues and their channels.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_layouts::*;
use rnic_types::{Completion, Error, Result, Stamp};

use crate::convert;
use crate::objects::context::Context;
use crate::objects::cq_ex::{self, Reading};

/// Completions taken from the library at once.
const BATCH: usize = 16;

/// A completion channel (`ibv_create_comp_channel`).
#[derive(Clone)]
pub struct CompChannel {
    inner: Arc<Channel>,
}

struct Channel {
    ptr: NonNull<ibv_comp_channel>,
    fd: RawFd,
    context: Context,
}

// SAFETY: see `Opened`: the library's functions may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Context {
    /// Makes a channel.
    ///
    /// # Errors
    /// The process has too many descriptors; ENODEV in a forked child.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        const VERB: &str = "ibv_create_comp_channel";
        self.check_alive(VERB)?;
        // SAFETY: an open device.
        let ptr = unsafe { (self.library().create_comp_channel)(self.ptr()) };
        let ptr = self.made(VERB, ptr)?;
        Ok(CompChannel {
            inner: Arc::new(Channel {
                ptr,
                // SAFETY: just made; the descriptor stays the same.
                fd: unsafe { ptr.as_ref().fd },
                context: self.clone(),
            }),
        })
    }

    /// Makes a completion queue for at least `cqe` completions, which `channel` reports under this
    /// cookie. With `stamps` it says when each of them arose (`ibv_create_cq_ex`), and not by which
    /// P_Key of the port's table a datagram came.
    ///
    /// # Errors
    /// The device has no such queue; ENODEV in a forked child.
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<&CompChannel>,
        cookie: u64,
        stamps: bool,
    ) -> Result<Cq> {
        const VERB: &str = "ibv_create_cq";
        self.check_alive(VERB)?;
        let entries = cqe;
        let cqe = c_int::try_from(cqe)
            .map_err(|_| Error::invalid(VERB, format!("a queue of {cqe} completions")))?;
        if channel.is_some_and(|channel| !Arc::ptr_eq(&channel.inner.context.inner, &self.inner)) {
            return Err(Error::invalid(VERB, "the channel is another device's"));
        }
        let its = channel.map_or(null_mut(), |channel| channel.inner.ptr.as_ptr());
        let cookie = cookie as usize as *mut c_void;
        let asked = [("max_cqe", entries, self.inner.attr.max_cqe)];
        let (ptr, reading) = match stamps {
            false => {
                let create = self.library().create_cq;
                // SAFETY: an open device and a channel of it; the cookie is only given back.
                let ptr = unsafe { create(self.ptr(), cqe, cookie, its, 0) };
                let made = self.made(VERB, ptr);
                (made.map_err(|error| self.beyond(error, &asked))?, None)
            }
            true => {
                let made = cq_ex::create(self, entries, cookie, its);
                let (ptr, reading) = made.map_err(|error| self.beyond(error, &asked))?;
                (ptr, Some(reading))
            }
        };
        // SAFETY: just made; its size does not change, as nobody resizes it.
        let capacity = u32::try_from(unsafe { ptr.as_ref().cqe }).unwrap_or(0);
        Ok(Cq {
            inner: Arc::new(Queue {
                ptr,
                reading,
                capacity,
                context: self.clone(),
                _channel: channel.cloned(),
            }),
        })
    }
}

impl CompChannel {
    /// Readable: [`CompChannel::get_event`] has something.
    pub fn fd(&self) -> RawFd {
        self.inner.fd
    }

    /// See [`Context::check_alive`].
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.context.check_alive(verb)
    }

    /// Takes the oldest event, and waits for it unless the descriptor does not block: the cookie of
    /// its queue.
    ///
    /// # Errors
    /// EAGAIN, EINTR; ENODEV in a forked child.
    pub fn get_event(&self) -> Result<u64> {
        const VERB: &str = "ibv_get_cq_event";
        let context = &self.inner.context;
        context.check_alive(VERB)?;
        let (mut cq, mut cookie) = (null_mut(), null_mut());
        let channel = self.inner.ptr.as_ptr();
        // SAFETY: the channel is alive; the call writes both.
        if unsafe { (context.library().get_cq_event)(channel, &mut cq, &mut cookie) } != 0 {
            return Err(context.refused(VERB));
        }
        if !cq.is_null() {
            // SAFETY: its destruction waits for this.
            unsafe { (context.library().ack_cq_events)(cq, 1) };
        }
        Ok(cookie as u64)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.context.is_alive() {
            // SAFETY: of this process; its queues are gone, or the device refuses.
            unsafe { (self.context.library().destroy_comp_channel)(self.ptr.as_ptr()) };
        }
    }
}

/// A completion queue (`ibv_create_cq`).
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Queue>,
}

struct Queue {
    ptr: NonNull<ibv_cq>,
    /// Of one with stamps.
    reading: Option<Reading>,
    capacity: u32,
    context: Context,
    _channel: Option<CompChannel>,
}

// SAFETY: see `Opened`.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Cq {
    /// The library's object, alive as long as the handle.
    pub fn as_ptr(&self) -> *mut c_void {
        self.ptr().cast()
    }

    pub(crate) fn ptr(&self) -> *mut ibv_cq {
        self.inner.ptr.as_ptr()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Completions it holds.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity
    }

    /// See [`Context::check_alive`].
    ///
    /// # Errors
    /// ENODEV in a forked child.
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.context.check_alive(verb)
    }

    /// Takes completions, `max` at most, 16 at once (`ibv_poll_cq`), with their stamps, which are zero
    /// if the queue was made without.
    ///
    /// # Errors
    /// The device has failed, or the queue has overrun.
    pub fn poll(&self, max: usize, out: &mut dyn FnMut(&Completion, Stamp)) -> Result<usize> {
        const VERB: &str = "ibv_poll_cq";
        let context = &self.inner.context;
        context.check_alive(VERB)?;
        let max = max.min(BATCH);
        let failed = || {
            let why = format!(
                "the device {} cannot be polled: it is gone, or the queue has overrun",
                context.name()
            );
            Error::new(VERB, libc::EIO, why)
        };
        if let Some(reading) = &self.inner.reading {
            // SAFETY: the queue is alive, and these are its functions.
            let taken = unsafe { reading.poll(self.ptr(), max, out) };
            return taken.ok_or_else(failed);
        }
        let mut entries = [ibv_wc::default(); BATCH];
        // SAFETY: the queue is alive; there is room for as many entries as are said.
        let given =
            unsafe { (context.inner.ops.poll_cq)(self.ptr(), max as c_int, entries.as_mut_ptr()) };
        let count = usize::try_from(given).ok().filter(|count| *count <= max);
        let count = count.ok_or_else(failed)?;
        for entry in &entries[..count] {
            out(&convert::completion(entry), Stamp::default());
        }
        Ok(count)
    }

    /// The next completion is to be reported (`ibv_req_notify_cq`).
    ///
    /// # Errors
    /// The device does not answer; ENODEV in a forked child.
    pub fn request_notify(&self, solicited_only: bool) -> Result<()> {
        const VERB: &str = "ibv_req_notify_cq";
        let context = &self.inner.context;
        context.check_alive(VERB)?;
        let ops = &context.inner.ops;
        // SAFETY: the queue is alive.
        let given = unsafe { (ops.req_notify_cq)(self.ptr(), c_int::from(solicited_only)) };
        context.outcome(VERB, given)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.context.is_alive() {
            // SAFETY: of this process, with no event that is not acknowledged. Queue pairs that the
            // device has kept keep it, too: it refuses then.
            unsafe { (self.context.library().destroy_cq)(self.ptr.as_ptr()) };
        }
    }
}
