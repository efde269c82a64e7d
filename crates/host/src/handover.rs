//! Hand-over: a packet that came to the wrong process goes to the right one through a unix datagram
//! socket.
//!
//! Each process has a hand-over socket, `handover.<number>` beside the registry, that only
//! processes of the same user can reach. What arrives there is checked like what arrives by UDP,
//! ICRC included, and never handed on. A message is a row of records, each a header and a train of
//! packets: the kernel queues only few datagrams (net.unix.max_dgram_qlen, often 10), so what came
//! in one go leaves in one message.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::train::{IpIds, IpMarks, Train};
use rnic_sys::{self as sys, Addr, Fd};

/// Bytes of a record before its packets.
pub const HEADER_LEN: usize = 52;
/// Most bytes of a message: a train of the greatest length and its header.
pub const MESSAGE_LEN: usize = 65_536 + HEADER_LEN;
const MAGIC: u32 = 0x1d00_12d1;
const BUFFER: i32 = 4 << 20;

/// Where a header has the capture file in which its packets are.
const CAPTURE_AT: usize = 14;

/// The header of a record; `capture`: the file that has its packets, or 0.
pub fn encode_header(train: &Train, capture: u16) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    out[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    out[4..8].copy_from_slice(&(train.len as u32).to_ne_bytes());
    out[8..12].copy_from_slice(&(train.segment as u32).to_ne_bytes());
    out[12..14].copy_from_slice(&train.src_port.to_ne_bytes());
    out[CAPTURE_AT..16].copy_from_slice(&capture.to_ne_bytes());
    out[16..32].copy_from_slice(&v6(train.src));
    out[32..48].copy_from_slice(&v6(train.dst));
    if let Some(marks) = train.marks {
        out[48..51].copy_from_slice(&[1, marks.traffic_class, marks.hop_limit]);
    }
    out
}

/// Reads the header at the front of `rest`, behind which the packets lie, all of them there.
/// `None`: nothing that this program wrote.
pub fn decode_header(rest: &[u8]) -> Option<Train> {
    let (header, packets) = rest.split_first_chunk::<HEADER_LEN>()?;
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let ip = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    let train = Train {
        src: ip(16),
        dst: ip(32),
        src_port: u16::from_ne_bytes([header[12], header[13]]),
        segment: (word(8) as usize).max(1),
        ids: IpIds::Hidden,
        marks: (header[48] == 1).then_some(IpMarks {
            traffic_class: header[49],
            hop_limit: header[50],
        }),
        len: word(4) as usize,
    };
    (word(0) == MAGIC && train.len > 0 && train.len <= packets.len()).then_some(train)
}

/// The records of a message, each with its packets and the capture file that has them. What is
/// damaged ends them.
pub fn records(message: &[u8]) -> impl Iterator<Item = (Train, u16, &[u8])> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let train = decode_header(rest)?;
        let capture = u16::from_ne_bytes([rest[CAPTURE_AT], rest[CAPTURE_AT + 1]]);
        let (packets, behind) = rest[HEADER_LEN..].split_at(train.len);
        rest = behind;
        Some((train, capture, packets))
    })
}

/// This process's hand-over socket, and the way to the others'.
#[derive(Debug)]
pub struct HandoverSocket {
    inbound: Fd,
    outbound: Fd,
    /// The capture file that has what this process receives; 0: none.
    capture: u16,
    /// Something was sent by `outbound`, and may not have been read yet.
    charged: bool,
    /// Messages for as many processes, waiting for [`HandoverSocket::flush`]: what came in one go
    /// may be for several.
    outgoing: Vec<Outgoing>,
    /// So many of them, the first; the others are empty and kept for their memory.
    waiting: usize,
    /// So many of these found a full queue, the first; and when they are tried again.
    kept: usize,
    retry_at: Option<u64>,
}

/// Records for one process.
#[derive(Debug, Default)]
struct Outgoing {
    to: u32,
    message: Vec<u8>,
    packets: u64,
    /// When it first found the queue full.
    full_since: Option<u64>,
}

/// A queue of ten messages fills while its reader builds a queue pair. What does not fit waits, and
/// what else comes for that process joins it; but not for ever: the reader may be stopped.
const RETRY_NS: u64 = 200_000;
const PATIENCE_NS: u64 = 50_000_000;

impl Outgoing {
    /// Forgets the message; how many packets it had that were not sent.
    fn empty(&mut self) -> u64 {
        self.message.clear();
        self.full_since = None;
        std::mem::take(&mut self.packets)
    }
}

/// What became of a message.
enum Sent {
    /// It is gone; so many packets of it were lost.
    Done(u64),
    /// The queue is full; it is still there.
    Full,
}

/// Most messages that wait at the same time.
const OUTGOING: usize = 8;

pub(crate) fn file_name(number: u32) -> String {
    format!("handover.{number}")
}

/// The address of a hand-over socket; over /proc where the folder's name is too long for one.
fn address(dir: &Fd, path: &Path, number: u32) -> Option<Addr> {
    let name = file_name(number);
    Addr::unix(path.join(&name).as_os_str().as_bytes())
        .or_else(|| Addr::unix(format!("/proc/self/fd/{}/{name}", dir.raw()).as_bytes()))
}

fn open_outbound() -> io::Result<Fd> {
    let fd = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
    let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
    Ok(fd)
}

impl HandoverSocket {
    /// Opens the hand-over socket `number` in the folder `dir`, whose name is `path`; a stale one
    /// of that number is replaced.
    pub fn open(dir: &Fd, path: &Path, number: u32) -> io::Result<HandoverSocket> {
        let inbound = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        let _ = sys::set_option(&inbound, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER);
        sys::remove_at(dir, &file_name(number));
        let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
        sys::bind(&inbound, &address)?;
        Ok(HandoverSocket {
            inbound,
            outbound: open_outbound()?,
            capture: 0,
            charged: false,
            outgoing: Vec::new(),
            waiting: 0,
            kept: 0,
            retry_at: None,
        })
    }

    /// What this process receives is in that capture file.
    pub fn captured_in(&mut self, file: u16) {
        self.capture = file;
    }

    /// The descriptor that becomes readable when packets were handed over.
    pub fn raw_fd(&self) -> std::os::fd::RawFd {
        self.inbound.raw()
    }

    /// Puts packets into the message for process `number`; returns how many were lost, of these or
    /// of earlier ones, see [`HandoverSocket::flush`].
    pub fn push(
        &mut self,
        dir: &Fd,
        path: &Path,
        now_ns: u64,
        number: u32,
        train: &Train,
        bytes: &[u8],
    ) -> u64 {
        let mut lost = 0;
        let whole = HEADER_LEN + bytes.len();
        let packets = bytes.len().div_ceil(train.segment) as u64;
        let waiting = &self.outgoing[..self.waiting];
        let place = match waiting.iter().position(|out| out.to == number) {
            Some(place) => {
                if self.outgoing[place].message.len() + whole > MESSAGE_LEN {
                    match self.send(dir, path, place) {
                        Sent::Done(before) => lost = before,
                        Sent::Full => return packets,
                    }
                }
                place
            }
            None => {
                if self.waiting == OUTGOING {
                    lost = self.flush(dir, path, now_ns);
                    if self.waiting == OUTGOING {
                        return lost + packets;
                    }
                }
                if self.waiting == self.outgoing.len() {
                    self.outgoing.push(Outgoing::default());
                }
                self.outgoing[self.waiting].to = number;
                self.waiting += 1;
                self.waiting - 1
            }
        };
        let header = encode_header(train, self.capture);
        let out = &mut self.outgoing[place];
        out.message.extend_from_slice(&header);
        out.message.extend_from_slice(bytes);
        out.packets += packets;
        lost
    }

    /// Sends one message.
    fn send(&mut self, dir: &Fd, path: &Path, place: usize) -> Sent {
        let out = &mut self.outgoing[place];
        let Some(address) = address(dir, path, out.to) else {
            return Sent::Done(out.empty());
        };
        let mut sent = sys::send_to(&self.outbound, &out.message, Some(&address));
        // Messages are in the send buffer until they are read: by another process, perhaps, that is
        // stopped. A new socket has a buffer of its own, and what went by the old one stays where
        // it is; the reader's queue has a limit in any case.
        if matches!(&sent, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            && self.charged
            && let Ok(fresh) = open_outbound()
        {
            self.outbound = fresh;
            self.charged = false;
            sent = sys::send_to(&self.outbound, &out.message, Some(&address));
        }
        match sent {
            Ok(_) => {
                self.charged = true;
                out.empty();
                Sent::Done(0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Full,
            Err(_) => Sent::Done(out.empty()),
        }
    }

    /// Sends the messages; returns how many packets were lost because nobody is there, or the queue
    /// was full for too long.
    #[inline]
    pub fn flush(&mut self, dir: &Fd, path: &Path, now_ns: u64) -> u64 {
        let too_early = self.retry_at.is_some_and(|at| now_ns < at);
        let first = if too_early { self.kept } else { 0 };
        if self.waiting == first {
            return 0;
        }
        self.send_from(first, dir, path, now_ns)
    }

    fn send_from(&mut self, first: usize, dir: &Fd, path: &Path, now_ns: u64) -> u64 {
        let (mut lost, mut kept) = (0, first);
        for place in first..self.waiting {
            match self.send(dir, path, place) {
                Sent::Done(packets) => lost += packets,
                Sent::Full => {
                    let out = &mut self.outgoing[place];
                    let since = *out.full_since.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since) > PATIENCE_NS {
                        lost += out.empty();
                    } else {
                        self.outgoing.swap(kept, place);
                        kept += 1;
                    }
                }
            }
        }
        self.waiting = kept;
        self.kept = kept;
        self.retry_at = match kept {
            0 => None,
            _ if first > 0 => self.retry_at,
            _ => Some(now_ns.saturating_add(RETRY_NS)),
        };
        lost
    }

    /// When [`HandoverSocket::flush`] has to be called although nothing was pushed.
    pub fn next_timeout(&self) -> Option<u64> {
        self.retry_at
    }

    /// Receives one message into `buffer`, which holds [`MESSAGE_LEN`]; its length. `None`: nothing
    /// is there.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        let datagram = sys::receive(&self.inbound, buffer).ok()?;
        // One that was cut short ends in a record that is not all there.
        Some(datagram.len)
    }
}

#[cfg(test)]
mod tests;
