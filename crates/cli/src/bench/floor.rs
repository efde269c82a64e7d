//! The floor: what bare UDP sockets do with the same datagrams, without any protocol.
//!
//! The sockets are of the kind that the NIC uses: bound to an address, non-blocking, polled hard, path MTU discovery on,
//! UDP_GRO on the receiving side, UDP_SEGMENT on the sending one. No headers are made or read, no ICRC is taken.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rnic::exchange::Exchange;

use super::{LARGE, Measurement, OVERHEAD};
use crate::failure::{Failure, Result};
use crate::measure::stats::Summary;
use crate::sys;

const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;
/// Nothing stays on a loopback socket's way for so long.
const LOST: Duration = Duration::from_secs(5);
/// What the kernel charges a receive buffer for a train of segments beyond its bytes, at most.
const CHARGE: usize = 16 << 10;
/// Bytes that the sender's data walks over, and the receiver's copies.
const WALK: usize = 8 << 20;

/// Both sides' part; nanoseconds or bytes per second.
pub fn run(
    measurement: Measurement,
    exchange: &mut Exchange,
    lead: bool,
    time: Duration,
) -> Result<f64> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    sys::set_option(
        &socket,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DO,
    )?;
    // The largest that is granted; the effective size is read back.
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 8 << 20)?;
    let own = socket.local_addr()?.to_string();
    let peer = String::from_utf8_lossy(&exchange.swap(own.as_bytes())?).into_owned();
    let peer: SocketAddr = peer
        .parse()
        .map_err(|_| Failure::new(format!("`{peer}` is no address")))?;
    match measurement {
        Measurement::UdpPingPong { connected } => {
            if connected {
                socket.connect(peer)?;
            }
            exchange.barrier()?;
            let link = Socket {
                socket,
                peer,
                connected,
            };
            if lead {
                link.ping(Measurement::DATAGRAM, time)
            } else {
                link.pong()
            }
        }
        Measurement::UdpStream { mtu, copy } => {
            let stream = Stream { socket, peer, mtu };
            sys::set_option(&stream.socket, libc::IPPROTO_UDP, UDP_GRO, 1)?;
            let buffer =
                sys::get_option(&stream.socket, libc::SOL_SOCKET, libc::SO_RCVBUF)? as usize;
            let room = exchange.swap(&(buffer as u64).to_be_bytes())?;
            let room = room.try_into().map(u64::from_be_bytes).unwrap_or(0) as usize;
            exchange.barrier()?;
            if lead {
                stream.send(room, time)
            } else {
                stream.receive(copy)
            }
        }
        Measurement::Send | Measurement::Write { .. } => {
            Err(Failure::new("not a measurement of sockets"))
        }
    }
}

/// Tries until the socket does it.
fn spin<T>(mut attempt: impl FnMut() -> io::Result<T>) -> Result<T> {
    let mut start = None;
    loop {
        for _ in 0..1000 {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if start.get_or_insert_with(Instant::now).elapsed() > LOST {
            return Err(Failure::new(
                "a datagram was lost on loopback, or the peer hangs",
            ));
        }
    }
}

struct Socket {
    socket: UdpSocket,
    peer: SocketAddr,
    connected: bool,
}

impl Socket {
    fn send(&self, bytes: &[u8]) -> Result<()> {
        spin(|| match self.connected {
            true => self.socket.send(bytes),
            false => self.socket.send_to(bytes, self.peer),
        })?;
        Ok(())
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize> {
        spin(|| match self.connected {
            true => self.socket.recv(buffer),
            false => self.socket.recv_from(buffer).map(|(n, _)| n),
        })
    }

    fn ping(&self, size: usize, time: Duration) -> Result<f64> {
        let bytes = vec![1; size];
        let mut buffer = vec![0; 2048];
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..100 {
                let began = Instant::now();
                self.send(&bytes)?;
                self.recv(&mut buffer)?;
                times.push(began.elapsed().as_nanos() as f64 / 2.0);
            }
        }
        self.send(&[])?;
        Ok(Summary::of(times).median)
    }

    /// Sends back what comes, until something empty comes.
    fn pong(&self) -> Result<f64> {
        let mut buffer = vec![0; 2048];
        loop {
            match self.recv(&mut buffer)? {
                0 => return Ok(0.0),
                n => self.send(&buffer[..n])?,
            }
        }
    }
}

/// A stream of segments one way, and the sum of what has come the other way.
struct Stream {
    socket: UdpSocket,
    peer: SocketAddr,
    mtu: usize,
}

impl Stream {
    fn segment(&self) -> usize {
        self.mtu + OVERHEAD
    }

    /// Bytes of one `send`: as many segments as a 64 KiB message has, if one datagram train holds them.
    fn train(&self) -> usize {
        (LARGE / self.mtu).min(65_507 / self.segment()) * self.segment()
    }

    /// `room`: the peer's receive buffer.
    fn send(&self, room: usize, time: Duration) -> Result<f64> {
        sys::set_option(
            &self.socket,
            libc::IPPROTO_UDP,
            UDP_SEGMENT,
            self.segment() as i32,
        )?;
        let train = self.train();
        // The kernel charges the buffer for more than the bytes of a train. Two trains at least.
        let fit = room / (train + CHARGE) * 3 / 4;
        let window = (fit * train).clamp(2 * train, 512 << 10);
        let data = vec![0x5a; WALK];
        let mut credit = [0; 64];
        let (mut sent, mut acknowledged, mut at) = (0, 0, 0);
        let start = Instant::now();
        while start.elapsed() < time {
            while sent + train - acknowledged > window {
                acknowledged = self.credit(&mut credit)?;
            }
            if at + train > WALK {
                at = 0;
            }
            spin(|| self.socket.send_to(&data[at..at + train], self.peer))?;
            at += train;
            sent += train;
        }
        while acknowledged < sent {
            acknowledged = self.credit(&mut credit)?;
        }
        let rate = sent as f64 / start.elapsed().as_secs_f64();
        spin(|| self.socket.send_to(&[], self.peer))?;
        Ok(rate * self.mtu as f64 / self.segment() as f64)
    }

    fn credit(&self, buffer: &mut [u8]) -> Result<usize> {
        let n = spin(|| self.socket.recv(buffer))?;
        // Several may have been merged; the last one counts.
        let last = buffer[..n].last_chunk().copied().map(u64::from_be_bytes);
        last.map(|sum| sum as usize)
            .ok_or_else(|| Failure::new("the peer confirms nothing"))
    }

    fn receive(&self, copy: bool) -> Result<f64> {
        let mut buffer = vec![0; 65536];
        let mut target = vec![0; WALK];
        let (mut sum, mut at) = (0u64, 0);
        loop {
            let n = spin(|| self.socket.recv(&mut buffer))?;
            if n == 0 {
                std::hint::black_box(&target);
                return Ok(0.0);
            }
            if copy {
                for segment in buffer[..n].chunks(self.segment()) {
                    let payload = &segment[..segment.len().saturating_sub(OVERHEAD)];
                    if at + payload.len() > WALK {
                        at = 0;
                    }
                    target[at..at + payload.len()].copy_from_slice(payload);
                    at += payload.len();
                }
            }
            sum += n as u64;
            spin(|| self.socket.send_to(&sum.to_be_bytes(), self.peer))?;
        }
    }
}
