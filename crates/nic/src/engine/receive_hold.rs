//! Packets of services without acknowledgements may wait for a receive.
//!
//! A message of UC and UD that finds no receive is lost, on hardware too. But there the wire is
//! paced, and the application has a core to itself: while it posts anew what it polled, a card does
//! not take in a whole socket buffer. Here one round of the engine does, perhaps in the background
//! thread and while the application waits for its core. So packets are left in the socket as soon
//! as a queue pair's receives are used up, until the application has posted more, though not for
//! long: then the message is lost. Meanwhile the buffer fills and holds up senders on this host
//! ([`crate::engine::local_pause`]).
//!
//! Everything that arrives for the process waits then. Where there are connections with
//! acknowledgements too, whose timers run, nobody is waited for; nor is a receive queue again that
//! was waited for in vain, until it has a receive.

use crate::engine::QpEntry;
use crate::queues::ReceiveSource;
use rnic_settings::ablation::{self, Policy};
use rnic_transport::QueuePair;
use rnic_wire::Packet;

/// An application that is kept from its core on a loaded machine gets it within that.
const RECEIVE_HOLD_NS: u64 = 50_000_000;
/// How long to wait before looking again, if nobody else does.
const PAUSE_NS: u64 = 200_000;

/// For whom the process's packets wait.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReceiveHold {
    /// Queue pairs with acknowledgements.
    reliable: usize,
    /// A queue pair without receives, since when, and when to look again.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    qpn: u32,
    since: u64,
    again: u64,
}

/// What one round knows of it.
#[derive(Debug)]
pub(in crate::engine) struct Round {
    before: Option<Waiting>,
    patient: bool,
    now: u64,
}

impl ReceiveHold {
    pub(in crate::engine) fn added(&mut self, entry: &QpEntry) {
        self.reliable += usize::from(is_reliable(entry));
    }

    pub(in crate::engine) fn removed(&mut self, entry: &QpEntry) {
        self.reliable -= usize::from(is_reliable(entry));
    }

    /// Some of so many queue pairs have no acknowledgements.
    pub(in crate::engine) fn has_unreliable(&self, of: usize) -> bool {
        of > self.reliable
    }

    /// Packets wait for receives.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// When the engine must look again.
    pub(in crate::engine) fn deadline(&self) -> Option<u64> {
        self.waiting.map(|waiting| waiting.again)
    }

    /// A round of receiving begins: whoever has to be waited for shows anew.
    pub(in crate::engine) fn begin(&mut self, now: u64) -> Round {
        Round {
            before: self.waiting.take(),
            patient: self.reliable == 0,
            now,
        }
    }

    /// Whether a packet has to wait for a receive.
    #[inline]
    pub(in crate::engine) fn must_wait(
        &mut self,
        round: &Round,
        entry: &mut QpEntry,
        packet: &Packet<'_>,
    ) -> bool {
        if is_reliable(entry) || !entry.transport.needs_receive(packet) {
            return false;
        }
        let qpn = entry.shared.qpn;
        match &entry.shared.source {
            ReceiveSource::Own => {
                let posted = !entry.receives.is_empty();
                entry.awaited |= posted;
                !posted && self.wait(round, qpn, &mut entry.awaited)
            }
            ReceiveSource::Srq(srq) => {
                srq.has_none_but_will(|awaited| self.wait(round, qpn, awaited))
            }
            ReceiveSource::Xrc(_) => false,
        }
    }

    #[cold]
    fn wait(&mut self, round: &Round, qpn: u32, awaited: &mut bool) -> bool {
        if !round.patient || !*awaited || ablation::is_out(Policy::ReceiveHold) {
            return false;
        }
        let before = round.before.filter(|before| before.qpn == qpn);
        let since = before.map_or(round.now, |before| before.since);
        if round.now.saturating_sub(since) >= RECEIVE_HOLD_NS {
            *awaited = false;
            return false;
        }
        self.waiting = Some(Waiting {
            qpn,
            since,
            again: round.now.saturating_add(PAUSE_NS),
        });
        true
    }
}

fn is_reliable(entry: &QpEntry) -> bool {
    matches!(entry.transport, QueuePair::Rc(_))
}
