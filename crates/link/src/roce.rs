//! The link as the device sees it.

use std::net::IpAddr;
use std::os::fd::RawFd;

use rnic_wire::{Flow, ICRC_LEN, IcrcContext, PeerIds, ROCE_PORT};

use crate::batch::TxBatch;
use crate::datagram::{Arrival, Link, Train};
use crate::door::HEADER_LEN;
use crate::faults::Faults;
use crate::framing::{Numbering, dest_qpn, seal};
use crate::path::{PathId, PathSpec, Paths};
use crate::pcap::Pcap;
use crate::registry::{QpnRange, range_of};
use crate::share::Share;
use crate::steering::FIRST_PROBE_QPN;
use crate::udp::UdpLink;
use crate::{Gso, LinkConfig, LinkCounters, LinkError, sys, udp};

/// A packet that arrived: ICRC right, QPN ours.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// From the first byte of the BTH to the last pad byte, without ICRC.
    pub bytes: &'a [u8],
    /// Destination QPN from the BTH.
    pub dest_qpn: u32,
}

/// Longest train and the header of a hand-over before it.
const BUFFER_LEN: usize = 65_536 + HEADER_LEN;
/// Another look is worth its system call when the last one brought this much.
const MORE_LIKELY: usize = 8192;
/// How long the door is looked at in every call after something came through it.
const DOOR_WATCH_NS: u64 = 100_000_000;
/// Otherwise in every so many calls.
const DOOR_EVERY: u32 = 256;

/// The process's part of the host's RoCEv2 port. Not `Sync`: the engine's lock guards it.
///
/// # Drive contract
/// Sending: [`packet`](RoceLink::packet) gives room, the caller fills it (or [`retract`](RoceLink::retract)s it), and
/// [`flush`](RoceLink::flush) sends; when `packet` gives `None`, flush first. Receiving: [`receive`](RoceLink::receive)
/// when [`rx_fd`](RoceLink::rx_fd) is readable, or whenever the caller polls; it may leave packets behind, so wait for
/// the descriptors level-triggered. [`maintain`](RoceLink::maintain) now and then.
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
    share: Share,
}

impl RoceLink {
    /// Joins the host's port 4791 and claims a first QPN range.
    pub fn open(config: &LinkConfig) -> Result<RoceLink, LinkError> {
        let capture = match &config.pcap {
            Some(path) => Some(crate::pcap::Capture::open(path)?),
            None => None,
        };
        let share = Share::join()?;
        let udp = UdpLink::new(share.receiver().clone());
        let mut link: Box<dyn Link> = match capture {
            Some(capture) => Box::new(Pcap::new(udp, capture)),
            None => Box::new(udp),
        };
        if let Some(spec) = config.faults {
            link = Box::new(Faults::new(link, spec));
        }
        let mut link = RoceLink {
            live: Some(Live {
                link,
                batch: TxBatch::default(),
                paths: Paths::default(),
                gso: Gso::from_environment(config),
                inbox: Inbox::default(),
                share,
            }),
            counters: LinkCounters::default(),
        };
        link.settle();
        Ok(link)
    }

    /// Waits, not for long, until this process has learnt its place in the group: packets would be handed over before.
    fn settle(&mut self) {
        for attempt in 0..20 {
            let Some(live) = &mut self.live else { return };
            if live.share.settled() {
                break;
            }
            if attempt % 5 == 4 {
                live.share.probe();
            }
            sys::wait_readable(live.share.receiver(), 10);
            self.receive(0, 64, true, &mut |_| {});
        }
        self.counters = LinkCounters::default();
    }

    /// The QPN ranges of this process.
    pub fn qpn_ranges(&self) -> &[QpnRange] {
        self.live.as_ref().map_or(&[], |live| live.share.ranges())
    }

    /// Claims one more range.
    pub fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        match &mut self.live {
            Some(live) => live.share.claim(),
            None => Err(LinkError::Io {
                what: "claim a QPN range",
                source: std::io::ErrorKind::NotConnected.into(),
            }),
        }
    }

    /// Sets up (or finds again) a path; counted, give it back with `release_path`.
    pub fn path(&mut self, spec: &PathSpec) -> Result<PathId, LinkError> {
        let Some(live) = &mut self.live else {
            return Err(LinkError::Io {
                what: "set up a path",
                source: std::io::ErrorKind::NotConnected.into(),
            });
        };
        let gso = live.gso;
        live.paths.open(spec, || match gso {
            Gso::On => true,
            Gso::Off => false,
            Gso::LocalOnly => udp::tx::is_local(spec),
        })
    }

    /// Gives a path back.
    pub fn release_path(&mut self, path: PathId) {
        if let Some(live) = &mut self.live {
            live.paths.release(path);
        }
    }

    /// Largest IP packet that the way to the peer takes, bytes (65536 on lo); `None` if unknown.
    pub fn path_ip_mtu(&self, spec: &PathSpec) -> Option<u32> {
        udp::tx::path_mtu(spec)
    }

    /// Room for one packet of `len` bytes (BTH .. last pad byte; the link adds the ICRC), with arbitrary content;
    /// `None`: flush first. A packet of a path that was given back is lost.
    #[inline]
    pub fn packet(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        let live = self.live.as_mut()?;
        let route = live.paths.get(path);
        let segments = route.map_or(1, |route| live.link.max_segments(route));
        live.batch.packet(route, len, segments)
    }

    /// Takes back the packet given out last.
    pub fn retract(&mut self) {
        if let Some(live) = &mut self.live {
            live.batch.retract();
        }
    }

    /// Packets are waiting for `flush`.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.batch.is_empty())
    }

    /// Completes ICRCs and sends all packets built since the last flush. Never blocks; what the kernel refuses is
    /// counted and lost, as on a wire.
    pub fn flush(&mut self, now_ns: u64) {
        let Some(live) = &mut self.live else { return };
        if live.batch.is_empty() && live.link.next_timeout().is_none_or(|t| t > now_ns) {
            return;
        }
        let (runs, bytes) = live.batch.parts_mut();
        for run in runs {
            let Some(route) = &run.route else { continue };
            let numbering = if run.count > 1 {
                Numbering::Batch
            } else {
                Numbering::Single
            };
            let bytes = &mut bytes[run.start..run.start + run.len];
            seal(bytes, run.segment, &route.icrc, numbering);
        }
        live.link.send(&mut live.batch, now_ns, &mut self.counters);
        live.batch.clear();
    }

    /// Receives until nothing is there or about `budget` packets were handed to `deliver`; never blocks.
    /// Returns packets delivered. `door`: also look at the hand-over door (the background thread does; other calls
    /// look there too while it is in use, and rarely else).
    pub fn receive(
        &mut self,
        now_ns: u64,
        budget: usize,
        door: bool,
        deliver: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let Some(live) = &mut self.live else { return 0 };
        let counters = &mut self.counters;
        let inbox = &mut live.inbox;
        let mut delivered = 0;
        while delivered < budget {
            counters.rx_syscalls += 1;
            match live.link.receive(&mut inbox.buffer[HEADER_LEN..]) {
                Ok(Arrival::Train(train)) => {
                    delivered +=
                        inbox.train(&train, Some(now_ns), &mut live.share, counters, deliver);
                    if train.len < MORE_LIKELY && train.len <= train.segment {
                        break;
                    }
                }
                Ok(Arrival::Useless) => counters.rx_truncated += 1,
                Ok(Arrival::Empty) | Err(_) => break,
            }
        }
        if door || inbox.door_is_due(now_ns) {
            while delivered < budget {
                counters.rx_syscalls += 1;
                match live.share.door().receive(&mut inbox.buffer) {
                    Ok(Arrival::Train(train)) => {
                        inbox.door_until = now_ns.saturating_add(DOOR_WATCH_NS);
                        delivered += inbox.train(&train, None, &mut live.share, counters, deliver);
                    }
                    Ok(Arrival::Useless) => counters.rx_truncated += 1,
                    Ok(Arrival::Empty) | Err(_) => break,
                }
            }
        }
        live.share.after_receive();
        delivered
    }

    /// When `flush` must be called for held-back packets (fault injection's delay and reorder).
    pub fn next_timeout(&self) -> Option<u64> {
        self.live.as_ref().and_then(|live| live.link.next_timeout())
    }

    /// The socket on which packets arrive: readable means call `receive`. -1 after `abandon`.
    pub fn rx_fd(&self) -> RawFd {
        self.live
            .as_ref()
            .map_or(-1, |live| live.share.receiver().raw())
    }

    /// The hand-over door and other rarely readable descriptors: readable means call `receive(.., door: true, ..)`.
    pub fn door_fds(&self) -> Vec<RawFd> {
        self.live
            .iter()
            .map(|live| live.share.door().raw_fd())
            .collect()
    }

    /// House-keeping of the registry (reap dead processes, refresh the steering program when stale); call it every
    /// now and then from the background thread. Returns after how many nanoseconds it wants to be called again.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        match &mut self.live {
            Some(live) => live.share.maintain(now_ns),
            None => u64::MAX,
        }
    }

    /// Half the effective receive buffer in bytes: what all peers together may have in flight towards us.
    pub fn receive_buffer(&self) -> usize {
        self.live
            .as_ref()
            .map_or(0, |live| udp::rx::receive_buffer(live.share.receiver()) / 2)
    }

    /// In a forked child: close every descriptor without telling anyone.
    pub fn abandon(&mut self) {
        self.live = None;
    }

    /// Counts since open.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl Drop for RoceLink {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            let Live { link, share, .. } = live;
            // Closes its copy of the receiving socket.
            drop(link);
            share.leave();
        }
    }
}

/// The receiving side: buffer and what is known about senders.
struct Inbox {
    buffer: Box<[u8]>,
    /// By hash of addresses and port; a sender that falls to the same place as another displaces it.
    senders: Vec<Option<Sender>>,
    door_until: u64,
    calls: u32,
}

struct Sender {
    flow: Flow,
    icrc: IcrcContext,
    ids: PeerIds,
}

const SENDERS: usize = 256;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            buffer: vec![0; BUFFER_LEN].into(),
            senders: (0..SENDERS).map(|_| None).collect(),
            door_until: 0,
            calls: 0,
        }
    }
}

impl Sender {
    fn new(flow: Flow) -> Sender {
        Sender {
            flow,
            icrc: IcrcContext::new(&flow),
            ids: PeerIds::default(),
        }
    }
}

fn sender_of(senders: &mut [Option<Sender>], flow: Flow) -> &mut Sender {
    let slot = &mut senders[place_of(&flow)];
    if slot.as_ref().is_some_and(|sender| sender.flow != flow) {
        *slot = None;
    }
    slot.get_or_insert_with(|| Sender::new(flow))
}

fn place_of(flow: &Flow) -> usize {
    let fold = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            bits as u64 ^ (bits >> 64) as u64
        }
    };
    let key =
        fold(flow.src) ^ fold(flow.dst).rotate_left(29) ^ u64::from(flow.src_port).rotate_left(47);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SENDERS
}

impl Inbox {
    fn door_is_due(&mut self, now_ns: u64) -> bool {
        self.calls = self.calls.wrapping_add(1);
        now_ns < self.door_until || self.calls.is_multiple_of(DOOR_EVERY)
    }

    /// Sorts the packets of a train, which lies in the buffer behind [`HEADER_LEN`] bytes. `hand_over`: the time, if
    /// foreign packets may be handed over. Returns packets delivered.
    fn train(
        &mut self,
        train: &Train,
        hand_over: Option<u64>,
        share: &mut Share,
        counters: &mut LinkCounters,
        deliver: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let Inbox {
            buffer, senders, ..
        } = self;
        let bytes = &buffer[HEADER_LEN..][..train.len];
        let flow = Flow {
            src: train.src,
            dst: train.dst,
            src_port: train.src_port,
            dst_port: ROCE_PORT,
        };
        let sender = sender_of(senders, flow);
        let mut delivered = 0;
        let mut at = 0;
        while at < bytes.len() {
            let packet = &bytes[at..(at + train.segment).min(bytes.len())];
            let Some(qpn) = dest_qpn(packet) else {
                counters.rx_packets += 1;
                counters.rx_bytes += packet.len() as u64;
                counters.rx_truncated += 1;
                at += packet.len();
                continue;
            };
            if !share.owns(qpn) {
                let n = foreign(train, &bytes[at..], qpn, hand_over, share, counters);
                at += n * train.segment;
                continue;
            }
            counters.rx_packets += 1;
            counters.rx_bytes += packet.len() as u64;
            if hand_over.is_none() {
                counters.rx_adopted += 1;
            }
            if sender.ids.check(&sender.icrc, packet).is_ok() {
                deliver(Received {
                    src: flow.src,
                    dst: flow.dst,
                    bytes: &packet[..packet.len() - ICRC_LEN],
                    dest_qpn: qpn,
                });
                delivered += 1;
            } else {
                counters.rx_bad_icrc += 1;
            }
            at += packet.len();
        }
        delivered
    }
}

/// Packets at the front of `rest` that are for the same foreign range: probe, hand-over, or nobody's. Returns how many.
#[cold]
#[allow(
    clippy::too_many_arguments,
    reason = "the loop of Inbox::train, cut in two"
)]
fn foreign(
    train: &Train,
    rest: &[u8],
    qpn: u32,
    hand_over: Option<u64>,
    share: &mut Share,
    counters: &mut LinkCounters,
) -> usize {
    let range = range_of(qpn);
    let n = rest
        .chunks(train.segment)
        .take_while(|packet| dest_qpn(packet).is_some_and(|q| range_of(q) == range))
        .count()
        .max(1);
    let packets = &rest[..(n * train.segment).min(rest.len())];
    if qpn >= FIRST_PROBE_QPN && n == 1 && share.on_probe(train, packets) {
        return n;
    }
    counters.rx_packets += n as u64;
    counters.rx_bytes += packets.len() as u64;
    let train = Train {
        len: packets.len(),
        ..*train
    };
    match hand_over {
        Some(now_ns) if share.hand_over(qpn, &train, packets, now_ns) => {
            counters.rx_handed_over += n as u64;
        }
        _ => counters.rx_unknown_qpn += n as u64,
    }
    n
}

#[cfg(test)]
mod tests;
