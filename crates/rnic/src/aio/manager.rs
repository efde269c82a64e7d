//! The events of the connection manager, handed out to futures.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use rustix_futex_sync::Mutex;

use super::core::{Core, next_ticket};
use super::qp::Shared;
use super::reactor::{self, Descriptor, Watched, Watching};
use crate::cm::{CmChannel, CmEvent};
use crate::context;
use crate::error::{Error, Result};
use crate::nic::{Asleep, Awaited, Futures};

/// One channel, which the connections and listeners of a completion queue share.
pub(super) struct Manager {
    channel: CmChannel,
    state: Mutex<State>,
    watching: Watching,
}

#[derive(Default)]
struct State {
    places: HashMap<u64, Place>,
    /// Events so far.
    events: u64,
    /// The channel failed: what it said.
    failed: Option<(String, i32)>,
}

/// Who waits for the news of one token.
#[derive(Default)]
struct Place {
    wakers: Vec<(u64, Waker)>,
    /// The queue pair that ends with the connection.
    shared: Weak<Shared>,
}

impl Manager {
    /// Makes one whose channel the reactor of `core` watches.
    pub(super) fn new(context: &context::Context, core: &Core) -> Result<Arc<Manager>> {
        let manager = Arc::new(Manager {
            channel: CmChannel::of(context)?,
            state: Mutex::default(),
            watching: Watching::default(),
        });
        let fd = Descriptor::Connections(manager.channel.clone());
        reactor::watch(&**core.reactor(), fd, &manager)?;
        let futures: Weak<dyn Futures> = Arc::downgrade(&manager) as _;
        manager.channel.raw().know_futures(futures);
        Ok(manager)
    }

    fn is_alive(&self) -> bool {
        self.channel.check_alive().is_ok()
    }

    /// Takes what the channel has, which drives connections on, and tells whom it is for.
    fn turn(&self) -> Result<()> {
        while let Some(event) = self.channel.try_event()? {
            let mut state = self.state.lock();
            state.events += 1;
            let Some(place) = state.places.get_mut(&event.token()) else {
                continue;
            };
            let wakers = std::mem::take(&mut place.wakers);
            let ended = match event {
                CmEvent::Disconnected(_) => place.shared.upgrade(),
                _ => None,
            };
            drop(state);
            if let Some(shared) = ended {
                shared.close();
            }
            for (_, waker) in wakers {
                waker.wake();
            }
        }
        Ok(())
    }

    fn fail(&self, error: &Error) {
        let errno = error.errno().unwrap_or(libc::EIO);
        let mut state = self.state.lock();
        state.failed = Some((error.to_string(), errno));
        let places = state.places.values_mut();
        let wakers: Vec<_> = places.flat_map(|place| place.wakers.drain(..)).collect();
        drop(state);
        for (_, waker) in wakers {
            waker.wake();
        }
    }
}

impl Watched for Manager {
    fn on_readable(&self) -> bool {
        if !self.is_alive() {
            return false;
        }
        match self.turn() {
            Ok(()) => true,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    fn fail(&self, error: Error) {
        if self.is_alive() {
            Manager::fail(self, &error);
        }
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }
}

impl Futures for Manager {
    fn asleep(&self) -> Vec<Asleep> {
        if !self.is_alive() {
            return Vec::new();
        }
        let state = self.state.lock();
        let futures = state.places.values().map(|place| place.wakers.len()).sum();
        let some = (futures > 0).then_some(Asleep {
            awaited: Awaited::Connection,
            futures,
            came: state.events,
        });
        some.into_iter().collect()
    }
}

/// One name on the channel. Its place goes with it.
pub(super) struct Token {
    manager: Arc<Manager>,
    token: u64,
}

impl Token {
    /// `shared`: the queue pair that ends with the connection.
    pub(super) fn new(manager: Arc<Manager>, shared: Weak<Shared>) -> Token {
        let token = next_ticket();
        let place = Place {
            wakers: Vec::new(),
            shared,
        };
        manager.state.lock().places.insert(token, place);
        Token { manager, token }
    }

    pub(super) fn channel(&self) -> &CmChannel {
        &self.manager.channel
    }

    /// Its number, by which the channel reports.
    pub(super) fn number(&self) -> u64 {
        self.token
    }

    /// Waits until `look` has an answer.
    ///
    /// # Errors
    /// The channel fails.
    pub(super) fn poll<T>(
        &self,
        ticket: &mut Option<u64>,
        cx: &Context<'_>,
        look: impl FnOnce() -> Option<T>,
    ) -> Poll<Result<T>> {
        if let Err(error) = self.manager.channel.check_alive() {
            return Poll::Ready(Err(error));
        }
        // The waker first: what comes behind the look wakes it.
        let ticket = *ticket.get_or_insert_with(next_ticket);
        let mut state = self.manager.state.lock();
        let failed = state.failed.clone();
        let place = state.places.entry(self.token).or_default();
        place.wakers.retain(|(other, _)| *other != ticket);
        place.wakers.push((ticket, cx.waker().clone()));
        drop(state);
        let turned = self.manager.turn();
        let answer = match (look(), turned, failed) {
            (Some(answer), _, _) => Ok(answer),
            (None, Err(error), _) => Err(error),
            (None, Ok(()), Some((reason, errno))) => Err(Error::Verb {
                verb: "rdma_get_cm_event",
                reason,
                source: std::io::Error::from_raw_os_error(errno),
            }),
            (None, Ok(()), None) => return Poll::Pending,
        };
        self.leave(ticket);
        Poll::Ready(answer)
    }

    /// Nobody waits by this ticket any more.
    pub(super) fn leave(&self, ticket: u64) {
        if !self.manager.is_alive() {
            return;
        }
        let mut state = self.manager.state.lock();
        if let Some(place) = state.places.get_mut(&self.token) {
            place.wakers.retain(|(other, _)| *other != ticket);
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.manager.is_alive() {
            self.manager.state.lock().places.remove(&self.token);
        }
    }
}
