//! What a device tells by itself, as a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use rustix_futex_sync::Mutex;

use super::reactor::{self, Descriptor, Reactor, Watched, Watching};
use crate::context;
use crate::error::{Error, Result};
use crate::nic::AsyncEvent;

/// The asynchronous events of an open device (`ibv_get_async_event`), as a stream; see
/// [`Context::try_async_event`](crate::Context::try_async_event). Each event is given out once: of
/// several streams of one [`Context`](crate::Context) and its clones, one gets it.
///
/// The stream ends when the device is gone, with the error that says so.
#[derive(Debug)]
pub struct DeviceEvents {
    inner: Arc<Inner>,
}

struct Inner {
    context: context::Context,
    state: Mutex<State>,
    watching: Watching,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.context.fmt(f)
    }
}

#[derive(Default)]
struct State {
    events: VecDeque<AsyncEvent>,
    failed: Option<Error>,
    over: bool,
    waker: Option<Waker>,
}

impl DeviceEvents {
    /// Events of this device from now on, by the default reactor.
    ///
    /// # Errors
    /// The reactor cannot watch its descriptor.
    pub fn new(context: &context::Context) -> Result<DeviceEvents> {
        DeviceEvents::with_reactor(context, &reactor::Shared)
    }

    /// The same by another reactor.
    ///
    /// # Errors
    /// The reactor cannot watch its descriptor.
    pub fn with_reactor(context: &context::Context, reactor: &dyn Reactor) -> Result<DeviceEvents> {
        let inner = Arc::new(Inner {
            context: context.clone(),
            state: Mutex::default(),
            watching: Watching::default(),
        });
        reactor::watch(reactor, Descriptor::Device(context.clone()), &inner)?;
        Ok(DeviceEvents { inner })
    }
}

impl Watched for Inner {
    fn on_readable(&self) -> bool {
        let mut came = VecDeque::new();
        let failed = loop {
            match self.context.try_async_event() {
                Ok(Some(event)) => came.push_back(event),
                Ok(None) => break None,
                // In a forked child, whose lock may be taken for ever.
                Err(error) if error.errno() == Some(libc::ENODEV) => return false,
                Err(error) => break Some(error),
            }
        };
        let mut state = self.state.lock();
        state.events.append(&mut came);
        let goes_on = failed.is_none();
        state.failed = failed;
        let waker = match goes_on && state.events.is_empty() {
            true => None,
            false => state.waker.take(),
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        goes_on
    }

    fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failed = Some(error);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }
}

impl Stream for DeviceEvents {
    type Item = Result<AsyncEvent>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let direct = match self.inner.context.try_async_event() {
            // In a forked child, where the lock may be held for ever.
            Err(error) if error.errno() == Some(libc::ENODEV) => {
                return Poll::Ready(Some(Err(error)));
            }
            direct => direct,
        };
        let mut state = self.inner.state.lock();
        match direct {
            Ok(event) => state.events.extend(event),
            Err(error) if !state.over => state.failed = Some(error),
            Err(_) => {}
        }
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(error) = state.failed.take() {
            state.over = true;
            return Poll::Ready(Some(Err(error)));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
