//! Which packets ask for an acknowledge (AckReq, IBTA vol. 1, 9.2.6), each of which costs both sides a system call and a way through
//! the network stack.
//!
//! The last one of a message does, for its completion; one within a long message, so that the window opens in time. A message
//! that is not signaled leaves it to one that follows: one that is behind it in the send queue, or that the device expects
//! ([`Asks::Later`](crate::Asks)). An ACK answers for all before it (9.7.5.1.2). Should none follow after all, [a probe](super::probe)
//! asks.

use super::{Entry, Kind, Requester};
use crate::rc::Shared;
use crate::{Host, Time};

/// Packets after which one asks, unless a quarter of the window makes one ask earlier.
const ACK_EVERY: u32 = 256;

/// What has left since a packet asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unasked {
    packets: u32,
    bytes: u64,
}

impl Unasked {
    /// A packet of that many PSNs, which costs so much of the window, may leave without asking.
    #[inline]
    pub(super) fn may_grow(self, psns: u32, cost: u64, window: u64) -> bool {
        self.packets + psns < ACK_EVERY && (self.bytes + cost) * 4 < window
    }

    /// It has left.
    #[inline]
    pub(super) fn note(&mut self, asked: bool, psns: u32, cost: u64) {
        *self = if asked {
            Unasked::default()
        } else {
            Unasked {
                packets: self.packets + psns,
                bytes: self.bytes + cost,
            }
        };
    }
}

impl Requester {
    /// The current WQE need not ask on its own behalf: nobody waits for its completion, and another one that will ask is behind it,
    /// or expected.
    #[inline]
    pub(super) fn need_not_ask<H: Host>(&self, sh: &Shared, host: &H) -> bool {
        let leaves_out = |entry: &Entry| !entry.wqe.signaled && entry.kind == Kind::Acked;
        // One without packets would wait for its ACK instead.
        let asks = |entry: &Entry| entry.kind != Kind::Local && !host.may_execute();
        self.nxt.pos == self.max.pos
            && self.queue.get(self.current).is_some_and(leaves_out)
            && self.queue.get(self.current + 1).map_or(self.more, asks)
            && self.may_ask_later(sh)
    }

    /// A whole message leaves for the first time, in one packet.
    #[inline]
    pub(super) fn note_asked(&mut self, asked: bool, cost: u64, now: Time) {
        self.unasked.note(asked, 1, cost);
        if asked {
            self.probe.sample(self.nxt.pos, now);
            self.probe.asked(self.nxt.pos + 1);
        } else {
            self.ask_later(now);
        }
    }
}

#[cfg(test)]
mod tests;
