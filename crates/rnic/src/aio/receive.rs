//! Messages that arrive.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::core::{Wait, next_ticket};
use super::lane::{Arrival, News};
use super::qp::Shared;
use crate::completion::Completion;
use crate::error::{Error, Result};
use crate::raw::memory::Buffer;

/// A message that has arrived: its bytes. Dropping it posts its buffer again, for a message to
/// come.
pub struct Message {
    shared: Arc<Shared>,
    /// Until its buffer is taken out.
    completion: Option<Completion>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("len", &self.len())
            .field("imm", &self.imm())
            .finish_non_exhaustive()
    }
}

impl Message {
    pub(super) fn new(shared: &Arc<Shared>, completion: Completion) -> Message {
        Message {
            shared: shared.clone(),
            completion: Some(completion),
        }
    }

    /// What came: opcode, length, and of a datagram who sent it.
    pub fn completion(&self) -> &Completion {
        match &self.completion {
            Some(completion) => completion,
            None => unreachable!("it is there until this is consumed"),
        }
    }

    /// Number of the queue pair that it came to.
    pub fn qpn(&self) -> u32 {
        self.completion().qpn()
    }

    /// Immediate data.
    pub fn imm(&self) -> Option<[u8; 4]> {
        self.completion().imm()
    }

    /// Keeps the buffer, with the message in it: of a datagram behind
    /// [`HEADER_LEN`](crate::HEADER_LEN) bytes. The queue pair has a receive less until one is
    /// posted ([`QueuePair::post_recv`](super::QueuePair::post_recv)). `None`: the receive had no
    /// memory.
    pub fn into_buffer(mut self) -> Option<Buffer> {
        let completion = self.completion.take()?;
        if self.shared.core().is_alive() {
            let mut news = News::default();
            self.shared.lane().release(&mut news);
            news.tell();
        }
        completion.into_buffer()
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.completion().message()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let Some(completion) = self.completion.take() else {
            return;
        };
        if !self.shared.core().is_alive() {
            return;
        }
        // A queue pair that has failed takes none.
        let buffers = completion.into_buffers().into_iter().collect();
        let _ = self.shared.post_recv(buffers);
        let mut news = News::default();
        self.shared.lane().release(&mut news);
        news.tell();
    }
}

/// Gives the next message of a queue pair. Dropping it loses none: a message is taken when it is
/// given out.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Receive {
    shared: Arc<Shared>,
    wait: Wait,
    ticket: Option<u64>,
}

impl Receive {
    pub(super) fn new(shared: &Arc<Shared>) -> Receive {
        Receive {
            shared: shared.clone(),
            wait: Wait::default(),
            ticket: None,
        }
    }

    fn poll_message(&mut self, cx: &Context<'_>) -> Poll<Result<Message>> {
        let Receive {
            shared,
            wait,
            ticket,
        } = self;
        let arrival = wait.poll(shared.core(), cx, |waker| {
            let waiter = waker.map(|waker| {
                let ticket = *ticket.get_or_insert_with(next_ticket);
                (ticket, waker)
            });
            shared.lane().arrival(waiter)
        });
        let Poll::Ready(arrival) = arrival else {
            return Poll::Pending;
        };
        if let Some(ticket) = ticket.take() {
            shared.lane().leave_readers(ticket);
        }
        Poll::Ready(match arrival? {
            Arrival::Message(completion) => Ok(Message::new(shared, completion)),
            Arrival::Failed(error) => Err(error.into()),
            Arrival::NoReceives => Err(Error::InvalidArgument(
                "no receive is posted, so no message can come: \
                 QueuePairBuilder::receives, or post_recv"
                    .to_owned(),
            )),
        })
    }
}

impl Future for Receive {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Message>> {
        self.get_mut().poll_message(cx)
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        self.wait.end(self.shared.core());
        if let Some(ticket) = self.ticket.take()
            && self.shared.core().is_alive()
        {
            self.shared.lane().leave_readers(ticket);
        }
    }
}

/// All messages of a queue pair, as a stream. It ends behind the error that ends the queue pair.
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct Messages {
    next: Receive,
    over: bool,
}

impl Messages {
    pub(super) fn new(shared: &Arc<Shared>) -> Messages {
        Messages {
            next: Receive::new(shared),
            over: false,
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let message = self.next.poll_message(cx);
        if let Poll::Ready(Err(_)) = &message {
            self.over = true;
        }
        message.map(Some)
    }
}
