//! A queue pair, as the engine has it.

use std::collections::TryReserveError;
use std::sync::Arc;

use rnic_link::{Address, CmaWindow, PathId};
use rnic_transport::{Fifo, QueuePair, Rc, RecvWqe, Time, Uc, Ud, ack_timeout_ns};

use crate::engine::tables::remote_srq::RemoteSrq;
use crate::engine::{
    FastPath, HeldAck, IncastMember, Piggyback, Requests, SrqTable, Succession, UcWrites,
};
use crate::observe::Latencies;
use crate::queues::{QpAttr, QpCap, QpShared, QpState, QpType, ReceiveSource, Signals};

/// The two addresses of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) path: PathId,
    pub(crate) local: Address,
    pub(crate) remote: Address,
    /// It is on this host.
    pub(crate) here: bool,
    /// The UDP port by which packets of it came last that were its own, if it is; 0 before.
    pub(crate) port: u16,
}

/// The longest ACK timeout of a queue pair that waits for others, a code: 1.1 s.
const LONGEST_TIMEOUT: u8 = 18;

/// A queue pair inside the engine.
#[derive(Debug)]
pub(crate) struct QpEntry {
    pub(crate) shared: Arc<QpShared>,
    pub(crate) transport: QueuePair,
    pub(crate) receives: Fifo<RecvWqe>,
    /// XRC: the shared receive queue that the last request named.
    pub(crate) selected_srq: u32,
    pub(crate) signals: Signals,
    pub(crate) latencies: Latencies,
    pub(crate) attr: QpAttr,
    pub(crate) peer: Option<Peer>,
    pub(crate) held_ack: HeldAck,
    pub(crate) piggyback: Piggyback,
    pub(crate) succession: Succession,
    /// How turns of one of UC follow each other.
    pub(crate) uc_writes: UcWrites,
    /// In the engine's list of queue pairs that want to transmit.
    pub(crate) ready: bool,
    /// A request of it is a packet that leaves at its turn.
    pub(crate) staged: bool,
    /// A completion found no room in its queue.
    pub(crate) completion_lost: bool,
    /// UC, UD: had receives lately; when they are used up, packets may wait for the next.
    pub(crate) awaited: bool,
    /// RC, UC: the window to the memory of the peer's process, if there may be one.
    pub(crate) cma: Option<Arc<CmaWindow>>,
    /// RC: payload of it went by reference since that was last withdrawn.
    pub(crate) by_reference: bool,
    /// Peers may reach memory by way of it.
    pub(crate) granted: bool,
    /// That was taken back when it failed, and nobody waited for what was under way.
    pub(crate) lingers: bool,
    /// XRC: what another process does for it.
    pub(crate) remote_srq: Option<Box<RemoteSrq>>,
    /// Which short ways it may take.
    pub(crate) fast: FastPath,
    /// Deadline that the engine's timer heap holds for it.
    pub(crate) armed: Option<Time>,
    /// RC, by the network stack: what it is among those that write to the same host.
    pub(crate) incast_member: IncastMember,
}

impl QpEntry {
    /// In RESET.
    pub(crate) fn new(shared: Arc<QpShared>) -> QpEntry {
        let mut entry = QpEntry {
            attr: QpAttr {
                cap: shared.cap,
                ..QpAttr::default()
            },
            transport: match shared.qp_type {
                QpType::Rc | QpType::XrcSend | QpType::XrcRecv => QueuePair::Rc(Rc::new()),
                QpType::Uc => QueuePair::Uc(Uc::new()),
                QpType::Ud => QueuePair::Ud(Ud::new()),
            },
            shared,
            receives: Fifo::default(),
            selected_srq: 0,
            signals: Signals::default(),
            latencies: Latencies::default(),
            peer: None,
            ready: false,
            staged: false,
            held_ack: HeldAck::default(),
            piggyback: Piggyback::default(),
            succession: Succession::default(),
            uc_writes: UcWrites::default(),
            completion_lost: false,
            awaited: false,
            cma: None,
            by_reference: false,
            granted: false,
            lingers: false,
            remote_srq: None,
            fast: FastPath::default(),
            armed: None,
            incast_member: IncastMember::default(),
        };
        entry.update_fast_path();
        entry
    }

    /// Takes memory for all that may be posted to it.
    pub(crate) fn take_memory(&mut self) -> Result<(), TryReserveError> {
        let QpCap {
            max_send_wr,
            max_recv_wr,
            ..
        } = self.shared.cap;
        if max_send_wr > 0 {
            self.transport.try_reserve_sends(max_send_wr as usize)?;
            self.signals.runs.try_reserve(max_send_wr as usize)?;
        }
        match max_recv_wr {
            0 => Ok(()),
            most => self.receives.try_reserve(most as usize),
        }
    }

    /// Its attributes as they are in `state`, which is its own.
    pub(crate) fn query(&self, state: QpState) -> QpAttr {
        let mut attr = self.attr;
        attr.qp_state = state;
        attr.cur_qp_state = state;
        attr.sq_draining = self.transport.is_draining();
        if matches!(state, QpState::Rts | QpState::Sqd) {
            attr.sq_psn = self.transport.sq_psn().value();
        }
        if matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd) {
            attr.rq_psn = self.transport.rq_psn().value();
        }
        attr
    }

    /// By the network stack, what it has under way may count ([`crate::engine::IncastMember`]): RC,
    /// if it finds out before long that it was lost.
    #[inline]
    pub(crate) fn may_join_incast(&self) -> bool {
        matches!(self.transport, QueuePair::Rc(_))
            && (1..=LONGEST_TIMEOUT).contains(&self.attr.timeout)
    }

    /// What its requester says of itself.
    pub(crate) fn requests(&self) -> Requests {
        match &self.transport {
            QueuePair::Rc(rc) => Requests {
                awaits: rc.awaits_answer(),
                may_leave: rc.may_request(),
                consecutive_ack_timeouts: rc.consecutive_ack_timeouts(),
                acknowledged: rc.acknowledged(),
                failed: rc.is_error(),
                timeout_ns: ack_timeout_ns(self.attr.timeout).unwrap_or(0),
            },
            _ => Requests::default(),
        }
    }

    /// Memory that its unacknowledged packets refer to may change from now on.
    pub(crate) fn withdraw(&mut self) {
        withdraw(self.cma.as_deref(), &mut self.by_reference, self.shared.qpn);
    }

    /// The receive in use ends without a completion, as the queue pair is reset or destroyed: its
    /// place is free.
    pub(crate) fn abandon_receive(&self, srqs: &SrqTable) {
        if !self.transport.holds_receive() {
            return;
        }
        let slots = match &self.shared.source {
            ReceiveSource::Own => Some(&self.shared.slots),
            ReceiveSource::Srq(srq) => Some(&srq.slots),
            ReceiveSource::Xrc(_) => {
                let srq = srqs.get(self.selected_srq);
                srq.map(|srq| &srq.slots)
            }
        };
        if let Some(slots) = slots {
            slots.recv.give_back(1);
        }
    }
}

impl QpEntry {
    /// After a failure that flushed the send queue: frees the slots that no completion will free.
    pub(crate) fn free_retired(&mut self) {
        let left = self.signals.abandoned();
        self.latencies.reset();
        self.shared.slots.send.give_back(left);
    }
}

/// What packets of a queue pair refer to may change from now on: what of them was not executed
/// counts as lost.
#[inline]
pub(crate) fn withdraw(cma: Option<&CmaWindow>, by_reference: &mut bool, qpn: u32) {
    if std::mem::take(by_reference)
        && let Some(cma) = cma
    {
        cma.withdraw(qpn);
    }
}
