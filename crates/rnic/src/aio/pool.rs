//! Buffers that are used again.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix_futex_sync::Mutex;

use super::core::next_ticket;
use crate::error::{Error, Result};
use crate::pd::ProtectionDomain;
use crate::raw::memory::Buffer;

/// Buffers of one length, in one registration, which are used again. Cheap to clone.
///
/// A queue pair that was built with a pool
/// ([`QueuePairBuilder::pool`](super::QueuePairBuilder::pool)) gives it the buffers of requests
/// whose futures were dropped, when the device is done with them.
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// # let pd = rnic::Context::open()?.alloc_pd()?;
/// use rnic::aio::{self, Pool};
///
/// let pool = Pool::new(&pd, 2, 4096)?;
/// let (one, two) = (aio::block_on(pool.take()), pool.try_take().expect("the second"));
/// assert!(pool.try_take().is_none());
/// pool.put(one);
/// assert_eq!(aio::block_on(pool.take()).len(), two.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Buffer>,
    waiting: VecDeque<(u64, Waker)>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("size", &self.inner.size)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Registers `count` buffers of `size` bytes each.
    ///
    /// # Errors
    /// One of both is 0, or there is no memory.
    pub fn new(pd: &ProtectionDomain, count: usize, size: usize) -> Result<Pool> {
        let bytes = count.checked_mul(size).ok_or_else(|| {
            Error::InvalidArgument(format!("{count} buffers of {size} bytes are too many"))
        })?;
        let mut rest = pd.buffer(bytes)?;
        let free = (0..count).map(|_| rest.split_to(size)).collect();
        let state = State {
            free,
            waiting: VecDeque::new(),
        };
        Ok(Pool {
            inner: Arc::new(Inner {
                size,
                state: Mutex::new(state),
            }),
        })
    }

    /// Length of each buffer.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// A buffer, if one is free. Its bytes are what its last user left.
    pub fn try_take(&self) -> Option<Buffer> {
        self.inner.state.lock().free.pop()
    }

    /// Waits for a buffer.
    pub fn take(&self) -> Take {
        Take {
            pool: self.clone(),
            ticket: None,
        }
    }

    /// Gives a buffer to the pool. One of another length is dropped.
    pub fn put(&self, buffer: Buffer) {
        if buffer.len() != self.inner.size {
            return;
        }
        let mut state = self.inner.state.lock();
        state.free.push(buffer);
        let next = state.waiting.pop_front();
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// Buffers that are free.
    pub fn free(&self) -> usize {
        self.inner.state.lock().free.len()
    }
}

/// Gives a buffer of a [`Pool`]. Dropping it takes none.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Take {
    pool: Pool,
    ticket: Option<u64>,
}

impl Future for Take {
    type Output = Buffer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Buffer> {
        let ticket = *self.ticket.get_or_insert_with(next_ticket);
        let mut state = self.pool.inner.state.lock();
        state.waiting.retain(|(other, _)| *other != ticket);
        if let Some(buffer) = state.free.pop() {
            drop(state);
            self.ticket = None;
            return Poll::Ready(buffer);
        }
        state.waiting.push_back((ticket, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let mut state = self.pool.inner.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|(other, _)| *other != ticket);
        // It was woken for a buffer that it does not take: the next one may.
        let next = match state.waiting.len() == before && !state.free.is_empty() {
            true => state.waiting.pop_front(),
            false => None,
        };
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}
