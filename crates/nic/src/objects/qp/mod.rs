//! Queue pairs: what they are, creation and destruction. The state machine of `ibv_modify_qp` is in
//! [`connect`], posting in [`post`].

mod connect;
mod handle;
mod post;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

use rnic_wire::Gid;
use rustix_futex_sync::Mutex;

use handle::QpHandle;

use crate::device::{MAX_INLINE, MAX_QP_WR, MAX_SGE};
use crate::engine::{Engine, QpEntry};
use crate::error::{self, Error, Result};
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::srq::Srq;
use crate::observe::lint;
use crate::queues::usage::{self, Usage};
use crate::queues::{CqShared, QpAttr, QpCap, QpShared, QpState, QpType, ReceiveSource, Slots};
use crate::sync::bias::Guard;

/// Room of the smallest send queue. Like hardware, which counts in building blocks, more than a
/// program that asks for one gets: such programs rely on it when a completion is late.
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

/// A queue pair. Destroyed when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Qp {
    inner: Arc<QpHandle>,
}

impl Pd {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// EINVAL or ENOMEM for sizes beyond the device's, EOPNOTSUPP for types other than RC.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp> {
        Qp::new(self, init)
    }
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
        // With a shared receive queue there is no other, and who only sends has none: what the
        // program asks for of one is ignored, whatever it is (ibv_create_qp(3)).
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
        // Rounded as hardware rounds: work queues to a power of two; inline data to a 16-byte
        // segment, and where the scatter/gather list of a WQE would lie there is room for it
        // anyway. Programs count on that (rdma_xclient).
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
            owner: pd.context().shared.owner.clone(),
            pd: pd.shared.id,
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
            usage: Usage::wanted(),
            state: AtomicU8::new(QpState::Reset as u8),
            removed: AtomicBool::new(false),
        });
        engine
            .insert_qp(QpEntry::new(shared.clone()))
            .map_err(|_| error::no_memory(VERB))?;
        usage::created(!matches!(shared.source, ReceiveSource::Own));
        if lint::is_on() {
            lint::created(&shared, asked);
        }
        drop(engine);
        let srq = init.srq.clone().filter(|_| !xrc);
        let shard = shard.clone();
        Ok(Qp::attach(shared, shard, pd, srq, None, init.cookie))
    }

    fn shared(&self) -> &Arc<QpShared> {
        &self.inner.shared
    }

    /// Its engine, except in a forked child.
    fn lock_if_alive(&self) -> Option<Guard<'_, Engine>> {
        let alive = self.inner.context.nic.check_alive("").is_ok();
        alive.then(|| self.inner.shard.lock())
    }

    /// See [`Cq::check_alive`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.inner.context.nic.check_alive(verb)
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
        let _engine = self.lock_if_alive();
        shared.state()
    }

    /// Every send work request makes a completion.
    pub fn sq_sig_all(&self) -> bool {
        self.shared().sq_sig_all
    }

    /// Counts since creation.
    pub fn counters(&self) -> rnic_transport::Counters {
        self.lock_if_alive()
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
        let mut engine = self.lock_if_alive();
        let state = self.shared().state();
        let Some(entry) = engine.as_mut().and_then(|e| e.qp_mut(self.qpn())) else {
            return QpAttr::default();
        };
        entry.query(state)
    }

    /// Attaches it to a multicast group: it gets a copy of every datagram to the group
    /// (`ibv_attach_mcast(3)`). Nothing happens if it is attached already.
    ///
    /// # Errors
    /// EINVAL if it is no UD queue pair or `mgid` no multicast GID, and what joining the IP group
    /// gives.
    pub fn attach_mcast(&self, mgid: Gid) -> Result<()> {
        const VERB: &str = "ibv_attach_mcast";
        let shared = self.shared();
        if shared.qp_type != QpType::Ud {
            return Err(Error::invalid(
                VERB,
                format!(
                    "a queue pair of type {} has no multicast, only UD has",
                    shared.qp_type
                ),
            ));
        }
        let nic = &self.inner.context.nic;
        nic.check_alive(VERB)?;
        let table = nic.host().gid_table();
        let mut engine = self.inner.shard.lock();
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
        let nic = &self.inner.context.nic;
        nic.check_alive("ibv_detach_mcast")?;
        self.inner.shard.lock().detach_mcast(mgid, shared.qpn)
    }

    /// It is attached to a multicast group: `ibv_destroy_qp(3)` refuses. Never in a forked child.
    pub fn is_attached(&self) -> bool {
        let shared = self.shared();
        shared.qp_type == QpType::Ud
            && self
                .lock_if_alive()
                .is_some_and(|engine| engine.is_attached(shared.qpn))
    }

    /// Destroys it: on return no copy in flight can touch memory on its behalf, and its completions
    /// are gone from the completion queues. Dropping the last handle does the same.
    pub fn destroy(self) {}
}
