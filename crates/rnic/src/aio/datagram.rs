//! Datagrams as futures.

use std::net::IpAddr;
use std::sync::Arc;

use super::qp::Shared;
use super::receive::{Messages, Receive};
use super::request::Request;
use crate::datagram::{self, Destination};
use crate::error::Result;
use crate::gather::Piece;
use crate::nic::{Counters, QpState};
use crate::post::{RecvError, SendRequest};
use crate::raw::memory::Buffer;

/// A UD queue pair whose requests are futures: one talks with any number of peers, and with
/// multicast groups. Cheap to clone.
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// use rnic::aio::{self, CompletionQueue};
/// use rnic::{Context, Destination, HEADER_LEN, Ud};
///
/// let context = Context::open()?;
/// let (gid, pd) = (context.loopback_gid()?, context.alloc_pd()?);
/// let cq = CompletionQueue::new(&context, 256)?;
/// let left = cq.create_qp::<Ud>(&pd).gid(&gid).build()?;
/// let right = cq.create_qp::<Ud>(&pd).gid(&gid).receives(8, HEADER_LEN + 64).build()?;
/// let ah = pd.create_ah(&gid, gid.addr)?;
/// let to = Destination { ah, qpn: right.qpn(), qkey: right.qkey() };
/// aio::block_on(async {
///     left.send_to(pd.buffer_from(b"hello")?, &to).await?;
///     let message = right.recv().await?;
///     assert_eq!(&message[..], b"hello");
///     assert_eq!(message.completion().source(), Some((gid.addr, left.qpn())));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct DatagramQueuePair {
    qp: datagram::DatagramQueuePair,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for DatagramQueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.qp.fmt(f)
    }
}

impl DatagramQueuePair {
    pub(super) fn new(qp: datagram::DatagramQueuePair, shared: Arc<Shared>) -> DatagramQueuePair {
        DatagramQueuePair { qp, shared }
    }

    /// Posts any SEND to `to`, of at most the port's MTU, and gives its completion when it has
    /// left. It waits while the send queue is full.
    pub fn request(&self, request: SendRequest, to: &Destination) -> Request {
        Request::new(&self.shared, request.to(to))
    }

    /// SEND.
    pub fn send_to(&self, buffer: Buffer, to: &Destination) -> Request {
        self.request(SendRequest::send(buffer), to)
    }

    /// SEND of a few bytes that are copied now.
    pub fn send_inline_to(&self, bytes: &[u8], to: &Destination) -> Request {
        self.request(SendRequest::send_inline(bytes), to)
    }

    /// The next datagram, when there is one. Its bytes are those behind the network header; who
    /// sent it is told by [`Completion::source`](crate::Completion::source).
    ///
    /// # Errors
    /// As [`QueuePair::recv`](super::QueuePair::recv). A send that fails does not end receiving.
    pub fn recv(&self) -> Receive {
        Receive::new(&self.shared)
    }

    /// All datagrams as a stream.
    pub fn messages(&self) -> Messages {
        Messages::new(&self.shared)
    }

    /// Posts a receive, which needs [`HEADER_LEN`](crate::HEADER_LEN) bytes more than the datagram.
    /// When its message is dropped, it is posted again.
    ///
    /// # Errors
    /// The queue is full, or the device refuses. The buffer comes back.
    pub fn post_recv(&self, buffer: Buffer) -> std::result::Result<(), RecvError> {
        self.shared.post_recv(Piece::whole(buffer).into())
    }

    /// Gets a copy of every datagram to `group` from now on (`ibv_attach_mcast`).
    ///
    /// # Errors
    /// As [`crate::DatagramQueuePair::attach`].
    pub fn attach(&self, group: IpAddr) -> Result<()> {
        self.qp.attach(group)
    }

    /// Gets no more copies (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// As [`crate::DatagramQueuePair::detach`].
    pub fn detach(&self, group: IpAddr) -> Result<()> {
        self.qp.detach(group)
    }

    /// Queue pair number.
    pub fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Queue key: what senders must know.
    pub fn qkey(&self) -> u32 {
        self.qp.qkey()
    }

    /// State now; see [`crate::DatagramQueuePair::state`].
    pub fn state(&self) -> QpState {
        self.qp.state()
    }

    /// After a send has failed (SQE): sends again.
    ///
    /// # Errors
    /// When no send has failed.
    pub fn recover(&self) -> Result<()> {
        self.qp.recover()
    }

    /// Datagrams sent, received, dropped.
    pub fn counters(&self) -> Counters {
        self.qp.counters()
    }
}
