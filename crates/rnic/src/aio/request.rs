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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::{Duration, Instant};

    use super::super::reactor::{Reactor, Source, Watch, Watched};
    use super::super::{CompletionQueue, QueuePair};
    use super::*;
    use crate::raw::fd;
    use crate::{Context as Device, Rc};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// It tells of nothing by itself: the test does, when it wants to.
    struct Still;

    impl Reactor for Still {
        fn watch(&self, source: Source) -> io::Result<Watch> {
            Ok(Watch::new(source))
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Count {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// A sender whose send queue holds two requests, and a receiver that has no receives yet.
    fn pair(cq: &CompletionQueue) -> [QueuePair<Rc>; 2] {
        let gid = cq.context().loopback_gid().expect("an address");
        let pd = cq.context().alloc_pd().expect("pd");
        let builder = || cq.create_qp::<Rc>(&pd).gid(&gid).max_send_wr(2);
        let [left, right] = [(); 2].map(|()| builder().build().expect("qp"));
        let (to_left, to_right) = (left.endpoint(), right.endpoint());
        [
            left.handshake(to_right).expect("handshake"),
            right.handshake(to_left).expect("handshake"),
        ]
    }

    /// What the thread that waits for the channel does when it is readable.
    fn reactor_turns(shared: &Shared) {
        let channel = shared.core().cq().channel().raw().fd();
        let until = Instant::now() + PATIENCE;
        let came = fd::wait_readable(channel, Some(until)).expect("poll(2)");
        assert!(came, "no completion is told of");
        assert!(shared.core().on_readable());
    }

    /// A request that finds the queue full, and finds room in the last look before it sleeps, as
    /// another thread has taken a completion just then, is posted and leaves its waker. The waker
    /// that waited for room is no use to it: that wake-up went to the request in front.
    #[test]
    fn one_that_finds_room_in_the_last_look_is_woken_at_its_end() {
        let device = Device::open_by_name("rnic0").expect("the device opens");
        let cq = CompletionQueue::builder(&device, 1024).spin(Duration::ZERO);
        let cq = cq.reactor(Still).build().expect("a queue");
        let [left, right] = pair(&cq);
        let receives = || right.post_recv(right.pd().buffer(16).expect("memory"));
        let shared = &left.shared;
        let woken = [(); 2].map(|()| Arc::new(Count::default()));
        let wakers = woken.clone().map(Waker::from);

        // Two have the queue, and no receive to go to. The third waits for room.
        let mut noop = Context::from_waker(Waker::noop());
        let mut two = [(); 2].map(|()| left.send_inline(b"one of two"));
        for request in &mut two {
            assert!(Pin::new(request).poll(&mut noop).is_pending());
        }
        let mut third = left.send_inline(b"third");
        let mut cx = Context::from_waker(&wakers[0]);
        assert!(Pin::new(&mut third).poll(&mut cx).is_pending());

        // The fourth leaves its waker behind the third's; at that moment the first one is done.
        let mut state = State::New(Box::new(SendRequest::send_inline(b"fourth")));
        let (mut wait, mut ticket, mut looks) = (Wait::default(), None, 0);
        let cx = Context::from_waker(&wakers[1]);
        let polled = wait.poll(shared.core(), &cx, |waker| {
            let outcome = advance(shared, &mut state, &mut ticket, waker);
            if waker.is_some() && looks == 0 {
                looks += 1;
                receives().expect("posted");
                while woken[0].count() == 0 {
                    reactor_turns(shared);
                }
            }
            outcome
        });
        assert!(polled.is_pending());
        assert!(matches!(state, State::InFlight(_)), "it has found room");
        assert_eq!(woken[1].count(), 0, "the wake-up was the third's");

        for _ in 0..2 {
            receives().expect("posted");
        }
        while shared.lane().in_flight() > 0 {
            reactor_turns(shared);
        }
        assert_eq!(woken[1].count(), 1, "it sleeps for ever");
        let outcome = advance(shared, &mut state, &mut ticket, None);
        outcome.expect("it is done").expect("success");
        wait.end(shared.core());
    }
}
