//! A stream of bytes over a reliable connection: `AsyncRead` and `AsyncWrite`.

mod futures_io;
mod state;
#[cfg(feature = "tokio")]
mod tokio_io;
mod wire;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use self::state::{Inner, Waiter};
use super::connect::{ConnectRequest, Connection};
use super::core::{Wait, next_ticket};
use super::lane::Outcomes;
use super::pool::Pool;
use super::qp::{CompletionQueue, PreparedQueuePair, QueuePair, QueuePairBuilder};
use super::receive::Message;
use super::request::RequestError;
use crate::cm::CmConnector;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::nic::GidEntry;
use crate::pd::ProtectionDomain;
use crate::qp::Rc;
use crate::raw::memory::Buffer;

/// A stream of bytes each way over a reliable connection, instead of a TCP socket: `AsyncRead` and
/// `AsyncWrite` of futures-io, and those of tokio with the feature `tokio`.
///
/// * **Copies.** A caller's slice is not registered, so each side copies once: into a send buffer,
///   and out of a receive. [`ByteStream::write_buffer`] and [`ByteStream::read_message`] copy
///   nothing.
/// * **Flow control.** Each side tells the other how many receives it has (credits), and sends no
///   message that none waits for. A reader that is slow makes the peer's `write` wait; there are no
///   RNR NAKs.
/// * **Writing** copies what one message takes and posts it: there is no delay for more, so write
///   large pieces. `flush` waits until the peer's device has all of it.
/// * **Ends.** `close` (tokio's `shutdown`) tells the peer that nothing more comes, whose `read`
///   then gives 0 bytes behind the last ones; the other direction stays open. Dropping the stream
///   closes it, and what was written still arrives. A peer that is gone without `close` is an
///   error, `ConnectionReset`.
/// * **Cancelling** any call loses no byte, but of [`ByteStream::write_buffer`] it is not known
///   then how much was sent.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rnic::aio::{self, ByteStream, CompletionQueue, Listener};
/// use rnic::{CmConnector, Context};
/// use smol::io::{AsyncReadExt, AsyncWriteExt};
///
/// let context = Context::open()?;
/// let pd = context.alloc_pd()?;
/// let cq = CompletionQueue::new(&context, 1024)?;
/// let listener = Listener::bind(&cq, (context.loopback_gid()?.addr, 0))?;
/// let connector = CmConnector::new(listener.local_addr()?)?;
/// let echo = async {
///     let mut stream = ByteStream::accept(listener.accept().await?, &cq, &pd).await?;
///     let mut line = Vec::new();
///     stream.read_to_end(&mut line).await?;
///     stream.write_all(&line).await?;
///     stream.close().await
/// };
/// let client = async {
///     let mut stream = ByteStream::connect(&connector, &cq, &pd).await?;
///     stream.write_all(b"hello, stream").await?;
///     stream.close().await?;
///     let mut line = String::new();
///     stream.read_to_string(&mut line).await?;
///     std::io::Result::Ok(line)
/// };
/// let (echoed, line) = aio::block_on(smol::future::zip(echo, client));
/// echoed?;
/// assert_eq!(line?, "hello, stream");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ByteStream {
    reader: ByteReader,
    writer: ByteWriter,
}

/// The reading half of a [`ByteStream`].
#[derive(Debug)]
pub struct ByteReader {
    half: Half,
}

/// The writing half of a [`ByteStream`].
#[derive(Debug)]
pub struct ByteWriter {
    half: Half,
}

struct Half {
    inner: Arc<Inner>,
    wait: Wait,
    ticket: u64,
}

impl std::fmt::Debug for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.qp.fmt(f)
    }
}

impl Half {
    fn new(inner: &Arc<Inner>) -> Half {
        Half {
            inner: inner.clone(),
            wait: Wait::default(),
            ticket: next_ticket(),
        }
    }

    fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        mut look: impl FnMut(&Inner, Waiter<'_>) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Half {
            inner,
            wait,
            ticket,
        } = self;
        let done = wait.poll(inner.shared().core(), cx, |waker| {
            look(inner, waker.map(|waker| (*ticket, waker)))
        });
        done.map(|done| done.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let shared = self.inner.shared();
        self.wait.end(shared.core());
        if shared.core().is_alive() {
            shared.lane().leave_room(self.ticket);
            shared.lane().leave_readers(self.ticket);
        }
    }
}

/// Arguments of a [`ByteStream`]; see [`ByteStream::builder`].
#[derive(Debug)]
pub struct ByteStreamBuilder {
    qp: QueuePairBuilder<Rc>,
    pd: ProtectionDomain,
    count: usize,
    size: usize,
}

impl ByteStreamBuilder {
    /// So many receives and send buffers, of `size` bytes each; 16 of 16 KiB each if not set. The
    /// two sides need not agree: a message has as many bytes as both take.
    pub fn buffers(mut self, count: usize, size: usize) -> Self {
        (self.count, self.size) = (count, size);
        self
    }

    /// The local address; [`Context::routable_gid`](crate::Context::routable_gid) if not set. A
    /// connection manager chooses by itself.
    pub fn gid(mut self, gid: &GidEntry) -> Self {
        self.qp = self.qp.gid(gid);
        self
    }

    /// Other arguments of its queue pair. The depths of its queues are the stream's own.
    pub fn with(mut self, set: impl FnOnce(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc>) -> Self {
        self.qp = set(self.qp);
        self
    }

    /// Makes the queue pair, with its receives posted.
    ///
    /// # Errors
    /// Buffers of no bytes, or none of them; no room in the completion queue; the device refuses.
    pub fn prepare(self) -> Result<PreparedByteStream> {
        let (count, size) = (self.count, self.size);
        if count == 0
            || count > wire::MOST
            || size < wire::HELLO_LEN
            || u32::try_from(size).is_err()
        {
            return Err(Error::InvalidArgument(format!(
                "a byte stream has 1 to {} buffers of {} bytes or more, not {count} of {size}",
                wire::MOST,
                wire::HELLO_LEN
            )));
        }
        let receives = count + wire::CONTROL;
        // Beside its data: credits whose ACK is not there, the end, and the greeting.
        let sends = count + 2 * wire::CONTROL;
        let qp = self
            .qp
            .max_send_wr(sends as u32)
            .max_recv_wr(receives as u32);
        let qp = qp.receives(receives, size).build()?;
        let pool = Pool::new(&self.pd, count, size)?;
        Ok(PreparedByteStream {
            qp,
            free: std::iter::from_fn(|| pool.try_take()).collect(),
            hello: self.pd.buffer(wire::HELLO_LEN)?,
            count,
            size,
        })
    }
}

/// A byte stream that has no peer yet.
#[derive(Debug)]
pub struct PreparedByteStream {
    qp: PreparedQueuePair<Rc>,
    free: Vec<Buffer>,
    hello: Buffer,
    count: usize,
    size: usize,
}

impl PreparedByteStream {
    /// What the peer needs for its handshake.
    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Connects to a peer that does the same.
    ///
    /// # Errors
    /// As [`PreparedQueuePair::handshake`].
    pub fn handshake(self, remote: Endpoint) -> Result<ByteStream> {
        let qp = self.qp.handshake(remote)?;
        let kind = (self.count, self.size);
        ByteStream::new(Inner::new(qp, None, kind, self.free), self.hello)
    }

    /// Connects by the connection manager.
    ///
    /// # Errors
    /// As [`CmConnector::connect`].
    pub async fn connect(self, connector: &CmConnector) -> Result<ByteStream> {
        let connection = self.qp.connect(connector).await?;
        let kind = (self.count, self.size);
        ByteStream::over(connection, kind, self.free, self.hello)
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// As [`ConnectRequest::accept`].
    pub async fn accept(self, request: ConnectRequest<Rc>) -> Result<ByteStream> {
        let connection = request.accept(self.qp).await?;
        let kind = (self.count, self.size);
        ByteStream::over(connection, kind, self.free, self.hello)
    }
}

impl ByteStream {
    /// A stream with more to say: its buffers, its address, or a handshake without a connection
    /// manager.
    pub fn builder(queue: &CompletionQueue, pd: &ProtectionDomain) -> ByteStreamBuilder {
        ByteStreamBuilder {
            qp: queue.create_qp(pd),
            pd: pd.clone(),
            count: 16,
            size: 16 << 10,
        }
    }

    /// Connects by the connection manager, with the usual buffers.
    ///
    /// # Errors
    /// As [`ByteStreamBuilder::prepare`] and [`CmConnector::connect`].
    pub async fn connect(
        connector: &CmConnector,
        queue: &CompletionQueue,
        pd: &ProtectionDomain,
    ) -> Result<ByteStream> {
        let prepared = ByteStream::builder(queue, pd).prepare()?;
        prepared.connect(connector).await
    }

    /// Accepts a request, with the usual buffers.
    ///
    /// # Errors
    /// As [`ByteStreamBuilder::prepare`] and [`ConnectRequest::accept`].
    pub async fn accept(
        request: ConnectRequest<Rc>,
        queue: &CompletionQueue,
        pd: &ProtectionDomain,
    ) -> Result<ByteStream> {
        let prepared = ByteStream::builder(queue, pd).prepare()?;
        prepared.accept(request).await
    }

    fn over(
        connection: Connection<Rc>,
        kind: (usize, usize),
        free: Vec<Buffer>,
        hello: Buffer,
    ) -> Result<ByteStream> {
        let qp = connection.qp().clone();
        ByteStream::new(Inner::new(qp, Some(connection), kind, free), hello)
    }

    fn new(inner: Inner, hello: Buffer) -> Result<ByteStream> {
        inner.hello(hello)?;
        let inner = Arc::new(inner);
        Ok(ByteStream {
            reader: ByteReader {
                half: Half::new(&inner),
            },
            writer: ByteWriter {
                half: Half::new(&inner),
            },
        })
    }

    /// Both halves, for two tasks. The stream ends when both are dropped.
    pub fn into_split(self) -> (ByteReader, ByteWriter) {
        (self.reader, self.writer)
    }

    /// The next bytes without a copy: see [`ByteReader::read_message`].
    ///
    /// # Errors
    /// As `read`.
    pub async fn read_message(&mut self) -> io::Result<Option<Chunk>> {
        self.reader.read_message().await
    }

    /// Sends a buffer without a copy: see [`ByteWriter::write_buffer`].
    ///
    /// # Errors
    /// As `write`.
    pub async fn write_buffer(
        &mut self,
        buffer: Buffer,
    ) -> std::result::Result<Buffer, RequestError> {
        self.writer.write_buffer(buffer).await
    }

    /// The peer's address, if the connection manager connected it.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.reader
            .half
            .inner
            .connection
            .as_ref()
            .map(Connection::peer_addr)
    }

    /// Its queue pair, to be looked at: messages that it sends by itself are no part of the stream.
    pub fn counters(&self) -> crate::Counters {
        self.qp().counters()
    }

    /// The protection domain of its queue pair: that of the buffers for
    /// [`ByteStream::write_buffer`].
    pub fn pd(&self) -> &ProtectionDomain {
        self.qp().pd()
    }

    fn qp(&self) -> &QueuePair<Rc> {
        &self.reader.half.inner.qp
    }
}

/// Bytes of a stream in the receive that they came in. Dropping it posts the receive again, and
/// lets the peer send more.
#[derive(Debug)]
pub struct Chunk {
    /// Until it is dropped.
    message: Option<Message>,
    start: usize,
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.qp.fmt(f)
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let message = self.message.as_deref().unwrap_or_default();
        &message[self.start..]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.inner.shared().core().is_alive() {
            // Posted first: the peer may send at once.
            self.message = None;
            self.inner.returned();
        }
    }
}

impl ByteReader {
    /// The next bytes in the buffer that they came in, without a copy; `None` is the end. As many
    /// as the peer sent in one message, or what an earlier `read` left of it.
    ///
    /// # Errors
    /// As `read`.
    pub async fn read_message(&mut self) -> io::Result<Option<Chunk>> {
        let half = &mut self.half;
        let read = poll_fn(|cx| half.poll(cx, Inner::read_message)).await?;
        Ok(read.map(|(message, start)| Chunk {
            message: Some(message),
            start,
            inner: self.half.inner.clone(),
        }))
    }

    fn poll_read(&mut self, cx: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.half.poll(cx, |inner, waiter| inner.read(into, waiter))
    }
}

impl ByteWriter {
    /// Sends all bytes of a buffer as they lie, without a copy, and gives it back when the peer's
    /// device has them.
    ///
    /// If this is dropped before it is done, some of the bytes may have been sent.
    ///
    /// # Errors
    /// As `write`. The buffer comes back if nothing of it was sent.
    pub async fn write_buffer(
        &mut self,
        buffer: Buffer,
    ) -> std::result::Result<Buffer, RequestError> {
        let outcomes: Arc<Outcomes> = Arc::default();
        let mut rest = (!buffer.is_empty()).then_some(buffer);
        let half = &mut self.half;
        let sent = poll_fn(|cx| {
            ready!(half.poll(cx, |inner, waiter| {
                inner.write_buffer(&mut rest, &outcomes, waiter)
            }))?;
            half.poll(cx, |_, waiter| {
                let done = outcomes.are_in(waiter.map(|(_, waker)| waker));
                done.then_some(Ok(()))
            })
        });
        let sent = sent.await;
        let failed = outcomes.failed().map(Error::from);
        let error = match (sent, failed) {
            (Ok(()), None) => None,
            (_, Some(error)) => Some(error),
            (Err(error), None) => Some(Error::Exchange {
                what: "the bytes of a stream".to_owned(),
                source: error,
            }),
        };
        let mut pieces = outcomes.take_buffers().into_iter().chain(rest);
        match (error, pieces.next()) {
            (None, Some(first)) => Ok(pieces.fold(first, |whole, piece| {
                // Neighbours, in their order.
                whole.unsplit(piece).unwrap_or_else(|(whole, _)| whole)
            })),
            (None, None) => Err(RequestError {
                error: Error::InvalidArgument("an empty buffer".to_owned()),
                buffers: Vec::new(),
            }),
            (Some(error), first) => Err(RequestError {
                error,
                buffers: first.into_iter().chain(pieces).collect(),
            }),
        }
    }

    fn poll_write(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.half
            .poll(cx, |inner, waiter| inner.write(bytes, waiter))
    }

    fn poll_flush(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll(cx, Inner::flush)
    }

    fn poll_close(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll(cx, Inner::close)
    }
}
