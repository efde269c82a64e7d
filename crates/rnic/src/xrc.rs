//! Extended reliable connections (XRC, IBTA vol. 1, annex A14): one connection per peer process,
//! and a shared receive queue for each recipient behind it.
//!
//! Where every process of a host talks with every process of another, RC takes a queue pair for
//! each pair of processes. With XRC a sender has one queue pair per host, and names in each message
//! the receive queue that it is for. Sending and receiving are queue pairs of their own:
//! [`QueuePair<Xrc>`] only sends, [`XrcTarget`] only receives. A target takes no receives of its
//! own: those are posted to the [`XrcReceiveQueue`]s of its [`XrcDomain`], each with a protection
//! domain and a completion queue of its own.
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use rnic::{Context, SendRequest, Xrc};
//!
//! let context = Context::open()?;
//! let gid = context.loopback_gid()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(64).build()?;
//!
//! // The receiving side: two recipients behind one connection.
//! let domain = context.open_xrc_domain()?;
//! let [red, blue] = [domain.create_srq(&pd, &cq, 16)?, domain.create_srq(&pd, &cq, 16)?];
//! red.post_recv(pd.buffer(64)?, 1)?;
//! blue.post_recv(pd.buffer(64)?, 2)?;
//! let target = domain.create_target().gid(&gid).build()?;
//!
//! // The sending side.
//! let send_cq = context.create_cq(64).build()?;
//! let initiator = pd.create_qp::<Xrc>(&send_cq, &send_cq).gid(&gid).build()?;
//!
//! let (to_target, to_initiator) = (target.endpoint(), initiator.endpoint());
//! let _target = target.handshake(to_initiator)?;
//! let initiator = initiator.handshake(to_target)?;
//! initiator.post(SendRequest::send_inline(b"to blue"), blue.number())?;
//! let received = cq.wait(Duration::from_secs(5))?.ok()?;
//! assert_eq!((received.id(), received.data()), (2, &b"to blue"[..]));
//! # Ok(())
//! # }
//! ```

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::connect::{self, Place, Settings, common_setters};
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::device;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::manual::ManualXrcTarget;
use crate::nic::{Access, Counters, GidEntry, PathMtu, QpAttr, QpState};
use crate::pd::ProtectionDomain;
use crate::post::RecvError;
use crate::raw::memory::Buffer;
use crate::srq::SharedReceiveQueue;

/// An XRC domain (`ibv_open_xrcd`): its targets reach its receive queues. Cheap to clone.
#[derive(Clone)]
pub struct XrcDomain {
    raw: device::Xrcd,
    context: Context,
}

impl std::fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XrcDomain").finish_non_exhaustive()
    }
}

impl Context {
    /// Opens an XRC domain that nobody else can open.
    pub fn open_xrc_domain(&self) -> Result<XrcDomain> {
        self.xrc_domain(self.raw.open_xrcd(None)?)
    }

    /// Opens the XRC domain of a file, which all openings for that file have in common.
    ///
    /// # Errors
    /// When the descriptor is none.
    pub fn open_xrc_domain_of(&self, file: impl AsFd) -> Result<XrcDomain> {
        let fd = file.as_fd().as_raw_fd();
        self.xrc_domain(self.raw.open_xrcd(Some(fd))?)
    }

    fn xrc_domain(&self, raw: device::Xrcd) -> Result<XrcDomain> {
        let context = self.clone();
        Ok(XrcDomain { raw, context })
    }
}

impl XrcDomain {
    /// Creates a receive queue for at least `max_wr` receives (`ibv_create_srq_ex`). Messages for
    /// it work in `pd`: the keys of peers, too, have to be of regions there. Its completions go to
    /// `cq`.
    pub fn create_srq(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        max_wr: u32,
    ) -> Result<XrcReceiveQueue> {
        let xrc = (&self.raw, cq.raw());
        let queue = SharedReceiveQueue::create(pd, max_wr, Some(xrc))?;
        let number = queue.number();
        cq.attach_srq(number, queue.work());
        Ok(XrcReceiveQueue {
            inner: Arc::new(Inner {
                queue,
                _registration: Registration {
                    number,
                    cq: cq.clone(),
                },
            }),
        })
    }

    /// Builds the receiving end of a connection (`ibv_create_qp_ex` with `IBV_QPT_XRC_RECV`).
    pub fn create_target(&self) -> XrcTargetBuilder {
        XrcTargetBuilder {
            domain: self.clone(),
            place: Place::default(),
            settings: Settings::default(),
        }
    }
}

/// A shared receive queue of an XRC domain. Whoever knows its number, and a target of the domain,
/// can send to it.
#[derive(Clone)]
pub struct XrcReceiveQueue {
    inner: Arc<Inner>,
}

/// Fields drop in this order: the queue, which nothing arrives in any more, then what the
/// completion queue knows of it.
struct Inner {
    queue: SharedReceiveQueue,
    _registration: Registration,
}

struct Registration {
    number: u32,
    cq: CompletionQueue,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cq.detach_srq(self.number);
    }
}

impl std::fmt::Debug for XrcReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XrcReceiveQueue")
            .field("number", &self.number())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl XrcReceiveQueue {
    /// What senders name (`ibv_get_srq_num`).
    pub fn number(&self) -> u32 {
        self.inner.queue.number()
    }

    /// Posts a receive; see [`SharedReceiveQueue::post_recv`]. The buffer has to be of the queue's
    /// protection domain.
    pub fn post_recv(&self, buffer: Buffer, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.queue.post_recv(buffer, id)
    }

    /// Posts a receive without memory: enough for a WRITE with immediate or an empty message.
    pub fn post_recv_empty(&self, id: u64) -> std::result::Result<(), RecvError> {
        self.inner.queue.post_recv_empty(id)
    }

    /// Receives it holds. One counts from when it is posted until its completion was taken.
    pub fn capacity(&self) -> u32 {
        self.inner.queue.capacity()
    }

    /// Changes the capacity; see [`SharedReceiveQueue::resize`].
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        self.inner.queue.resize(max_wr)
    }

    /// Asks for an event when few receives are left; see [`SharedReceiveQueue::arm_limit`].
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        self.inner.queue.arm_limit(limit)
    }

    /// The limit that is armed; 0: none, or the event has come.
    pub fn limit(&self) -> u32 {
        self.inner.queue.limit()
    }

    /// Names this queue in asynchronous events; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.queue.event_cookie()
    }

    /// The protection domain that messages for it work in.
    pub fn pd(&self) -> &ProtectionDomain {
        self.inner.queue.pd()
    }
}

/// Arguments of a target; see [`XrcDomain::create_target`]. All have defaults that suit small
/// programs.
#[derive(Debug)]
pub struct XrcTargetBuilder {
    domain: XrcDomain,
    place: Place,
    settings: Settings,
}

impl XrcTargetBuilder {
    common_setters!();

    /// READs and atomics of the peer in flight at once; 16 if not set.
    pub fn max_dest_rd_atomic(mut self, responder: u8) -> Self {
        self.settings.max_dest_rd_atomic = responder;
        self.settings.rd_atomic_chosen = true;
        self
    }

    fn create(domain: XrcDomain) -> Result<Arc<Target>> {
        let cookie = crate::next_cookie();
        let qp = domain.raw.create_qp(cookie)?;
        Ok(Arc::new(Target { qp, cookie, domain }))
    }

    /// Creates the queue pair in RESET, for a program that changes its states itself.
    pub fn build_in_reset(self) -> Result<ManualXrcTarget> {
        Ok(ManualXrcTarget::new(Self::create(self.domain)?))
    }

    /// Creates the queue pair and moves it to INIT.
    pub fn build(mut self) -> Result<PreparedXrcTarget> {
        self.settings.fit(&self.domain.context);
        let (gid, path_mtu) = self.place.settle(&self.domain.context)?;
        let inner = Self::create(self.domain)?;
        self.settings.init(&inner.qp)?;
        Ok(PreparedXrcTarget {
            target: XrcTarget { inner },
            gid,
            path_mtu,
            settings: self.settings,
        })
    }
}

/// A target that has no peer yet (INIT).
#[derive(Debug)]
pub struct PreparedXrcTarget {
    target: XrcTarget,
    gid: GidEntry,
    path_mtu: PathMtu,
    settings: Settings,
}

impl PreparedXrcTarget {
    /// What the peer needs for its handshake.
    pub fn endpoint(&self) -> Endpoint {
        self.settings
            .endpoint(&self.gid, self.target.qpn(), self.path_mtu)
    }

    /// Takes the peer's messages from now on: INIT to RTR (`ibv_modify_qp`), which is all that a
    /// target needs.
    pub fn handshake(self, remote: Endpoint) -> Result<XrcTarget> {
        self.settings
            .receive_ready(&self.target.inner.qp, &self.gid, &self.endpoint(), &remote)?;
        Ok(self.target)
    }
}

/// The receiving end of a connection. Destroyed when its last handle is dropped: the receive queues
/// go on, and the receive of a message that had not come whole completes as flushed.
#[derive(Clone)]
pub struct XrcTarget {
    inner: Arc<Target>,
}

pub(crate) struct Target {
    pub(crate) qp: device::Qp,
    cookie: u64,
    pub(crate) domain: XrcDomain,
}

impl Drop for Target {
    fn drop(&mut self) {
        // The device destroys without a completion, and the receive queue would wait for it for
        // ever.
        connect::fail(&self.qp);
    }
}

impl std::fmt::Debug for XrcTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XrcTarget")
            .field("qpn", &self.qpn())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl XrcTarget {
    /// Queue pair number; completions of the receive queues show it.
    pub fn qpn(&self) -> u32 {
        self.inner.qp.qpn()
    }

    /// State now: RTR until something fails, ERR from then on.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// State and attributes now (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpAttr> {
        Ok(self.inner.qp.query()?)
    }

    /// Packets, duplicates and NAKs of this queue pair.
    pub fn counters(&self) -> Counters {
        self.inner.qp.counters()
    }

    /// Names this queue pair in asynchronous events; unique in the process.
    pub fn event_cookie(&self) -> u64 {
        self.inner.cookie
    }

    /// The domain whose receive queues it reaches.
    pub fn domain(&self) -> &XrcDomain {
        &self.inner.domain
    }
}
