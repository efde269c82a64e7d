//! Queue pairs: built, prepared, connected.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::connect::{self, Place, Settings, common_setters};
use crate::cq::CompletionQueue;
use crate::datagram::DatagramQueuePair;
use crate::device::{self, QpInit};
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::gather::{Piece, Pieces};
use crate::manual::ManualQueuePair;
use crate::nic::{
    self, Access, AsyncEvent, Counters, GidEntry, PathMtu, QpAttr, QpAttrMask, QpCap, QpEvent,
    QpState, QpType,
};
use crate::pd::ProtectionDomain;
use crate::post::{PostError, RecvError, SendRequest};
use crate::raw::memory::Buffer;
use crate::srq::SharedReceiveQueue;
use crate::work::{self, Entry, Work, WorkQueue};

/// A transport service, as a type argument of queue pairs.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    #[doc(hidden)]
    const TYPE: QpType;
}

/// Most bytes of an inline request, if the program does not say.
const INLINE: u32 = 64;

/// Reliable connected: every operation, in order, exactly once, to one peer.
#[derive(Clone, Copy, Debug)]
pub enum Rc {}

impl Transport for Rc {
    const TYPE: QpType = QpType::Rc;
}

/// Unreliable connected: SEND and RDMA WRITE to one peer, in order, each message whole or not at
/// all.
#[derive(Clone, Copy, Debug)]
pub enum Uc {}

impl Transport for Uc {
    const TYPE: QpType = QpType::Uc;
}

/// Unreliable datagram: messages of one packet to anybody, and to multicast groups; see
/// [`DatagramQueuePair`].
#[derive(Clone, Copy, Debug)]
pub enum Ud {}

impl Transport for Ud {
    const TYPE: QpType = QpType::Ud;
}

/// Extended reliable connected, the sending end: every operation, in order, exactly once, to any
/// XRC receive queue of one peer. The other end is an [`XrcTarget`](crate::XrcTarget); see
/// [`XrcDomain`](crate::XrcDomain).
#[derive(Clone, Copy, Debug)]
pub enum Xrc {}

impl Transport for Xrc {
    const TYPE: QpType = QpType::XrcSend;
}

/// A transport service whose queue pairs send to one peer and receive from it.
pub trait Connected: Transport {}
impl Connected for Rc {}
impl Connected for Uc {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl Sealed for super::Xrc {}
}

/// Arguments of a queue pair; see [`ProtectionDomain::create_qp`]. All have defaults that suit
/// small programs.
#[derive(Debug)]
pub struct QueuePairBuilder<T: Transport> {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: Option<u32>,
    place: Place,
    settings: Settings,
    transport: PhantomData<T>,
}

impl<T: Transport> QueuePairBuilder<T> {
    pub(crate) fn new(
        pd: ProtectionDomain,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
    ) -> Self {
        QueuePairBuilder {
            pd,
            send_cq,
            recv_cq,
            srq: None,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: None,
            place: Place::default(),
            settings: Settings::default(),
            transport: PhantomData,
        }
    }

    /// Depth of the send queue; 64 if not set.
    pub fn max_send_wr(mut self, depth: u32) -> Self {
        self.max_send_wr = depth;
        self
    }

    /// Depth of the receive queue; 64 if not set.
    pub fn max_recv_wr(mut self, depth: u32) -> Self {
        self.max_recv_wr = depth;
        self
    }

    /// Receives come from a shared queue instead of one of its own, to which nothing can be posted
    /// then.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Most buffers of a request ([`SendRequest::and`]); 1 if not set.
    pub fn max_send_sge(mut self, buffers: u32) -> Self {
        self.max_send_sge = buffers;
        self
    }

    /// Most buffers of a receive ([`QueuePair::post_recv_scatter`]); 1 if not set.
    pub fn max_recv_sge(mut self, buffers: u32) -> Self {
        self.max_recv_sge = buffers;
        self
    }

    /// Most bytes of an inline request; 64 if not set, or what the device takes if that is less.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = Some(bytes);
        self
    }

    common_setters!();

    /// Local ACK timeout: 4.096 us x 2^`code`, 0 = never; 14 (67 ms) if not set. The second silence
    /// lasts up to twice as long, those behind it up to four times (IBTA vol. 1, 9.7.6.1.3).
    pub fn timeout(mut self, code: u8) -> Self {
        self.settings.timeout = code;
        self
    }

    /// Retries without an answer, 0..=7; 7 if not set.
    pub fn retry_cnt(mut self, retries: u8) -> Self {
        self.settings.retry_cnt = retries;
        self
    }

    /// Retries when the peer has no receive posted, 0..=7; 7 (for ever) if not set.
    pub fn rnr_retry(mut self, retries: u8) -> Self {
        self.settings.rnr_retry = retries;
        self
    }

    /// READs and atomics in flight at once, as requester and as responder; 16 each if not set, or
    /// what the device takes if that is less.
    pub fn max_rd_atomic(mut self, requester: u8, responder: u8) -> Self {
        self.settings.max_rd_atomic = requester;
        self.settings.max_dest_rd_atomic = responder;
        self.settings.rd_atomic_chosen = true;
        self
    }

    /// First PSN (24 bits); random if not set.
    pub fn psn(mut self, psn: u32) -> Self {
        self.settings.psn = psn & 0xff_ffff;
        self
    }

    /// Creates the queue pair in RESET, for a program that changes its states itself. Of what the
    /// builder is told only sizes and queues mean anything.
    pub fn build_in_reset(self) -> Result<ManualQueuePair<T>> {
        Ok(ManualQueuePair::new(Arc::new(self.create()?)))
    }

    /// Creates the queue pair and moves it to INIT.
    fn create_init(self) -> Result<Inner> {
        let settings = self.settings;
        let inner = self.create()?;
        settings.init(&inner.qp)?;
        Ok(inner)
    }

    /// Creates the queue pair.
    fn create(self) -> Result<Inner> {
        let cookie = crate::next_cookie();
        let context = self.pd.context();
        let create = |max_inline_data| {
            self.pd.raw().create_qp(&QpInit {
                srq: self.srq.as_ref().map(SharedReceiveQueue::raw),
                qp_type: T::TYPE,
                send_cq: self.send_cq.raw(),
                recv_cq: self.recv_cq.raw(),
                cap: QpCap {
                    max_send_wr: self.max_send_wr,
                    max_recv_wr: self.max_recv_wr,
                    max_send_sge: self.max_send_sge,
                    max_recv_sge: self.max_recv_sge,
                    max_inline_data,
                },
                cookie,
            })
        };
        let qp = match (
            create(self.max_inline_data.unwrap_or(INLINE)),
            self.max_inline_data,
        ) {
            // What was not asked for had better not be what it fails for.
            (Err(error), None) => match context.raw.abilities() {
                Some(can) if can.max_inline_data < INLINE => create(can.max_inline_data)?,
                _ => return Err(error.into()),
            },
            (made, _) => made?,
        };
        let work = Arc::new(Work {
            datagrams: qp.qp_type() == QpType::Ud,
            recv: self
                .srq
                .as_ref()
                .map_or_else(Arc::default, |srq| srq.work().clone()),
            ..Work::default()
        });
        let qpn = qp.qpn();
        self.send_cq.attach(qpn, &work);
        self.recv_cq.attach(qpn, &work);
        Ok(Inner {
            qp,
            cookie,
            registration: Registration {
                qpn,
                work: work.clone(),
                send_cq: self.send_cq,
                recv_cq: self.recv_cq,
            },
            work,
            srq: self.srq,
            pd: self.pd,
        })
    }
}

impl<T: Connected> QueuePairBuilder<T> {
    /// Creates the queue pair and moves it to INIT.
    pub fn build(self) -> Result<PreparedQueuePair<T>> {
        self.prepare()
    }
}

impl QueuePairBuilder<Xrc> {
    /// Creates the queue pair and moves it to INIT. Its receive completion queue is never used.
    pub fn build(self) -> Result<PreparedQueuePair<Xrc>> {
        self.prepare()
    }
}

impl<T: Transport> QueuePairBuilder<T> {
    fn prepare(self) -> Result<PreparedQueuePair<T>> {
        let (gid, path_mtu) = self.place.settle(self.pd.context())?;
        let mut this = self;
        this.settings.fit(this.pd.context());
        let settings = this.settings;
        Ok(PreparedQueuePair {
            inner: Arc::new(this.create_init()?),
            path_mtu,
            gid,
            settings,
            transport: PhantomData,
        })
    }
}

impl QueuePairBuilder<Ud> {
    /// Queue key that senders must know; 0x11111111 if not set. The highest bit is reserved.
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.settings.qkey = qkey & !(1 << 31);
        self
    }

    /// Creates the queue pair, ready to send and to receive. Address and path MTU are those of each
    /// datagram, and what is for connections alone means nothing.
    pub fn build(self) -> Result<DatagramQueuePair> {
        let settings = self.settings;
        let inner = self.create_init()?;
        let receive = QpAttr {
            qp_state: QpState::Rtr,
            ..QpAttr::default()
        };
        inner.qp.modify(&receive, QpAttrMask::STATE)?;
        settings.send_ready(&inner.qp)?;
        Ok(DatagramQueuePair::new(inner, settings.qkey))
    }
}

/// Fields drop in this order: first the device's queue pair, so that nothing is in flight any more;
/// then the completion queues forget it; then the posted buffers go.
pub(crate) struct Inner {
    pub(crate) qp: device::Qp,
    cookie: u64,
    registration: Registration,
    work: Arc<Work>,
    srq: Option<SharedReceiveQueue>,
    pd: ProtectionDomain,
}

struct Registration {
    qpn: u32,
    work: Arc<Work>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.send_cq.detach(self.qpn, &self.work);
        self.recv_cq.detach(self.qpn, &self.work);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The shared receive queue outlives it, and must not keep what this queue pair took and
        // nobody polled.
        if let Some(srq) = &self.srq {
            connect::fail(&self.qp);
            let recv_cq = &self.registration.recv_cq;
            recv_cq.reclaim(self.qp.qpn(), srq.work());
        }
    }
}

impl Inner {
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    pub(crate) fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Of a device of the system.
    pub(crate) fn is_system(&self) -> bool {
        self.qp.is_system()
    }

    pub(crate) fn send_cq(&self) -> &CompletionQueue {
        &self.registration.send_cq
    }

    pub(crate) fn recv_cq(&self) -> &CompletionQueue {
        &self.registration.recv_cq
    }

    /// Resets the queue pair by `reset`. If it does, nothing that was posted is in flight any more,
    /// and completions that nobody polled are gone: all of that goes with its buffers.
    pub(crate) fn discard_posted(&self, reset: impl FnOnce() -> Result<()>) -> Result<()> {
        self.qp.check_alive("ibv_modify_qp")?;
        if let Some(srq) = &self.srq {
            // What it took out of the shared queue comes back as flushed.
            connect::fail(&self.qp);
            self.recv_cq().reclaim(self.qp.qpn(), srq.work());
        }
        // Nothing is posted meanwhile.
        let mut send = self.work.send.lock();
        let mut recv = self.srq.is_none().then(|| self.work.recv.lock());
        reset()?;
        let gone = (send.discard(), recv.as_mut().map(|queue| queue.discard()));
        drop((send, recv));
        // What owns a buffer's memory may do anything when it is dropped, so no lock is held.
        drop(gone);
        Ok(())
    }

    /// How many requests may be posted behind those of this queue. The software NIC knows by itself.
    fn room(
        &self,
        verb: &'static str,
        queue: &WorkQueue,
        depth: u32,
    ) -> std::result::Result<usize, nic::Error> {
        match self.qp.is_system() {
            true => queue.room(verb, depth),
            false => Ok(usize::MAX),
        }
    }

    fn error(&self, error: nic::Error, posted: usize) -> Error {
        if error.errno() != libc::ENOMEM {
            return error.into();
        }
        Error::QueueFull {
            verb: error.verb(),
            qpn: self.qp.qpn(),
            depth: posted as u32,
            source: std::io::Error::from_raw_os_error(error.errno()),
        }
    }

    pub(crate) fn post_recv(&self, pieces: Pieces, id: u64) -> std::result::Result<(), RecvError> {
        let fits = pieces.check(self.qp.cap().max_recv_sge, "max_recv_sge");
        let alive = || Ok(self.qp.check_alive("ibv_post_recv")?);
        if let Err(error) = fits.and_then(|()| alive()) {
            return Err(RecvError::new(error, pieces));
        }
        let sges = pieces.sges();
        // The lock keeps the order of numbers that of the queue, and completions out until the
        // buffer is in.
        let mut queue = self.work.recv.lock();
        let wr_id = queue.next();
        // With a shared receive queue it has none, which is told apart from a full one.
        let room = match self.srq {
            None => self.room("ibv_post_recv", &queue, self.qp.cap().max_recv_wr),
            Some(_) => Ok(0),
        };
        let post = || self.qp.post_recv(nic::RecvWqe { wr_id, sges });
        match room.and_then(|_| post()) {
            Ok(()) => {
                queue.push(Entry {
                    id,
                    pieces,
                    signaled: true,
                    _way: None,
                });
                Ok(())
            }
            Err(error) => Err(RecvError::new(self.error(error, queue.len()), pieces)),
        }
    }

    pub(crate) fn post_send(&self, request: SendRequest) -> std::result::Result<(), PostError> {
        if let Err(error) = request.check(&self.qp.cap()) {
            return Err(PostError {
                error,
                request: Box::new(request),
            });
        }
        if let Err(error) = self.qp.check_alive("ibv_post_send") {
            return Err(PostError {
                error: error.into(),
                request: Box::new(request),
            });
        }
        let mut queue = self.work.send.lock();
        let posted = self.room("ibv_post_send", &queue, self.qp.cap().max_send_wr);
        let posted = posted.map_err(|full| (0, full)).and_then(|_| {
            let one = std::iter::once((&request, queue.next()));
            self.qp.post_send(one)
        });
        match posted {
            Ok(()) => {
                queue.push(request.into_entry());
                Ok(())
            }
            // Refused so unclearly that its memory may be in use.
            Err((1.., _)) => {
                queue.push(request.into_entry());
                drop(queue);
                connect::fail(&self.qp);
                Ok(())
            }
            Err((0, error)) => Err(PostError {
                error: self.error(error, queue.len()),
                request: Box::new(request),
            }),
        }
    }

    /// What was posted leaves `requests`.
    pub(crate) fn post_list(&self, requests: &mut Vec<SendRequest>) -> Result<()> {
        self.qp.check_alive("ibv_post_send")?;
        let cap = self.qp.cap();
        let sound = requests.iter().map(|request| request.check(&cap));
        let (good, refused) = match sound.enumerate().find(|(_, checked)| checked.is_err()) {
            Some((good, checked)) => (good, checked),
            None => (requests.len(), Ok(())),
        };
        let mut queue = self.work.send.lock();
        let first = queue.next();
        let (good, refused) = match self.room("ibv_post_send", &queue, cap.max_send_wr) {
            Ok(room) if room < good => {
                let full = work::full("ibv_post_send", cap.max_send_wr);
                (room, Err(self.error(full, cap.max_send_wr as usize)))
            }
            Ok(_) => (good, refused),
            Err(full) => (0, Err(self.error(full, queue.len()))),
        };
        let good_ones = requests[..good].iter().zip(first..);
        let (posted, outcome) = match self.qp.post_send(good_ones) {
            Ok(()) => (good, refused),
            Err((posted, error)) => (posted, Err(self.error(error, queue.len() + posted))),
        };
        for request in requests.drain(..posted) {
            queue.push(request.into_entry());
        }
        outcome
    }
}

/// A queue pair that has no peer yet (INIT). Receives may be posted, and should be: the peer can
/// send as soon as its own handshake is done. Sends may not, and cannot:
/// ```compile_fail
/// # fn f(prepared: rnic::PreparedQueuePair<rnic::Rc>) {
/// prepared.post(rnic::SendRequest::send_inline(b"too early"));
/// # }
/// ```
pub struct PreparedQueuePair<T: Transport> {
    pub(crate) inner: Arc<Inner>,
    gid: GidEntry,
    path_mtu: PathMtu,
    pub(crate) settings: Settings,
    transport: PhantomData<T>,
}

impl<T: Transport> std::fmt::Debug for PreparedQueuePair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedQueuePair")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}

impl<T: Connected> PreparedQueuePair<T> {
    /// Posts a receive; see [`QueuePair::post_recv`].
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(Piece::whole(buffer).into(), id)
    }

    /// Posts a receive of several buffers; see [`QueuePair::post_recv_scatter`].
    pub fn post_recv_scatter(
        &self,
        buffers: impl IntoIterator<Item = Buffer>,
        id: u64,
    ) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(buffers.into_iter().collect(), id)
    }

    /// Posts a receive without memory; see [`QueuePair::post_recv_empty`].
    pub fn post_recv_empty(&self, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(Pieces::default(), id)
    }
}

impl<T: Transport> PreparedQueuePair<T> {
    pub(crate) fn is_system(&self) -> bool {
        self.inner.is_system()
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// What the peer needs for its handshake.
    pub fn endpoint(&self) -> Endpoint {
        self.settings.endpoint(&self.gid, self.qpn(), self.path_mtu)
    }

    /// Connects to the peer: INIT to RTR to RTS (`ibv_modify_qp`). Both sides have to do it; the
    /// first messages of a side that is ahead are repeated until the other one has caught up.
    pub fn handshake(self, remote: Endpoint) -> Result<QueuePair<T>> {
        let (local, s) = (self.endpoint(), &self.settings);
        s.receive_ready(&self.inner.qp, &self.gid, &local, &remote)?;
        s.send_ready(&self.inner.qp)?;
        let path_mtu = local.path_mtu.min(remote.path_mtu);
        Ok(QueuePair {
            inner: self.inner,
            remote,
            path_mtu,
            transport: PhantomData,
        })
    }
}

/// A connected queue pair. Dropping its last handle destroys it: what is still posted is discarded
/// with its buffers.
pub struct QueuePair<T: Transport = Rc> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) remote: Endpoint,
    pub(crate) path_mtu: PathMtu,
    pub(crate) transport: PhantomData<T>,
}

impl<T: Transport> Clone for QueuePair<T> {
    fn clone(&self) -> Self {
        QueuePair {
            inner: self.inner.clone(),
            transport: PhantomData,
            ..*self
        }
    }
}

impl<T: Transport> std::fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .field("remote", &self.remote)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<T: Connected> QueuePair<T> {
    /// Posts a request to the send queue (`ibv_post_send`). The buffer moves in and comes back with
    /// the completion; if posting fails, with the error. A full queue is not fatal: see
    /// [`Error::is_queue_full`].
    ///
    /// A library of the system may refuse a request without saying that it is this one. Then it may
    /// be posted all the same, and its buffer in use: it counts as posted, and the queue pair is
    /// moved to ERR, so that the request completes as flushed or goes with the queue pair.
    pub fn post(&self, request: SendRequest) -> std::result::Result<(), PostError> {
        self.inner.post_send(request)
    }

    /// Posts requests in order, as one list (`ibv_post_send` with `next`): one call, and one
    /// doorbell of a card. Those that were posted leave `requests`.
    ///
    /// ```
    /// # use rnic::{QueuePair, SendRequest};
    /// # fn f(qp: &QueuePair) -> rnic::Result<()> {
    /// let mut batch: Vec<SendRequest> =
    ///     [b"one", b"two"].map(|text| SendRequest::send_inline(text)).into();
    /// qp.post_list(&mut batch)?;
    /// assert!(batch.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the first of those that are left in `requests` cannot be posted; see
    /// [`Error::is_queue_full`].
    pub fn post_list(&self, requests: &mut Vec<SendRequest>) -> Result<()> {
        self.inner.post_list(requests)
    }

    /// Posts a receive (`ibv_post_recv`): the next message lands in `buffer`, whose completion
    /// shows `id`.
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(Piece::whole(buffer).into(), id)
    }

    /// Posts a receive of several buffers, which the next message fills one after the other
    /// ([`Completion::parts`](crate::Completion::parts)). The queue pair takes as many as
    /// [`QueuePairBuilder::max_recv_sge`] says.
    pub fn post_recv_scatter(
        &self,
        buffers: impl IntoIterator<Item = Buffer>,
        id: u64,
    ) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(buffers.into_iter().collect(), id)
    }

    /// Posts a receive without memory: enough for a WRITE with immediate or an empty message.
    pub fn post_recv_empty(&self, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.post_recv(Pieces::default(), id)
    }

    /// Ends the queue pair in an orderly way: moves it to ERR, after which everything that is posted
    /// completes, most of it as flushed. If its receives come from a shared queue, this waits until
    /// the device says that it takes no more of them ([`QpEvent::LastWqeReached`], IBTA vol. 1,
    /// 11.6.3.5). Then the completion queue has all that it took: poll it until it is empty before
    /// the queue pair is dropped, and no receive of the shared queue is lost.
    ///
    /// Other asynchronous events that come meanwhile are kept for
    /// [`Context::try_async_event`](crate::Context::try_async_event). A thread that takes events at
    /// the same time may take this one.
    ///
    /// # Errors
    /// The device refuses; [`Error::Timeout`] if the event does not come in time.
    ///
    /// [`QpEvent::LastWqeReached`]: crate::QpEvent::LastWqeReached
    pub fn drain(&self, timeout: Duration) -> Result<()> {
        let failed = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        let before = self.state();
        self.inner.qp.modify(&failed, QpAttrMask::STATE)?;
        if !self.inner.has_srq() {
            return Ok(());
        }
        let (cookie, event) = (self.inner.cookie, QpEvent::LastWqeReached);
        let last = AsyncEvent::Qp { cookie, event };
        // It comes once, as the queue pair fails: one that had failed may have told it already.
        let timeout = match before {
            QpState::Err => Duration::ZERO,
            _ => timeout,
        };
        match self.pd().context().wait_for_event(&last, timeout) {
            Err(Error::Timeout(_)) if before == QpState::Err => Ok(()),
            outcome => outcome,
        }
    }

    /// Gathers requests that are posted together ([`Batch::commit`]).
    pub fn batch(&self) -> Batch<'_, T> {
        Batch::new(self)
    }
}

impl QueuePair<Xrc> {
    /// Posts a request for the peer's receive queue of this number
    /// ([`XrcReceiveQueue::number`](crate::XrcReceiveQueue::number)). READs, WRITEs and atomics
    /// name one too: they work in its protection domain. Else as any queue pair's `post`.
    pub fn post(&self, request: SendRequest, srq: u32) -> std::result::Result<(), PostError> {
        self.inner.post_send(request.for_srq(srq))
    }
}

impl<T: Transport> QueuePair<T> {
    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// Names this queue pair in asynchronous events; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.cookie
    }

    /// The sizes of its queues, which may be more than was asked for.
    pub fn cap(&self) -> QpCap {
        self.inner.qp.cap()
    }

    /// The other end.
    pub fn remote(&self) -> Endpoint {
        self.remote
    }

    /// The path MTU that both sides agreed on.
    pub fn path_mtu(&self) -> PathMtu {
        self.path_mtu
    }

    /// State now (`ibv_query_qp`): RTS until something fails, ERR from then on.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// State and attributes now (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpAttr> {
        Ok(self.inner.qp.query()?)
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

#[cfg(test)]
mod tests;
