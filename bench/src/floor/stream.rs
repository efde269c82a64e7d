//! A stream of datagrams one way by GSO and GRO, a CRC-32 over each on both sides and one copy to
//! where it belongs: what a RoCEv2 WRITE does, with no protocol around it.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use super::wake::{UDP_GRO, UDP_SEGMENT, socket, spin};
use super::{OVERHEAD, Side};
use crate::Result;

/// Bytes of a message, of which trains of segments are made.
const MESSAGE: usize = 1 << 20;
/// Most segments of a train, UDP_MAX_SEGMENTS of Linux.
const SEGMENTS: usize = 128;
/// Most bytes of a datagram train.
const TRAIN: usize = 65_507;
/// What the kernel charges a receive buffer for a train beyond its bytes, at most.
const CHARGE: usize = 16 << 10;
/// Bytes in flight.
const WINDOW: usize = 512 << 10;
const HEADER: usize = 12;

/// Both sides' part; GB/s of payload.
pub fn run(mut side: Side, payload: usize) -> Result<f64> {
    let (socket, peer) = socket(&mut side, false)?;
    rnic_sys::set_option(&socket, libc::IPPROTO_UDP, UDP_GRO, 1)?;
    let buffer = rnic_sys::get_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF)? as u64;
    let [room] = side.channel.numbers([buffer])?;
    let stream = Stream {
        socket,
        peer,
        payload,
        segment: payload + OVERHEAD,
    };
    match side.lead {
        true => stream.send(room as usize, &side),
        false => stream.receive(),
    }
}

struct Stream {
    socket: UdpSocket,
    peer: SocketAddr,
    payload: usize,
    segment: usize,
}

impl Stream {
    fn send(&self, room: usize, side: &Side) -> Result<f64> {
        rnic_sys::set_option(
            &self.socket,
            libc::IPPROTO_UDP,
            UDP_SEGMENT,
            self.segment as i32,
        )?;
        let segments = (TRAIN / self.segment).min(SEGMENTS);
        let train = segments * self.segment;
        // The kernel charges the buffer for more than the bytes of a train. Two trains at least.
        let fit = room / (train + CHARGE) * 3 / 4;
        let window = (fit * train).clamp(2 * train, WINDOW.max(2 * train));
        // The message lies there with room for headers, so that nothing is copied before the kernel
        // does.
        let trains = (MESSAGE / (segments * self.payload)).max(1);
        let mut data = vec![0x5a; trains * train];
        let mut credit = [0; 64];
        let (mut sent, mut acknowledged) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < side.time {
            for bytes in data.chunks_exact_mut(train) {
                for segment in bytes.chunks_exact_mut(self.segment) {
                    let (body, trailer) = segment.split_at_mut(HEADER + self.payload);
                    trailer.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
                }
                while sent + train - acknowledged > window {
                    acknowledged = self.credit(&mut credit)?;
                }
                spin(|| self.socket.send_to(bytes, self.peer))?;
                sent += train;
            }
        }
        while acknowledged < sent {
            acknowledged = self.credit(&mut credit)?;
        }
        let rate = sent as f64 / start.elapsed().as_secs_f64();
        spin(|| self.socket.send_to(&[], self.peer))?;
        Ok(rate * self.payload as f64 / self.segment as f64 / 1e9)
    }

    fn credit(&self, buffer: &mut [u8]) -> Result<usize> {
        let (n, _) = spin(|| self.socket.recv_from(buffer))?;
        // Several may have been merged; the last one counts.
        let last = buffer[..n].last_chunk().copied().map(u64::from_be_bytes);
        last.map(|sum| sum as usize)
            .ok_or_else(|| "the peer confirms nothing".into())
    }

    fn receive(&self) -> Result<f64> {
        let mut buffer = vec![0; 65536];
        let mut target = vec![0; MESSAGE];
        let (mut sum, mut at) = (0u64, 0);
        loop {
            let (n, _) = spin(|| self.socket.recv_from(&mut buffer))?;
            if n == 0 {
                std::hint::black_box(&target);
                return Ok(0.0);
            }
            for segment in buffer[..n].chunks_exact(self.segment) {
                let (body, trailer) = segment.split_at(HEADER + self.payload);
                if crc32fast::hash(body).to_le_bytes() != trailer {
                    return Err("a damaged datagram".into());
                }
                if at + self.payload > MESSAGE {
                    at = 0;
                }
                target[at..at + self.payload].copy_from_slice(&body[HEADER..]);
                at += self.payload;
            }
            sum += n as u64;
            spin(|| self.socket.send_to(&sum.to_be_bytes(), self.peer))?;
        }
    }
}
