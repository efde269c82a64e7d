//! A look that costs little, for a thread that polls: in memory, or at the socket alone.

use super::RoceLink;
use crate::shm::ShmPath;
use crate::staging::datagram::{Arrival, Link};

/// What a [quick poll](RoceLink::quick_poll) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuickPoll {
    /// Something, or it cannot tell.
    Something,
    /// Nothing where packets come without a system call; the socket may hold some.
    NothingInMemory,
    /// Nothing at the socket, for a system call.
    NothingAtSocket,
}

impl RoceLink {
    /// Whether something came, where packets come as a rule: in rings if any were in use lately, by
    /// AF_XDP, else at the socket. What it finds there the next call of
    /// [`receive`](RoceLink::receive) takes in. Nowhere else is looked. `socket`: it may be looked
    /// at.
    #[inline]
    pub fn quick_poll(&mut self, socket: bool) -> QuickPoll {
        let pending = self.has_pending();
        let Some(live) = &self.live else {
            return QuickPoll::Something;
        };
        if pending || live.inbox.waits() {
            return QuickPoll::Something;
        }
        let shm = live.shm.as_ref();
        if shm.is_some_and(ShmPath::is_in_use) || live.xdp.is_some() {
            let still = shm.is_some_and(ShmPath::is_still) && !live.link.has_arrivals()
                || live.xdp.is_some()
                    && live.link.is_still()
                    && !shm.is_some_and(ShmPath::has_arrivals);
            return match still {
                true => QuickPoll::NothingInMemory,
                false => QuickPoll::Something,
            };
        }
        // While the hand-over socket is in use each look goes there, too.
        let handover = live.now < live.inbox.handover_until;
        if !socket || handover || shm.is_some_and(ShmPath::has_left) {
            return QuickPoll::Something;
        }
        self.quick_poll_of_socket()
    }

    fn quick_poll_of_socket(&mut self) -> QuickPoll {
        let (Some(live), counters) = (&mut self.live, &mut self.counters) else {
            return QuickPoll::Something;
        };
        match live.inbox.look(&mut *live.link, false, counters) {
            Ok(Arrival::Empty) => {
                live.inbox.groups.drained();
                return QuickPoll::NothingAtSocket;
            }
            Ok(Arrival::Train(train)) => live.inbox.found = Some(train),
            // An error is told again, or over.
            Ok(Arrival::Useless) | Err(_) => {}
        }
        QuickPoll::Something
    }
}
