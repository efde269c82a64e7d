//! This process's slot in the SO_REUSEPORT group, which brings it its packets. Requests are brought
//! to a process that runs.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic_wire::ROCE_PORT;

use super::MILLISECOND;
use crate::log::log;
use crate::registry::{Locked, Registry, Taker};
use crate::steering::{self, KnownSlot, MAX_SLOTS, Probe};
use crate::train::Train;
use rnic_sys::{self as sys, Addr, Fd};

/// Least and most time between two rounds of probes that one process sends because packets came to
/// it by mistake.
const PROBE_INTERVAL: std::ops::RangeInclusive<u64> = 10 * MILLISECOND..=10_000 * MILLISECOND;
/// How many looks in a row, a second apart, find the taker as it was before it counts as stopped.
/// Its own looks are a second apart, too.
const LOOKS: u32 = 3;

/// People are told of strangers once.
static STRANGERS: AtomicBool = AtomicBool::new(false);

pub(super) struct ReuseportSlot {
    receiver: Arc<Fd>,
    known: KnownSlot,
    /// The kernel takes steering programs.
    steered: bool,
    /// The slot is not in the registry yet.
    unpublished: bool,
    probe_not_before: u64,
    probe_interval: u64,
    /// The taker of requests at the last look, and how many looks have found it like that.
    taker: Option<Taker>,
    looks: u32,
}

impl ReuseportSlot {
    pub(super) fn new(receiver: Arc<Fd>) -> ReuseportSlot {
        ReuseportSlot {
            receiver,
            known: KnownSlot::default(),
            steered: true,
            unpublished: false,
            probe_not_before: 0,
            probe_interval: *PROBE_INTERVAL.start(),
            taker: None,
            looks: 0,
        }
    }

    pub(super) fn receiver(&self) -> &Arc<Fd> {
        &self.receiver
    }

    /// Its number in the group, once a probe has told.
    pub(super) fn number(&self) -> Option<u8> {
        self.known.number()
    }

    pub(super) fn is_steered(&self) -> bool {
        self.steered
    }

    /// Steering is set up as far as it can be.
    pub(super) fn settled(&self) -> bool {
        !self.steered || self.known.number().is_some() && !self.unpublished
    }

    /// There is a slot that the others do not know.
    #[inline]
    pub(super) fn is_unpublished(&self) -> bool {
        self.unpublished
    }

    /// Builds the program anew from the registry and attaches it.
    pub(super) fn steer(&mut self, registry: &Registry, _locked: &Locked) -> io::Result<()> {
        if !self.steered {
            return Ok(());
        }
        let taker = registry.taker().map(|taker| taker.range);
        let mut requests = None;
        let mut routes = Vec::new();
        for (range, entry) in registry.live()? {
            let ours = registry.owns(range);
            let slot = if ours {
                self.known.number()
            } else {
                entry.slot
            };
            if let Some(slot) = slot {
                routes.push((range, slot));
            }
            if taker == Some(range) {
                requests = slot;
            }
        }
        loop {
            let program = steering::program(&routes, requests);
            match sys::attach_reuseport_program(&self.receiver, &program) {
                Ok(()) => return Ok(()),
                // The kernel's limit for programs (net.core.optmem_max) depends on its version:
                // fewer routes then.
                Err(e)
                    if routes.len() > 64
                        && matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) =>
                {
                    routes.truncate(routes.len() / 2);
                }
                Err(_) => {
                    self.steered = false;
                    return Ok(());
                }
            }
        }
    }

    /// Sends a round of probes; a process that gets one learns its slot.
    pub(super) fn probe(&self, registry: &Registry) {
        if !self.steered {
            return;
        }
        let members = registry
            .first_ranges()
            .map_or(0, |first_ranges| first_ranges.len());
        send_probes(registry.cookie(), members + 2);
    }

    /// Takes note of a probe; false: it is none.
    pub(super) fn on_probe(&mut self, registry: &Registry, train: &Train, packet: &[u8]) -> bool {
        let Some(probe) = Probe::decode(packet).filter(|_| train.src.is_loopback()) else {
            return false;
        };
        if probe.cookie == registry.cookie() {
            self.unpublished |= self.known.learn(&probe);
        } else if !STRANGERS.swap(true, Ordering::Relaxed) {
            log(format_args!(
                "another program of this user receives on UDP port {ROCE_PORT}, too, but has another runtime folder than {}: \
                 each gets packets that are for the other, and connections fail. A deleted folder, containers and systemd's PrivateTmp \
                 lead to that; set RNIC_RUNTIME_DIR to one folder for all",
                registry.path().display()
            ));
            // So that the other one hears of it, too.
            self.probe(registry);
        }
        true
    }

    pub(super) fn publish(&mut self, registry: &Registry) {
        let Ok(locked) = registry.lock(Duration::ZERO) else {
            return;
        };
        let published = registry.publish_slot(&locked, self.known.number());
        if published
            .and_then(|()| self.steer(registry, &locked))
            .is_ok()
        {
            self.unpublished = false;
        }
    }

    /// Something came that steering should have brought to another process.
    pub(super) fn is_stale(&mut self, registry: &Registry, now_ns: u64) {
        if now_ns < self.probe_not_before {
            return;
        }
        let calm_since = self
            .probe_not_before
            .saturating_add(2 * self.probe_interval);
        self.probe_interval = if now_ns > calm_since {
            *PROBE_INTERVAL.start()
        } else {
            (2 * self.probe_interval).min(*PROBE_INTERVAL.end())
        };
        self.probe_not_before = now_ns.saturating_add(self.probe_interval);
        self.probe(registry);
        // A program that somebody spoilt while all slots stayed as they were.
        self.unpublished = self.known.number().is_some();
    }

    /// Once a second: requests, whose process no BPF program can know, go to one process that is
    /// seen to run. It counts up; a process that finds that it does not any more takes its place.
    pub(super) fn mind_requests(&mut self, registry: &Registry) {
        let (Some(own), Some(_)) = (registry.own().first(), self.known.number()) else {
            return;
        };
        let seen = registry.taker();
        if let Some(taker) = seen.filter(|taker| taker.range == *own) {
            registry.set_taker(taker.again());
            return;
        }
        self.looks = if seen == self.taker {
            self.looks + 1
        } else {
            0
        };
        self.taker = seen;
        let runs =
            |taker: &Taker| self.looks < LOOKS && registry.is_live(taker.range).unwrap_or(true);
        if seen.as_ref().is_some_and(runs) {
            return;
        }
        let Ok(locked) = registry.lock(Duration::ZERO) else {
            return;
        };
        if registry.taker() == seen {
            registry.set_taker(Taker::new(*own));
            // What is left undone is done with the next slot that is published.
            let _ = self.steer(registry, &locked);
        }
    }
}

/// Sends probes for the slots 0.. of a group of about `members`.
pub(super) fn send_probes(cookie: u64, members: usize) {
    let round = sys::random_u64();
    let loopback: [(SocketAddr, i32); 2] = [
        ((Ipv4Addr::LOCALHOST, ROCE_PORT).into(), libc::AF_INET),
        ((Ipv6Addr::LOCALHOST, ROCE_PORT).into(), libc::AF_INET6),
    ];
    for (to, family) in loopback {
        let Ok(fd) = sys::socket(family, libc::SOCK_DGRAM) else {
            continue;
        };
        let to = Addr::inet(&to);
        let all_sent = (0..members.min(MAX_SLOTS)).all(|slot| {
            let probe = Probe {
                slot: slot as u8,
                cookie,
                round,
            };
            sys::send_to(&fd, &probe.encode(), Some(&to)).is_ok()
        });
        if all_sent {
            return;
        }
    }
}
