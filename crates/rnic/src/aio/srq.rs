//! Receives that queue pairs share.

use std::sync::{Arc, Weak};

use rustix_futex_sync::Mutex;

use super::core::Core;
use super::pool::Pool;
use crate::error::Result;
use crate::gather::{Piece, Pieces};
use crate::pd::ProtectionDomain;
use crate::post::RecvError;
use crate::raw::memory::Buffer;
use crate::srq;

/// A shared receive queue (`ibv_create_srq`) for queue pairs whose messages go to futures. Cheap to
/// clone; see [`crate::SharedReceiveQueue`] for what it is good for.
///
/// Queue pairs that are built with it
/// ([`QueuePairBuilder::srq`](super::QueuePairBuilder::srq)) give out their own messages
/// ([`QueuePair::recv`](super::QueuePair::recv)), and
/// [`Message::qpn`](super::Message::qpn) says which one a message is of. When a message is dropped,
/// its receive is posted to the shared queue again. Messages that nobody took go with their queue
/// pair, and their receives come back as well.
///
/// A queue pair that fails gets no completions of receives that it shares, so that
/// [`QueuePair::recv`](super::QueuePair::recv) is told by a request that fails, by the connection
/// manager, or not at all: [`AsyncEvent`](crate::AsyncEvent) `LastWqeReached` names it among the
/// [`DeviceEvents`](super::DeviceEvents).
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rnic::{Context, Rc, aio::{self, CompletionQueue, SharedReceiveQueue}};
///
/// let context = Context::open()?;
/// let (gid, pd) = (context.loopback_gid()?, context.alloc_pd()?);
/// let cq = CompletionQueue::new(&context, 256)?;
/// let receives = SharedReceiveQueue::new(&pd, 16)?;
/// receives.fill(16, 64)?;
/// let server = cq.create_qp::<Rc>(&pd).srq(&receives).gid(&gid).build()?;
/// let client = cq.create_qp::<Rc>(&pd).gid(&gid).build()?;
/// let (to_server, to_client) = (server.endpoint(), client.endpoint());
/// let (server, client) = (server.handshake(to_client)?, client.handshake(to_server)?);
/// aio::block_on(async {
///     client.send_inline(b"to whom it may concern").await?;
///     let message = server.recv().await?;
///     assert_eq!(&message[..], b"to whom it may concern");
///     assert_eq!(message.qpn(), server.qpn());
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

struct Inner {
    raw: srq::SharedReceiveQueue,
    /// The places that it has in completion queues, as long as queue pairs use them.
    places: Mutex<Vec<Weak<Places>>>,
}

/// In a completion queue, room for the messages of all receives.
pub(super) struct Places {
    core: Arc<Core>,
    count: u32,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.core.unreserve(self.count);
    }
}

impl std::fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.raw.fmt(f)
    }
}

impl SharedReceiveQueue {
    /// A queue for at least `max_wr` receives, which has none yet.
    ///
    /// # Errors
    /// The device has no such queues, or not of that size.
    pub fn new(pd: &ProtectionDomain, max_wr: u32) -> Result<SharedReceiveQueue> {
        Ok(SharedReceiveQueue {
            inner: Arc::new(Inner {
                raw: pd.create_srq(max_wr)?,
                places: Mutex::default(),
            }),
        })
    }

    /// Posts `count` receives of `size` bytes each.
    ///
    /// # Errors
    /// There is no memory, or the queue is full.
    pub fn fill(&self, count: usize, size: usize) -> Result<()> {
        if size == 0 {
            return (0..count).try_for_each(|_| Ok(self.post(Pieces::default())?));
        }
        let pool = Pool::new(self.inner.raw.pd(), count, size)?;
        while let Some(buffer) = pool.try_take() {
            self.post(Piece::whole(buffer).into())?;
        }
        Ok(())
    }

    /// Posts a receive. When its message is dropped, it is posted again.
    ///
    /// # Errors
    /// The queue is full, or the device refuses. The buffer comes back.
    pub fn post_recv(&self, buffer: Buffer) -> std::result::Result<(), RecvError> {
        self.post(Piece::whole(buffer).into())
    }

    pub(super) fn post(&self, pieces: Pieces) -> std::result::Result<(), RecvError> {
        self.inner.raw.post(pieces, 0)
    }

    /// Receives it holds.
    pub fn capacity(&self) -> u32 {
        self.inner.raw.capacity()
    }

    /// Asks for the event [`AsyncEvent::SrqLimit`](crate::AsyncEvent::SrqLimit) of the
    /// [`DeviceEvents`](super::DeviceEvents) when fewer than `limit` receives are left, once. 0: not
    /// any more. A receive is left until a message takes it.
    ///
    /// # Errors
    /// `limit` is more than the queue holds.
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        self.inner.raw.arm_limit(limit)
    }

    /// Names this queue in events of the device; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.raw.event_cookie()
    }

    /// The protection domain it was created in: that of the buffers to post.
    pub fn pd(&self) -> &ProtectionDomain {
        self.inner.raw.pd()
    }

    pub(super) fn raw(&self) -> &srq::SharedReceiveQueue {
        &self.inner.raw
    }

    /// Places in a completion queue for the messages of all receives, which all queue pairs of both
    /// have in common.
    ///
    /// # Errors
    /// The completion queue has not so many.
    pub(super) fn places_in(&self, core: &Arc<Core>) -> Result<Arc<Places>> {
        let mut places = self.inner.places.lock();
        places.retain(|known| known.strong_count() > 0);
        let known = places.iter().filter_map(Weak::upgrade);
        if let Some(known) = { known }.find(|known| Arc::ptr_eq(&known.core, core)) {
            return Ok(known);
        }
        let count = self.capacity();
        core.reserve(count)?;
        let new = Arc::new(Places {
            core: core.clone(),
            count,
        });
        places.push(Arc::downgrade(&new));
        Ok(new)
    }
}

/// Of a queue pair: where its receives come from, if it has none of its own.
pub(super) struct Source {
    pub(super) queue: SharedReceiveQueue,
    pub(super) _places: Arc<Places>,
}

impl Source {
    pub(super) fn new(queue: SharedReceiveQueue, core: &Arc<Core>) -> Result<Source> {
        let _places = queue.places_in(core)?;
        Ok(Source { queue, _places })
    }
}
