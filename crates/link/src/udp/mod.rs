//! The link over UDP sockets: one that receives on port 4791, and per local address a few that
//! send.
//!
//! Receiving: one dual-stack socket `[::]:4791` (`0.0.0.0:4791` where IPv6 is off) in an
//! SO_REUSEPORT group with the other processes, UDP_GRO on, never connected. Sending: see [`tx`]. A
//! run of packets is one `sendto`, cut by the socket's UDP_SEGMENT, which mostly stays as it is
//! (per message it would cost 0.2 us more); several runs are one `sendmmsg`.
//!
//! # When the kernel does not cut
//! EINVAL or EIO on UDP_SEGMENT (old kernels, devices without checksum offload): the run is
//! numbered anew, ID 0 for every packet, and sent one by one; the route stays without GSO from then
//! on. So it does where a run leaves by the tap for such a device (`xdp/tap_offload.rs`) and is
//! refused there, whatever the error. More than 64 packets in a run need Linux 6.9; if that turns
//! out wrong, the limit falls back to 64. Refused for a lone packet, to which the kernel applies
//! what a run to another peer left in UDP_SEGMENT: it is sent without, and from then on all lone
//! packets of that route are.
//!
//! When a socket's send buffer is full: see module `waiting`.

pub(crate) mod backlog;
pub mod inquiry;
pub mod rx;
pub mod tx;
pub(crate) mod waiting;

use std::io;
use std::num::NonZeroU32;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::LinkCounters;
use crate::staging::batch::{Run, TxBatch};
use crate::staging::datagram::{Arrival, Link};
use crate::staging::framing::{Numbering, seal};
use crate::staging::path::Route;
use rnic_host::train::{IpIds, IpMarks, Train};
use rnic_sys::{self as sys, Fd, Message, SEND_MANY};
use waiting::{Moment, Waiting};

/// UDP_MAX_SEGMENTS before and since Linux 6.9.
const SEGMENTS_OLD: usize = 64;
const SEGMENTS_NEW: usize = 128;

/// How often a run is tried at a connected socket, which says once of each ICMP error that it has
/// heard of one, and sends nothing then. Strangers may forge them.
const TRIES: u32 = 8;

/// The link over UDP.
pub struct UdpLink {
    receiver: Arc<Fd>,
    max_segments: AtomicUsize,
    waiting: Waiting,
}

impl UdpLink {
    pub(crate) fn new(receiver: Arc<Fd>) -> UdpLink {
        let segments = if sys::kernel_version() >= (6, 9) {
            SEGMENTS_NEW
        } else {
            SEGMENTS_OLD
        };
        UdpLink {
            receiver,
            max_segments: AtomicUsize::new(segments),
            waiting: Waiting::default(),
        }
    }

    /// Sends `runs`, each row of one socket with as few calls as it takes.
    pub(crate) fn send_all(
        &mut self,
        runs: &[Run],
        bytes: &mut [u8],
        at: Moment,
        counters: &mut LinkCounters,
    ) {
        let same_socket = |a: &Run, b: &Run| match (&a.route, &b.route) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.socket, &b.socket),
            _ => false,
        };
        for group in runs.chunk_by(same_socket) {
            self.send_group(group, bytes, at, counters);
        }
    }

    /// Sends `runs`, all through one socket, and counts. What it has no room for waits.
    fn send_group(
        &mut self,
        runs: &[Run],
        bytes: &mut [u8],
        at: Moment,
        counters: &mut LinkCounters,
    ) {
        let mut first = 0;
        let mut tries = 0;
        while first < runs.len() {
            let full = |run: &Run| run.route.as_ref().is_some_and(|r| r.socket.is_full());
            if full(&runs[first]) {
                self.keep(&runs[first..], bytes, at, counters);
                return;
            }
            let sent = send_runs(&runs[first..], bytes);
            counters.tx_syscalls += 1;
            match sent {
                Ok(n) => {
                    self.waiting.moved();
                    for run in &runs[first..first + n] {
                        counters.tx_packets += run.count as u64;
                        counters.tx_bytes += run.len as u64;
                        if tap_of(run).is_some() {
                            counters.tx_detour_packets += run.count as u64;
                        }
                        if run
                            .route
                            .as_ref()
                            .is_some_and(|r| r.flow.dst.is_multicast())
                        {
                            counters.tx_multicast += run.count as u64;
                        }
                    }
                    first += n;
                    tries = 0;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.keep(&runs[first..], bytes, at, counters);
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A connected socket tells what became of an earlier packet (ICMP); this run has
                // not been tried.
                Err(_) if tries < TRIES && is_connected(&runs[first]) => tries += 1,
                Err(e) => {
                    self.refused(&runs[first], bytes, &e, at, counters);
                    first += 1;
                    tries = 0;
                }
            }
        }
    }

    /// The socket of `runs` is full.
    #[cold]
    fn keep(&mut self, runs: &[Run], bytes: &[u8], at: Moment, counters: &mut LinkCounters) {
        for run in runs {
            let packets = run.count as u64;
            if !self.waiting.keep(run, bytes, at) {
                counters.tx_errors += packets;
            } else if at.is_first() {
                counters.tx_waited += packets;
            }
        }
    }

    /// Tries what waits, if it is time.
    #[inline]
    pub(crate) fn try_waiting(&mut self, now: u64, counters: &mut LinkCounters) {
        if self.waiting.is_due(now) {
            self.try_again(now, counters);
        }
    }

    #[cold]
    fn try_again(&mut self, now: u64, counters: &mut LinkCounters) {
        for mut kept in self.waiting.take() {
            let at = kept.at.again(now);
            self.send_group(slice::from_ref(&kept.run), &mut kept.bytes, at, counters);
        }
    }

    /// The kernel took nothing of `run`.
    fn refused(
        &mut self,
        run: &Run,
        bytes: &mut [u8],
        error: &io::Error,
        at: Moment,
        counters: &mut LinkCounters,
    ) {
        // What an interface that is not the routes' does not take may go by theirs.
        let not_cut = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO))
            || tap_of(run).is_some() && !lacks_memory(error);
        let Some(route) = run.route.as_ref().filter(|_| not_cut) else {
            counters.tx_errors += run.count as u64;
            return;
        };
        if run.count == 1 {
            if route.leave_bare() {
                self.send_group(slice::from_ref(run), bytes, at, counters);
            } else {
                counters.tx_errors += 1;
            }
            return;
        }
        if run.count > SEGMENTS_OLD {
            self.max_segments.store(SEGMENTS_OLD, Ordering::Relaxed);
        } else {
            route.refuse_gso();
        }
        seal(
            &mut bytes[run.start..run.start + run.len],
            run.segment,
            &route.icrc,
            Numbering::Single,
        );
        let singles: Vec<Run> = (0..run.count)
            .map(|k| {
                let start = run.start + k * run.segment;
                let len = run.segment.min(run.start + run.len - start);
                Run {
                    route: Some(route.clone()),
                    start,
                    len,
                    segment: len,
                    count: 1,
                }
            })
            .collect();
        self.send_group(&singles, bytes, at, counters);
    }
}

fn lacks_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

fn is_connected(run: &Run) -> bool {
    run.route.as_ref().is_some_and(|r| r.socket.connected())
}

/// The interface by which a run leaves, where its routes do not say it.
fn tap_of(run: &Run) -> Option<NonZeroU32> {
    let route = run.route.as_ref().filter(|_| run.count > 1)?;
    route.tap()
}

fn message<'a>(run: &'a Run, bytes: &'a [u8]) -> Option<Message<'a>> {
    Some(Message {
        bytes: &bytes[run.start..run.start + run.len],
        segment: if run.count > 1 { run.segment as u16 } else { 0 },
        to: run.route.as_ref()?.to(),
        by: tap_of(run),
    })
}

/// Hands up to [`SEND_MANY`] runs, all through one socket, to the kernel; returns how many went.
fn send_runs(runs: &[Run], bytes: &[u8]) -> io::Result<usize> {
    let (Some(first), Some(route)) = (
        runs.first().and_then(|run| message(run, bytes)),
        runs.first().and_then(|run| run.route.as_ref()),
    ) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let socket = &route.socket;
    match runs {
        [_] if first.by.is_none() => {
            // Where the kernel does not cut, it may not even be asked to.
            let len = if route.gso() && !route.leaves_bare() {
                first.bytes.len()
            } else {
                usize::MAX
            };
            socket.cut_into(first.segment, len)?;
            sys::send_to(socket.fd(), first.bytes, first.to).map(|_| 1)
        }
        _ => {
            let messages: smallvec::SmallVec<[Message<'_>; SEND_MANY]> = runs
                .iter()
                .take(SEND_MANY)
                .map_while(|run| message(run, bytes))
                .collect();
            socket.cut_into(0, usize::MAX)?;
            sys::send_many(socket.fd(), &messages)
        }
    }
}

impl Link for UdpLink {
    fn max_segments(&self, route: &Route) -> usize {
        if route.gso() {
            self.max_segments.load(Ordering::Relaxed)
        } else {
            1
        }
    }

    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters) {
        self.try_waiting(now_ns, counters);
        let (runs, bytes) = batch.parts_mut();
        self.send_all(runs, bytes, Moment::first(now_ns), counters);
    }

    fn next_timeout(&self) -> Option<u64> {
        self.waiting.next_timeout()
    }

    fn overrun(&self) -> u64 {
        sys::overrun(&self.receiver).unwrap_or(0)
    }

    fn receive(&mut self, buffer: &mut [u8], _thorough: bool) -> io::Result<Arrival> {
        let datagram = match sys::receive(&self.receiver, buffer) {
            Ok(d) => d,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Arrival::Empty),
            Err(e) => return Err(e),
        };
        let (Some(from), Some(dst), false) = (datagram.from, datagram.to, datagram.truncated)
        else {
            return Ok(Arrival::Useless);
        };
        let segment = if datagram.segment == 0 {
            datagram.len
        } else {
            datagram.segment
        };
        Ok(Arrival::Train(Train {
            src: from.ip().to_canonical(),
            src_port: from.port(),
            dst,
            len: datagram.len,
            segment: segment.max(1),
            ids: IpIds::Hidden,
            marks: datagram.hop_limit.zip(datagram.traffic_class).map(
                |(hop_limit, traffic_class)| IpMarks {
                    traffic_class,
                    hop_limit,
                },
            ),
        }))
    }
}

#[cfg(test)]
mod tests;
