//! Completion queues and the channels they report on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix_futex_sync::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::completion::Completion;
use crate::context::Context;
use crate::device;
use crate::error::{Error, Result};
use crate::nic::{self, CompletionOpcode, NetworkHeader, Packets, Readable, Stamp, Waiting};
use crate::raw::fd;
use crate::turn::Turn;
use crate::work::{Work, WorkQueue, srq_of};

/// Completions taken from the device at once.
const BATCH: usize = 16;
/// [`CompletionQueue::wait`] polls this long before it sleeps: longer than a round trip on a fast
/// network, short enough not to starve a peer that shares the core.
const SPIN: Duration = Duration::from_micros(50);
/// While a thread stays awake for a channel, how often it looks at what else it waits for.
const OTHERS: Duration = Duration::from_micros(5);

/// A channel that becomes readable when an armed completion queue gets a completion
/// (`ibv_comp_channel`).
///
/// Its descriptor ([`AsFd`](std::os::fd::AsFd)) fits any event loop.
#[derive(Clone)]
pub struct CompletionChannel {
    raw: device::CompChannel,
}

impl std::fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("fd", &self.raw.fd())
            .finish()
    }
}

impl CompletionChannel {
    pub(crate) fn new(raw: device::CompChannel) -> Result<CompletionChannel> {
        fd::set_nonblocking(raw.fd()).map_err(|source| Error::Verb {
            verb: "ibv_create_comp_channel",
            reason: "cannot make the descriptor non-blocking".to_owned(),
            source,
        })?;
        Ok(CompletionChannel { raw })
    }

    pub(crate) fn raw(&self) -> &device::CompChannel {
        &self.raw
    }

    /// Takes one event if there is one (`ibv_get_cq_event`): the id of the queue that has it
    /// ([`CompletionQueueBuilder::id`]). Arm the queue again and poll it *after* that, or a
    /// completion can be missed.
    pub fn try_event(&self) -> Result<Option<u64>> {
        match self.raw.get_event() {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.errno() == libc::EAGAIN || error.errno() == libc::EINTR => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the channel has an event ([`CompletionChannel::try_event`] takes it), or one of
    /// `others` is readable; false: neither in time. `None` waits for ever.
    ///
    /// This is for event loops. The thread takes in packets while it waits, so that a message costs
    /// one wake-up; in a wait for [`AsFd`](std::os::fd::AsFd)'s descriptor alone, the device's own
    /// thread wakes first. An epoll set is one of `others`:
    ///
    /// ```no_run
    /// # fn f(channel: &rnic::CompletionChannel, epoll: &impl std::os::fd::AsFd) -> rnic::Result<()> {
    /// while channel.wait_with(&[epoll.as_fd()], None)? {
    ///     while let Some(queue) = channel.try_event()? {
    ///         // Arm and poll the queue of that id.
    ///     }
    ///     // What epoll has, without waiting.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// ENODEV in a forked child; what poll(2) says.
    pub fn wait_with(&self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<bool> {
        wait_with(
            self,
            others,
            timeout.and_then(|t| Instant::now().checked_add(t)),
        )
    }

    /// Waits until one of these queues, which report on this channel, has a completion; gives its
    /// place in `queues`. It arms them, looks again, and then sleeps, so that no completion is
    /// missed that comes meanwhile. Of several that have some it is the first; begin with another
    /// one next time if all are to have their turn.
    ///
    /// It takes the events of the channel: do not mix it with [`CompletionChannel::wait_event`], and
    /// let one thread wait at a time.
    ///
    /// # Errors
    /// [`Error::Timeout`]; there are no queues, or one reports on another channel; as
    /// [`CompletionQueue::poll_one`].
    pub fn wait_any(
        &self,
        queues: &[&CompletionQueue],
        timeout: Option<Duration>,
    ) -> Result<usize> {
        let own = |queue: &&CompletionQueue| queue.channel().as_raw_fd() == self.as_raw_fd();
        if queues.is_empty() || !queues.iter().all(own) {
            return Err(Error::InvalidArgument(
                "wait_any takes queues of its own channel, one at least".to_owned(),
            ));
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            for (place, queue) in queues.iter().enumerate() {
                if queue.has_some()? {
                    return Ok(place);
                }
            }
            for (place, queue) in queues.iter().enumerate() {
                if queue.arm_and_check(false)? {
                    return Ok(place);
                }
            }
            if !wait(self, deadline)? {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
            while self.try_event()?.is_some() {}
        }
    }

    /// Waits for an event; [`Error::Timeout`] if there is none in time. `None` waits for ever.
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<u64> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            if let Some(id) = self.try_event()? {
                return Ok(id);
            }
            if !wait(self, deadline)? {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
        }
    }
}

/// Sleeps until the channel has an event; false: the deadline passed.
fn wait(channel: &CompletionChannel, deadline: Option<Instant>) -> Result<bool> {
    wait_with(channel, &[], deadline)
}

/// The same, or until one of `others` is readable. Meanwhile the thread takes in packets, so that a
/// message costs one wake-up, and none where it comes soon.
fn wait_with(
    channel: &CompletionChannel,
    others: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> Result<bool> {
    let others = others.iter().map(|fd| fd::readable(fd.as_raw_fd()));
    let mut fds: Awaited = others.collect();
    let looked_at = fds.len();
    fds.push(fd::readable(channel.raw.fd()));
    let raw = match &channel.raw {
        device::CompChannel::Software(raw) => raw,
        // A device that runs by itself.
        device::CompChannel::System(raw) => {
            raw.check_alive("ibv_get_cq_event")?;
            return fd::wait_any(&mut fds, deadline).map_err(cannot_wait);
        }
    };
    if looked_at == 0 {
        raw.begin_wait("ibv_get_cq_event");
    }
    let waited = Waited;
    let wait = DrivingWait {
        channels: std::slice::from_ref(raw),
        fds,
        looked_at,
        deadline,
    };
    let ready = wait.run(|| raw.has_event(), || true)?;
    if raw.has_event() {
        waited.end(nic::Over::Done);
    }
    Ok(ready)
}

fn cannot_wait(source: std::io::Error) -> Error {
    Error::Verb {
        verb: "ibv_get_cq_event",
        reason: "cannot wait on the channel".to_owned(),
        source,
    }
}

/// Descriptors that a thread waits for.
pub(crate) type Awaited = SmallVec<[libc::pollfd; 8]>;

/// A wait in which the thread drives the engines of these channels itself.
pub(crate) struct DrivingWait<'a> {
    pub(crate) channels: &'a [nic::CompChannel],
    /// What ends it when it is readable.
    pub(crate) fds: Awaited,
    /// So many of these, from the first on, are looked at also while the thread is awake. Of the
    /// others `is_there` tells.
    pub(crate) looked_at: usize,
    pub(crate) deadline: Option<Instant>,
}

impl DrivingWait<'_> {
    /// Waits. False: none of the descriptors is readable, and the deadline passed or the thread
    /// `stays` no longer, which it is asked when packets woke it that were for others. `is_there`
    /// is asked often.
    pub(crate) fn run(self, is_there: impl Fn() -> bool, stays: impl Fn() -> bool) -> Result<bool> {
        let DrivingWait {
            channels,
            fds,
            looked_at,
            deadline,
        } = self;
        let count = fds.len();
        let fds = RefCell::new(fds);
        let looked = Cell::new(Instant::now());
        let over = || {
            if is_there() {
                return true;
            }
            if looked.get().elapsed() < OTHERS {
                return false;
            }
            let now = Instant::now();
            looked.set(now);
            deadline.is_some_and(|at| at <= now)
                || fd::are_ready(&mut fds.borrow_mut()[..looked_at])
        };
        let mut woken = None;
        loop {
            let waiting = nic::CompChannel::wait_for_any(channels, woken, over)?;
            if !matches!(waiting, Some(Waiting::SleepOnChannel) | None) {
                // Else the event came by the device's own thread, and the next time would, too.
                channels
                    .iter()
                    .for_each(nic::CompChannel::is_waited_for_driving);
            }
            let (packets, until) = match waiting {
                Some(Waiting::SleepOn(packets)) => (packets, deadline),
                // What is ready, if the time is not over.
                Some(Waiting::Over) => (Packets::NONE, Some(Instant::now())),
                Some(Waiting::SleepOnChannel) | None => (Packets::NONE, deadline),
            };
            let mut fds = fds.borrow_mut();
            fds.truncate(count);
            fds.extend(packets.fds().iter().map(|fd| fd::readable(*fd)));
            let ready = fd::wait_any(&mut fds, until).map_err(cannot_wait);
            let its = fds[..count].iter().any(|fd| fd.revents != 0);
            let sleeps_on_packets = matches!(waiting, Some(Waiting::SleepOn(_)));
            if sleeps_on_packets && matches!(ready, Ok(true)) && !its {
                let readable = fds[count..].iter().map(|fd| fd.revents != 0);
                woken = Some(Readable::new(readable));
                if stays() {
                    continue;
                }
            }
            nic::CompChannel::end_wait();
            ready?;
            if its || !stays() || deadline.is_some_and(|at| at <= Instant::now()) {
                return Ok(its);
            }
            // Another thread has taken the event.
            woken = None;
        }
    }
}

/// The calling thread waits for an event. If nothing else is said, it did so in vain.
struct Waited;

impl Waited {
    fn end(self, over: nic::Over) {
        nic::wait_over(over);
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        // Of a wait that is over already, nothing changes.
        nic::wait_over(nic::Over::Idle);
    }
}

/// Arguments of a completion queue; see [`Context::create_cq`].
#[derive(Debug)]
pub struct CompletionQueueBuilder {
    context: Context,
    entries: u32,
    channel: Option<CompletionChannel>,
    id: u64,
    timestamps: bool,
}

impl CompletionQueueBuilder {
    pub(crate) fn new(context: Context, entries: u32) -> Self {
        CompletionQueueBuilder {
            context,
            entries,
            channel: None,
            id: 0,
            timestamps: false,
        }
    }

    /// Reports on this channel. Without it the queue gets a channel of its own.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// The id under which the channel reports this queue; 0 if not set.
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Completions say when they arose ([`Completion::timestamp`]; `ibv_create_cq_ex` with
    /// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP` and, where the device has it, `_WALLCLOCK`). A device
    /// of the system does not say by which P_Key a datagram came then:
    /// [`Completion::pkey_index`] is 0.
    pub fn timestamps(mut self) -> Self {
        self.timestamps = true;
        self
    }

    /// Creates the queue (`ibv_create_cq`).
    ///
    /// # Errors
    /// The device has no such queue, or no stamps ([`Capabilities`](crate::Capabilities)).
    pub fn build(self) -> Result<CompletionQueue> {
        let (channel, shared) = match self.channel {
            Some(channel) => (channel, true),
            None => (self.context.create_comp_channel()?, false),
        };
        let device = &self.context.raw;
        let raw = device.create_cq(self.entries, channel.raw(), self.id, self.timestamps)?;
        Ok(CompletionQueue {
            inner: Arc::new(Inner {
                raw,
                channel,
                shared,
                sleeper: Turn::default(),
                state: Mutex::default(),
            }),
        })
    }
}

/// A completion queue (`ibv_create_cq`). Any thread may poll it; each completion is given out once.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

struct Inner {
    raw: device::Cq,
    channel: CompletionChannel,
    /// Other queues report on the channel too.
    shared: bool,
    /// Held by the thread that sleeps in [`CompletionQueue::wait`].
    sleeper: Turn,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Taken from the device, not yet given out.
    taken: VecDeque<(nic::Completion, Stamp)>,
    /// Queue pairs that complete into this queue, by number.
    qps: Vec<(u32, Arc<Work>)>,
    /// XRC shared receive queues that do.
    srqs: Vec<(u32, Arc<Mutex<WorkQueue>>)>,
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.inner.raw.capacity())
            .finish_non_exhaustive()
    }
}

impl CompletionQueue {
    pub(crate) fn raw(&self) -> &device::Cq {
        &self.inner.raw
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        Ok(self.inner.raw.check_alive("ibv_poll_cq")?)
    }

    /// Completions it holds.
    pub fn capacity(&self) -> u32 {
        self.inner.raw.capacity()
    }

    /// The channel it reports on.
    pub fn channel(&self) -> &CompletionChannel {
        &self.inner.channel
    }

    /// Takes the oldest completion, if there is one (`ibv_poll_cq`). Polling drives the NIC: a loop
    /// around this call is the fastest way to wait.
    pub fn poll_one(&self) -> Result<Option<Completion>> {
        self.inner.raw.check_alive("ibv_poll_cq")?;
        self.inner.state.lock().next(&self.inner.raw)
    }

    /// Takes up to `max` completions into `into`; returns how many.
    pub fn poll_into(&self, into: &mut Vec<Completion>, max: usize) -> Result<usize> {
        self.inner.raw.check_alive("ibv_poll_cq")?;
        let mut state = self.inner.state.lock();
        for n in 0..max {
            match state.next(&self.inner.raw)? {
                Some(completion) => into.push(completion),
                None => return Ok(n),
            }
        }
        Ok(max)
    }

    /// Takes what one look at the device gives, and never looks twice: a look in vain takes time that
    /// whoever waits for the first completion need not lose.
    pub(crate) fn poll_once_into(&self, into: &mut Vec<Completion>) -> Result<usize> {
        self.check_alive()?;
        let mut state = self.inner.state.lock();
        let Some(first) = state.next(&self.inner.raw)? else {
            return Ok(0);
        };
        into.push(first);
        let of_system = self.inner.raw.is_system();
        let count = state.taken.len();
        for _ in 0..count {
            if let Some((entry, stamp)) = state.taken.pop_front() {
                into.extend(state.finish(entry, stamp, of_system));
            }
        }
        Ok(1 + count)
    }

    /// Everything that has completed by now, oldest first. In a forked child nothing: see
    /// [`CompletionQueue::poll_one`].
    pub fn drain(&self) -> impl Iterator<Item = Completion> + '_ {
        std::iter::from_fn(|| self.poll_one().ok().flatten())
    }

    /// Waits for a completion: polls a little, then sleeps until there is one. [`Error::Timeout`]
    /// if there is none in time.
    ///
    /// Any number of threads may wait. A queue that shares its channel polls and naps instead of
    /// sleeping, so as not to take events of others; on a channel of its own, do not mix this call
    /// with [`CompletionChannel::wait_event`].
    pub fn wait(&self, timeout: Duration) -> Result<Completion> {
        self.wait_spinning(SPIN, timeout)
    }

    /// As [`CompletionQueue::wait`], with another time to poll before sleeping.
    pub fn wait_spinning(&self, spin: Duration, timeout: Duration) -> Result<Completion> {
        let start = Instant::now();
        loop {
            for _ in 0..8 {
                if let Some(completion) = self.poll_one()? {
                    return Ok(completion);
                }
            }
            let waited = start.elapsed();
            if waited < spin.min(timeout) {
                std::hint::spin_loop();
                continue;
            }
            if waited >= timeout {
                return Err(Error::Timeout(timeout));
            }
            if self.inner.shared {
                std::thread::sleep(SPIN);
                continue;
            }
            // One thread at a time sleeps on the channel. The next one arms and polls anew, so an
            // event that its predecessor took, or completions that it left, cannot be missed.
            let deadline = start.checked_add(timeout);
            let Some(_sleeper) = self.inner.sleeper.take(deadline) else {
                continue;
            };
            self.arm(false);
            if let Some(completion) = self.poll_one()? {
                return Ok(completion);
            }
            if wait(&self.inner.channel, deadline)? {
                while self.inner.channel.try_event()?.is_some() {}
            }
            if let Some(completion) = self.poll_one()? {
                return Ok(completion);
            }
        }
    }

    /// The next completion is to be reported on the channel (`ibv_req_notify_cq`). Poll after it
    /// until nothing is left: what an earlier poll has taken from the device with the one that it
    /// gave out is not reported.
    pub fn arm(&self, solicited_only: bool) {
        self.inner.raw.request_notify(solicited_only);
    }

    /// Arms the queue and then looks: true if there is something to poll now, be it what an earlier
    /// poll has taken from the device. False: the next completion is reported on the channel. So
    /// whoever polls until there is nothing, calls this, and sleeps if it is false loses no wake-up,
    /// also in an event loop:
    ///
    /// ```
    /// # fn f(queue: &rnic::CompletionQueue) -> rnic::Result<()> {
    /// loop {
    ///     while let Some(completion) = queue.poll_one()? {
    ///         // Use it.
    /// #       drop(completion);
    ///     }
    ///     if !queue.arm_and_check(false)? {
    ///         return Ok(()); // until the channel's descriptor is readable: then take its events
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CompletionQueue::poll_one`].
    pub fn arm_and_check(&self, solicited_only: bool) -> Result<bool> {
        self.arm(solicited_only);
        self.has_some()
    }

    /// There is something to poll.
    fn has_some(&self) -> Result<bool> {
        self.inner.raw.check_alive("ibv_poll_cq")?;
        let mut state = self.inner.state.lock();
        state.refill(&self.inner.raw)?;
        Ok(!state.taken.is_empty())
    }

    /// What belongs to the completions. `None` in a forked child, where whoever has it locked may
    /// not exist.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let alive = self.inner.raw.check_alive("ibv_poll_cq").is_ok();
        alive.then(|| self.inner.state.lock())
    }

    pub(crate) fn attach(&self, qpn: u32, work: &Arc<Work>) {
        let Some(mut state) = self.state() else {
            return;
        };
        if state.knows(qpn, work) {
            return;
        }
        // A device may give the number of a queue pair again that it has just destroyed, before
        // this queue has forgotten that.
        let forgotten = state.forget(qpn);
        let place = state.qps.partition_point(|(number, _)| *number < qpn);
        state.qps.insert(place, (qpn, work.clone()));
        // Perhaps the last handles of posted buffers: no lock is held when their memory goes.
        drop(state);
        drop(forgotten);
    }

    pub(crate) fn detach(&self, qpn: u32, work: &Arc<Work>) {
        let Some(mut state) = self.state() else {
            return;
        };
        let forgotten = match state.knows(qpn, work) {
            true => state.forget(qpn),
            false => Vec::new(),
        };
        drop(state);
        drop(forgotten);
    }

    pub(crate) fn attach_srq(&self, number: u32, queue: &Arc<Mutex<WorkQueue>>) {
        let Some(mut state) = self.state() else {
            return;
        };
        state.srqs.push((number, queue.clone()));
    }

    pub(crate) fn detach_srq(&self, number: u32) {
        let Some(mut state) = self.state() else {
            return;
        };
        let its = state.srqs.extract_if(.., |(other, _)| *other == number);
        let forgotten: Vec<_> = its.collect();
        let of_it = |entry: &nic::Completion| srq_of(entry.wr_id) == Some(number);
        state
            .taken
            .retain(|(entry, _)| !(is_receive(entry.opcode) && of_it(entry)));
        // The last handle of what is posted to it.
        drop(state);
        drop(forgotten);
    }
}

impl CompletionQueue {
    /// The queue pair has failed for good: its receives are taken out of the shared queue, and
    /// their buffers go.
    pub(crate) fn reclaim(&self, qpn: u32, queue: &Mutex<WorkQueue>) {
        let Some(mut state) = self.state() else {
            return;
        };
        let taken = &mut state.taken;
        let raw = &self.inner.raw;
        raw.take_all(|entry, stamp| taken.push_back((entry, stamp)));
        let (mut gone, mut released) = (Vec::new(), Vec::new());
        taken.retain(|(entry, _)| {
            let ours = entry.qpn == qpn && is_receive(entry.opcode);
            if ours {
                gone.extend(queue.lock().complete(entry.wr_id, &mut released));
            }
            !ours
        });
        // What owns a buffer's memory may do anything when it is dropped, so no lock is held.
        drop(state);
        drop((gone, released));
    }
}

/// By its first byte: as programs tell them apart, it is an IPv6 header if it begins with a 6.
fn network_header(first: u8) -> NetworkHeader {
    match first >> 4 {
        6 => NetworkHeader::Ipv6,
        _ => NetworkHeader::Ipv4,
    }
}

fn is_receive(opcode: CompletionOpcode) -> bool {
    matches!(
        opcode,
        CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm
    )
}

impl State {
    fn work(&self, qpn: u32) -> Option<&Arc<Work>> {
        let place = self.qps.binary_search_by_key(&qpn, |(number, _)| *number);
        place.ok().map(|place| &self.qps[place].1)
    }

    fn knows(&self, qpn: u32, work: &Arc<Work>) -> bool {
        self.work(qpn).is_some_and(|its| Arc::ptr_eq(its, work))
    }

    /// What it gives holds buffers, and is dropped without the lock.
    #[must_use]
    fn forget(&mut self, qpn: u32) -> Vec<(u32, Arc<Work>)> {
        let its = self.qps.extract_if(.., |(number, _)| *number == qpn);
        let forgotten = its.collect();
        self.taken
            .retain(|(entry, _)| entry.qpn != qpn || srq_of(entry.wr_id).is_some());
        forgotten
    }

    /// Takes completions from the device, if none are left that were.
    fn refill(&mut self, cq: &device::Cq) -> Result<()> {
        if self.taken.is_empty() {
            let taken = &mut self.taken;
            cq.poll(BATCH, &mut |entry, stamp| taken.push_back((*entry, stamp)))?;
        }
        Ok(())
    }

    fn next(&mut self, cq: &device::Cq) -> Result<Option<Completion>> {
        loop {
            self.refill(cq)?;
            let Some((entry, stamp)) = self.taken.pop_front() else {
                return Ok(None);
            };
            if let Some(completion) = self.finish(entry, stamp, cq.is_system()) {
                return Ok(Some(completion));
            }
        }
    }

    /// Finds the work request of a completion and takes its buffer out of the queue. `None`: its
    /// queue pair was reset meanwhile.
    fn finish(
        &self,
        mut entry: nic::Completion,
        stamp: Stamp,
        of_system: bool,
    ) -> Option<Completion> {
        let mut released = Vec::new();
        let of_qp = || self.work(entry.qpn);
        let queue = match (is_receive(entry.opcode), srq_of(entry.wr_id)) {
            (true, Some(number)) => {
                let mut srqs = self.srqs.iter();
                srqs.find(|(n, _)| *n == number).map(|(_, queue)| &**queue)
            }
            (true, None) => of_qp().map(|work| &*work.recv),
            (false, _) => of_qp().map(|work| &work.send),
        };
        let mut found = None;
        if let Some(queue) = queue {
            let mut queue = queue.lock();
            if queue.is_stale(entry.wr_id) {
                return None;
            }
            found = queue.complete(entry.wr_id, &mut released);
        }
        if of_system && entry.grh.is_some() {
            // Of connected queue pairs the flag of a header means nothing: Soft-RoCE sets it always.
            // Nor does such a device say which header a datagram has in front.
            let found = found
                .as_ref()
                .filter(|_| of_qp().is_some_and(|work| work.datagrams));
            let place = found.map(|found| found.pieces.place());
            let first = place.and_then(|place| place.first().copied());
            entry.grh = first.map(network_header);
        }
        Some(Completion {
            id: found.as_ref().map_or(entry.wr_id, |f| f.id),
            pieces: found.map(|f| f.pieces).unwrap_or_default(),
            taken: 0,
            entry,
            stamp,
            released,
        })
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.raw.fd()
    }
}

impl AsFd for CompletionChannel {
    /// Readable: [`CompletionChannel::try_event`] has something. Level-triggered pollers may be
    /// used as they are; edge-triggered ones must take all events and then poll the queues once
    /// more.
    fn as_fd(&self) -> BorrowedFd<'_> {
        fd::of_channel(&self.raw)
    }
}

impl AsRawFd for CompletionQueue {
    /// The descriptor of the queue's channel, see [`CompletionQueue::channel`].
    fn as_raw_fd(&self) -> RawFd {
        self.channel().as_raw_fd()
    }
}

impl AsFd for CompletionQueue {
    /// The descriptor of the queue's channel, see [`CompletionQueue::channel`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel().as_fd()
    }
}
