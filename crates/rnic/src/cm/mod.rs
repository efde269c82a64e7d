//! Connections by the connection manager: the safe side of librdmacm.
//!
//! Two programs that use a queue pair have to tell each other where it is.
//! [`exchange`](crate::exchange) does so over TCP; the connection manager does it over the RDMA
//! network itself, by address and port, with programs on rnic, on Linux' librdmacm and on hardware
//! alike. It also tells when the other side has disconnected, ended or died.
//!
//! * [`CmListener`] waits for requests on a port; a [`CmRequest`] is accepted with a
//!   [`PreparedQueuePair`](crate::PreparedQueuePair), or refused.
//! * [`CmConnector`] connects a prepared queue pair to an address and port.
//! * Both give a [`CmConnection`]: a [`QueuePair`](crate::QueuePair) that disconnects when it is
//!   dropped.
//! * All of it by calls that wait, or on a [`CmChannel`], whose descriptor fits any event loop:
//!   what is under way is a [`CmPending`] there.
//! * For datagrams, [`CmConnector::find`] gives the way to a service; [`CmMulticast`] joins a
//!   group.
//!
//! # Waiting
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use rnic::{CmConnector, CmListener, Context, Rc, SendRequest};
//!
//! let context = Context::open()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(64).build()?;
//! let ip = context.loopback_gid()?.addr;
//! let listener = CmListener::<Rc>::bind((ip, 0))?;
//! let port = listener.local_addr()?.port();
//!
//! let server_pd = pd.clone();
//! let server_cq = context.create_cq(64).build()?;
//! let server = std::thread::spawn(move || -> rnic::Result<Vec<u8>> {
//!     let request = listener.request(None)?;
//!     let qp = server_pd.create_qp::<Rc>(&server_cq, &server_cq).build()?;
//!     // Before the peer can know of the queue pair, so that it is never too late.
//!     qp.post_recv(server_pd.buffer(64)?, 1).map_err(|refused| refused.error)?;
//!     let connection = request.accept_with(qp, b"welcome")?;
//!     let message = server_cq.wait(Duration::from_secs(5))?.ok()?.data().to_vec();
//!     connection.wait_disconnected(None)?;
//!     Ok(message)
//! });
//!
//! let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let connection = CmConnector::new((ip, port))?.private_data(b"it's me").connect(qp)?;
//! assert!(connection.private_data().starts_with(b"welcome"));
//! connection.post(SendRequest::send(pd.buffer_from(b"hello, manager")?))?;
//! cq.wait(Duration::from_secs(5))?.ok()?;
//! drop(connection);
//! assert_eq!(server.join().expect("no panic")?, b"hello, manager");
//! # Ok(())
//! # }
//! ```
//!
//! # In an event loop
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rnic::{CmChannel, CmConnector, CmEvent, CmListener, Context, Rc};
//! # let context = Context::open()?;
//! # let pd = context.alloc_pd()?;
//! # let cq = context.create_cq(64).build()?;
//! # let ip = context.loopback_gid()?.addr;
//! const LISTENER: u64 = 0;
//! const SERVER: u64 = 1;
//! const CLIENT: u64 = 2;
//!
//! let channel = CmChannel::new()?;
//! let listener = CmListener::<Rc>::builder((ip, 0))?.channel(&channel, LISTENER).listen()?;
//! let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let mut client = CmConnector::new(listener.local_addr()?)?.start(&channel, CLIENT, qp)?;
//! let mut server = None;
//! let (mut connected, mut ends) = (0, Vec::new());
//! while connected < 2 {
//!     // Here an event loop would have the channel's descriptor (AsFd) among its own, and call `try_event`.
//!     match channel.wait_event(None)? {
//!         CmEvent::Request(LISTENER) => {
//!             let request = listener.try_request()?.expect("the news of it came");
//!             let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//!             server = Some(request.start(&channel, SERVER, qp, b"")?);
//!         }
//!         CmEvent::Connected(token) => {
//!             let pending = if token == CLIENT { Some(&mut client) } else { server.as_mut() };
//!             ends.extend(pending.and_then(|pending| pending.finish()).transpose()?);
//!             connected += 1;
//!         }
//!         event => panic!("{event:?}"),
//!     }
//! }
//! ends[0].disconnect();
//! assert!(matches!(channel.wait_event(None)?, CmEvent::Disconnected(_)));
//! # Ok(())
//! # }
//! ```

mod channel;
mod connection;
mod connector;
mod datagram;
mod listener;
mod object;

pub use crate::error::{CmError, RejectReason};
pub use channel::{CmChannel, CmEvent};
pub use connection::{CmConnection, CmPending};
pub use connector::CmConnector;
pub use datagram::{CmDatagramPeer, CmJoining, CmMulticast, CmSearch};
pub use listener::{CmListener, CmListenerBuilder, CmRequest};

pub use crate::nic::cm::UDP_QKEY;
