//! How many queue pairs may have requests under way to one host, by the network stack, at one time.
//!
//! Each has a window of its own, and at least a packet of it: thousands that write to one process
//! overrun its receive buffer however small their windows are, and what was lost is lost again in
//! the same group, until some have used up their retries. Nothing but their ACK timers tells of it.
//! So when one ends while many have something under way to the same host, these become a *group*:
//! half as many may have something under way from then on, the others wait in a line, and nothing
//! of theirs leaves. Each time that as many as may have been answered there may be one more; each
//! time that timers end, half as many. One that goes on and on while others wait gives way after a
//! few turns.
//!
//! Who has something under way is not kept book of by events, but looked up whenever a queue pair
//! may have changed ([`Incast::note`]), and who is held back is always in a line ([`Incast::wait`],
//! [`Incast::next`]). A group is dissolved, and all of it let go, when nobody was answered for a
//! while (its host may be dead, which each has to find out by itself), and when nobody had to wait
//! for long.
//!
//! A queue pair that has been silent for longer than one ACK timeout does not count and does not
//! wait, for its peer may be dead: it has one packet under way now and then. Nor does one with a
//! long ACK timeout, or without ([`crate::engine::QpEntry::may_join_incast`]).

use std::collections::VecDeque;

use rnic_link::Address;

use rnic_settings::ablation::{self, Policy};

/// So many may always have something under way to a host.
const FEWEST: u32 = 16;
/// So many make no group.
pub(in crate::engine) const FEW: u32 = 2 * FEWEST;
/// Timers that end so soon after one another speak of one group, ns.
const ONE_GROUP_NS: u64 = 10_000_000;
/// Turns of one that goes on while others wait.
const TURNS: u8 = 4;
/// ACK timeouts without progress of one that does not count.
const SILENT: u32 = 2;
/// A group whose host answered nobody for so long is dissolved, ns,
const QUIET_NS: u64 = 500_000_000;
/// or for so many ACK timeouts, if that is longer.
const QUIET_TIMEOUTS: u64 = 4;
/// So is one of which nobody had to wait for so long, ns.
const IDLE_NS: u64 = 2_000_000_000;
/// A host that answered nobody makes no group again for so long, ns.
const DEAD_NS: u64 = 5_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Incast {
    groups: Vec<Group>,
    /// The number that the last one got.
    last: u32,
    /// When a group was looked for last, ns.
    looked_at: Option<u64>,
    /// The host that answered nobody last, and when that was found out, ns.
    dead: Option<(Address, u64)>,
}

/// The queue pairs to one host.
#[derive(Debug)]
struct Group {
    number: u32,
    host: Address,
    /// So many may have something under way,
    most: u32,
    /// and so many have, or are about to.
    under_way: u32,
    /// Numbers of those that are held back, in order; and perhaps of others, which were reset or
    /// destroyed.
    waiting: VecDeque<u32>,
    /// When `most` was halved last, ns.
    cut_at: u64,
    /// Answered since `most` changed last.
    credits: u32,
    /// Somebody was answered since it was looked at,
    has_answered: bool,
    /// and when that was so last, ns.
    answered_at: u64,
    /// When somebody waited last, ns.
    waited_at: u64,
    /// For how long nobody may be answered, ns.
    quiet: u64,
}

/// What a queue pair is in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IncastMember {
    /// Its number; 0: in none.
    group: u32,
    /// It counts among those that have something under way.
    counts: bool,
    /// It was let go, and did not send yet.
    admitted: bool,
    /// Something was acknowledged since it counts.
    answered: bool,
    /// Turns it had while others waited, or since it was let go.
    turns: u8,
    /// [`Requests::acknowledged`], when it was noted last.
    acknowledged: u64,
}

impl IncastMember {
    /// It is, or was, in a group.
    #[inline]
    pub(crate) fn is_in_group(&self) -> bool {
        self.group != 0
    }
}

/// What a queue pair's requester says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// Something is under way and not answered.
    pub(crate) awaits: bool,
    /// Something may leave.
    pub(crate) may_leave: bool,
    /// ACK timeouts since there was progress.
    pub(crate) consecutive_ack_timeouts: u32,
    /// Grows with each packet that is acknowledged.
    pub(crate) acknowledged: u64,
    /// It is in ERR: nothing is acknowledged any more.
    pub(crate) failed: bool,
    /// Its ACK timeout, ns.
    pub(crate) timeout_ns: u64,
}

impl Requests {
    /// It has been silent for so long that it neither counts nor waits.
    #[inline]
    pub(in crate::engine) fn is_silent(&self) -> bool {
        self.consecutive_ack_timeouts >= SILENT
    }
}

impl Group {
    #[inline]
    fn has_room(&self) -> bool {
        !self.waiting.is_empty() && self.under_way < self.most
    }

    fn answered(&mut self) {
        self.credits += 1;
        if self.credits >= self.most {
            self.credits = 0;
            self.most = self.most.saturating_add(1);
        }
    }

    fn cut(&mut self, now: u64) {
        self.cut_at = now;
        self.credits = 0;
        self.most = (self.most.min(self.under_way) / 2).max(FEWEST);
    }
}

impl Incast {
    /// There is a group.
    #[inline]
    pub(in crate::engine) fn is_active(&self) -> bool {
        !self.groups.is_empty()
    }

    fn group(&mut self, number: u32) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.number == number)
    }

    /// The ACK timer has ended of a queue pair to this host that was not silent. True: look how
    /// many have something under way there, they may be a group.
    pub(in crate::engine) fn timed_out(&mut self, now: u64, host: Address) -> bool {
        let soon = |at: u64| now.saturating_sub(at) <= ONE_GROUP_NS;
        if let Some(group) = self.groups.iter_mut().find(|group| group.host == host) {
            if !soon(group.cut_at) {
                group.cut(now);
            }
            return false;
        }
        if ablation::is_out(Policy::Incast) {
            return false;
        }
        let dead = self
            .dead
            .is_some_and(|(dead, at)| dead == host && now.saturating_sub(at) <= DEAD_NS);
        if dead || self.looked_at.is_some_and(soon) {
            return false;
        }
        self.looked_at = Some(now);
        true
    }

    /// So many have something under way to a host that has no group, and timers end. Whoever has a
    /// queue pair there [joins](Self::join) and is [noted](Self::note).
    pub(in crate::engine) fn form(&mut self, now: u64, host: Address, count: u32) {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.groups.push(Group {
            number: self.last,
            host,
            most: (count / 2).max(FEWEST),
            under_way: 0,
            waiting: VecDeque::new(),
            cut_at: now,
            credits: 0,
            has_answered: false,
            answered_at: now,
            waited_at: now,
            quiet: QUIET_NS,
        });
    }

    /// A queue pair to this host is in its group, if there is one.
    pub(crate) fn join(&mut self, host: Address, place: &mut IncastMember, of: Requests) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.host == host)
            && place.group != group.number
        {
            group.quiet = group
                .quiet
                .max(of.timeout_ns.saturating_mul(QUIET_TIMEOUTS));
            *place = IncastMember {
                group: group.number,
                acknowledged: of.acknowledged,
                ..IncastMember::default()
            };
        }
    }

    /// A queue pair of a group may have changed.
    pub(in crate::engine) fn note(&mut self, place: &mut IncastMember, of: Requests) {
        let Some(group) = self.group(place.group) else {
            *place = IncastMember::default();
            return;
        };
        if !of.failed && of.acknowledged != place.acknowledged {
            (place.acknowledged, place.answered) = (of.acknowledged, true);
            group.has_answered = true;
        }
        // What it has under way may be older than its turn.
        if !of.may_leave || of.awaits && place.turns > 0 {
            place.admitted = false;
        }
        let counts = place.admitted || of.awaits && !of.is_silent();
        if counts == place.counts {
            return;
        }
        place.counts = counts;
        let answered = std::mem::take(&mut place.answered);
        if counts {
            group.under_way += 1;
        } else {
            group.under_way = group.under_way.saturating_sub(1);
            place.turns = 0;
            if answered {
                group.answered();
            }
        }
    }

    /// A queue pair is reset or destroyed, or goes elsewhere.
    pub(crate) fn leave(&mut self, place: &mut IncastMember) {
        let place = std::mem::take(place);
        if let Some(group) = self.group(place.group)
            && place.counts
        {
            group.under_way = group.under_way.saturating_sub(1);
        }
    }

    /// A queue pair whose requests may leave has its turn: whether they have to wait all the same.
    pub(in crate::engine) fn must_wait(&mut self, place: &mut IncastMember, of: Requests) -> bool {
        let Some(group) = self.group(place.group) else {
            return false;
        };
        if place.admitted {
            place.turns = 1;
            return false;
        }
        if of.is_silent() {
            return false;
        }
        if !place.counts {
            return group.under_way >= group.most || !group.waiting.is_empty();
        }
        if group.waiting.is_empty() {
            place.turns = 0;
            return false;
        }
        place.turns = place.turns.saturating_add(1);
        place.turns > TURNS
    }

    /// A request may leave without a turn.
    #[inline]
    pub(in crate::engine) fn is_free(&self, place: IncastMember) -> bool {
        if !place.is_in_group() {
            return true;
        }
        let group = self.groups.iter().find(|group| group.number == place.group);
        group.is_none_or(|group| {
            group.waiting.is_empty() && (place.counts || group.under_way < group.most)
        })
    }

    /// A queue pair is held back from now on, until it is [next](Self::next).
    pub(in crate::engine) fn wait(&mut self, now: u64, qpn: u32, place: IncastMember) {
        if let Some(group) = self.group(place.group) {
            if group.waiting.is_empty() {
                (group.has_answered, group.answered_at) = (false, now);
            }
            group.waiting.push_back(qpn);
        }
    }

    /// Somebody waits, and there is room.
    #[inline]
    pub(in crate::engine) fn has_room(&self) -> bool {
        self.groups.iter().any(Group::has_room)
    }

    /// Who waits longest where there is room, and in which group. It may be gone, or be in another
    /// one.
    pub(in crate::engine) fn next(&mut self) -> Option<(u32, u32)> {
        let group = self.groups.iter_mut().find(|group| group.has_room())?;
        Some((group.waiting.pop_front()?, group.number))
    }

    /// One of this group that was next is held back no more. False: it is not of this group.
    pub(in crate::engine) fn admit(
        &mut self,
        number: u32,
        place: &mut IncastMember,
        of: Requests,
    ) -> bool {
        if place.group != number {
            return false;
        }
        place.turns = 0;
        place.admitted = of.may_leave;
        self.note(place, of);
        true
    }

    /// A group to be [dissolved](Self::dissolve), by the time up to which all that came is known.
    pub(in crate::engine) fn over(&mut self, now: u64) -> Option<u32> {
        let mut groups = self.groups.iter_mut();
        let over = groups.position(|group| {
            if group.waiting.is_empty() {
                return now.saturating_sub(group.waited_at) > IDLE_NS;
            }
            group.waited_at = now;
            if std::mem::take(&mut group.has_answered) {
                group.answered_at = now;
            }
            now.saturating_sub(group.answered_at) > group.quiet
        });
        over.map(|at| self.groups[at].number)
    }

    /// There is no such group any more; whoever was in it is let go by the caller.
    pub(in crate::engine) fn dissolve(&mut self, now: u64, number: u32) {
        if let Some(group) = self.group(number)
            && !group.waiting.is_empty()
        {
            self.dead = Some((group.host, now));
        }
        self.groups.retain(|group| group.number != number);
    }

    /// A queue pair is in this group.
    pub(in crate::engine) fn is_of(place: IncastMember, number: u32) -> bool {
        place.group == number
    }

    /// When to look again though nothing comes, ns.
    #[inline]
    pub(in crate::engine) fn deadline(&self) -> Option<u64> {
        if !self.is_active() {
            return None;
        }
        let waits = self.groups.iter().filter(|group| !group.waiting.is_empty());
        let deadline = waits.map(|group| match group.has_room() {
            true => 0,
            false => group.answered_at + group.quiet + 1,
        });
        deadline.min()
    }
}

#[cfg(test)]
mod tests;
