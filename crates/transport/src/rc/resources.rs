//! The responder's resources: READs and atomics it executed, so that a repeated request can be
//! answered again without being executed again, and the answers it still owes (IBTA 9.4.5,
//! 9.7.5.1.1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rnic_wire::{Psn, Reth};

use crate::Pd;

/// A READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
struct Resource {
    first: Psn,
    /// PSNs it takes.
    packets: u32,
    /// MSN of its answers.
    msn: u32,
    result: Executed,
}

/// What its answer is made of.
#[derive(Clone, Copy, Debug)]
enum Executed {
    Read(Reth, Pd),
    /// What the memory held before.
    Atomic(u64),
}

/// An answer that is still to be sent, or in the middle of being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Which resource it answers.
    slot: usize,
    /// PSN of the next packet of it.
    pub(crate) psn: Psn,
    pub(crate) msn: u32,
    pub(crate) body: Body,
    /// Sent for the first time: the requester waits for it.
    owed: bool,
}

/// The bytes of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// The rest of a READ.
    Read {
        /// Of the key.
        pd: Pd,
        /// Where it goes on.
        va: u64,
        rkey: u32,
        /// Bytes left.
        left: u32,
        /// The first packet was sent.
        begun: bool,
    },
    /// The value before an atomic.
    Atomic(u64),
}

impl Answer {
    /// So many packets of a READ were sent, with so many bytes, and there are more.
    pub(crate) fn advance(&mut self, packets: u32, len: u32) {
        if let Body::Read {
            va, left, begun, ..
        } = &mut self.body
        {
            *va = va.wrapping_add(u64::from(len));
            *left = left.saturating_sub(len);
            *begun |= packets > 0;
            self.psn = self.psn.add(packets);
        }
    }
}

/// Resources of a queue pair; rounded up, since Linux rounds up what it sends as well.
fn capacity(max_dest_rd_atomic: u8) -> usize {
    match max_dest_rd_atomic {
        0 => 0,
        n => usize::from(n).next_power_of_two(),
    }
}

/// The table of resources and the queue of answers, in the order of their PSNs.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    /// A ring; `next` is the oldest once it is full.
    ring: Vec<Resource>,
    next: usize,
    capacity: usize,
    /// At most one answer per resource.
    pub(crate) answers: VecDeque<Answer>,
}

impl Resources {
    /// Room for `max_dest_rd_atomic` requests.
    pub(crate) fn new(max_dest_rd_atomic: u8) -> Resources {
        let capacity = capacity(max_dest_rd_atomic);
        Resources {
            ring: Vec::with_capacity(capacity),
            next: 0,
            capacity,
            answers: VecDeque::with_capacity(capacity),
        }
    }

    /// Changes the room. The oldest requests are forgotten if there is too little for all.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        let was_full = self.ring.len() == self.capacity;
        self.capacity = capacity(max_dest_rd_atomic);
        let len = self.ring.len();
        if len == 0 {
            self.next = 0;
            return;
        }
        // The oldest comes to the front of the ring; what does not fit goes.
        let oldest = if was_full { self.next } else { 0 };
        self.ring.rotate_left(oldest);
        let surplus = len.saturating_sub(self.capacity);
        self.ring.drain(..surplus);
        self.answers.retain_mut(|answer| {
            answer.slot = (answer.slot + len - oldest) % len;
            let keep = answer.slot >= surplus;
            answer.slot = answer.slot.saturating_sub(surplus);
            keep
        });
        self.next = match self.ring.len() {
            kept if kept == self.capacity => 0,
            kept => kept,
        };
    }

    /// Makes room for one more request by forgetting the oldest; false if that one has not been
    /// answered yet, or there is no room at all: the requester then exceeds what was agreed.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.capacity == 0 {
            return false;
        }
        if self.ring.len() == self.capacity {
            // The oldest resource has the oldest answer, if any.
            if let Some(front) = self.answers.front()
                && front.slot == self.next
            {
                if front.owed {
                    return false;
                }
                self.answers.pop_front();
            }
        }
        true
    }

    fn remember(&mut self, resource: Resource, body: Body) {
        let slot = self.next;
        match self.ring.get_mut(slot) {
            Some(place) => *place = resource,
            None => self.ring.push(resource),
        }
        self.next = if slot + 1 == self.capacity {
            0
        } else {
            slot + 1
        };
        self.answers.push_back(Answer {
            slot,
            psn: resource.first,
            msn: resource.msn,
            body,
            owed: true,
        });
    }

    /// Enters a READ that was granted. [`Resources::make_room`] must have succeeded.
    pub(crate) fn executed_read(&mut self, first: Psn, packets: u32, msn: u32, reth: Reth, pd: Pd) {
        let resource = Resource {
            first,
            packets,
            msn,
            result: Executed::Read(reth, pd),
        };
        self.remember(resource, read_body(reth, pd));
    }

    /// Enters an atomic that was executed. [`Resources::make_room`] must have succeeded.
    pub(crate) fn executed_atomic(&mut self, psn: Psn, msn: u32, original: u64) {
        let resource = Resource {
            first: psn,
            packets: 1,
            msn,
            result: Executed::Atomic(original),
        };
        self.remember(resource, Body::Atomic(original));
    }

    /// The newest resource that `psn` belongs to: an old one may have had the same PSN a turn of
    /// the circle ago.
    fn find(&self, psn: Psn) -> Option<(usize, Resource)> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        let newest_first = newer.iter().enumerate().rev();
        let then = older
            .iter()
            .enumerate()
            .rev()
            .map(|(i, r)| (newer.len() + i, r));
        newest_first
            .chain(then)
            .find(|(_, r)| {
                let distance = psn.distance_from(r.first);
                distance >= 0 && (distance as u32) < r.packets
            })
            .map(|(slot, r)| (slot, *r))
    }

    /// A READ request for a PSN that was executed before: answers it again from there. False if it
    /// is no part of what was granted then.
    pub(crate) fn replay_read(&mut self, psn: Psn, reth: Reth, mtu: u32) -> bool {
        let Some((slot, resource)) = self.find(psn) else {
            return false;
        };
        let Executed::Read(original, pd) = resource.result else {
            return false;
        };
        let offset = u64::from(psn.distance_from(resource.first) as u32) * u64::from(mtu);
        let matches = reth.rkey == original.rkey
            && reth.va == original.va.wrapping_add(offset)
            && offset + u64::from(reth.dma_len) <= u64::from(original.dma_len);
        if !matches {
            return false;
        }
        match self.answers.iter_mut().find(|answer| answer.slot == slot) {
            Some(answer) => {
                // Being answered: starts again from `psn` if it is past it, else comes to it
                // anyway, and to its end, which a repetition of the front part would not.
                let past = answer.psn.distance_from(psn);
                if past <= 0 {
                    let until =
                        u64::from(past.unsigned_abs()) * u64::from(mtu) + u64::from(reth.dma_len);
                    if let Body::Read { left, .. } = &mut answer.body {
                        *left = (*left).max(until as u32);
                    }
                } else {
                    let rest = Reth {
                        dma_len: original.dma_len - offset as u32,
                        ..reth
                    };
                    answer.psn = psn;
                    answer.body = read_body(rest, pd);
                }
            }
            None => self.insert(Answer {
                slot,
                psn,
                msn: resource.msn,
                body: read_body(reth, pd),
                owed: false,
            }),
        }
        true
    }

    /// An atomic request for a PSN that was executed before: answers it again. False if no result
    /// is remembered.
    pub(crate) fn replay_atomic(&mut self, psn: Psn) -> bool {
        let Some((slot, resource)) = self.find(psn) else {
            return false;
        };
        let Executed::Atomic(original) = resource.result else {
            return false;
        };
        if !self.answers.iter().any(|answer| answer.slot == slot) {
            self.insert(Answer {
                slot,
                psn,
                msn: resource.msn,
                body: Body::Atomic(original),
                owed: false,
            });
        }
        true
    }

    /// Takes the oldest answer off if it is one that was given before.
    pub(crate) fn give_up_repetition(&mut self) -> bool {
        let repetition = self.answers.front().is_some_and(|answer| !answer.owed);
        if repetition {
            self.answers.pop_front();
        }
        repetition
    }

    fn insert(&mut self, answer: Answer) {
        let at = self
            .answers
            .partition_point(|other| other.psn.is_before(answer.psn));
        self.answers.insert(at, answer);
    }
}

fn read_body(reth: Reth, pd: Pd) -> Body {
    Body::Read {
        pd,
        va: reth.va,
        rkey: reth.rkey,
        left: reth.dma_len,
        begun: false,
    }
}
