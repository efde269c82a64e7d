//! Ping-pongs through the kernel: datagrams and eventfds, both sides polling or asleep.

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::{self, EventfdFlags};

use super::{DATAGRAM, Side, micros};
use crate::Result;
use crate::stats;

pub const UDP_SEGMENT: i32 = 103;
pub const UDP_GRO: i32 = 104;
/// Nothing stays on its way between two processes for so long.
const LOST: Duration = Duration::from_secs(5);

/// A socket of the kind that the NIC uses: not connected, path MTU discovery on, UDP_GRO on.
pub fn socket(side: &mut Side, blocking: bool) -> Result<(UdpSocket, SocketAddr)> {
    let socket = UdpSocket::bind((side.addr, 0))?;
    socket.set_nonblocking(!blocking)?;
    if blocking {
        socket.set_read_timeout(Some(LOST))?;
    }
    if side.addr.is_ipv4() {
        rnic_sys::set_option(
            &socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )?;
    }
    rnic_sys::set_option(&socket, libc::IPPROTO_UDP, UDP_GRO, 1)?;
    // The largest that is granted; the effective size is read back by who needs it.
    rnic_sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 8 << 20)?;
    let peer = side.channel.swap(&socket.local_addr()?.to_string())?;
    Ok((socket, peer.parse()?))
}

/// Tries until the socket does it.
pub fn spin<T>(mut attempt: impl FnMut() -> io::Result<T>) -> Result<T> {
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
            return Err("a datagram was lost, or the peer hangs".into());
        }
    }
}

/// Half a round trip of datagrams; they end with an empty one.
pub fn udp(mut side: Side, blocking: bool) -> Result<f64> {
    let (socket, peer) = socket(&mut side, blocking)?;
    let mut buffer = [0; 2048];
    let send = |bytes: &[u8]| -> Result<()> {
        spin(|| socket.send_to(bytes, peer))?;
        Ok(())
    };
    let mut recv = || -> Result<usize> {
        match blocking {
            true => Ok(socket.recv_from(&mut buffer)?.0),
            false => Ok(spin(|| socket.recv_from(&mut buffer))?.0),
        }
    };
    side.channel.barrier()?;
    let bytes = [1; DATAGRAM];
    if !side.lead {
        loop {
            match recv()? {
                0 => return Ok(0.0),
                n => send(&bytes[..n.min(DATAGRAM)])?,
            }
        }
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < side.time {
        for _ in 0..100 {
            let began = Instant::now();
            send(&bytes)?;
            recv()?;
            times.push(began.elapsed().as_nanos() as f64 / 2.0);
        }
    }
    send(&[])?;
    Ok(micros(stats::median(times)))
}

/// Half a round trip of wake-ups.
pub fn eventfd(mut side: Side) -> Result<f64> {
    rnic_sys::child::allow_peers();
    let own = File::from(event::eventfd(0, EventfdFlags::CLOEXEC)?);
    let [pid, number] = side
        .channel
        .numbers([std::process::id().into(), own.as_raw_fd() as u64])?;
    let peer = rnic_sys::process::take_descriptor(pid as u32, number as i32)?;
    side.channel.barrier()?;
    let wake = |value: u64| rnic_sys::write(&peer, &value.to_ne_bytes());
    let sleep = |mut own: &File| -> io::Result<u64> {
        let mut word = [0; 8];
        own.read_exact(&mut word)?;
        Ok(u64::from_ne_bytes(word))
    };
    if !side.lead {
        while sleep(&own)? == 1 {
            wake(1)?;
        }
        return Ok(0.0);
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < side.time {
        let began = Instant::now();
        wake(1)?;
        sleep(&own)?;
        times.push(began.elapsed().as_nanos() as f64 / 2.0);
    }
    wake(2)?;
    Ok(micros(stats::median(times)))
}
