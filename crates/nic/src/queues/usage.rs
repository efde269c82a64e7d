//! How a queue pair is used: sizes, inline data, signaled requests, posts, depth. For `rnic advise`.
//!
//! When it is off, the data path pays nothing: what counts here lies behind the tests of lint and
//! trace, or on the way of a call that waits.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rnic_transport::{SendData, SendOp, SendWqe, ShortData, ShortSend};

static ON: AtomicBool = AtomicBool::new(false);

/// Somebody wants to know.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Queue pairs that are created from now on count.
pub(crate) fn switch(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Bucket n has the sizes of n bits.
pub(crate) const BUCKETS: usize = 33;

/// Sizes of messages, by powers of two.
#[derive(Debug)]
pub(crate) struct Sizes([AtomicU64; BUCKETS]);

impl Sizes {
    const fn new() -> Sizes {
        Sizes([const { AtomicU64::new(0) }; BUCKETS])
    }

    fn add(&self, size: u64) {
        let bits = (u64::BITS - size.leading_zeros()) as usize;
        add(&self.0[bits.min(BUCKETS - 1)], 1);
    }

    /// The same without a locked instruction: see [`more`].
    fn more(&self, size: u64) {
        let bits = (u64::BITS - size.leading_zeros()) as usize;
        more(&self.0[bits.min(BUCKETS - 1)], 1);
    }

    /// What is in each bucket that has something.
    pub(crate) fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        let buckets = self.0.iter().enumerate();
        let read = buckets.map(|(bits, count)| (bits, count.load(Ordering::Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }
}

fn add(count: &AtomicU64, amount: u64) {
    count.fetch_add(amount, Ordering::Relaxed);
}

/// Adds to a count of a queue pair. Its engine is locked where requests are posted, so no locked
/// instruction is needed; short SENDs that threads post to one queue pair at once may lose some.
fn more(count: &AtomicU64, amount: u64) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(amount), Ordering::Relaxed);
}

/// Kinds of requests, as they are told apart here.
pub(crate) const KINDS: [&str; 5] = ["send", "write", "read", "atomic", "other"];

fn kind(op: &SendOp) -> usize {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::Datagram { .. } => {
            0
        }
        SendOp::Write { .. } | SendOp::WriteImm { .. } => 1,
        SendOp::Read { .. } => 2,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. } => 3,
        _ => 4,
    }
}

/// Calls of which one looks at the clock.
const EACH: u64 = 32;

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Usage {
    /// By [`KINDS`].
    pub(crate) sizes: [Sizes; KINDS.len()],
    /// Calls that posted something.
    pub(crate) posts: AtomicU64,
    /// Requests with their data inside.
    pub(crate) inline: AtomicU64,
    pub(crate) signaled: AtomicU64,
    /// Requests with immediate data.
    pub(crate) immediate: AtomicU64,
    /// Scatter/gather elements of all requests.
    pub(crate) elements: AtomicU64,
    /// Most requests that were in the send queue at once.
    pub(crate) deepest: AtomicU64,
    /// The sum of those that were there behind each post.
    pub(crate) depths: AtomicU64,
    /// When the first was posted, and one of the last, ns.
    pub(crate) began: AtomicU64,
    pub(crate) last: AtomicU64,
}

impl Usage {
    /// For a new queue pair, if somebody wants to know.
    pub(crate) fn wanted() -> Option<Box<Usage>> {
        is_on().then(|| {
            Box::new(Usage {
                sizes: array::from_fn(|_| Sizes::new()),
                posts: AtomicU64::new(0),
                inline: AtomicU64::new(0),
                signaled: AtomicU64::new(0),
                immediate: AtomicU64::new(0),
                elements: AtomicU64::new(0),
                deepest: AtomicU64::new(0),
                depths: AtomicU64::new(0),
                began: AtomicU64::new(0),
                last: AtomicU64::new(0),
            })
        })
    }

    /// A short SEND has left by itself. `used` as for [`Usage::posted`].
    pub(crate) fn posted_short(&self, short: &ShortSend<'_>, all_signaled: bool, used: u64) {
        let (len, inline) = match short.data {
            ShortData::Registered(sge) => (u64::from(sge.length), false),
            ShortData::Inline(bytes) => (bytes.len() as u64, true),
        };
        self.sizes[0].more(len);
        self.called();
        more(if inline { &self.inline } else { &self.elements }, 1);
        more(&self.signaled, u64::from(short.signaled || all_signaled));
        if used > self.deepest.load(Ordering::Relaxed) {
            self.deepest.store(used, Ordering::Relaxed);
        }
        more(&self.depths, used);
    }

    /// One more call posts. The clock would take as long as the rest, so few look at it.
    fn called(&self) {
        let before = self.posts.load(Ordering::Relaxed);
        self.posts.store(before.wrapping_add(1), Ordering::Relaxed);
        if !before.is_multiple_of(EACH) {
            return;
        }
        let now = rnic_sys::now_ns();
        if before == 0 {
            self.began.store(now, Ordering::Relaxed);
        }
        self.last.store(now, Ordering::Relaxed);
    }

    /// A request is posted as the first of its call or a later one. `used`: places of the send
    /// queue, with this one.
    pub(crate) fn posted(&self, wqe: &SendWqe, is_first: bool, used: u64) {
        self.sizes[kind(&wqe.op)].more(wqe.data.len());
        if is_first {
            self.called();
        }
        match &wqe.data {
            SendData::Inline(_) => more(&self.inline, 1),
            SendData::Gather(list) => more(&self.elements, list.len() as u64),
        }
        if wqe.signaled {
            more(&self.signaled, 1);
        }
        let immediate = match wqe.op {
            SendOp::SendImm(_) | SendOp::WriteImm { .. } => true,
            SendOp::Datagram { imm, .. } => imm.is_some(),
            _ => false,
        };
        if immediate {
            more(&self.immediate, 1);
        }
        if used > self.deepest.load(Ordering::Relaxed) {
            self.deepest.store(used, Ordering::Relaxed);
        }
        more(&self.depths, used);
    }
}

/// The process as a whole.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Polls that found something.
    pub(crate) polls: AtomicU64,
    /// Polls that found nothing.
    pub(crate) polls_in_vain: AtomicU64,
    /// Completion queues were told to send an event.
    pub(crate) arms: AtomicU64,
    pub(crate) registrations: AtomicU64,
    pub(crate) deregistrations: AtomicU64,
    /// Bytes of what was registered.
    pub(crate) registered: AtomicU64,
    /// The same, by region.
    pub(crate) regions: Sizes,
    pub(crate) queue_pairs: AtomicU64,
    /// Those of them that take their receives from a shared queue.
    pub(crate) sharing: AtomicU64,
}

static WHOLE: Whole = Whole {
    polls: AtomicU64::new(0),
    polls_in_vain: AtomicU64::new(0),
    arms: AtomicU64::new(0),
    registrations: AtomicU64::new(0),
    deregistrations: AtomicU64::new(0),
    registered: AtomicU64::new(0),
    regions: Sizes::new(),
    queue_pairs: AtomicU64::new(0),
    sharing: AtomicU64::new(0),
};

/// The process as a whole.
pub(crate) fn whole() -> &'static Whole {
    &WHOLE
}

/// A completion queue was polled; to be asked for only if somebody wants to know.
#[cold]
pub(super) fn polled(found: bool) {
    add(
        if found {
            &WHOLE.polls
        } else {
            &WHOLE.polls_in_vain
        },
        1,
    );
}

/// A completion queue was armed.
pub(crate) fn armed() {
    if is_on() {
        add(&WHOLE.arms, 1);
    }
}

/// Memory was registered.
pub(crate) fn registered(len: usize) {
    if is_on() {
        add(&WHOLE.registrations, 1);
        add(&WHOLE.registered, len as u64);
        WHOLE.regions.add(len as u64);
    }
}

/// And deregistered.
pub(crate) fn deregistered() {
    if is_on() {
        add(&WHOLE.deregistrations, 1);
    }
}

/// A queue pair was created.
pub(crate) fn created(shares_receives: bool) {
    if is_on() {
        add(&WHOLE.queue_pairs, 1);
        add(&WHOLE.sharing, u64::from(shares_receives));
    }
}
