//! What one measurement has set: all parameters that the questions vary.

use serde::{Deserialize, Serialize};

use crate::platform::failure::{Failure, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Send,
    Write,
    Read,
    FetchAdd,
    /// Repeated until it has found the value that it expected.
    CompareSwap,
}

impl Operation {
    pub fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }
}

/// How a thread waits for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// It polls all the time.
    Busy,
    /// It arms the queue and sleeps on the completion channel.
    Event,
    /// It polls for a while and sleeps then.
    Adaptive,
}

/// How the operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// A message there and one back; the time is half of that.
    PingPong,
    /// One operation from its post to its completion, then the next.
    OneByOne,
    /// Many under way at once.
    Stream,
}

/// The parameters of one measurement. Both sides have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    pub flow: Flow,
    pub service: Service,
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    pub inline: bool,
    pub waiting: Waiting,
    /// Every how many requests one asks for a completion.
    pub signal_every: usize,
    /// Requests of one post.
    pub batch: usize,
    /// Requests under way at once, over all queue pairs.
    pub depth: usize,
    pub queue_pairs: usize,
    /// Receives come from one shared receive queue.
    pub shared_receives: bool,
    /// Memory is registered for each message, and deregistered behind it.
    pub register_each: bool,
    /// Atomics: each queue pair has a word of its own.
    pub spread: bool,
    /// Bytes; `None`: the largest that the path allows.
    pub path_mtu: Option<usize>,
    /// Microseconds between one message and the next.
    pub pause_us: u32,
}

impl Setup {
    const fn new(flow: Flow, operation: Operation, size: usize) -> Setup {
        Setup {
            flow,
            service: Service::Rc,
            operation,
            size,
            inline: false,
            waiting: Waiting::Busy,
            signal_every: 1,
            batch: 1,
            depth: 1,
            queue_pairs: 1,
            shared_receives: false,
            register_each: false,
            spread: false,
            path_mtu: None,
            pause_us: 0,
        }
    }

    pub const fn ping_pong(operation: Operation, size: usize) -> Setup {
        let mut setup = Setup::new(Flow::PingPong, operation, size);
        // The completions of what was sent are no part of what is measured.
        (setup.signal_every, setup.depth) = (16, 32);
        setup
    }

    pub const fn one_by_one(operation: Operation, size: usize) -> Setup {
        Setup::new(Flow::OneByOne, operation, size)
    }

    pub const fn stream(operation: Operation, size: usize, depth: usize) -> Setup {
        let mut setup = Setup::new(Flow::Stream, operation, size);
        setup.depth = depth;
        setup
    }

    /// Receives that each queue pair has posted, or the shared queue, where there is one.
    pub fn receives_of_each(&self) -> usize {
        match self.flow {
            Flow::Stream if self.operation == Operation::Send => self.depth + 1,
            _ => 4,
        }
    }

    /// All receives that the peer has posted.
    pub fn receives(&self) -> usize {
        match self.shared_receives {
            true => self.receives_of_each(),
            false => self.receives_of_each() * self.queue_pairs,
        }
    }

    /// Who asks may be anybody: nothing endless, nothing that takes all memory.
    pub fn check(&self) -> Result<()> {
        let counts = [self.signal_every, self.batch, self.depth, self.queue_pairs];
        let connected = self.service != Service::Ud;
        let sound = (1..=LARGEST).contains(&self.size)
            && counts.iter().all(|count| (1..=MOST).contains(count))
            && self.receives() <= RECEIVES
            && self.receives() * self.size <= RECEIVE_BYTES
            // What waits for a completion that nobody asked for waits for ever.
            && self.signal_every * self.queue_pairs.min(self.depth) <= self.depth
            && self.batch <= self.depth
            && self.pause_us <= 1_000_000
            && !(self.inline && self.size > INLINE)
            // Messages that may be lost are numbered.
            && (self.service == Service::Rc || self.size >= 4)
            && (connected || self.operation == Operation::Send)
            && (self.service != Service::Uc || self.operation == Operation::Send)
            && (!self.operation.is_atomic() || self.size == 8);
        match sound {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the other side asks for something impossible: {self:?}"
            ))),
        }
    }
}

/// Bytes of the longest message, and of the region that the peer may use.
pub const LARGEST: usize = 1 << 20;
/// Most requests under way, queue pairs, requests of one post.
pub const MOST: usize = 512;
/// Most bytes of an inline message.
pub const INLINE: usize = 256;
/// Most receives.
const RECEIVES: usize = 1 << 16;
/// Most bytes of all of them together.
const RECEIVE_BYTES: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A stranger at the other end cannot make this side take all memory, or run for ever.
    #[test]
    fn what_is_impossible_is_refused() {
        let good = Setup::stream(Operation::Send, 64, 64);
        assert!(good.check().is_ok());
        let refused = |change: fn(&mut Setup)| {
            let mut setup = good;
            change(&mut setup);
            setup.check().is_err()
        };
        assert!(refused(|s| s.size = 0));
        assert!(refused(|s| s.size = LARGEST + 1));
        assert!(refused(|s| s.depth = 0));
        assert!(refused(|s| s.depth = usize::MAX));
        assert!(refused(|s| s.queue_pairs = MOST + 1));
        assert!(refused(|s| s.batch = 0));
        assert!(refused(|s| s.signal_every = 0));
        assert!(refused(|s| s.signal_every = 65), "nothing would complete");
        assert!(refused(|s| s.batch = 65), "nothing could be posted");
        assert!(refused(|s| s.pause_us = u32::MAX));
        assert!(refused(|s| {
            s.inline = true;
            s.size = INLINE + 1;
        }));
        assert!(refused(|s| {
            s.service = Service::Ud;
            s.operation = Operation::Write;
        }));
        assert!(refused(|s| {
            s.operation = Operation::FetchAdd;
            s.size = 64;
        }));
        assert!(refused(|s| {
            s.size = LARGEST;
            s.queue_pairs = MOST;
        }));
    }
}
