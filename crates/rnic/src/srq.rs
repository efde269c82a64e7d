//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix_futex_sync::Mutex;

use crate::device;
use crate::error::{Error, Result};
use crate::gather::{Piece, Pieces};
use crate::nic::{self, SrqAttr, SrqAttrMask};
use crate::pd::ProtectionDomain;
use crate::post::RecvError;
use crate::raw::memory::Buffer;
use crate::work::{Entry, WorkQueue};

/// A shared receive queue (`ibv_create_srq`): buffers for the messages of any number of queue
/// pairs, which take them as messages come. A server with many peers so needs memory for the
/// messages that arrive, not for those that each peer could send.
///
/// Queue pairs use it if their builder is told so
/// ([`QueuePairBuilder::srq`](crate::QueuePairBuilder::srq)). Each receive completes into the
/// receive completion queue of the queue pair that took it.
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use rnic::{Context, Rc, SendRequest};
/// # let context = Context::open()?;
/// # let gid = context.loopback_gid()?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(64).build()?;
/// let srq = pd.create_srq(16)?;
/// srq.post_recv(pd.buffer(64)?, 1)?;
/// let server = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).gid(&gid).build()?;
/// # let client_cq = context.create_cq(64).build()?;
/// # let client = pd.create_qp::<Rc>(&client_cq, &client_cq).gid(&gid).build()?;
/// # let (to_client, to_server) = (client.endpoint(), server.endpoint());
/// # let server = server.handshake(to_client)?;
/// # let client = client.handshake(to_server)?;
/// # client.post(SendRequest::send(pd.buffer_from(b"to whom it may concern")?))?;
/// let completion = cq.wait(Duration::from_secs(5))?.ok()?;
/// assert_eq!((completion.id(), completion.qpn()), (1, server.qpn()));
/// assert_eq!(completion.data(), b"to whom it may concern");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

/// Fields drop in this order: the device's queue first, then the posted buffers.
struct Inner {
    raw: device::Srq,
    work: Arc<Mutex<WorkQueue>>,
    /// Receives that a device of the system holds.
    depth: AtomicU32,
    cookie: u64,
    pd: ProtectionDomain,
}

impl std::fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("number", &self.inner.raw.number())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(pd: &ProtectionDomain, max_wr: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::create(pd, max_wr, None)
    }

    /// `xrc`: domain and completion queue of one that targets reach.
    pub(crate) fn create(
        pd: &ProtectionDomain,
        max_wr: u32,
        xrc: Option<(&device::Xrcd, &device::Cq)>,
    ) -> Result<SharedReceiveQueue> {
        let in_domain = xrc.is_some();
        let cookie = crate::next_cookie();
        let raw = pd.raw().create_srq(max_wr, xrc, cookie)?;
        let depth = match raw.is_system() {
            true => raw.query().max_wr,
            false => u32::MAX,
        };
        let work = match in_domain {
            true => WorkQueue::of_srq(raw.number()),
            false => WorkQueue::default(),
        };
        Ok(SharedReceiveQueue {
            inner: Arc::new(Inner {
                raw,
                work: Arc::new(Mutex::new(work)),
                depth: AtomicU32::new(depth),
                cookie,
                pd: pd.clone(),
            }),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.inner.raw.number()
    }

    pub(crate) fn raw(&self) -> &device::Srq {
        &self.inner.raw
    }

    pub(crate) fn work(&self) -> &Arc<Mutex<WorkQueue>> {
        &self.inner.work
    }

    /// Posts a receive (`ibv_post_srq_recv`): a message of some queue pair lands in `buffer`, whose
    /// completion shows `id`. A full queue is not fatal: see [`Error::is_queue_full`].
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.post(Piece::whole(buffer).into(), id)
    }

    /// Posts a receive without memory: enough for a WRITE with immediate or an empty message.
    pub fn post_recv_empty(&self, id: u64) -> std::result::Result<(), RecvError> {
        self.post(Pieces::default(), id)
    }

    pub(crate) fn post(&self, pieces: Pieces, id: u64) -> std::result::Result<(), RecvError> {
        let alive = || Ok(self.inner.raw.check_alive("ibv_post_srq_recv")?);
        let fits = pieces.check(1, "one for a shared receive queue");
        if let Err(error) = fits.and_then(|()| alive()) {
            return Err(RecvError::new(error, pieces));
        }
        let sges = pieces.sges();
        // The lock keeps the order of numbers that of the queue, and completions out until the
        // buffer is in.
        let mut queue = self.inner.work.lock();
        let wr_id = queue.next();
        let depth = self.inner.depth.load(Ordering::Relaxed);
        let room = queue.room("ibv_post_srq_recv", depth);
        let post = || self.inner.raw.post_recv(nic::RecvWqe { wr_id, sges });
        match room.and_then(|_| post()) {
            Ok(()) => {
                queue.push(Entry {
                    id,
                    pieces,
                    signaled: true,
                    _way: None,
                });
                Ok(())
            }
            Err(error) if error.errno() == libc::ENOMEM => {
                let full = Error::QueueFull {
                    verb: error.verb(),
                    qpn: self.inner.raw.number(),
                    depth: self.capacity(),
                    source: std::io::Error::from_raw_os_error(error.errno()),
                };
                Err(RecvError::new(full, pieces))
            }
            Err(error) => Err(RecvError::new(error.into(), pieces)),
        }
    }

    /// Receives it holds. One counts from when it is posted until its completion was taken.
    pub fn capacity(&self) -> u32 {
        self.inner.raw.query().max_wr
    }

    /// Changes the capacity to at least `max_wr` (`ibv_modify_srq`).
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        self.modify(max_wr, 0, SrqAttrMask::MAX_WR)?;
        if self.inner.raw.is_system() {
            let depth = self.inner.raw.query().max_wr;
            self.inner.depth.store(depth, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks for the event [`AsyncEvent::SrqLimit`](crate::AsyncEvent::SrqLimit) when fewer than
    /// `limit` receives are left, once; it comes at once if that is so already. 0: not any more.
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        self.modify(0, limit, SrqAttrMask::LIMIT)
    }

    /// The limit that is armed; 0: none, or the event has come.
    pub fn limit(&self) -> u32 {
        self.inner.raw.query().srq_limit
    }

    fn modify(&self, max_wr: u32, srq_limit: u32, mask: SrqAttrMask) -> Result<()> {
        let attr = SrqAttr {
            max_wr,
            srq_limit,
            ..SrqAttr::default()
        };
        Ok(self.inner.raw.modify(&attr, mask)?)
    }

    /// Names this queue in asynchronous events; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.cookie
    }

    /// The protection domain it was created in: that of the buffers to post.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }
}

#[cfg(test)]
mod tests;
