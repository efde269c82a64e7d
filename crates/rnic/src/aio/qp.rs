//! Queue pairs whose requests are futures.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::datagram::DatagramQueuePair;
use super::lane::{Lane, News, Posting, Sort};
use super::pipeline::Pipeline;
use super::pool::Pool;
use super::reactor::{self, Reactor};
use super::receive::{Messages, Receive};
use super::request::{Atomic, Request};
use super::srq::{self, SharedReceiveQueue};
use super::words::Words;
use crate::context::Context;
use crate::endpoint::{Endpoint, RemoteMemory};
use crate::error::{Error, Result};
use crate::gather::{Piece, Pieces};
use crate::nic::{Access, Counters, GidEntry, PathMtu, QpState, QpType};
use crate::pd::ProtectionDomain;
use crate::post::{RecvError, SendRequest};
use crate::qp::{self, Connected, Rc, Transport, Ud};
use crate::raw::memory::Buffer;

/// Futures look for completions this long before they sleep.
const SPIN: Duration = Duration::from_micros(50);

/// A completion queue whose completions go to futures. Cheap to clone.
///
/// Any number of queue pairs share one, up to its capacity: each takes as many places as its two
/// queues are deep. The queue is never given out, so that nobody takes a completion that a future
/// waits for; blocking calls use queues of their own.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(super) core: Arc<Core>,
    context: Context,
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Arguments of a [`CompletionQueue`]; see [`CompletionQueue::builder`].
pub struct CompletionQueueBuilder {
    context: Context,
    entries: u32,
    spin: Duration,
    reactor: Arc<dyn Reactor>,
}

impl std::fmt::Debug for CompletionQueueBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueueBuilder")
            .field("entries", &self.entries)
            .field("spin", &self.spin)
            .finish_non_exhaustive()
    }
}

impl CompletionQueueBuilder {
    /// How long a future looks for its completion before it sleeps; 50 us if not set. It does so in
    /// turns with the other tasks of its runtime, and a few futures of a queue at a time. Zero
    /// sleeps at once.
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time.min(Duration::from_secs(1));
        self
    }

    /// Who waits for the queue's channel; [`Shared`](super::Shared) if not set.
    pub fn reactor(mut self, reactor: impl Reactor) -> Self {
        self.reactor = Arc::new(reactor);
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// As [`Context::create_cq`].
    pub fn build(self) -> Result<CompletionQueue> {
        let cq = self.context.create_cq(self.entries).build()?;
        Ok(CompletionQueue {
            core: Core::new(cq, self.entries, self.spin, self.reactor),
            context: self.context,
        })
    }
}

impl CompletionQueue {
    /// A queue for at least `entries` completions, with all that is not set by the builder.
    ///
    /// # Errors
    /// As [`Context::create_cq`].
    pub fn new(context: &Context, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::builder(context, entries).build()
    }

    /// The same with more to say.
    pub fn builder(context: &Context, entries: u32) -> CompletionQueueBuilder {
        CompletionQueueBuilder {
            context: context.clone(),
            entries,
            spin: SPIN,
            reactor: Arc::new(reactor::Shared),
        }
    }

    /// Completions it holds.
    pub fn capacity(&self) -> u32 {
        self.core.capacity()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Builds a queue pair whose requests are futures (`ibv_create_qp`).
    pub fn create_qp<T: Transport>(&self, pd: &ProtectionDomain) -> QueuePairBuilder<T> {
        QueuePairBuilder {
            inner: pd.create_qp(self.core.cq(), self.core.cq()),
            own: Own {
                core: self.core.clone(),
                pd: pd.clone(),
                depths: (64, 64),
                receives: (0, 0),
                pool: None,
                srq: None,
            },
        }
    }
}

/// Arguments of a queue pair; see [`CompletionQueue::create_qp`]. Those that the blocking
/// [`QueuePairBuilder`](crate::QueuePairBuilder) has, too, mean the same.
#[derive(Debug)]
pub struct QueuePairBuilder<T: Transport> {
    inner: qp::QueuePairBuilder<T>,
    own: Own,
}

/// What it has beside the blocking builder.
struct Own {
    core: Arc<Core>,
    pd: ProtectionDomain,
    /// Of the send queue and the receive queue.
    depths: (u32, u32),
    /// How many, and how long.
    receives: (usize, usize),
    pool: Option<Pool>,
    srq: Option<SharedReceiveQueue>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own")
            .field("depths", &self.depths)
            .field("receives", &self.receives)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Setters that the blocking builder has, too.
macro_rules! passed_on {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        $vis fn $name(mut self, $($arg: $type),*) -> Self {
            self.inner = self.inner.$name($($arg),*);
            self
        })*
    };
}

impl<T: Transport> QueuePairBuilder<T> {
    passed_on! {
        /// Most buffers of a request; 1 if not set.
        pub fn max_send_sge(buffers: u32);
        /// Most buffers of a receive; 1 if not set.
        pub fn max_recv_sge(buffers: u32);
        /// Most bytes of an inline request; 64 if not set, or what the device takes if that is
        /// less.
        pub fn max_inline_data(bytes: u32);
        /// The local address; [`Context::routable_gid`] if not set.
        pub fn gid(gid: &GidEntry);
        /// Largest path MTU; what the address's interface takes if not set.
        pub fn path_mtu(mtu: PathMtu);
        /// Index of its P_Key; 0 if not set.
        pub fn pkey_index(index: u16);
        /// What peers may do through this queue pair; everything if not set.
        pub fn access(access: Access);
        /// Code of the wait that the peer is told when no receive is posted here; 12 if not set.
        pub fn min_rnr_timer(code: u8);
        /// Traffic class and hop limit of packets; 0 and 64 if not set.
        pub fn ip_header(traffic_class: u8, hop_limit: u8);
        /// Local ACK timeout: 4.096 us x 2^`code`; 14 if not set.
        pub fn timeout(code: u8);
        /// Retries without an answer; 7 if not set.
        pub fn retry_cnt(retries: u8);
        /// Retries when the peer has no receive posted; 7 (for ever) if not set.
        pub fn rnr_retry(retries: u8);
        /// READs and atomics in flight at once, as requester and as responder.
        pub fn max_rd_atomic(requester: u8, responder: u8);
        /// First PSN (24 bits); random if not set.
        pub fn psn(psn: u32);
    }

    /// Depth of the send queue; 64 if not set. Futures of further requests wait.
    pub fn max_send_wr(mut self, depth: u32) -> Self {
        self.inner = self.inner.max_send_wr(depth);
        self.own.depths.0 = depth;
        self
    }

    /// Depth of the receive queue; 64 if not set.
    pub fn max_recv_wr(mut self, depth: u32) -> Self {
        self.inner = self.inner.max_recv_wr(depth);
        self.own.depths.1 = depth;
        self
    }

    /// Posts `count` receives of `size` bytes before the peer can send. Each is posted again when
    /// its [`Message`](super::Message) is dropped. Without this, none is posted but by the program.
    pub fn receives(mut self, count: usize, size: usize) -> Self {
        self.own.receives = (count, size);
        self
    }

    /// Receives come from this queue, and go back to it. The completion queue needs places for all
    /// of them, once for all its queue pairs.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.inner = self.inner.srq(srq.raw());
        self.own.srq = Some(srq.clone());
        self
    }

    /// Where buffers go whose futures were dropped. Without a pool they are dropped, too.
    pub fn pool(mut self, pool: &Pool) -> Self {
        self.own.pool = Some(pool.clone());
        self
    }
}

impl Own {
    fn share(self, qp: &Arc<qp::Inner>, fails_whole: bool) -> Result<Arc<Shared>> {
        let (sends, receives) = self.depths;
        let srq = self.srq.map(|srq| srq::Source::new(srq, &self.core));
        let srq = srq.transpose()?;
        // Those that it shares have places already.
        let receives = srq.is_none().then_some(receives);
        let places = sends.saturating_add(receives.unwrap_or(0));
        self.core.reserve(places)?;
        let lane = Lane::new(qp.qp.qpn(), sends, receives, fails_whole, self.pool);
        let lane = Arc::new(lane);
        self.core.enter(&lane);
        let shared = Arc::new(Shared {
            qp: qp.clone(),
            lane,
            words: Words::new(&self.core, &self.pd),
            core: self.core,
            places,
            srq,
        });
        match self.receives {
            (0, _) => {}
            (count, 0) => {
                for _ in 0..count {
                    shared.post_recv(Pieces::default())?;
                }
            }
            (count, size) => {
                let pool = Pool::new(&self.pd, count, size)?;
                while let Some(buffer) = pool.try_take() {
                    shared.post_recv(Piece::whole(buffer).into())?;
                }
            }
        }
        Ok(shared)
    }
}

impl<T: Connected> QueuePairBuilder<T> {
    /// Creates the queue pair and moves it to INIT.
    ///
    /// # Errors
    /// The completion queue has no room for it, or the device refuses.
    pub fn build(self) -> Result<PreparedQueuePair<T>> {
        let prepared = self.inner.build()?;
        let shared = self.own.share(&prepared.inner, T::TYPE == QpType::Rc)?;
        Ok(PreparedQueuePair { prepared, shared })
    }
}

impl QueuePairBuilder<Ud> {
    /// Queue key that senders must know; 0x11111111 if not set. The highest bit is reserved.
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.inner = self.inner.qkey(qkey);
        self
    }

    /// Creates the queue pair, ready to send and to receive.
    ///
    /// # Errors
    /// The completion queue has no room for it, or the device refuses.
    pub fn build(self) -> Result<DatagramQueuePair> {
        let qp = self.inner.build()?;
        let shared = self.own.share(qp.inner(), false)?;
        Ok(DatagramQueuePair::new(qp, shared))
    }
}

/// One queue pair, as its handles and futures share it.
pub(super) struct Shared {
    qp: Arc<qp::Inner>,
    lane: Arc<Lane>,
    core: Arc<Core>,
    places: u32,
    words: Words,
    srq: Option<srq::Source>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("qpn", &self.lane.qpn())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.core.is_alive() {
            if self.srq.is_some() {
                self.core.look_at_all();
            }
            self.core.leave(&self.lane);
            if let Some(source) = &self.srq {
                for unread in self.lane.take_unread() {
                    // If it is full, the program has posted others.
                    let pieces = unread.into_buffers().into_iter().collect();
                    let _ = source.queue.post(pieces);
                }
            }
        }
        self.core.unreserve(self.places);
    }
}

impl Shared {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    pub(super) fn qp(&self) -> &qp::Inner {
        &self.qp
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    pub(super) fn post(
        &self,
        request: SendRequest,
        sort: Sort,
        waiter: Option<(u64, &std::task::Waker)>,
    ) -> Posting {
        self.lane
            .post(request, sort, waiter, |request| self.qp.post_send(request))
    }

    pub(super) fn post_recv(&self, pieces: Pieces) -> std::result::Result<(), RecvError> {
        if let Err(error) = self.core.check_alive() {
            return Err(RecvError::new(error, pieces));
        }
        if let Some(source) = &self.srq {
            return source.queue.post(pieces);
        }
        if !self.lane.receive_posted() {
            let full = Error::QueueFull {
                verb: "ibv_post_recv",
                qpn: self.lane.qpn(),
                depth: self.qp.qp.cap().max_recv_wr,
                source: std::io::Error::from_raw_os_error(libc::ENOMEM),
            };
            return Err(RecvError::new(full, pieces));
        }
        let posted = self.qp.post_recv(pieces, 0);
        if posted.is_err() {
            self.lane.receive_refused();
        }
        posted
    }

    /// The connection is over: those who wait for messages are told, behind what has come.
    pub(super) fn close(&self) {
        self.core.look_at_all();
        let mut news = News::default();
        self.lane.close(&mut news);
        news.tell();
    }
}

/// A queue pair that has no peer yet (INIT): see [`crate::PreparedQueuePair`].
pub struct PreparedQueuePair<T: Connected> {
    pub(super) prepared: qp::PreparedQueuePair<T>,
    pub(super) shared: Arc<Shared>,
}

impl<T: Connected> std::fmt::Debug for PreparedQueuePair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedQueuePair")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}

impl<T: Connected> PreparedQueuePair<T> {
    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.prepared.qpn()
    }

    /// What the peer needs for its handshake.
    pub fn endpoint(&self) -> Endpoint {
        self.prepared.endpoint()
    }

    /// Posts a receive; see [`QueuePair::post_recv`].
    ///
    /// # Errors
    /// The queue is full, or the device refuses. The buffer comes back.
    pub fn post_recv(&self, buffer: Buffer) -> std::result::Result<(), RecvError> {
        self.shared.post_recv(Piece::whole(buffer).into())
    }

    /// Connects to the peer: INIT to RTR to RTS (`ibv_modify_qp`).
    ///
    /// # Errors
    /// As [`crate::PreparedQueuePair::handshake`].
    pub fn handshake(self, remote: Endpoint) -> Result<QueuePair<T>> {
        let connected = self.prepared.handshake(remote)?;
        Ok(QueuePair::new(&connected, self.shared))
    }
}

/// A connected queue pair whose requests are futures. Cheap to clone; its last handle or future
/// that is dropped destroys it.
///
/// Every future of it is cancel-safe: see [`Request`] and [`Receive`].
///
/// It has no blocking calls, and its completion queue is not given out. So no completion can be
/// taken from a future:
/// ```compile_fail,E0599
/// # fn f(qp: rnic::aio::QueuePair) {
/// qp.send_cq().poll_one();
/// # }
/// ```
/// A buffer belongs to the request until that gives it back:
/// ```compile_fail,E0382
/// # async fn f(qp: rnic::aio::QueuePair, mut buffer: rnic::Buffer) {
/// let sent = qp.send(buffer);
/// buffer[0] = 1;
/// # }
/// ```
/// What has no peer cannot send:
/// ```compile_fail,E0599
/// # fn f(prepared: rnic::aio::PreparedQueuePair<rnic::Rc>, buffer: rnic::Buffer) {
/// prepared.send(buffer);
/// # }
/// ```
pub struct QueuePair<T: Connected = Rc> {
    pub(super) shared: Arc<Shared>,
    remote: Endpoint,
    path_mtu: PathMtu,
    transport: PhantomData<T>,
}

impl<T: Connected> Clone for QueuePair<T> {
    fn clone(&self) -> Self {
        QueuePair {
            shared: self.shared.clone(),
            transport: PhantomData,
            ..*self
        }
    }
}

impl<T: Connected> std::fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .field("remote", &self.remote)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<T: Connected> QueuePair<T> {
    pub(super) fn new(connected: &qp::QueuePair<T>, shared: Arc<Shared>) -> QueuePair<T> {
        QueuePair {
            shared,
            remote: connected.remote(),
            path_mtu: connected.path_mtu(),
            transport: PhantomData,
        }
    }

    /// Posts any request and gives its completion, with its buffers. It waits while the send queue
    /// is full. The request is signaled in any case; for those that are not there is
    /// [`QueuePair::pipeline`].
    pub fn request(&self, request: SendRequest) -> Request {
        Request::new(&self.shared, Ok(request))
    }

    /// SEND: the message goes into a receive that the peer has posted.
    pub fn send(&self, buffer: Buffer) -> Request {
        self.request(SendRequest::send(buffer))
    }

    /// SEND of a few bytes that are copied now.
    pub fn send_inline(&self, bytes: &[u8]) -> Request {
        self.request(SendRequest::send_inline(bytes))
    }

    /// RDMA WRITE to the start of `to`.
    pub fn write(&self, buffer: Buffer, to: RemoteMemory) -> Request {
        self.request(SendRequest::write(buffer, to))
    }

    /// RDMA WRITE that takes a receive at the peer, whose [`Message`](super::Message) shows `imm`.
    pub fn write_with_imm(&self, buffer: Buffer, to: RemoteMemory, imm: [u8; 4]) -> Request {
        self.request(SendRequest::write(buffer, to).imm(imm))
    }

    /// The next message, when there is one: a SEND, or the notice of a WRITE with immediate.
    /// Messages come in their order; several tasks may wait for them, and each goes to one.
    ///
    /// # Errors
    /// The queue pair has failed: what arrived before is given out first. No receive is posted, so
    /// that none can come.
    pub fn recv(&self) -> Receive {
        Receive::new(&self.shared)
    }

    /// All messages as a stream.
    pub fn messages(&self) -> Messages {
        Messages::new(&self.shared)
    }

    /// Posts a receive. When its message is dropped, it is posted again. Of a queue pair that shares
    /// its receives it goes to the shared queue.
    ///
    /// # Errors
    /// The queue is full, or the device refuses. The buffer comes back.
    pub fn post_recv(&self, buffer: Buffer) -> std::result::Result<(), RecvError> {
        self.shared.post_recv(Piece::whole(buffer).into())
    }

    /// Posts a receive without memory: enough for a WRITE with immediate or an empty message.
    ///
    /// # Errors
    /// The queue is full, or the device refuses.
    pub fn post_recv_empty(&self) -> std::result::Result<(), RecvError> {
        self.shared.post_recv(Pieces::default())
    }

    /// A stream of requests of which every `every`th is signaled; see [`Pipeline`].
    ///
    /// # Errors
    /// `every` is 0, or more than half of what the send queue holds.
    pub fn pipeline(&self, every: usize) -> Result<Pipeline> {
        Pipeline::new(&self.shared, every)
    }

    /// Requests that are posted and not done.
    pub fn in_flight(&self) -> usize {
        self.shared.lane().in_flight()
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.shared.lane().qpn()
    }

    /// Names this queue pair in events of the device; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.shared.qp().cookie()
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
        self.shared.qp().qp.state()
    }

    /// Packets, retries and NAKs of this queue pair.
    pub fn counters(&self) -> Counters {
        self.shared.qp().qp.counters()
    }

    /// The protection domain it was created in.
    pub fn pd(&self) -> &ProtectionDomain {
        self.shared.qp().pd()
    }
}

impl QueuePair<Rc> {
    /// RDMA READ from the start of `from`, as many bytes as `buffer` has.
    pub fn read(&self, buffer: Buffer, from: RemoteMemory) -> Request {
        self.request(SendRequest::read(buffer, from))
    }

    /// Atomic compare-and-swap of the 8 bytes at `at`: stores `swap` if they are `compare`. Gives
    /// the value found.
    pub fn compare_swap(&self, at: RemoteMemory, compare: u64, swap: u64) -> Atomic {
        self.atomic(|word| SendRequest::compare_swap(word, at, compare, swap))
    }

    /// Atomic fetch-and-add on the 8 bytes at `at`. Gives the value found.
    pub fn fetch_add(&self, at: RemoteMemory, add: u64) -> Atomic {
        self.atomic(|word| SendRequest::fetch_add(word, at, add))
    }

    /// FLUSH: see [`SendRequest::flush`].
    pub fn flush(&self, of: RemoteMemory) -> Request {
        self.request(SendRequest::flush(of))
    }

    fn atomic(&self, request: impl FnOnce(Buffer) -> SendRequest) -> Atomic {
        let word = self.shared.words().take();
        Atomic::new(word.map(|word| self.request(request(word))))
    }
}
