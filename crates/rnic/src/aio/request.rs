//! Futures of requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::core::{Wait, next_ticket};
use super::lane::{Key, News, Posting, Sort, error_of};
use super::qp::Shared;
use crate::completion::Completion;
use crate::error::{Error, Result};
use crate::post::{PostError, SendRequest};
use crate::raw::memory::Buffer;

/// A request failed, or could not be posted.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RequestError {
    /// Why.
    #[source]
    pub error: Error,
    /// Its buffers, unless the device may still use them.
    pub buffers: Vec<Buffer>,
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        error.error
    }
}

impl From<PostError> for RequestError {
    fn from(refused: PostError) -> RequestError {
        RequestError {
            error: refused.error,
            buffers: refused.request.into_buffers(),
        }
    }
}

/// The completion of a success, or the error with the buffers.
fn settle(completion: Completion) -> std::result::Result<Completion, RequestError> {
    match error_of(&completion) {
        None => Ok(completion),
        Some(error) => Err(RequestError {
            error: error.into(),
            buffers: completion.into_buffers(),
        }),
    }
}

/// A request on its way: it is posted when this is first polled, or later when the send queue has
/// room, and gives the completion with the buffers.
///
/// Dropping it is safe at any time. If the request is not posted yet, it never will be. If it is,
/// it goes on: its buffers stay until the device is done with them, and then go to the queue pair's
/// pool ([`QueuePairBuilder::pool`](super::QueuePairBuilder::pool)), or are dropped if it has none.
///
/// Requests whose futures are awaited one after the other are carried out in that order. Of those
/// that are awaited together, each is posted when it finds room.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Request {
    shared: Arc<Shared>,
    state: State,
    wait: Wait,
    /// While it waits for room.
    ticket: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// It is not posted.
    New(Box<SendRequest>),
    Refused(Option<PostError>),
    InFlight(Key),
    /// The outcome was given out, or never will be.
    Over,
}

impl Request {
    pub(super) fn new(
        shared: &Arc<Shared>,
        request: std::result::Result<SendRequest, PostError>,
    ) -> Request {
        Request {
            shared: shared.clone(),
            state: match request {
                Ok(request) => State::New(Box::new(request)),
                Err(refused) => State::Refused(Some(refused)),
            },
            wait: Wait::default(),
            ticket: None,
        }
    }
}

type Outcome = std::result::Result<Completion, RequestError>;

/// One look at a request; `None`: it goes on.
fn advance(
    shared: &Shared,
    state: &mut State,
    ticket: &mut Option<u64>,
    waker: Option<&Waker>,
) -> Option<Outcome> {
    loop {
        match std::mem::replace(state, State::Over) {
            State::New(request) => {
                let waiter = waker.map(|waker| {
                    let ticket = *ticket.get_or_insert_with(next_ticket);
                    (ticket, waker)
                });
                match shared.post(*request, Sort::Single, waiter) {
                    Posting::Posted(key) => {
                        if let Some(ticket) = ticket.take() {
                            shared.lane().leave_room(ticket);
                        }
                        *state = State::InFlight(key);
                    }
                    Posting::Full(request) => {
                        *state = State::New(Box::new(request));
                        return None;
                    }
                    Posting::Refused(refused) => return Some(Err(refused.into())),
                }
            }
            State::InFlight(key) => {
                let outcome = shared.lane().outcome(key, waker);
                if outcome.is_none() {
                    *state = State::InFlight(key);
                }
                return outcome.map(settle);
            }
            State::Refused(refused) => return refused.map(|refused| Err(refused.into())),
            State::Over => return None,
        }
    }
}

impl Future for Request {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        let Request {
            shared,
            state,
            wait,
            ticket,
        } = this;
        let answer = wait.poll(shared.core(), cx, |waker| {
            advance(shared, state, ticket, waker)
        });
        match answer {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(outcome)) => Poll::Ready(outcome),
            Poll::Ready(Err(error)) => {
                let buffers = match std::mem::replace(&mut this.state, State::Over) {
                    State::New(request) => request.into_buffers(),
                    State::InFlight(key) => {
                        this.state = State::InFlight(key);
                        this.let_go();
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                Poll::Ready(Err(RequestError { error, buffers }))
            }
        }
    }
}

impl Request {
    fn let_go(&mut self) {
        self.wait.end(self.shared.core());
        // Else its locks may be held for ever.
        if !self.shared.core().is_alive() {
            return;
        }
        let mut news = News::default();
        if let Some(ticket) = self.ticket.take() {
            self.shared.lane().leave_room(ticket);
        }
        if let State::InFlight(key) = std::mem::replace(&mut self.state, State::Over) {
            self.shared.lane().abandon(key, &mut news);
        }
        news.tell();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What an atomic found: [`QueuePair::compare_swap`](super::QueuePair::compare_swap) and
/// [`QueuePair::fetch_add`](super::QueuePair::fetch_add) give it. As cancel-safe as [`Request`]: one
/// that was begun is carried out.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Atomic {
    request: std::result::Result<Request, Option<Error>>,
}

impl Atomic {
    pub(super) fn new(request: Result<Request>) -> Atomic {
        Atomic {
            request: request.map_err(Some),
        }
    }
}

impl Future for Atomic {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        let request = match &mut self.request {
            Ok(request) => request,
            Err(error) => match error.take() {
                Some(error) => return Poll::Ready(Err(error)),
                None => return Poll::Pending,
            },
        };
        let Poll::Ready(outcome) = Pin::new(&mut *request).poll(cx) else {
            return Poll::Pending;
        };
        let words = request.shared.words();
        Poll::Ready(match outcome {
            Ok(completion) => {
                let value = completion.original_value();
                words.put_all(completion.into_buffers());
                value.ok_or_else(|| Error::InvalidArgument("the request is no atomic".to_owned()))
            }
            Err(failed) => {
                words.put_all(failed.buffers);
                Err(failed.error)
            }
        })
    }
}
