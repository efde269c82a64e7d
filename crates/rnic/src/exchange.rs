//! A plain out-of-band channel: how two programs tell each other their endpoints before RDMA works.
//!
//! Messages are a length (32 bits, big endian) and bytes, at most [`MAX_MESSAGE`]; over TCP, or
//! over any pair of pipes. It is the plain way, and needs a TCP port; [`cm`](crate::cm) connects
//! over the RDMA network itself.
//!
//! Both sides prepare a queue pair, post receives, swap what the other has to know, and do their
//! handshakes:
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use rnic::exchange::Exchange;
//! use rnic::{Context, Rc, RemoteMemory, SendRequest};
//!
//! const TIMEOUT: Duration = Duration::from_secs(10);
//!
//! fn side(mut exchange: Exchange, writes: bool) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let context = Context::open()?;
//!     let pd = context.alloc_pd()?;
//!     let cq = context.create_cq(16).build()?;
//!     let region = pd.writable(64).build()?;
//!     let prepared = pd.create_qp::<Rc>(&cq, &cq).build()?;
//!     let remote = exchange.swap_endpoints(&prepared.endpoint())?;
//!     // Anything else goes the same way: here, what the peer may write to.
//!     let theirs = RemoteMemory::from_bytes(&exchange.swap(&region.remote().to_bytes())?)?;
//!     let qp = prepared.handshake(remote)?;
//!     if writes {
//!         qp.post(SendRequest::write_inline(b"hello", theirs.slice(0, 5)?))?;
//!         cq.wait(TIMEOUT)?.ok()?;
//!     }
//!     // After the barrier the other side has come as far: the data is there, and nobody takes its memory away too early.
//!     exchange.barrier()?;
//!     if !writes {
//!         let mut bytes = [0; 5];
//!         region.copy_out(0, &mut bytes)?;
//!         assert_eq!(&bytes, b"hello");
//!     }
//!     Ok(())
//! }
//!
//! let (tell, told) = std::sync::mpsc::channel();
//! let server = std::thread::spawn(move || {
//!     // In a program of its own: a fixed port, and the client is told host and port.
//!     side(Exchange::listen("127.0.0.1:0", |addr| tell.send(addr).expect("the client waits"))?, false)
//! });
//! side(Exchange::connect(told.recv()?, TIMEOUT)?, true).map_err(|e| e.to_string())?;
//! server.join().expect("no panic").map_err(|e| e.to_string())?;
//! # Ok(())
//! # }
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::raw::fd;

/// Longest message.
pub const MAX_MESSAGE: usize = 1 << 20;

/// A two-way channel to the peer.
pub struct Exchange {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
    /// The reader's, to see whether the peer is gone.
    end: Option<OwnedFd>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    |source| Error::Exchange {
        what: what.into(),
        source,
    }
}

/// Calls each address that the name stands for, none of them longer than there is time.
fn call_once(addr: impl ToSocketAddrs, deadline: Option<Instant>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name stands for no address",
    );
    for addr in addr.to_socket_addrs()? {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let called = match deadline {
            Some(deadline) => TcpStream::connect_timeout(&addr, left(deadline).max(SHORTEST)),
            None => TcpStream::connect(addr),
        };
        match called {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Calls a TCP address, again and again until it answers or `timeout` is over: the listener may not
/// be up yet.
///
/// # Errors
/// Why the last call failed.
pub fn call(addr: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    // `None`: it never comes.
    let deadline = Instant::now().checked_add(timeout);
    loop {
        match call_once(&addr, deadline) {
            Err(error) if deadline.is_some_and(|d| Instant::now() >= d) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            answered => return answered,
        }
    }
}

/// Of a call: the time that one may take when there is none left.
const SHORTEST: Duration = Duration::from_millis(100);
/// A peer that is silent for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(60);

impl Exchange {
    /// Uses any pair of streams: pipes to a child process, for example.
    pub fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Exchange {
        Exchange {
            reader: Box::new(reader),
            writer: Box::new(writer),
            end: None,
        }
    }

    /// The same of streams with descriptors, of which the system knows when the peer is gone
    /// ([`Exchange::is_closed`]).
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn over(
        reader: impl Read + AsFd + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Result<Exchange> {
        let end = reader.as_fd().try_clone_to_owned();
        let end = end.map_err(failed("watching the channel"))?;
        Ok(Exchange {
            end: Some(end),
            ..Exchange::new(reader, writer)
        })
    }

    /// The peer has closed its end, or ended. Looks without waiting; never so of streams given to
    /// [`Exchange::new`].
    pub fn is_closed(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| fd::is_hung_up(end.as_fd()))
    }

    /// A message has begun to come, or the peer has closed its end: [`Exchange::recv`] does not
    /// wait for long. Looks without waiting; never so of streams given to [`Exchange::new`]. What a
    /// reader keeps in a buffer of its own does not count.
    pub fn is_readable(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| fd::is_readable(end.as_fd()))
    }

    /// Uses a TCP connection: for a server of many clients, which accepts on a [`TcpListener`] of
    /// its own. A peer that is silent for a minute is taken for gone.
    ///
    /// # Errors
    /// When the socket's options cannot be set.
    pub fn from_tcp(stream: TcpStream) -> Result<Exchange> {
        Exchange::over_tcp(stream).map_err(failed("setting up the TCP connection"))
    }

    fn over_tcp(stream: TcpStream) -> io::Result<Exchange> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let end = Some(OwnedFd::from(stream.try_clone()?));
        Ok(Exchange {
            end,
            ..Exchange::new(stream.try_clone()?, stream)
        })
    }

    /// Listens on a TCP address and takes the first that calls. `ready` is told the address (its
    /// port may have been 0).
    pub fn listen(
        addr: impl ToSocketAddrs + std::fmt::Debug,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<Exchange> {
        let what = format!("listening on {addr:?}");
        let run = || {
            let listener = TcpListener::bind(addr)?;
            ready(listener.local_addr()?);
            let (stream, _) = listener.accept()?;
            Exchange::over_tcp(stream)
        };
        run().map_err(failed(what))
    }

    /// Uses the connection that [`call`] makes.
    pub fn connect(
        addr: impl ToSocketAddrs + std::fmt::Debug,
        timeout: Duration,
    ) -> Result<Exchange> {
        let what = format!("connecting to {addr:?}");
        call(addr, timeout)
            .and_then(Exchange::over_tcp)
            .map_err(failed(what))
    }

    /// Sends a message.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut run = || {
            if bytes.len() > MAX_MESSAGE {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            let mut message = (bytes.len() as u32).to_be_bytes().to_vec();
            message.extend_from_slice(bytes);
            self.writer.write_all(&message)?;
            self.writer.flush()
        };
        run().map_err(failed("sending to the peer"))
    }

    /// Receives a message.
    pub fn recv(&mut self) -> Result<Vec<u8>> {
        let mut run = || {
            let mut len = [0; 4];
            self.reader.read_exact(&mut len)?;
            let len = u32::from_be_bytes(len) as usize;
            if len > MAX_MESSAGE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of {len} bytes: the peer speaks something else"),
                ));
            }
            let mut bytes = vec![0; len];
            self.reader.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        run().map_err(failed("waiting for the peer"))
    }

    /// Sends and receives a message: both sides call it.
    pub fn swap(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.send(bytes)?;
        self.recv()
    }

    /// Swaps endpoints.
    pub fn swap_endpoints(&mut self, local: &Endpoint) -> Result<Endpoint> {
        Endpoint::from_bytes(&self.swap(&local.to_bytes())?)
    }

    /// Returns when the peer has called it too.
    pub fn barrier(&mut self) -> Result<()> {
        match self.swap(b"barrier")? == b"barrier" {
            true => Ok(()),
            false => Err(Error::Decode {
                what: "a barrier",
                reason: "the peer sent something else",
            }),
        }
    }
}

#[cfg(test)]
mod tests;
