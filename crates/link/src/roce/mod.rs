//! The link as the device sees it.

mod config;
mod groups;
mod hand_over;
mod inbox;
mod one_sided;
mod paths;
mod processes;
mod quick_poll;
mod receiving;
mod sending;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use config::LinkConfig;
use inbox::Inbox;
use paths::Paths;
pub use quick_poll::QuickPoll;
pub use receiving::Look;

use crate::middleware::faults::Faults;
use crate::middleware::pcap::{Capture, Pcap};
use crate::shm::{ShmPath, Surroundings};
use crate::staging::batch::TxBatch;
use crate::staging::datagram::Link;
use crate::udp::UdpLink;
use crate::udp::backlog::Backlog;
use crate::{Gso, LinkCounters, LinkError, udp, xdp};
use rnic_host::membership::Membership;
use rnic_host::source_ports::SourcePorts;
use rnic_host::stopped::Stopped;
use rnic_sys as sys;

/// The process's part of the host's RoCEv2 port. Not `Sync`: the engine's lock guards it.
///
/// # Drive contract
/// Sending: [`packet`](RoceLink::packet) gives room, the caller fills it (or
/// [`retract`](RoceLink::retract)s it), and [`flush`](RoceLink::flush) sends; when `packet` gives
/// `None`, flush first. Receiving: [`receive`](RoceLink::receive) when [`rx_fd`](RoceLink::rx_fd)
/// is readable, or whenever the caller polls; it may leave packets behind, so wait for the
/// descriptors level-triggered. [`maintain`](RoceLink::maintain) now and then.
///
/// After [`abandon`](RoceLink::abandon) all calls do nothing.
pub struct RoceLink {
    live: Option<Live>,
    counters: LinkCounters,
}

struct Live {
    link: Box<dyn Link>,
    batch: TxBatch,
    paths: Paths,
    gso: Gso,
    inbox: Inbox,
    membership: Membership,
    backlog: Backlog,
    shm: Option<ShmPath>,
    /// What is taken from interfaces past the kernel's network stack.
    xdp: Option<xdp::Filter>,
    /// When the socket is looked at again while rings are in use.
    look_at: u64,
    /// Which processes are stopped.
    stopped: Stopped,
    /// The packet given out last is in a ring's buffer.
    by_shm: bool,
    /// A ring was full since the last [`RoceLink::take_blocked`].
    blocked: bool,
    /// The time at the last call that had one.
    now: u64,
}

impl RoceLink {
    /// Joins the host's port 4791 and claims a first QPN range.
    pub fn open(config: &LinkConfig) -> Result<RoceLink, LinkError> {
        let gso = match config.no_gso {
            true => Gso::Off,
            false => rnic_settings::gso()?,
        };
        let capture = config.pcap.as_deref().map(capture_in).transpose()?;
        let mut membership = Membership::join(config.beside, udp::rx::open)?;
        sys::keep_spare();
        let udp = UdpLink::new(membership.receiver().clone());
        let (mut link, xdp): (Box<dyn Link>, _) = match &config.xdp {
            Some(spec) if config.beside.is_none() => {
                match xdp::open(spec, udp, membership.receiver(), config.always_tap_offload) {
                    Ok((link, filter)) => (Box::new(link), Some(filter)),
                    Err(udp) => (Box::new(udp), None),
                }
            }
            _ => (Box::new(udp), None),
        };
        if let Some(xdp) = &xdp {
            for range in membership.ranges() {
                xdp.take_range(*range);
            }
        }
        if let Some(capture) = capture {
            membership.captured_in(capture.number());
            link = Box::new(Pcap::new(link, capture));
        }
        let shm = if config.host_path && config.faults.is_none() && config.pcap.is_none() {
            let (dir, path) = membership.folder();
            Some(ShmPath::open(
                dir,
                path,
                membership.first(),
                config.one_sided,
                Surroundings::System,
            )?)
        } else {
            None
        };
        if let Some(spec) = config.faults {
            link = Box::new(Faults::new(link, spec));
        }
        let mut link = RoceLink {
            live: Some(Live {
                link,
                batch: TxBatch::default(),
                paths: Paths::noted_in(membership.source_ports().clone()),
                gso,
                inbox: Inbox::default(),
                backlog: Backlog::new(udp::rx::is_dual_stack(membership.receiver())),
                membership,
                shm,
                xdp,
                look_at: 0,
                stopped: Stopped::default(),
                by_shm: false,
                blocked: false,
                now: 0,
            }),
            counters: LinkCounters::default(),
        };
        link.settle();
        Ok(link)
    }

    /// Waits, not for long, until this process has learnt its place in the group: packets would be
    /// handed over before.
    fn settle(&mut self) {
        for attempt in 0..20 {
            let Some(live) = &mut self.live else { return };
            if live.membership.settled() {
                break;
            }
            if attempt % 5 == 4 {
                live.membership.probe();
            }
            sys::wait_readable(live.membership.receiver(), 10);
            self.receive(0, 64, true, &mut |_| {});
        }
        self.counters = LinkCounters::default();
    }

    /// House-keeping of the registry (reap dead processes, refresh the steering program when
    /// stale); call it every now and then from the background thread. Returns after how many
    /// nanoseconds it wants to be called again.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        match &mut self.live {
            Some(live) => {
                if let Some(shm) = &mut live.shm {
                    shm.maintain();
                    shm.attend(&mut self.counters);
                }
                live.paths.tidy();
                live.membership.maintain(now_ns)
            }
            None => u64::MAX,
        }
    }

    /// Says which process packets from addresses of this host come from.
    pub fn source_ports(&self) -> Option<Arc<SourcePorts>> {
        let live = self.live.as_ref()?;
        Some(live.membership.source_ports().clone())
    }

    /// Half the effective receive buffer in bytes: what all peers together may have in flight
    /// towards us.
    pub fn receive_buffer(&self) -> usize {
        self.live.as_ref().map_or(0, |live| {
            udp::rx::receive_buffer(live.membership.receiver()) / 2
        })
    }

    /// In a forked child: close every descriptor without telling anyone.
    pub fn abandon(&mut self) {
        // Nothing of it is changed that others see: the parent's part goes on.
        self.live = None;
    }

    /// Counts since open.
    pub fn counters(&self) -> LinkCounters {
        let mut counters = self.counters;
        if let Some(live) = &self.live {
            counters.rx_xdp_packets += live.link.received_by_xdp();
            if let Some(shm) = &live.shm {
                shm.cma_counters().add_to(&mut counters);
            }
        }
        counters
    }

    /// The same with what the kernel counts, [`rx_overrun`](LinkCounters::rx_overrun): that takes a
    /// system call for each socket.
    pub fn all_counters(&self) -> LinkCounters {
        let mut counters = self.counters();
        if let Some(live) = &self.live {
            counters.rx_overrun += live.link.overrun();
        }
        counters
    }
}

/// How long a link that closes goes on to receive, others waiting for the registry's lock
/// meanwhile: what a receive buffer holds takes less, and a flood does not end.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// Packets, or looks, until the clock is asked.
const DRAIN_STEP: usize = 256;

impl RoceLink {
    /// Nothing is sent any more: what a full socket has not taken yet has some time to leave. The
    /// program may have been told that it was sent.
    pub fn send_what_waits(&mut self) {
        if let Some(live) = &mut self.live {
            send_what_waits(&mut *live.link, live.now, &mut self.counters);
        }
    }

    /// Receives what is still there, for the sake of packets that are for others.
    fn drain(&mut self) {
        let start = Instant::now();
        let begin = self.live.as_ref().map_or(0, |live| live.now);
        loop {
            let before = self.counters.rx_packets;
            let now = begin.saturating_add(start.elapsed().as_nanos() as u64);
            self.receive_while(now, DRAIN_STEP, Look::Drain, &mut |_| {
                ControlFlow::Continue(())
            });
            if self.counters.rx_packets == before || start.elapsed() >= DRAIN_TIME {
                break;
            }
        }
    }
}

/// See [`RoceLink::send_what_waits`].
pub(crate) fn send_what_waits(link: &mut dyn Link, begin: u64, counters: &mut LinkCounters) {
    let start = Instant::now();
    let end = begin.saturating_add(DRAIN_TIME.as_nanos() as u64);
    while let Some(at) = link.next_timeout() {
        let now = begin.saturating_add(start.elapsed().as_nanos() as u64);
        let next = at.max(now);
        if next >= end {
            break;
        }
        std::thread::sleep(Duration::from_nanos(next - now));
        link.send(&mut TxBatch::default(), next, counters);
    }
}

/// Opens the file of `RNIC_PCAP`, which an error names: nobody else would say which file is meant.
fn capture_in(file: &Path) -> Result<Capture, LinkError> {
    Capture::open(file).map_err(|error| {
        let source = match error {
            LinkError::Io { source, .. } => source,
            other => return other,
        };
        LinkError::Capture {
            path: file.into(),
            source,
        }
    })
}

impl Drop for RoceLink {
    fn drop(&mut self) {
        self.send_what_waits();
        if let Some(live) = &mut self.live {
            // What lies in rings is for nobody but this process, and a producer need not go on.
            live.shm = None;
            live.membership.begin_to_leave();
            self.drain();
        }
        if let Some(live) = self.live.take() {
            let Live {
                link, membership, ..
            } = live;
            // Closes its copy of the receiving socket.
            drop(link);
            membership.leave();
        }
    }
}

#[cfg(test)]
mod tests;
