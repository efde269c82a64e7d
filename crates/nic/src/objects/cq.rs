//! Completion queues, as programs hold them.

mod channel;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic_transport::Completion;

use crate::driving::Driven;
use crate::error::{Error, Result};
use crate::objects::context::{Context, ContextShared};
use crate::observe::{self, trace};
use crate::queues::usage;
use crate::queues::{CqOptions, CqShared, MAX_CQ_PERIOD, Stamp};

pub use channel::{CompChannel, WeakCompChannel};

/// A completion queue (`ibv_create_cq(3)`).
#[derive(Clone, Debug)]
pub struct Cq {
    pub(crate) shared: Arc<CqShared>,
    context: Arc<ContextShared>,
}

impl Context {
    /// Makes a completion queue for at least `cqe` entries; `cookie` comes back from
    /// [`CompChannel::get_event`].
    ///
    /// # Errors
    /// EINVAL for 0 or too many entries. ENOMEM.
    pub fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>, cookie: u64) -> Result<Cq> {
        Cq::new(self, cqe, channel, cookie, CqOptions::default())
    }

    /// Makes an extended completion queue (`ibv_create_cq_ex(3)`).
    ///
    /// # Errors
    /// As [`Context::create_cq`].
    pub fn create_cq_ex(
        &self,
        cqe: u32,
        channel: Option<&CompChannel>,
        cookie: u64,
        options: CqOptions,
    ) -> Result<Cq> {
        Cq::new(self, cqe, channel, cookie, options)
    }
}

impl Cq {
    pub(crate) fn new(
        context: &Context,
        cqe: u32,
        channel: Option<&CompChannel>,
        cookie: u64,
        options: CqOptions,
    ) -> Result<Cq> {
        const VERB: &str = "ibv_create_cq";
        let nic = &context.shared.nic;
        nic.check_alive(VERB)?;
        let channel = channel.map(|channel| &channel.shared);
        let owner = &context.shared.owner;
        let shared = CqShared::new(VERB, owner, cqe, channel, cookie, options)?;
        nic.know_cq(&shared.facts);
        let shared = Arc::new(shared);
        observe::waits::know_cq(&shared);
        Ok(Cq {
            shared,
            context: context.shared.clone(),
        })
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.shared.capacity()
    }

    /// No other of the process has had it.
    pub fn number(&self) -> u32 {
        self.shared.facts.number
    }

    /// What [`CompChannel::get_event`] gives for this queue.
    pub fn cookie(&self) -> u64 {
        self.shared.cookie.load(Ordering::Relaxed)
    }

    /// Changes the cookie.
    pub fn set_cookie(&self, cookie: u64) {
        self.shared.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Whether calls on it can work. Whoever has locks of his own around it asks before he waits
    /// for them: in a forked child the thread that has one may not exist.
    ///
    /// # Errors
    /// ENODEV, of that verb, in a forked child and after [`crate::shutdown`].
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.context.nic.check_alive(verb)
    }

    /// Takes up to `max` completions; drives the engine when there are none. A queue that overran
    /// gives out what it has and then stays empty; asynchronous events say what happened.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn poll(&self, max: usize, out: &mut dyn FnMut(&Completion)) -> Result<usize> {
        let nic = &self.context.nic;
        nic.count_poll(&self.shared.shards);
        self.shared.looked_at();
        if self.shared.has_some() {
            // Whoever had the queue's lock when this process was forked is not here.
            nic.check_alive("ibv_poll_cq")?;
            let n = self.pop(max, out);
            if n > 0 {
                self.shared.polled(true);
                return Ok(n);
            }
        }
        let driven = nic.drive("ibv_poll_cq", &self.shared.shards, || {
            self.shared.has_some()
        })?;
        if driven == Driven::QuickPolled {
            self.shared.polled(false);
            return Ok(0);
        }
        // Before the queue is looked at: others may have the core meanwhile, and take packets in. A
        // program that is told of nothing may turn to the event that came behind them, of a
        // connection that was closed, and destroy the queue pair with its completions.
        nic.spin_or_yield(&self.shared.shards, driven, self.shared.has_some());
        let n = self.pop(max, out);
        self.shared.polled(n > 0);
        Ok(n)
    }

    fn pop(&self, max: usize, out: &mut dyn FnMut(&Completion)) -> usize {
        if trace::is_on() {
            return self.shared.pop(max, &mut |completion| {
                trace::polled(completion);
                out(completion);
            });
        }
        self.shared.pop(max, out)
    }

    fn pop_one(&self, before_event: bool) -> Option<(Completion, Stamp)> {
        let popped = self.shared.pop_one(before_event);
        if let Some((completion, _)) = &popped
            && trace::is_on()
        {
            trace::polled(completion);
        }
        popped
    }

    /// Takes the oldest completion with its stamp, which is zero if the queue was made without;
    /// drives the engine when there is none (`ibv_start_poll`).
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn poll_one(&self) -> Result<Option<(Completion, Stamp)>> {
        let nic = &self.context.nic;
        nic.count_poll(&self.shared.shards);
        self.shared.looked_at();
        if self.shared.has_some() {
            nic.check_alive("ibv_start_poll")?;
            if let Some(found) = self.pop_one(false) {
                self.shared.polled(true);
                return Ok(Some(found));
            }
        }
        let driven = nic.drive("ibv_start_poll", &self.shared.shards, || {
            self.shared.has_some()
        })?;
        if driven == Driven::QuickPolled {
            self.shared.polled(false);
            return Ok(None);
        }
        // As in `poll`.
        nic.spin_or_yield(&self.shared.shards, driven, self.shared.has_some());
        let found = self.pop_one(false);
        self.shared.polled(found.is_some());
        Ok(found)
    }

    /// Takes the next completion of a batch that [`Cq::poll_one`] began, without driving the engine
    /// (`ibv_next_poll`).
    ///
    /// A completion that came meanwhile and whose event nobody has fetched yet is left for the next
    /// batch: programs that wait for an event and then poll once expect to find something
    /// (ibv_rc_pingpong fails otherwise).
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take_one(&self) -> Result<Option<(Completion, Stamp)>> {
        self.context.nic.check_alive("ibv_next_poll")?;
        Ok(self.pop_one(true))
    }

    /// Ends a batch that [`Cq::poll_one`] began (`ibv_end_poll`). Nothing happens in a forked
    /// child.
    pub fn end_batch(&self) {
        let shared = &self.shared;
        if shared.has_some() && self.context.nic.check_alive("ibv_end_poll").is_ok() {
            shared.end_batch();
        }
    }

    /// The same without waiting for anybody's event: for who clears up, and expects nothing.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take_any(&self) -> Result<Option<(Completion, Stamp)>> {
        self.context.nic.check_alive("ibv_poll_cq")?;
        Ok(self.pop_one(false))
    }

    /// Asks for an event on the channel at the next completion, or the next solicited or failed
    /// one. One that waits in the queue counts, as on hardware (the text, IBTA vol. 1, 11.4.2.2,
    /// knows only those that come after this), unless the program was just told by an event, and
    /// arms before it polls: then what its next poll leaves counts. Does nothing in a forked child.
    pub fn request_notify(&self, solicited_only: bool) {
        const VERB: &str = "ibv_req_notify_cq";
        if self.context.nic.check_alive(VERB).is_err() {
            return;
        }
        usage::armed();
        self.shared.arm(solicited_only);
        // Who waits in the verb looks after packets himself.
        let channel = self.shared.channel.as_ref();
        if !channel.is_some_and(|channel| channel.is_driven()) {
            let shards = &self.shared.shards;
            self.context.nic.expect_sleep(shards.places());
        }
    }

    /// Changes the capacity; gives the new one. What waits in the queue stays, in order.
    ///
    /// # Errors
    /// EINVAL if more completions are waiting than would fit, or the queue overran. ENOMEM, as for
    /// its making.
    pub fn resize(&self, cqe: u32) -> Result<u32> {
        const VERB: &str = "ibv_resize_cq";
        self.context.nic.check_alive(VERB)?;
        self.shared.resize(VERB, cqe)
    }

    /// Moderates events (`ibv_modify_cq(3)`): an armed queue fires after `count` completions that
    /// it is armed for, or `period` microseconds after the first of them, whichever is earlier.
    /// Either 0: at the first.
    ///
    /// # Errors
    /// EINVAL for a period beyond [`MAX_CQ_PERIOD`].
    pub fn moderate(&self, count: u16, period: u16) -> Result<()> {
        const VERB: &str = "ibv_modify_cq";
        self.context.nic.check_alive(VERB)?;
        if period > MAX_CQ_PERIOD {
            return Err(Error::invalid(
                VERB,
                format!("cq_period is {period} microseconds, at most {MAX_CQ_PERIOD} are possible"),
            ));
        }
        self.shared.moderate(count, period);
        Ok(())
    }

    /// Queue pairs still use it.
    pub fn in_use(&self) -> bool {
        self.shared.facts.users.load(Ordering::Acquire) != 0
    }

    /// Channel events taken by [`CompChannel::get_event`].
    pub fn events_delivered(&self) -> u32 {
        self.shared.events_delivered.load(Ordering::Acquire)
    }

    /// Revokes its channel and asynchronous events that nobody has taken, and has no more events
    /// enter the channel; call before destroying. Does nothing in a forked child, whose descriptors
    /// are the parent's.
    pub fn detach(&self) {
        if self.context.nic.check_alive("").is_err() {
            return;
        }
        self.shared.detach();
    }
}

#[cfg(test)]
mod tests;
