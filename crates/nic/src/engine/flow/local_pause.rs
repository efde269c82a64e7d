//! Back pressure for services without acknowledgements, on this host.
//!
//! A network card sends no faster than its wire, and what it sends reaches the peer's memory at
//! that pace. Between processes of one host nothing paces UC and UD but the receive buffer of the
//! peer's socket, and what does not fit in there is lost. So a sender looks now and then how full
//! the host's receive buffers are, and while one is half full it waits: its work requests complete
//! later, as if the wire were busy.

use std::collections::TryReserveError;

use rnic_link::Port;
use rnic_settings::ablation::{self, Policy};

/// How long to wait before looking again.
const PAUSE_NS: u64 = 100_000;
/// A process that is stopped takes nothing, and is waited for no longer than this,
const STOPPED_PEER_TIMEOUT_NS: u64 = 1_000_000_000;
/// nor again for so long.
const STOPPED_PEER_IGNORED_NS: u64 = 10_000_000_000;
/// What the kernel's book-keeping of a small datagram takes of a receive buffer.
const OVERHEAD: usize = 768;
/// More than this need not wait in a receive buffer, however large it is: what waits there has left
/// the caches.
const MOST_WAITING: usize = 4 << 20;

/// Whether UC and UD may send to this host.
#[derive(Debug, Default)]
pub(in crate::engine) struct LocalPause {
    /// Bytes for this host since the last look.
    sent: usize,
    /// Closed since, and at least until.
    closed: Option<(u64, u64)>,
    /// Nobody looks before.
    blind_until: u64,
    /// Queue pairs that wait.
    held: Vec<u32>,
    /// Half of a receive buffer, or [`MOST_WAITING`], once asked for.
    half: usize,
}

impl LocalPause {
    /// Packets for this host were built.
    #[inline]
    pub(in crate::engine) fn count(&mut self, len: usize, packets: usize) {
        self.sent += (len + OVERHEAD) * packets;
    }

    /// So much was sent that it is time to look; what was built is to be flushed before.
    #[inline]
    pub(in crate::engine) fn is_due(&mut self, link: &Port) -> bool {
        if self.half == 0 {
            self.half = link.receive_buffer().clamp(1, MOST_WAITING);
        }
        self.sent > self.half / 4
    }

    /// Closes if there is no room for more.
    pub(in crate::engine) fn look(&mut self, link: &mut Port, now: u64) {
        self.sent = 0;
        if ablation::is_out(Policy::LocalPause) {
            return;
        }
        if now >= self.blind_until && self.is_half_full(link) {
            self.closed = Some((now, now.saturating_add(PAUSE_NS)));
        }
    }

    #[inline]
    pub(in crate::engine) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Makes room for so many.
    pub(in crate::engine) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        crate::engine::reserve_for(&mut self.held, most)
    }

    /// A queue pair waits until the pause is over.
    pub(in crate::engine) fn hold(&mut self, qpn: u32) {
        self.held.push(qpn);
    }

    /// When it is to be looked at again.
    pub(in crate::engine) fn deadline(&self) -> Option<u64> {
        let (_, until) = self.closed?;
        (!self.held.is_empty()).then_some(until)
    }

    /// Opens if it is time and there is room, or nobody makes any; gives those who waited.
    pub(in crate::engine) fn try_open(
        &mut self,
        link: &mut Port,
        now: u64,
    ) -> impl Iterator<Item = u32> {
        let opens = self.opens(link, now);
        let waited = if opens { self.held.len() } else { 0 };
        self.held.drain(..waited)
    }

    fn opens(&mut self, link: &mut Port, now: u64) -> bool {
        if let Some((since, until)) = self.closed {
            if now < until {
                return false;
            }
            if self.is_half_full(link) {
                if now < since.saturating_add(STOPPED_PEER_TIMEOUT_NS) {
                    self.closed = Some((since, now.saturating_add(PAUSE_NS)));
                    return false;
                }
                self.blind_until = now.saturating_add(STOPPED_PEER_IGNORED_NS);
            }
            self.closed = None;
        }
        true
    }

    /// Some receive buffer of the host is half full, or holds [`MOST_WAITING`].
    fn is_half_full(&self, link: &mut Port) -> bool {
        link.host_backlog() > self.half
    }
}

#[cfg(test)]
mod tests {
    //! Who sends to a process of this host that is slow waits for room there, and not for ever.

    use rnic_link::{Frame, SimulatedPort, SimulatedPortConfig, Wire};

    use super::*;

    const BUFFER: usize = 100_000;

    fn port() -> (Port, Wire) {
        let (port, wire) = SimulatedPort::new(SimulatedPortConfig {
            receive_buffer: BUFFER,
            ..SimulatedPortConfig::default()
        });
        (port.into(), wire)
    }

    /// So many bytes wait in the receive buffer.
    fn fill(wire: &Wire, bytes: usize) {
        let here = rnic_link::Address::Ib { lid: 1 };
        let frame = Frame {
            src: here,
            dst: here,
            src_port: 0,
            sl: 0,
            traffic_class: 0,
            hop_limit: 0,
            bytes: vec![0; bytes],
        };
        assert!(wire.arrive(frame));
    }

    /// Work requests were sent until it is time to look, which it does.
    fn send(pause: &mut LocalPause, port: &mut Port, now: u64) {
        while !pause.is_due(port) {
            pause.count(1000, 1);
        }
        pause.look(port, now);
    }

    #[test]
    fn a_receive_buffer_that_is_half_full_is_waited_for() {
        let ((mut port, wire), mut pause) = (port(), LocalPause::default());
        send(&mut pause, &mut port, 0);
        assert!(!pause.is_closed(), "nothing waits there");
        fill(&wire, BUFFER / 2 + 1);
        send(&mut pause, &mut port, 0);
        assert!(pause.is_closed());
        pause.hold(7);
        assert_eq!(pause.deadline(), Some(PAUSE_NS));
        // Too soon, and still full.
        assert_eq!(pause.try_open(&mut port, PAUSE_NS - 1).count(), 0);
        assert_eq!(pause.try_open(&mut port, PAUSE_NS).count(), 0);
        assert!(pause.is_closed());
        port.receive_while(0, 16, rnic_link::Look::Poll, &mut |_| {
            std::ops::ControlFlow::Continue(())
        });
        let waited: Vec<u32> = pause.try_open(&mut port, 2 * PAUSE_NS).collect();
        assert_eq!(waited, [7]);
        assert!(!pause.is_closed());
    }

    #[test]
    fn a_process_that_is_stopped_is_waited_for_once() {
        let ((mut port, wire), mut pause) = (port(), LocalPause::default());
        fill(&wire, BUFFER / 2 + 1);
        send(&mut pause, &mut port, 0);
        pause.hold(7);
        let mut now = 0;
        while pause.try_open(&mut port, now).count() == 0 {
            now += PAUSE_NS;
            assert!(now <= 2 * STOPPED_PEER_TIMEOUT_NS, "it waits for ever");
        }
        assert!(now >= STOPPED_PEER_TIMEOUT_NS);
        // Nobody looks there again for a while.
        send(&mut pause, &mut port, now + STOPPED_PEER_IGNORED_NS - 1);
        assert!(!pause.is_closed());
        send(&mut pause, &mut port, now + STOPPED_PEER_IGNORED_NS);
        assert!(pause.is_closed());
    }
}
