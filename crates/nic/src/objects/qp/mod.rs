//! Queue pairs: what they are, creation and destruction. The state machine of `ibv_modify_qp` is in [`connect`], posting
//! in [`post`].

mod attr;
mod connect;
mod handle;
mod post;
mod transitions;

use std::collections::TryReserveError;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rnic_link::{PathId, Reach};
use rnic_transport::{Fifo, QueuePair, Rc, RecvWqe, Time, Uc, Ud, ack_timeout_ns};
use rnic_wire::Gid;
use rustix_futex_sync::Mutex;

pub use attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
pub(crate) use connect::headroom;
pub(crate) use handle::QpTarget;
use handle::{Listener, QpHandle};
pub(crate) use post::take_each;

use crate::addressing::gid_table::gid_table;
use crate::device::{MAX_INLINE, MAX_QP_WR, MAX_SGE};
use crate::driving::Shard;
use crate::engine::{
    self, Answers, Engine, FastPath, HeldAck, IncastMember, Requests, SrqTable, Succession,
    UcWrites,
};
use crate::error::{Error, Result};
use crate::objects::context::ContextShared;
use crate::objects::cq::{Cq, CqShared, Slots};
use crate::objects::pd::Pd;
use crate::objects::srq::{Srq, SrqShared};
use crate::objects::xrcd::Domain;
use crate::observe::lint;
use crate::peers::Elsewhere;
use crate::sync::bias::Guard;

/// Room of the smallest send queue. Like hardware, which counts in building blocks, more than a program that asks for one
/// gets: such programs rely on it when a completion is late.
const MIN_SEND_WR: u32 = 16;

/// What to create (`struct ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Where send completions go.
    pub send_cq: Cq,
    /// Where receive completions go. XRC_SEND has none.
    pub recv_cq: Cq,
    /// Where receives come from; `None`: a receive queue of its own.
    pub srq: Option<Srq>,
    /// Sizes asked for.
    pub cap: QpCap,
    /// Every send work request makes a completion.
    pub sq_sig_all: bool,
    /// Comes back in asynchronous events.
    pub cookie: u64,
}

/// Where a queue pair's receives come from.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// Its own receive queue.
    Own,
    /// A shared one.
    Srq(Arc<SrqShared>),
    /// The shared receive queues of an XRC domain, as requests name them.
    Xrc(Arc<Domain>),
}

/// What a queue pair's handle and its entry in the engine share.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) qpn: u32,
    /// Of the engine, for good: its number is from one of its ranges.
    pub(crate) shard: Arc<Shard>,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Option<Arc<CqShared>>,
    pub(crate) recv_cq: Option<Arc<CqShared>>,
    pub(crate) source: ReceiveSource,
    pub(crate) cap: QpCap,
    listeners: Mutex<Vec<Listener>>,
    pub(crate) slots: Arc<Slots>,
    qp_type: QpType,
    sq_sig_all: bool,
    state: AtomicU8,
    /// Out of the engine before its handle was dropped: that was retired, or the device closed.
    removed: AtomicBool,
}

impl QpShared {
    pub(crate) fn context(&self) -> &Arc<ContextShared> {
        &self.pd.context().shared
    }

    /// Its shard, except in a forked child.
    fn lock_if_alive(&self) -> Option<Guard<'_, Engine>> {
        let alive = self.context().nic.check_alive("").is_ok();
        alive.then(|| self.shard.lock())
    }

    /// Where its completions go, except those of XRC shared receive queues.
    pub(crate) fn cqs(&self) -> impl Iterator<Item = &Arc<CqShared>> {
        self.send_cq.iter().chain(&self.recv_cq)
    }

    /// Its transport service, for people.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.qp_type {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::XrcSend => "XRC_SEND",
            QpType::XrcRecv => "XRC_RECV",
        }
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(crate) fn state(&self) -> QpState {
        QpState::from_ibv(u32::from(self.state.load(Ordering::Acquire))).unwrap_or(QpState::Err)
    }

    pub(crate) fn set_removed(&self) {
        self.set_state(QpState::Reset);
        self.removed.store(true, Ordering::Release);
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }
}

/// The two addresses of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) path: PathId,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// It is on this host.
    pub(crate) here: bool,
    /// The UDP port by which packets of it came last that were its own, if it is; 0 before.
    pub(crate) port: u16,
}

/// The longest ACK timeout of a queue pair that waits for others, a code: 1.1 s.
const LONGEST_TIMEOUT: u8 = 18;

/// How many work requests each future signaled completion retires.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    runs: Fifo<u32>,
    open: u32,
    /// What the last run had.
    period: u32,
    /// Work requests that failed or were flushed: each had a completion of its own.
    failed: u32,
}

impl Signals {
    pub(crate) fn posted(&mut self, signaled: bool) {
        self.open += 1;
        if signaled {
            self.runs.push_back(self.open);
            self.period = self.open;
            self.open = 0;
        }
    }

    /// Work requests up to the next one that is expected to be signaled, as the last one was, if there are more than `many`.
    #[inline]
    pub(crate) fn left(&self, many: usize) -> usize {
        match self.period as usize {
            few if few <= many => 0,
            period => period.saturating_sub(self.open as usize),
        }
    }

    /// Work requests retired by the next signaled completion.
    pub(crate) fn completed(&mut self) -> u32 {
        self.runs.pop_front().unwrap_or(0)
    }

    /// Work requests retired by the completion of a failed one: itself. For those before it see [`QpEntry::free_retired`].
    pub(crate) fn failed(&mut self) -> u32 {
        self.failed += 1;
        1
    }

    /// The queue was flushed: work requests that no completion will retire, since they had ended well, unsignaled, before
    /// one failed.
    fn abandoned(&mut self) -> u32 {
        let posted = self.runs.iter().sum::<u32>() + self.open;
        let left = posted.saturating_sub(self.failed);
        self.reset();
        left
    }

    /// Nothing is posted. The memory stays.
    pub(super) fn reset(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.clear();
        *self = Signals {
            runs,
            ..Signals::default()
        };
    }
}

/// A queue pair inside the engine.
#[derive(Debug)]
pub(crate) struct QpEntry {
    pub(crate) shared: Arc<QpShared>,
    pub(crate) transport: QueuePair,
    pub(crate) receives: Fifo<RecvWqe>,
    /// XRC: the shared receive queue that the last request named.
    pub(crate) selected_srq: u32,
    pub(crate) signals: Signals,
    pub(crate) attr: QpAttr,
    pub(crate) peer: Option<Peer>,
    pub(crate) held_ack: HeldAck,
    pub(crate) answers: Answers,
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
    /// RC, UC: the peer's process, if its memory may be within reach.
    pub(crate) reach: Option<Arc<Reach>>,
    /// RC: packets of it pointed at memory since that was last withdrawn.
    pub(crate) pointed: bool,
    /// Peers may reach memory by way of it.
    pub(crate) granted: bool,
    /// That was taken back when it failed, and nobody waited for what was under way.
    pub(crate) lingers: bool,
    /// XRC: what another process does for it.
    pub(crate) elsewhere: Option<Box<Elsewhere>>,
    /// Which short ways it may take.
    pub(crate) fast: FastPath,
    /// Deadline that the engine's timer heap holds for it.
    pub(crate) armed: Option<Time>,
    /// RC, by the network stack: what it is among those that write to the same host.
    pub(crate) incast_member: IncastMember,
}

impl QpEntry {
    /// In RESET.
    fn new(shared: Arc<QpShared>) -> QpEntry {
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
            peer: None,
            ready: false,
            staged: false,
            held_ack: HeldAck::default(),
            answers: Answers::default(),
            succession: Succession::default(),
            uc_writes: UcWrites::default(),
            completion_lost: false,
            awaited: false,
            reach: None,
            pointed: false,
            granted: false,
            lingers: false,
            elsewhere: None,
            fast: FastPath::default(),
            armed: None,
            incast_member: IncastMember::default(),
        };
        entry.update_fast_path();
        entry
    }

    /// Takes memory for all that may be posted to it.
    pub(crate) fn take_memory(&mut self) -> std::result::Result<(), TryReserveError> {
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

    /// By the network stack, what it has under way may count ([`crate::engine::IncastMember`]): RC, if it finds out before long that it was lost.
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
                silences: rc.silences(),
                acknowledged: rc.acknowledged(),
                failed: rc.is_error(),
                timeout_ns: ack_timeout_ns(self.attr.timeout).unwrap_or(0),
            },
            _ => Requests::default(),
        }
    }

    /// Memory that its unacknowledged packets point at may change from now on.
    pub(crate) fn withdraw(&mut self) {
        engine::withdraw(self.reach.as_deref(), &mut self.pointed, self.shared.qpn);
    }

    /// The receive in use ends without a completion, as the queue pair is reset or destroyed: its place is free.
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
        self.shared.slots.send.give_back(left);
    }
}

/// A queue pair. Destroyed when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Qp {
    inner: Arc<QpHandle>,
}

impl Qp {
    pub(crate) fn new(pd: &Pd, init: &QpInit) -> Result<Qp> {
        const VERB: &str = "ibv_create_qp";
        if init.qp_type == QpType::XrcRecv {
            return Err(Error::new(
                VERB,
                libc::EOPNOTSUPP,
                "an XRC target is made in an XRC domain, not in a protection domain",
            ));
        }
        // With a shared receive queue there is no other, and who only sends has none: what the program asks for of one is
        // ignored, whatever it is (ibv_create_qp(3)).
        let xrc = init.qp_type == QpType::XrcSend;
        let own = |size| if xrc || init.srq.is_some() { 0 } else { size };
        let asked = QpCap {
            max_recv_wr: own(init.cap.max_recv_wr),
            max_recv_sge: own(init.cap.max_recv_sge),
            ..init.cap
        };
        for (what, value, limit) in [
            ("max_send_wr", asked.max_send_wr, MAX_QP_WR),
            ("max_recv_wr", asked.max_recv_wr, MAX_QP_WR),
            ("max_send_sge", asked.max_send_sge, MAX_SGE),
            ("max_recv_sge", asked.max_recv_sge, MAX_SGE),
            ("max_inline_data", asked.max_inline_data, MAX_INLINE),
        ] {
            if value > limit {
                return Err(Error::invalid(
                    VERB,
                    format!("{what} {value} is more than the device's {limit}"),
                ));
            }
        }
        let contexts = [&init.send_cq.shared, &init.recv_cq.shared];
        if contexts
            .iter()
            .any(|cq| cq.context_id() != pd.context().id())
        {
            return Err(Error::invalid(
                VERB,
                "the completion queues belong to another context than the protection domain",
            ));
        }
        if let Some(srq) = &init.srq
            && srq.pd().context().id() != pd.context().id()
        {
            return Err(Error::invalid(
                VERB,
                "the shared receive queue belongs to another context than the protection domain",
            ));
        }
        if !xrc && init.srq.as_ref().is_some_and(Srq::is_xrc) {
            return Err(Error::invalid(
                VERB,
                "the shared receive queue is one of XRC, whose receives are for XRC targets",
            ));
        }
        // Rounded as hardware rounds: work queues to a power of two; inline data to a 16-byte segment, and where the
        // scatter/gather list of a WQE would lie there is room for it anyway. Programs count on that (rdma_xclient).
        let cap = QpCap {
            max_send_wr: asked.max_send_wr.max(MIN_SEND_WR).next_power_of_two(),
            max_recv_wr: own(asked.max_recv_wr.max(1).next_power_of_two()),
            max_send_sge: asked.max_send_sge.max(1),
            max_recv_sge: own(asked.max_recv_sge.max(1)),
            max_inline_data: asked
                .max_inline_data
                .next_multiple_of(16)
                .max(16 * asked.max_send_sge.max(1)),
        };
        let nic = &pd.context().shared.nic;
        nic.check_alive(VERB)?;
        // Address handles are in the first.
        let shard = match init.qp_type {
            QpType::Ud => nic.shard(0),
            _ => nic.shard(CqShared::home(&init.send_cq.shared, &init.recv_cq.shared)),
        };
        let (mut engine, qpn) = shard.lock_with(Engine::allocate_qpn)?;
        let shared = Arc::new(QpShared {
            qpn,
            shard: shard.clone(),
            pd: pd.clone(),
            send_cq: Some(init.send_cq.shared.clone()),
            recv_cq: (!xrc).then(|| init.recv_cq.shared.clone()),
            source: match &init.srq {
                Some(srq) if !xrc => ReceiveSource::Srq(srq.shared().clone()),
                _ => ReceiveSource::Own,
            },
            cap,
            listeners: Mutex::default(),
            slots: Arc::new(Slots::default()),
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            state: AtomicU8::new(QpState::Reset as u8),
            removed: AtomicBool::new(false),
        });
        engine
            .insert_qp(QpEntry::new(shared.clone()))
            .map_err(|_| Error::no_memory(VERB))?;
        if lint::is_on() {
            lint::created(&shared, asked);
        }
        drop(engine);
        let srq = init.srq.clone().filter(|_| !xrc);
        Ok(Qp::attach(shared, srq, None, init.cookie))
    }

    fn shared(&self) -> &Arc<QpShared> {
        &self.inner.shared
    }

    /// See [`Cq::check_alive`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.shared().context().nic.check_alive(verb)
    }

    /// Its number.
    pub fn qpn(&self) -> u32 {
        self.shared().qpn
    }

    /// Its transport service.
    pub fn qp_type(&self) -> QpType {
        self.shared().qp_type
    }

    /// The sizes it was given.
    pub fn cap(&self) -> QpCap {
        self.shared().cap
    }

    /// Its state now; whoever has polled the completion of a failure sees ERR.
    pub fn state(&self) -> QpState {
        let shared = self.shared();
        // The engine pushes the completion first and moves the state before it lets go of its lock.
        let _engine = shared.lock_if_alive();
        shared.state()
    }

    /// Every send work request makes a completion.
    pub fn sq_sig_all(&self) -> bool {
        self.shared().sq_sig_all
    }

    /// Counts since creation.
    pub fn counters(&self) -> rnic_transport::Counters {
        self.shared()
            .lock_if_alive()
            .and_then(|mut engine| Some(engine.qp_mut(self.qpn())?.transport.counters()))
            .unwrap_or_default()
    }

    /// Send work requests that [`Qp::post_send`] would accept now.
    pub fn send_room(&self) -> u32 {
        let used = self.shared().slots.send.used();
        self.shared()
            .cap
            .max_send_wr
            .saturating_sub(used.max(0) as u32)
    }

    /// Attributes as they are now.
    pub fn query(&self) -> QpAttr {
        let mut engine = self.shared().lock_if_alive();
        let state = self.shared().state();
        let Some(entry) = engine.as_mut().and_then(|e| e.qp_mut(self.qpn())) else {
            return QpAttr::default();
        };
        entry.query(state)
    }

    /// Attaches it to a multicast group: it gets a copy of every datagram to the group (`ibv_attach_mcast(3)`). Nothing
    /// happens if it is attached already.
    ///
    /// # Errors
    /// EINVAL if it is no UD queue pair or `mgid` no multicast GID, and what joining the IP group gives.
    pub fn attach_mcast(&self, mgid: Gid) -> Result<()> {
        const VERB: &str = "ibv_attach_mcast";
        let shared = self.shared();
        if shared.qp_type != QpType::Ud {
            return Err(Error::invalid(
                VERB,
                format!(
                    "a {:?} queue pair has no multicast, only UD",
                    shared.qp_type
                ),
            ));
        }
        let nic = &shared.context().nic;
        nic.check_alive(VERB)?;
        let table = gid_table();
        let mut engine = shared.shard.lock();
        if self.is_gone() {
            return Err(post::gone(VERB));
        }
        engine.attach_mcast(mgid, shared.qpn, &table)
    }

    /// Detaches it (`ibv_detach_mcast(3)`).
    ///
    /// # Errors
    /// EINVAL if it is not attached.
    pub fn detach_mcast(&self, mgid: Gid) -> Result<()> {
        let shared = self.shared();
        let nic = &shared.context().nic;
        nic.check_alive("ibv_detach_mcast")?;
        shared.shard.lock().detach_mcast(mgid, shared.qpn)
    }

    /// It is attached to a multicast group: `ibv_destroy_qp(3)` refuses. Never in a forked child.
    pub fn is_attached(&self) -> bool {
        let shared = self.shared();
        shared.qp_type == QpType::Ud
            && shared
                .lock_if_alive()
                .is_some_and(|engine| engine.is_attached(shared.qpn))
    }

    /// Destroys it: on return no copy in flight can touch memory on its behalf, and its completions are gone from the
    /// completion queues. Dropping the last handle does the same.
    pub fn destroy(self) {}
}
