//! Streams of requests, most of which make no completion.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::core::{Wait, block_on, next_ticket};
use super::lane::{Outcomes, Posting, Sort};
use super::qp::Shared;
use super::request::RequestError;
use crate::endpoint::RemoteMemory;
use crate::error::{CompletionError, Error, Result};
use crate::post::SendRequest;
use crate::raw::memory::Buffer;

/// Requests of which only every so-many-th makes a completion, which vouches for those before it. A
/// full send queue is waited for, by [`Pipeline::push`] in a task or by [`Pipeline::push_blocking`]
/// in a thread.
///
/// ```
/// # use rnic::{Buffer, RemoteMemory, SendRequest, aio::QueuePair};
/// # async fn f(qp: QueuePair, to: RemoteMemory) -> rnic::Result<()> {
/// let mut writes = qp.pipeline(16)?;
/// for slot in 0..1000 {
///     writes.push(SendRequest::write_inline(b"row", to.slice(slot * 64, 3)?)).await?;
/// }
/// writes.flush().await?;
/// # Ok(())
/// # }
/// ```
/// Dropping it takes nothing back: what was pushed goes on, and its buffers stay until it is done.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<Shared>,
    outcomes: Arc<Outcomes>,
    every: usize,
}

impl std::fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}

impl Pipeline {
    pub(super) fn new(shared: &Arc<Shared>, every: usize) -> Result<Pipeline> {
        if every == 0 {
            return Err(Error::InvalidArgument(
                "each 0th request of a pipeline cannot be signaled: 1 or more".to_owned(),
            ));
        }
        Ok(Pipeline {
            shared: shared.clone(),
            outcomes: Arc::default(),
            every,
        })
    }

    /// Posts a request when the send queue has room. Whether it is signaled is decided here.
    ///
    /// # Errors
    /// One of the requests before has failed, which is said once more by [`Pipeline::flush`], or
    /// this one is refused. It is not posted, and its buffers come back.
    pub fn push(&mut self, request: SendRequest) -> Push<'_> {
        Push {
            pipeline: self,
            request: Some(request),
            wait: Wait::default(),
            ticket: None,
        }
    }

    /// The same for a thread, which it blocks.
    ///
    /// # Errors
    /// As [`Pipeline::push`].
    pub fn push_blocking(&mut self, request: SendRequest) -> std::result::Result<(), RequestError> {
        block_on(self.push(request))
    }

    /// Waits until all that was pushed is done. If the last request was not signaled, this posts an
    /// RDMA WRITE of no bytes, which is, and which touches no memory (IBTA vol. 1, 9.4.3).
    ///
    /// # Errors
    /// The first request that failed, and why; those behind it were flushed.
    pub fn flush(&mut self) -> Flush<'_> {
        Flush {
            pipeline: self,
            wait: Wait::default(),
            ticket: None,
        }
    }

    /// The same for a thread, which it blocks.
    ///
    /// # Errors
    /// As [`Pipeline::flush`].
    pub fn flush_blocking(&mut self) -> Result<()> {
        block_on(self.flush())
    }

    /// The buffers of requests that are done, in their order.
    pub fn take_buffers(&mut self) -> Vec<Buffer> {
        match self.shared.core().is_alive() {
            true => self.outcomes.take_buffers(),
            false => Vec::new(),
        }
    }

    fn failed(&self) -> Option<CompletionError> {
        self.outcomes.failed()
    }
}

/// Posts a request; see [`Pipeline::push`]. Dropping it before it is done posts nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Push<'a> {
    pipeline: &'a mut Pipeline,
    request: Option<SendRequest>,
    wait: Wait,
    ticket: Option<u64>,
}

impl Future for Push<'_> {
    type Output = std::result::Result<(), RequestError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Push {
            pipeline,
            request,
            wait,
            ticket,
        } = self.get_mut();
        let shared = &pipeline.shared;
        let done = wait.poll(shared.core(), cx, |waker| {
            let its = request.take()?;
            if let Some(error) = pipeline.failed() {
                return Some(Err(RequestError {
                    error: error.into(),
                    buffers: its.into_buffers(),
                }));
            }
            let waiter = waker.map(|waker| {
                let ticket = *ticket.get_or_insert_with(next_ticket);
                (ticket, waker)
            });
            let sort = Sort::Stream(pipeline.outcomes.clone(), pipeline.every);
            match shared.post(its, sort, waiter) {
                Posting::Posted(_) => Some(Ok(())),
                Posting::Full(its) => {
                    *request = Some(its);
                    None
                }
                Posting::Refused(refused) => Some(Err(refused.into())),
            }
        });
        done.map(|done| {
            done.unwrap_or_else(|error| {
                let buffers = request.take().map(SendRequest::into_buffers);
                Err(RequestError {
                    error,
                    buffers: buffers.unwrap_or_default(),
                })
            })
        })
    }
}

impl Drop for Push<'_> {
    fn drop(&mut self) {
        leave(&self.pipeline.shared, &mut self.wait, self.ticket.take());
    }
}

fn leave(shared: &Shared, wait: &mut Wait, ticket: Option<u64>) {
    wait.end(shared.core());
    if let Some(ticket) = ticket
        && shared.core().is_alive()
    {
        shared.lane().leave_room(ticket);
    }
}

/// Waits for all requests; see [`Pipeline::flush`]. Dropping it waits no longer.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Flush<'a> {
    pipeline: &'a mut Pipeline,
    wait: Wait,
    ticket: Option<u64>,
}

impl Future for Flush<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Flush {
            pipeline,
            wait,
            ticket,
        } = self.get_mut();
        let shared = &pipeline.shared;
        let done = wait.poll(shared.core(), cx, |waker| {
            if pipeline.outcomes.since() > 0 && pipeline.failed().is_none() {
                let nothing = RemoteMemory {
                    addr: 0,
                    len: 0,
                    rkey: 0,
                };
                let waiter = waker.map(|waker| {
                    let ticket = *ticket.get_or_insert_with(next_ticket);
                    (ticket, waker)
                });
                let last = SendRequest::write_inline(&[], nothing);
                match shared.post(last, Sort::Stream(pipeline.outcomes.clone(), 1), waiter) {
                    Posting::Posted(_) => {}
                    Posting::Full(_) => return None,
                    Posting::Refused(refused) => return Some(Err(refused.error)),
                }
            }
            pipeline.outcomes.are_in(waker).then_some(Ok(()))
        });
        let Poll::Ready(done) = done else {
            return Poll::Pending;
        };
        let failed = pipeline.failed();
        Poll::Ready(match (done, failed) {
            (Ok(Ok(())), Some(error)) => Err(error.into()),
            (Ok(done), _) => done,
            (Err(error), _) => Err(error),
        })
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        leave(&self.pipeline.shared, &mut self.wait, self.ticket.take());
    }
}
