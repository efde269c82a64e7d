//! Completion channels: events of completion queues, and a descriptor to wait on.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::driving::{Readable, Waiting, end_wait};
use crate::engine::Acks;
use crate::error::{self, Result};
use crate::objects::context::{Context, ContextShared};
use crate::observe::waits::{self, Source, Wanted};
use crate::observe::{Over, wait_over};
use crate::queues::{ChannelShared, Places, events_so_far, waiting_for_channels};

/// A completion channel (`ibv_create_comp_channel(3)`).
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) shared: Arc<ChannelShared>,
    context: Arc<ContextShared>,
}

/// A channel that may be gone.
#[derive(Clone, Debug)]
pub struct WeakCompChannel {
    shared: Weak<ChannelShared>,
    context: Weak<ContextShared>,
}

impl WeakCompChannel {
    /// The channel, as long as somebody has it.
    pub fn upgrade(&self) -> Option<CompChannel> {
        Some(CompChannel {
            shared: self.shared.upgrade()?,
            context: self.context.upgrade()?,
        })
    }
}

impl Context {
    /// Makes a completion channel.
    ///
    /// # Errors
    /// EMFILE and its like.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        CompChannel::new(self)
    }
}

impl CompChannel {
    pub(crate) fn new(context: &Context) -> Result<CompChannel> {
        let shared = ChannelShared::new()
            .map_err(|error| error::os("ibv_create_comp_channel", "eventfd", &error))?;
        let shared = Arc::new(shared);
        waits::know_source(|| Source::Completions(Arc::downgrade(&shared)));
        Ok(CompChannel {
            shared,
            context: context.shared.clone(),
        })
    }

    /// The descriptor: readable while events wait. The application may poll it and set O_NONBLOCK.
    pub fn fd(&self) -> RawFd {
        self.shared.events.fd()
    }

    /// Takes the next event, blocking in read(2) unless O_NONBLOCK is set; gives the cookie of its
    /// queue.
    ///
    /// # Errors
    /// EAGAIN when non-blocking and none waits, EINTR on a signal, ENODEV in a forked child: the
    /// parent's events are not its own.
    pub fn get_event(&self) -> Result<u64> {
        loop {
            self.expect_event()?;
            self.begin_wait("ibv_get_cq_event");
            let taken = self.shared.events.take();
            wait_over(match &taken {
                Ok(()) => Over::Done,
                Err(error) => Over::by_errno(error.raw_os_error().unwrap_or(0)),
            });
            taken.map_err(|error| error::os("ibv_get_cq_event", "completion channel", &error))?;
            if let Some(cookie) = self.event_of_token() {
                return Ok(cookie);
            }
        }
    }

    /// For who reads the descriptor's tokens himself (eight bytes are one): to be called before he
    /// may sleep there. Says how, and drives the engine meanwhile if he may. `woken`: he slept as
    /// the last call said, and which of the descriptors are readable; `None`: he begins to
    /// wait. After [`Waiting::Over`] and [`Waiting::SleepOnChannel`] he takes a token, and calls
    /// [`CompChannel::end_wait`].
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn wait(&self, woken: Option<Readable>, may_drive: bool) -> Result<Waiting> {
        let nic = &self.context.nic;
        nic.check_alive("ibv_get_cq_event")?;
        let shared = &self.shared;
        if woken.is_none() && shared.has_event() {
            end_wait();
            shared.found_at_once();
            return Ok(Waiting::Over);
        }
        if may_drive && woken.is_none() && !shared.blocks() {
            // Who waits on the descriptor in a way that the library sees is expected there.
            if !shared.is_driven() {
                nic.expect_sleep(shared.shards.places());
            }
            end_wait();
            self.begin_wait("ibv_get_cq_event");
            return Ok(Waiting::SleepOnChannel);
        }
        let over = || shared.has_event();
        // ACKs leave at once: perftest takes one completion per event, and its queue overruns if
        // its peer is woken once by ACK and answer.
        let waiting = nic.wait(shared.shards.places(), woken, may_drive, Acks::Leave, over);
        if waiting != Waiting::SleepOnChannel {
            shared.waited_inside();
        }
        if waiting != Waiting::Over {
            self.begin_wait("ibv_get_cq_event");
        }
        Ok(waiting)
    }

    /// Does not keep it.
    pub fn downgrade(&self) -> WeakCompChannel {
        WeakCompChannel {
            shared: Arc::downgrade(&self.shared),
            context: Arc::downgrade(&self.context),
        }
    }

    /// Events wait in it.
    pub fn has_event(&self) -> bool {
        self.shared.has_event()
    }

    /// Runs the engine for a round, as a poll of one of its queues does.
    pub fn drive(&self) {
        let (nic, shards) = (&self.context.nic, &self.shared.shards);
        if nic.check_alive("").is_ok() {
            nic.count_poll(shards);
            let _ = nic.drive("epoll_wait", shards, || false);
        }
    }

    /// Events of all channels of the process so far, modulo 2^32. One that is counted makes its
    /// channel's descriptor readable.
    pub fn events_so_far() -> u32 {
        events_so_far()
    }

    /// Whoever waits for these channels drives all engines of this one, too.
    pub fn is_driven_with(&self, others: &[CompChannel]) -> bool {
        places(others).contain(self.shared.shards.places())
    }

    /// Whoever waits for these channels drives all engines of the process.
    pub fn are_all_driven_with(channels: &[CompChannel]) -> bool {
        let all = places(channels).all_before();
        all.zip(channels.first())
            .is_some_and(|(count, first)| first.context.nic.has_no_more_shards(count))
    }

    /// For who waits for the descriptors of several channels, and for others: [`CompChannel::wait`]
    /// until `over`, which is asked often. Those that are [driven with
    /// others](CompChannel::is_driven_with) may be left out. `None`: there is no channel.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn wait_for_any(
        channels: &[CompChannel],
        woken: Option<Readable>,
        over: impl Fn() -> bool,
    ) -> Result<Option<Waiting>> {
        let Some(first) = channels.first() else {
            return Ok(None);
        };
        let nic = &first.context.nic;
        nic.check_alive("epoll_wait")?;
        let wait = || nic.wait(places(channels), woken, true, Acks::UntilWait, over);
        Ok(Some(waiting_for_channels(wait)))
    }

    /// Whoever waits for its events drives its engines meanwhile, as by
    /// [`CompChannel::wait_for_any`]: to arm one of its queues need not have the device's own
    /// thread take packets in.
    pub fn is_waited_for_driving(&self) {
        self.shared.waited_inside();
    }

    /// The calling thread waits for an event of it from now on, in that call, until
    /// [`wait_over`](crate::wait_over).
    pub fn begin_wait(&self, verb: &'static str) {
        waits::begin(verb, || Wanted::CqEvent(Arc::downgrade(&self.shared)));
    }

    /// Its events wake these futures, which are asked what they sleep for.
    pub fn know_futures(&self, futures: Weak<dyn waits::Futures>) {
        let source = || Source::Completions(Arc::downgrade(&self.shared));
        waits::know_futures(futures, source);
    }

    /// The thread that waited does so no longer.
    pub fn end_wait() {
        end_wait();
    }

    fn expect_event(&self) -> Result<()> {
        self.context.nic.check_alive("ibv_get_cq_event")?;
        self.context.nic.expect_sleep(self.shared.shards.places());
        Ok(())
    }

    /// The event of a token that was read: the cookie of its queue. `None`: the queue was destroyed
    /// meanwhile.
    pub fn event_of_token(&self) -> Option<u64> {
        self.shared.event_of_token()
    }

    /// See [`Context::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.context.nic.check_alive("").is_ok()
    }

    /// Completion queues still use it.
    pub fn in_use(&self) -> bool {
        self.shared.users.load(Ordering::Acquire) != 0
    }
}

/// The shards of all their queue pairs. A channel without one is at home in the first.
fn places(channels: &[CompChannel]) -> Places {
    let each = channels
        .iter()
        .map(|channel| channel.shared.shards.places());
    each.fold(Places::default(), |all, more| all.or(more.or_first()))
}

#[cfg(test)]
mod tests;
