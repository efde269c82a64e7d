//! Connections by the connection manager, as futures.

use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_core::Stream;

use super::manager::Token;
use super::qp::{CompletionQueue, PreparedQueuePair, QueuePair, Shared};
use crate::cm::{CmConnection, CmConnector, CmListener, CmPending, CmRequest};
use crate::error::{Error, Result};
use crate::qp::{Connected, PreparedQueuePair as Prepared, Rc};

/// Waits for requests on a port of the connection manager: see [`CmListener`]. It is a stream of
/// them, too.
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// use rnic::aio::{self, CompletionQueue, Listener};
/// use rnic::{CmConnector, Context, Rc};
///
/// let context = Context::open()?;
/// let pd = context.alloc_pd()?;
/// let cq = CompletionQueue::new(&context, 256)?;
/// let listener = Listener::<Rc>::bind(&cq, (context.loopback_gid()?.addr, 0))?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn({
///     let (cq, pd) = (cq.clone(), pd.clone());
///     move || aio::block_on(async {
///         let request = listener.accept().await?;
///         let qp = cq.create_qp::<Rc>(&pd).receives(8, 64).build()?;
///         let connection = request.accept(qp).await?;
///         Ok::<_, rnic::Error>(connection.recv().await?.to_vec())
///     })
/// });
/// aio::block_on(async {
///     let qp = cq.create_qp::<Rc>(&pd).build()?;
///     let connection = qp.connect(&CmConnector::new(address)?).await?;
///     connection.send(pd.buffer_from(b"hello")?).await?;
///     assert_eq!(server.join().expect("no panic")?, b"hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct Listener<T: Connected = Rc> {
    listener: CmListener<T>,
    token: Token,
    /// Of its use as a stream.
    ticket: Option<u64>,
}

impl<T: Connected> std::fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listener.fmt(f)
    }
}

impl<T: Connected> Listener<T> {
    /// Listens on an address and port; its news come by way of the completion queue's reactor.
    ///
    /// # Errors
    /// As [`CmListener::bind`].
    pub fn bind(queue: &CompletionQueue, addr: impl ToSocketAddrs) -> Result<Listener<T>> {
        let manager = queue.core.manager(queue.context())?;
        let token = Token::new(manager, Weak::new());
        let builder = CmListener::<T>::builder(addr)?;
        let listener = builder.channel(token.channel(), token.number()).listen()?;
        Ok(Listener {
            listener,
            token,
            ticket: None,
        })
    }

    /// Its address and port.
    ///
    /// # Errors
    /// In a forked child.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next request. Any number of tasks may wait; each request goes to one.
    ///
    /// # Errors
    /// The channel fails, as in a forked child.
    pub fn accept(&self) -> Accept<'_, T> {
        Accept {
            listener: self,
            ticket: None,
        }
    }

    fn poll_request(
        &self,
        ticket: &mut Option<u64>,
        cx: &Context<'_>,
    ) -> Poll<Result<ConnectRequest<T>>> {
        let request = self.token.poll(ticket, cx, || {
            let request = self.listener.try_request();
            request.transpose()
        });
        request.map(|request| Ok(ConnectRequest { request: request?? }))
    }
}

// Nothing in it is pinned.
impl<T: Connected> Unpin for Listener<T> {}

impl<T: Connected> Stream for Listener<T> {
    type Item = Result<ConnectRequest<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut ticket = self.ticket.take();
        let request = self.poll_request(&mut ticket, cx);
        self.ticket = ticket;
        request.map(Some)
    }
}

/// Gives the next request; see [`Listener::accept`]. Dropping it loses none.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accept<'a, T: Connected> {
    listener: &'a Listener<T>,
    ticket: Option<u64>,
}

impl<T: Connected> Future for Accept<'_, T> {
    type Output = Result<ConnectRequest<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Accept { listener, ticket } = self.get_mut();
        listener.poll_request(ticket, cx)
    }
}

impl<T: Connected> Drop for Accept<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.listener.token.leave(ticket);
        }
    }
}

/// Somebody wants a connection. Dropping it refuses.
#[derive(Debug)]
pub struct ConnectRequest<T: Connected = Rc> {
    request: CmRequest<T>,
}

impl<T: Connected> ConnectRequest<T> {
    /// Who asks.
    ///
    /// # Errors
    /// In a forked child.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        self.request.peer_addr()
    }

    /// What the peer's application said with its request: 56 bytes, zeros behind what it gave.
    pub fn private_data(&self) -> &[u8] {
        self.request.private_data()
    }

    /// Accepts it with this queue pair, whose receives should have been posted: the peer may send
    /// at once. Dropping the future gives up.
    ///
    /// # Errors
    /// As [`CmRequest::accept`].
    pub fn accept(self, qp: PreparedQueuePair<T>) -> Connect<T> {
        self.accept_with(qp, &[])
    }

    /// The same with at most 196 bytes for the peer's application.
    ///
    /// # Errors
    /// As [`CmRequest::accept`].
    pub fn accept_with(self, qp: PreparedQueuePair<T>, private_data: &[u8]) -> Connect<T> {
        Connect::new(qp, Start::Accept(self.request, private_data.to_vec()))
    }

    /// Refuses it, with at most 148 bytes for the peer's application.
    ///
    /// # Errors
    /// As [`CmRequest::reject`].
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }
}

impl<T: Connected> PreparedQueuePair<T> {
    /// Connects by the connection manager. Time-outs are the caller's: the connector's own means
    /// nothing here. Dropping the future gives up.
    ///
    /// # Errors
    /// As [`CmConnector::connect`].
    pub fn connect(self, connector: &CmConnector) -> Connect<T> {
        Connect::new(self, Start::Connect(connector.clone()))
    }
}

enum Start<T: Connected> {
    Connect(CmConnector),
    Accept(CmRequest<T>, Vec<u8>),
}

/// Gives a connection; see [`PreparedQueuePair::connect`] and [`ConnectRequest::accept`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Connect<T: Connected> {
    shared: Arc<Shared>,
    start: Option<(Start<T>, Prepared<T>)>,
    // Before the token: its object reports to the token's channel.
    pending: Option<CmPending<T>>,
    token: Option<Token>,
    ticket: Option<u64>,
}

impl<T: Connected> std::fmt::Debug for Connect<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("qpn", &self.shared.lane().qpn())
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl<T: Connected> Connect<T> {
    fn new(qp: PreparedQueuePair<T>, start: Start<T>) -> Connect<T> {
        Connect {
            shared: qp.shared,
            start: Some((start, qp.prepared)),
            pending: None,
            token: None,
            ticket: None,
        }
    }

    fn begin(&mut self, start: Start<T>, prepared: Prepared<T>) -> Result<()> {
        let context = self.shared.qp().pd().context();
        let manager = self.shared.core().manager(context)?;
        let token = Token::new(manager, Arc::downgrade(&self.shared));
        let (channel, number) = (token.channel(), token.number());
        let pending = match start {
            Start::Connect(connector) => connector.start(channel, number, prepared)?,
            Start::Accept(request, data) => request.start(channel, number, prepared, &data)?,
        };
        self.pending = Some(pending);
        self.token = Some(token);
        Ok(())
    }
}

// Nothing in it is pinned.
impl<T: Connected> Unpin for Connect<T> {}

impl<T: Connected> Future for Connect<T> {
    type Output = Result<Connection<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some((start, prepared)) = this.start.take()
            && let Err(error) = this.begin(start, prepared)
        {
            return Poll::Ready(Err(error));
        }
        let (Some(token), Some(pending)) = (&this.token, &mut this.pending) else {
            let over = "the future has given its connection".to_owned();
            return Poll::Ready(Err(Error::InvalidArgument(over)));
        };
        let polled = token.poll(&mut this.ticket, cx, || pending.finish());
        let Poll::Ready(connected) = polled else {
            return Poll::Pending;
        };
        this.pending = None;
        this.ticket = None;
        let token = this.token.take();
        Poll::Ready(connected.flatten().and_then(|connection| {
            let gone = || Error::InvalidArgument("it has given its connection".to_owned());
            Ok(Connection {
                qp: QueuePair::new(connection.qp(), this.shared.clone()),
                connection,
                token: token.ok_or_else(gone)?,
            })
        }))
    }
}

/// A connection that the connection managers of both sides keep: a [`QueuePair`], to which it
/// dereferences, and the knowledge of its end, which ends [`QueuePair::recv`], too.
///
/// Dropping it disconnects: the queue pair goes to ERR, and the peer is told. Clones of the queue
/// pair and futures live on, and end with what was flushed.
pub struct Connection<T: Connected = Rc> {
    connection: CmConnection<T>,
    qp: QueuePair<T>,
    token: Token,
}

impl<T: Connected> std::fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.connection.fmt(f)
    }
}

impl<T: Connected> Deref for Connection<T> {
    type Target = QueuePair<T>;
    fn deref(&self) -> &QueuePair<T> {
        &self.qp
    }
}

impl<T: Connected> Connection<T> {
    /// The queue pair.
    pub fn qp(&self) -> &QueuePair<T> {
        &self.qp
    }

    /// What the peer's application said with its request or its answer, zeros behind what it gave.
    pub fn private_data(&self) -> &[u8] {
        self.connection.private_data()
    }

    /// Own address and port.
    ///
    /// # Errors
    /// In a forked child.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.connection.local_addr()
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer_addr()
    }

    /// Ends it (`rdma_disconnect`): what is posted is flushed, the peer is told. Await the sends
    /// first: the peer's NIC throws away what is still on the way.
    pub fn disconnect(&self) {
        self.connection.disconnect();
    }

    /// Whether it has ended, as far as it is known by now.
    pub fn is_disconnected(&self) -> bool {
        self.connection.is_disconnected()
    }

    /// Waits until it has ended: the peer disconnected, ended or died, or it was ended here and the
    /// peer has answered.
    ///
    /// # Errors
    /// The channel fails, as in a forked child.
    pub fn disconnected(&self) -> Disconnected<'_, T> {
        Disconnected {
            connection: self,
            ticket: None,
        }
    }
}

/// Waits for the end of a connection; see [`Connection::disconnected`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Disconnected<'a, T: Connected> {
    connection: &'a Connection<T>,
    ticket: Option<u64>,
}

impl<T: Connected> Future for Disconnected<'_, T> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Disconnected { connection, ticket } = self.get_mut();
        let look = || connection.is_disconnected().then_some(());
        connection.token.poll(ticket, cx, look)
    }
}

impl<T: Connected> Drop for Disconnected<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.connection.token.leave(ticket);
        }
    }
}
