//! Queue pairs whose states the program changes itself: `ibv_modify_qp` and `ibv_query_qp` as they
//! are, with the state table in front of the device.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cq::CompletionQueue;
use crate::datagram::Destination;
use crate::device;
use crate::error::{Error, Result};
use crate::gather::{Piece, Pieces};
use crate::nic::{
    self, Access, AhAttr, Counters, PathMtu, QpAttr, QpAttrMask, QpState, QpType, check_transition,
};
use crate::pd::ProtectionDomain;
use crate::post::{PostError, RecvError, SendRequest};
use crate::qp::{Connected, Inner, Transport, Ud, Xrc};
use crate::raw::memory::Buffer;
use crate::xrc::XrcDomain;

/// A change of a queue pair: the state to go to, if any, and attributes (`ibv_modify_qp(3)`). Each
/// setter adds its attribute to the mask. What a transition needs and what it takes says the state
/// table (IBTA vol. 1, 11.2.5.2); the error of a change that does not fit names the difference.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a change does nothing until a queue pair is given it"]
pub struct QpChange {
    attr: QpAttr,
    mask: QpAttrMask,
}

impl QpChange {
    /// To another state, or to the same one (`IBV_QP_STATE`).
    pub fn to(state: QpState) -> QpChange {
        QpChange::default().with(QpAttrMask::STATE, |attr| attr.qp_state = state)
    }

    /// Attributes alone, in the state that the queue pair is in.
    pub fn within() -> QpChange {
        QpChange::default()
    }

    /// As in C: those attributes that the mask names.
    pub fn of(attr: QpAttr, mask: QpAttrMask) -> QpChange {
        QpChange { attr, mask }
    }

    fn with(mut self, bit: QpAttrMask, set: impl FnOnce(&mut QpAttr)) -> QpChange {
        set(&mut self.attr);
        self.mask = self.mask | bit;
        self
    }

    fn resets(&self) -> bool {
        self.mask.contains(QpAttrMask::STATE) && self.attr.qp_state == QpState::Reset
    }

    /// The attributes.
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// Those of them that are meant.
    pub fn mask(&self) -> QpAttrMask {
        self.mask
    }

    /// The state that it is expected to be in (`IBV_QP_CUR_STATE`), else it is refused.
    pub fn current(self, state: QpState) -> QpChange {
        self.with(QpAttrMask::CUR_STATE, |attr| attr.cur_qp_state = state)
    }

    /// Asks for the event [`QpEvent::SendQueueDrained`](crate::QpEvent::SendQueueDrained) when it
    /// has drained (`IBV_QP_EN_SQD_ASYNC_NOTIFY`).
    pub fn notify_drained(self, notify: bool) -> QpChange {
        let bit = QpAttrMask::EN_SQD_ASYNC_NOTIFY;
        self.with(bit, |attr| attr.en_sqd_async_notify = notify)
    }

    /// What peers may do (`IBV_QP_ACCESS_FLAGS`).
    pub fn access(self, access: Access) -> QpChange {
        let bit = QpAttrMask::ACCESS_FLAGS;
        self.with(bit, |attr| attr.qp_access_flags = access)
    }

    /// Index of its P_Key in the port's table (`IBV_QP_PKEY_INDEX`).
    pub fn pkey_index(self, index: u16) -> QpChange {
        self.with(QpAttrMask::PKEY_INDEX, |attr| attr.pkey_index = index)
    }

    /// Its port, counted from 1 (`IBV_QP_PORT`).
    pub fn port(self, port: u8) -> QpChange {
        self.with(QpAttrMask::PORT, |attr| attr.port_num = port)
    }

    /// Queue key of datagrams (`IBV_QP_QKEY`).
    pub fn qkey(self, qkey: u32) -> QpChange {
        self.with(QpAttrMask::QKEY, |attr| attr.qkey = qkey)
    }

    /// The way to the peer (`IBV_QP_AV`).
    pub fn path(self, path: AhAttr) -> QpChange {
        self.with(QpAttrMask::AV, |attr| attr.ah = path)
    }

    /// Path MTU (`IBV_QP_PATH_MTU`).
    pub fn path_mtu(self, mtu: PathMtu) -> QpChange {
        self.with(QpAttrMask::PATH_MTU, |attr| attr.path_mtu = Some(mtu))
    }

    /// Local ACK timeout: 4.096 us x 2^`code`, 0 = never (`IBV_QP_TIMEOUT`).
    pub fn timeout(self, code: u8) -> QpChange {
        self.with(QpAttrMask::TIMEOUT, |attr| attr.timeout = code)
    }

    /// Retries without an answer, 0..=7 (`IBV_QP_RETRY_CNT`).
    pub fn retry_cnt(self, retries: u8) -> QpChange {
        self.with(QpAttrMask::RETRY_CNT, |attr| attr.retry_cnt = retries)
    }

    /// Retries when the peer has no receive posted, 0..=7; 7 is for ever (`IBV_QP_RNR_RETRY`).
    pub fn rnr_retry(self, retries: u8) -> QpChange {
        self.with(QpAttrMask::RNR_RETRY, |attr| attr.rnr_retry = retries)
    }

    /// First PSN that the peer sends, of 24 bits (`IBV_QP_RQ_PSN`).
    pub fn rq_psn(self, psn: u32) -> QpChange {
        self.with(QpAttrMask::RQ_PSN, |attr| attr.rq_psn = psn)
    }

    /// First PSN that it sends, of 24 bits (`IBV_QP_SQ_PSN`).
    pub fn sq_psn(self, psn: u32) -> QpChange {
        self.with(QpAttrMask::SQ_PSN, |attr| attr.sq_psn = psn)
    }

    /// READs and atomics of its own in flight at once (`IBV_QP_MAX_QP_RD_ATOMIC`).
    pub fn max_rd_atomic(self, requests: u8) -> QpChange {
        let bit = QpAttrMask::MAX_QP_RD_ATOMIC;
        self.with(bit, |attr| attr.max_rd_atomic = requests)
    }

    /// READs and atomics of the peer in flight at once (`IBV_QP_MAX_DEST_RD_ATOMIC`).
    pub fn max_dest_rd_atomic(self, requests: u8) -> QpChange {
        let bit = QpAttrMask::MAX_DEST_RD_ATOMIC;
        self.with(bit, |attr| attr.max_dest_rd_atomic = requests)
    }

    /// Code of the wait that the peer is told when no receive is posted (`IBV_QP_MIN_RNR_TIMER`).
    pub fn min_rnr_timer(self, code: u8) -> QpChange {
        let bit = QpAttrMask::MIN_RNR_TIMER;
        self.with(bit, |attr| attr.min_rnr_timer = code)
    }

    /// Queue pair number of the peer (`IBV_QP_DEST_QPN`).
    pub fn dest_qpn(self, qpn: u32) -> QpChange {
        self.with(QpAttrMask::DEST_QPN, |attr| attr.dest_qp_num = qpn)
    }

    /// Another way for automatic migration: way, index of the P_Key, port and timeout
    /// (`IBV_QP_ALT_PATH`). Devices of RoCE have none.
    pub fn alt_path(self, path: AhAttr, pkey_index: u16, port: u8, timeout: u8) -> QpChange {
        self.with(QpAttrMask::ALT_PATH, |attr| {
            attr.alt_ah = path;
            attr.alt_pkey_index = pkey_index;
            attr.alt_port_num = port;
            attr.alt_timeout = timeout;
        })
    }

    /// State of the migration, of `enum ibv_mig_state` (`IBV_QP_PATH_MIG_STATE`).
    pub fn path_mig_state(self, state: u8) -> QpChange {
        let bit = QpAttrMask::PATH_MIG_STATE;
        self.with(bit, |attr| attr.path_mig_state = state)
    }
}

/// Asks the state table; gives the attributes that the device is to be told.
fn judge(qp: &device::Qp, change: &QpChange) -> Result<QpAttrMask> {
    let QpChange { attr, mask } = change;
    let from = match mask.contains(QpAttrMask::CUR_STATE) {
        true => {
            // Devices of the system may take the program's word for it.
            if qp.is_system() && qp.query()?.qp_state != attr.cur_qp_state {
                let why = format!("the queue pair is not in {}", attr.cur_qp_state);
                return Err(nic::Error::invalid("ibv_modify_qp", why).into());
            }
            attr.cur_qp_state
        }
        false => qp.query()?.qp_state,
    };
    let to = match mask.contains(QpAttrMask::STATE) {
        true => attr.qp_state,
        false => from,
    };
    check_transition(qp.qp_type(), from, to, *mask).map_err(Error::Transition)
}

/// A queue pair whose states the program changes itself: made in RESET
/// ([`QueuePairBuilder::build_in_reset`](crate::QueuePairBuilder::build_in_reset)), and then in
/// whichever state [`ManualQueuePair::modify`] leads to. What is posted is the program's to judge:
/// a device refuses receives in RESET and sends before RTS, and the memory of what was posted stays
/// with the queue pair in any state. Dropping the last handle destroys it.
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// use rnic::{AhAttr, Access, Context, Error, QpChange, QpState, Rc, SendRequest};
///
/// let context = Context::open()?;
/// let gid = context.loopback_gid()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(8).build()?;
/// let qp = pd.create_qp::<Rc>(&cq, &cq).build_in_reset()?;
///
/// let init = QpChange::to(QpState::Init).pkey_index(0).port(1);
/// let Err(Error::Transition(refused)) = qp.modify(&init) else { panic!("it lacks something") };
/// assert_eq!(refused.to_string(), "RESET to INIT also needs IBV_QP_ACCESS_FLAGS");
/// qp.modify(&init.access(Access::REMOTE_WRITE))?;
///
/// // It talks with itself.
/// let path = AhAttr { dgid: gid.gid, sgid_index: gid.index as u8, is_global: true, hop_limit: 1,
///     port_num: 1, ..AhAttr::default() };
/// let rtr = QpChange::to(QpState::Rtr).path(path).path_mtu(rnic::PathMtu::M1024);
/// qp.modify(&rtr.dest_qpn(qp.qpn()).rq_psn(7).max_dest_rd_atomic(1).min_rnr_timer(12))?;
/// let rts = QpChange::to(QpState::Rts).sq_psn(7).timeout(14).retry_cnt(7).rnr_retry(7);
/// qp.modify(&rts.max_rd_atomic(1))?;
/// assert_eq!(qp.query()?.dest_qp_num, qp.qpn());
///
/// qp.post_recv(pd.buffer(16)?, 1)?;
/// qp.post(SendRequest::send_inline(b"to myself").unsignaled())?;
/// let received = cq.wait(std::time::Duration::from_secs(5))?.ok()?;
/// assert_eq!(received.data(), b"to myself");
/// # Ok(())
/// # }
/// ```
pub struct ManualQueuePair<T: Transport> {
    inner: Arc<Inner>,
    /// It is in RESET, which only [`ManualQueuePair::modify`] leads to and from.
    in_reset: Arc<AtomicBool>,
    transport: PhantomData<T>,
}

impl<T: Transport> Clone for ManualQueuePair<T> {
    fn clone(&self) -> Self {
        ManualQueuePair {
            inner: self.inner.clone(),
            in_reset: self.in_reset.clone(),
            transport: PhantomData,
        }
    }
}

impl<T: Transport> std::fmt::Debug for ManualQueuePair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualQueuePair")
            .field("qpn", &self.qpn())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<T: Transport> ManualQueuePair<T> {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        ManualQueuePair {
            inner,
            in_reset: Arc::new(AtomicBool::new(true)),
            transport: PhantomData,
        }
    }

    #[cfg(feature = "raw")]
    pub(crate) fn raw(&self) -> &device::Qp {
        &self.inner.qp
    }

    /// Changes state and attributes (`ibv_modify_qp`). On the way to RESET what is posted and what
    /// nobody has polled is discarded with its buffers, as when the queue pair is destroyed.
    ///
    /// # Errors
    /// [`Error::Transition`]: the state table does not have it, or not with these attributes; the
    /// device was not asked. Else why the device refuses, for example a value out of range.
    pub fn modify(&self, change: &QpChange) -> Result<()> {
        let qp = &self.inner.qp;
        let meant = judge(qp, change)?;
        let modify = || Ok(qp.modify(&change.attr, meant)?);
        match change.resets() {
            true => {
                self.inner.discard_posted(modify)?;
                self.in_reset.store(true, Ordering::Relaxed);
            }
            false => {
                modify()?;
                if change.mask.contains(QpAttrMask::STATE) {
                    self.in_reset.store(false, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// RESET takes no receives (ibv_post_recv(3)). Devices of the system may let them pass.
    fn receive(&self, pieces: Pieces, id: u64) -> std::result::Result<(), RecvError> {
        if self.in_reset.load(Ordering::Relaxed) {
            let why = "the queue pair is in RESET, receiving needs INIT";
            let error = nic::Error::invalid("ibv_post_recv", why);
            return Err(RecvError::new(error.into(), pieces));
        }
        self.inner.post_recv(pieces, id)
    }

    /// State and attributes now (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpAttr> {
        Ok(self.inner.qp.query()?)
    }

    /// State now; ERR of a device that does not answer.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// Transport service, as the state table knows it.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp.qp_type()
    }

    /// Names this queue pair in asynchronous events; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.cookie()
    }

    /// Packets, retries and NAKs of this queue pair.
    pub fn counters(&self) -> Counters {
        self.inner.qp.counters()
    }

    /// The protection domain it was created in.
    pub fn pd(&self) -> &ProtectionDomain {
        self.inner.pd()
    }

    /// Where its send completions come out.
    pub fn send_cq(&self) -> &CompletionQueue {
        self.inner.send_cq()
    }

    /// Where its receive completions come out.
    pub fn recv_cq(&self) -> &CompletionQueue {
        self.inner.recv_cq()
    }
}

impl<T: Connected> ManualQueuePair<T> {
    /// Posts a request; see [`QueuePair::post`](crate::QueuePair::post).
    pub fn post(&self, request: SendRequest) -> std::result::Result<(), PostError> {
        self.inner.post_send(request)
    }

    /// Posts a receive; see [`QueuePair::post_recv`](crate::QueuePair::post_recv).
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.receive(Piece::whole(buffer).into(), id)
    }

    /// Posts a receive without memory; see
    /// [`QueuePair::post_recv_empty`](crate::QueuePair::post_recv_empty).
    pub fn post_recv_empty(&self, id: u64) -> std::result::Result<(), RecvError> {
        self.receive(Pieces::default(), id)
    }
}

impl ManualQueuePair<Ud> {
    /// Posts a datagram; see [`DatagramQueuePair::post`](crate::DatagramQueuePair::post).
    pub fn post(
        &self,
        request: SendRequest,
        to: &Destination,
    ) -> std::result::Result<(), PostError> {
        self.inner.post_send(request.to(to)?)
    }

    /// Posts a receive; see
    /// [`DatagramQueuePair::post_recv`](crate::DatagramQueuePair::post_recv).
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.receive(Piece::whole(buffer).into(), id)
    }
}

impl ManualQueuePair<Xrc> {
    /// Posts a request for a receive queue of the peer; see
    /// [`QueuePair<Xrc>`](crate::QueuePair)'s `post`.
    pub fn post(&self, request: SendRequest, srq: u32) -> std::result::Result<(), PostError> {
        self.inner.post_send(request.for_srq(srq))
    }
}

/// The same for the receiving end of XRC
/// ([`XrcTargetBuilder::build_in_reset`](crate::XrcTargetBuilder::build_in_reset)).
#[derive(Clone)]
pub struct ManualXrcTarget {
    inner: Arc<crate::xrc::Target>,
}

impl std::fmt::Debug for ManualXrcTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualXrcTarget")
            .field("qpn", &self.qpn())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl ManualXrcTarget {
    pub(crate) fn new(inner: Arc<crate::xrc::Target>) -> ManualXrcTarget {
        ManualXrcTarget { inner }
    }

    /// Changes state and attributes; see [`ManualQueuePair::modify`]. A receive of its domain that
    /// a message was landing in completes as flushed.
    ///
    /// # Errors
    /// As [`ManualQueuePair::modify`].
    pub fn modify(&self, change: &QpChange) -> Result<()> {
        let qp = &self.inner.qp;
        let meant = judge(qp, change)?;
        if change.resets() {
            // The device resets without a completion, and the receive queue would wait for it.
            crate::connect::fail(qp);
        }
        Ok(qp.modify(&change.attr, meant)?)
    }

    /// State and attributes now (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpAttr> {
        Ok(self.inner.qp.query()?)
    }

    /// State now; ERR of a device that does not answer.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// The domain whose receive queues it reaches.
    pub fn domain(&self) -> &XrcDomain {
        &self.inner.domain
    }
}
