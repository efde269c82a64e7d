//! A plain out-of-band channel: how two programs tell each other their endpoints before RDMA works.
//!
//! Messages are a length (32 bits, big endian) and bytes, at most [`MAX_MESSAGE`]; over TCP, or over any pair of pipes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::error::{Error, Result};

/// Longest message.
pub const MAX_MESSAGE: usize = 1 << 20;

/// A two-way channel to the peer.
pub struct Exchange {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
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
        }
    }

    fn over_tcp(stream: TcpStream) -> io::Result<Exchange> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Exchange::new(stream.try_clone()?, stream))
    }

    /// Listens on a TCP address and takes the first that calls. `ready` is told the address (its port may have been 0).
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

    /// Calls a TCP address, again and again until it answers or `timeout` is over.
    pub fn connect(
        addr: impl ToSocketAddrs + std::fmt::Debug,
        timeout: Duration,
    ) -> Result<Exchange> {
        let what = format!("connecting to {addr:?}");
        let deadline = Instant::now() + timeout;
        loop {
            match TcpStream::connect(&addr).and_then(Exchange::over_tcp) {
                Ok(exchange) => return Ok(exchange),
                Err(error) if Instant::now() >= deadline => return Err(failed(what)(error)),
                // The listener may not be up yet.
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
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
