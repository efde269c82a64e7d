//! What the engine does about [`crate::engine::incast`]: finds groups, holds their queue pairs back
//! and lets them go.

use rnic_link::{Address, Port};
use rnic_transport::{QueuePair, Time};

use crate::engine::QpEntry;
use crate::engine::incast::{FEW, Incast};
use crate::engine::{Engine, schedule};

/// A queue pair that may send requests has its turn: it is held back if it has to wait for others.
pub(in crate::engine) fn give_way(entry: &mut QpEntry, link: &Port, incast: &mut Incast, now: u64) {
    join(entry, link, incast);
    // One that is held back may still ask for an answer.
    let held = matches!(&entry.transport, QueuePair::Rc(rc) if rc.is_held_back());
    if entry.incast_member.is_in_group() && !held {
        let requests = entry.requests();
        if incast.must_wait(&mut entry.incast_member, requests)
            && let QueuePair::Rc(rc) = &mut entry.transport
        {
            rc.hold_back(true);
            incast.wait(now, entry.shared.qpn, entry.incast_member);
        }
    }
}

/// It is in the group of its host, if there is one, also if it was connected, or left the path
/// through memory, after the others.
pub(crate) fn join(entry: &mut QpEntry, link: &Port, incast: &mut Incast) {
    if !entry.incast_member.is_in_group()
        && let Some(host) = incast_host(entry, link)
    {
        let requests = entry.requests();
        incast.join(host, &mut entry.incast_member, requests);
    }
}

/// What was under way was lost, perhaps. The host at which there may be a group.
pub(in crate::engine) fn lost(
    entry: &mut QpEntry,
    link: &Port,
    incast: &mut Incast,
    now: Time,
    lost: bool,
) -> Option<Address> {
    if !lost {
        return None;
    }
    // It asks by itself from now on, and others need not wait for it.
    if entry.requests().is_silent()
        && let QueuePair::Rc(rc) = &mut entry.transport
    {
        rc.hold_back(false);
    }
    incast_host(entry, link).filter(|host| incast.timed_out(now.0, *host))
}

/// The host at which what a queue pair has under way may be too much.
pub(in crate::engine) fn incast_host(entry: &QpEntry, link: &Port) -> Option<Address> {
    let peer = entry.peer?;
    (entry.may_join_incast() && !link.is_by_memory(peer.path)).then_some(peer.remote)
}

impl Engine {
    /// An ACK timer ended of a queue pair to this host, which has no group. Rare, as it looks at
    /// all.
    #[cold]
    pub(in crate::engine) fn look_for_incast(&mut self, now: u64, host: Address) {
        let all = self.qps.qpns();
        let mut of_host = Vec::new();
        let mut under_way = 0;
        for qpn in all {
            if let Some(entry) = self.qps.get_mut(qpn)
                && incast_host(entry, &self.link) == Some(host)
            {
                of_host.push(qpn);
                let requests = entry.requests();
                under_way += u32::from(requests.awaits && !requests.is_silent());
            }
        }
        if under_way <= FEW {
            return;
        }
        self.timers.incast.form(now, host, under_way);
        for qpn in of_host {
            if let Some(entry) = self.qps.get_mut(qpn) {
                let requests = entry.requests();
                self.timers
                    .incast
                    .join(host, &mut entry.incast_member, requests);
                self.timers.note(entry);
            }
        }
    }

    /// Lets all of a group go that is none any more. `as_of`: what came until then is taken in.
    pub(in crate::engine) fn dissolve_incast_groups(&mut self, as_of: u64) {
        while let Some(number) = self.timers.incast.over(as_of) {
            self.timers.incast.dissolve(as_of, number);
            for qpn in self.qps.qpns() {
                let entry = self.qps.get_mut(qpn);
                if entry.is_some_and(|entry| Incast::is_of(entry.incast_member, number)) {
                    self.let_go(qpn);
                }
            }
        }
    }

    /// Lets those go for whom there is room.
    pub(in crate::engine) fn admit_from_incast_groups(&mut self) {
        while let Some((qpn, number)) = self.timers.incast.next() {
            let Some(entry) = self.qps.get_mut(qpn) else {
                continue;
            };
            let QueuePair::Rc(rc) = &mut entry.transport else {
                continue;
            };
            // Else it was reset, and is not of this line any more.
            if rc.is_held_back() {
                rc.hold_back(false);
                let requests = entry.requests();
                if !self
                    .timers
                    .incast
                    .admit(number, &mut entry.incast_member, requests)
                {
                    // It waits elsewhere, and is let go a little early.
                    self.timers.note(entry);
                }
                schedule(entry, &mut self.ready);
            }
        }
    }

    /// A queue pair is in no group, and what it has to send may leave.
    pub(crate) fn let_go(&mut self, qpn: u32) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        self.timers.incast.leave(&mut entry.incast_member);
        if let QueuePair::Rc(rc) = &mut entry.transport
            && rc.is_held_back()
        {
            rc.hold_back(false);
            schedule(entry, &mut self.ready);
        }
    }
}
