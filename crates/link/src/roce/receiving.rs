//! Packets that arrive: from the socket, from rings, through the hand-over socket.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::RoceLink;
use super::groups::Companion;
use super::hand_over::Origin;
use crate::Ways;
use crate::shm::{Deliver, Received, ShmPath};
use crate::staging::datagram::{Arrival, Link};
use rnic_sys as sys;

/// Where a call looks for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Where they come as a rule, and no longer than it takes to find some: the caller polls and is
    /// back at once. The hand-over socket while it is in use, and rarely else.
    Poll,
    /// As long as some are there: the caller sleeps otherwise.
    Drain,
    /// That, and at the hand-over socket ([`RoceLink::handover_fds`]).
    Handover,
}

/// Another look is worth its system call when the last one brought this many bytes, or more packets
/// than the two that a reply and its ACK are.
const MORE_LIKELY: usize = 8192;
/// When the rings bring so many packets in a call, the next one comes late, and a look more costs
/// little.
const BUSY: usize = 16;
/// How long the hand-over socket is looked at in every call after something came through it.
const HANDOVER_WATCH_NS: u64 = 100_000_000;
/// How long the socket is left alone while rings are in use and it had nothing at the last look.
const LOOK_EVERY_NS: u64 = 20_000;

impl RoceLink {
    /// Joins a multicast group on an interface: from now on packets to it arrive here, a copy for
    /// each process that is a member, with `MULTICAST_QPN` as their QPN.
    ///
    /// # Errors
    /// No such interface, or more groups than the system allows a socket
    /// (`net.ipv4.igmp_max_memberships`).
    pub fn join(&mut self, group: IpAddr, ifindex: u32) -> std::io::Result<()> {
        let companion = Companion::open(group, ifindex);
        self.set_membership(group, ifindex, true)?;
        if let Some(live) = &mut self.live {
            live.inbox.groups.join(group, ifindex, companion);
        }
        Ok(())
    }

    /// Leaves it; all memberships end with the process.
    pub fn leave(&mut self, group: IpAddr, ifindex: u32) {
        // The interface may be gone, and the membership with it.
        let _ = self.set_membership(group, ifindex, false);
        if let Some(live) = &mut self.live {
            live.inbox.groups.leave(group, ifindex);
        }
    }

    fn set_membership(&self, group: IpAddr, ifindex: u32, member: bool) -> std::io::Result<()> {
        match &self.live {
            Some(live) => sys::set_membership(live.membership.receiver(), group, ifindex, member),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// The application polls, so no process has to wake this one for packets (true), or it does not
    /// any more.
    pub fn leave_to_polling(&mut self, polled: bool) {
        if let Some(shm) = self.live.as_mut().and_then(|live| live.shm.as_mut()) {
            shm.set_polled(polled);
        }
    }

    /// Nobody will look at the rings from now on unless [`wake_fd`](RoceLink::wake_fd) is readable.
    /// True: something is there already.
    pub fn fall_asleep(&mut self) -> bool {
        let live = self.live.as_mut();
        live.and_then(|live| live.shm.as_mut())
            .is_some_and(ShmPath::fall_asleep)
    }

    /// For a thread that slept on descriptors and says which are readable: what woke this process
    /// is noted, and a socket without packets is not looked at soon.
    pub fn woken(&mut self, now_ns: u64, rx_readable: bool, wake_readable: bool) {
        let Some(live) = &mut self.live else { return };
        if wake_readable && let Some(shm) = &mut live.shm {
            shm.heed(&mut self.counters);
        }
        if !rx_readable {
            live.look_at = now_ns.saturating_add(LOOK_EVERY_NS);
        }
    }

    /// Packets lie in the rings of other processes or of this one.
    pub fn has_arrivals(&self) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.shm.as_ref())
            .is_some_and(ShmPath::has_arrivals)
    }

    /// [`receive`](RoceLink::receive) left packets behind for which no descriptor is readable.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.live.as_ref().is_some_and(|live| {
            live.inbox.found.is_some()
                || live.link.has_left()
                || live.shm.as_ref().is_some_and(ShmPath::has_left)
        })
    }

    /// Readable when a process of this host woke this one; -1 if none ever does.
    pub fn wake_fd(&self) -> RawFd {
        let live = self.live.as_ref();
        live.and_then(|live| live.shm.as_ref())
            .map_or(-1, ShmPath::wake_fd)
    }

    /// Receives until nothing is there, about `budget` packets were handed to `deliver`, or as many
    /// batches held nothing for it; never blocks. Returns packets delivered. `handover`:
    /// [`Look::Handover`], else [`Look::Poll`].
    pub fn receive(
        &mut self,
        now_ns: u64,
        budget: usize,
        handover: bool,
        deliver: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let look = if handover { Look::Handover } else { Look::Poll };
        self.receive_while(now_ns, budget, look, &mut |received| {
            deliver(*received);
            ControlFlow::Continue(())
        })
    }

    /// As [`receive`](RoceLink::receive), but `deliver` may break: the packet it was offered then
    /// stays, and all behind it; the next call offers it again first. Meanwhile the descriptors may
    /// be readable, or not.
    pub fn receive_while(
        &mut self,
        now_ns: u64,
        budget: usize,
        look: Look,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Some(live) = &mut self.live else { return 0 };
        let counters = &mut self.counters;
        let inbox = &mut live.inbox;
        live.now = now_ns;
        inbox.now_ns = now_ns;
        let mut delivered = inbox.go_on(now_ns, &mut live.membership, counters, deliver);
        let handover = look == Look::Handover || inbox.handover_is_due(now_ns);
        let drain = handover || look == Look::Drain;
        let (mut budget, mut rings_are_busy) = (budget, false);
        if let Some(shm) = &mut live.shm
            && inbox.rest.is_none()
        {
            if handover {
                shm.attend(counters);
            }
            let membership = &live.membership;
            let owns = |qpn| membership.owns(qpn);
            let taken = shm.receive(
                now_ns,
                budget - delivered.min(budget),
                &owns,
                counters,
                deliver,
            );
            delivered += taken;
            rings_are_busy = taken >= BUSY;
            let quiet = shm.is_in_use()
                && !handover
                && now_ns != 0
                && now_ns < live.look_at
                && inbox.found.is_none()
                && !live.link.has_arrivals();
            // Nor does a packet that has to stay in its ring: others would starve in the socket
            // behind it.
            if quiet {
                return delivered;
            }
            // What the rings brought does not keep the socket from its look: it loses what they
            // only hold back.
            budget = budget.max(delivered.saturating_add(1 + budget / 4));
        }
        let before = counters.rx_packets;
        // What is for others, or for nobody, must not keep the caller either.
        let mut looks = 0;
        while delivered < budget && looks < budget && inbox.rest.is_none() {
            looks += 1;
            let arrival = match inbox.found.take() {
                Some(train) => Ok(Arrival::Train(train)),
                None => inbox.look(&mut *live.link, drain, counters),
            };
            match arrival {
                Ok(Arrival::Train(train)) => {
                    let astray = counters.rx_handed_over;
                    let origin = Origin::Port { now_ns };
                    delivered += inbox.train(
                        0,
                        &train,
                        false,
                        origin,
                        &mut live.membership,
                        counters,
                        deliver,
                    );
                    let all_ours = counters.rx_handed_over == astray;
                    looks += std::mem::take(&mut inbox.managed);
                    // What lies in memory takes no system call.
                    let last = train.len < MORE_LIKELY
                        && train.len <= 2 * train.segment
                        && !live.link.has_arrivals();
                    if last && all_ours && !rings_are_busy && !drain {
                        break;
                    }
                }
                Ok(Arrival::Useless) => {}
                Ok(Arrival::Empty) => {
                    // By AF_XDP a look that is not thorough may have left the socket out.
                    if drain || live.xdp.is_none() {
                        inbox.groups.drained();
                    }
                    break;
                }
                Err(_) => break,
            }
        }
        if counters.rx_packets == before {
            live.look_at = now_ns.saturating_add(LOOK_EVERY_NS);
        }
        let lost = live.membership.finish_hand_over(now_ns);
        counters.hand_over_lost(lost);
        if handover {
            while delivered < budget && looks < budget.saturating_mul(2) && inbox.rest.is_none() {
                looks += 1;
                counters.rx_syscalls += 1;
                let Some(len) = live.membership.handover().receive(&mut inbox.buffer) else {
                    break;
                };
                inbox.handover_until = now_ns.saturating_add(HANDOVER_WATCH_NS);
                live.link.adopt(&inbox.buffer[..len]);
                delivered += inbox.message(0, len, &mut live.membership, counters, deliver);
                looks += std::mem::take(&mut inbox.managed);
            }
        }
        live.membership.after_receive();
        delivered
    }

    /// What packets arrive on: readable means call `receive`. -1 after `abandon`.
    pub fn rx_fd(&self) -> RawFd {
        self.live.as_ref().map_or(-1, |live| match &live.xdp {
            Some(xdp) => xdp.fd(),
            None => live.membership.receiver().raw(),
        })
    }

    /// What is to be known of the ways to peers, for the background thread to [look
    /// after](Ways::tend) without the link.
    pub fn ways(&self) -> Option<Arc<Ways>> {
        let xdp = self.live.as_ref()?.xdp.as_ref()?;
        Some(xdp.ways().clone())
    }

    /// The hand-over socket and other rarely readable descriptors: readable means call `receive(..,
    /// handover: true, ..)`.
    pub fn handover_fds(&self) -> Vec<RawFd> {
        self.live
            .iter()
            .flat_map(|live| {
                let listener = live.shm.as_ref().map(ShmPath::listener_fd);
                live.membership.handover_fds().into_iter().chain(listener)
            })
            .collect()
    }
}
