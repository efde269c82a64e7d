//! Hand-over: a packet that came to the wrong process goes to the right one through a unix datagram socket.
//!
//! Each process has a door, `door.<number>` beside the registry, that only processes of the same user can reach. What
//! arrives there is checked like what arrives by UDP, ICRC included, and never handed on. A message is a row of
//! records, each a header and a train of packets: the kernel queues only few datagrams (net.unix.max_dgram_qlen, often
//! 10), so what came in one go leaves in one message.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::datagram::Train;
use crate::sys::{self, Addr, Fd};

/// Bytes of a record before its packets.
pub const HEADER_LEN: usize = 48;
/// Most bytes of a message: a train of the greatest length and its header.
pub const MESSAGE_LEN: usize = 65_536 + HEADER_LEN;
const MAGIC: u32 = 0x1d00_12d0;
const BUFFER: i32 = 4 << 20;

/// The header of a record.
pub fn encode_header(train: &Train) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    out[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    out[4..8].copy_from_slice(&(train.len as u32).to_ne_bytes());
    out[8..12].copy_from_slice(&(train.segment as u32).to_ne_bytes());
    out[12..14].copy_from_slice(&train.src_port.to_ne_bytes());
    out[16..32].copy_from_slice(&v6(train.src));
    out[32..48].copy_from_slice(&v6(train.dst));
    out
}

/// Reads the header at the front of `rest`, behind which the packets lie, all of them there. `None`: nothing that this
/// program wrote.
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
        len: word(4) as usize,
    };
    (word(0) == MAGIC && train.len > 0 && train.len <= packets.len()).then_some(train)
}

/// This process's door, and the way to the others'.
#[derive(Debug)]
pub struct Door {
    inbound: Fd,
    outbound: Fd,
    /// Messages for as many doors, waiting for [`Door::flush`]: what came in one go may be for several.
    outgoing: Vec<Outgoing>,
    /// So many of them, the first; the others are empty and kept for their memory.
    waiting: usize,
}

/// Records for one door.
#[derive(Debug, Default)]
struct Outgoing {
    to: u32,
    message: Vec<u8>,
    packets: u64,
}

/// Most messages that wait at the same time.
const OUTGOING: usize = 8;

fn file_name(number: u32) -> String {
    format!("door.{number}")
}

/// The socket address of a door; over /proc where the folder's name is too long for one.
fn address(dir: &Fd, path: &Path, number: u32) -> Option<Addr> {
    let name = file_name(number);
    Addr::unix(path.join(&name).as_os_str().as_bytes())
        .or_else(|| Addr::unix(format!("/proc/self/fd/{}/{name}", dir.raw()).as_bytes()))
}

/// Removes the door of a process that is gone.
pub(crate) fn remove(dir: &Fd, number: u32) {
    if let Ok(name) = CString::new(file_name(number)) {
        let _ = sys::unlink_at(dir, &name);
    }
}

impl Door {
    /// Opens door `number` in the folder `dir`, whose name is `path`; a stale one of that number is replaced.
    pub(crate) fn open(dir: &Fd, path: &Path, number: u32) -> io::Result<Door> {
        let inbound = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        let outbound = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        for (fd, option) in [(&inbound, libc::SO_RCVBUF), (&outbound, libc::SO_SNDBUF)] {
            let _ = sys::set_option(fd, libc::SOL_SOCKET, option, BUFFER);
        }
        remove(dir, number);
        let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
        sys::bind(&inbound, &address)?;
        Ok(Door {
            inbound,
            outbound,
            outgoing: Vec::new(),
            waiting: 0,
        })
    }

    /// The descriptor that becomes readable when packets were handed over.
    pub fn raw_fd(&self) -> std::os::fd::RawFd {
        self.inbound.raw()
    }

    /// Puts packets into the message for door `number`; returns how many of an earlier message were lost, see
    /// [`Door::flush`].
    pub(crate) fn push(
        &mut self,
        dir: &Fd,
        path: &Path,
        number: u32,
        train: &Train,
        bytes: &[u8],
    ) -> u64 {
        let mut lost = 0;
        let whole = HEADER_LEN + bytes.len();
        let waiting = &self.outgoing[..self.waiting];
        let place = match waiting.iter().position(|out| out.to == number) {
            Some(place) => {
                if self.outgoing[place].message.len() + whole > MESSAGE_LEN {
                    lost = self.send(dir, path, place);
                }
                place
            }
            None => {
                if self.waiting == OUTGOING {
                    lost = self.flush(dir, path);
                }
                if self.waiting == self.outgoing.len() {
                    self.outgoing.push(Outgoing::default());
                }
                self.outgoing[self.waiting].to = number;
                self.waiting += 1;
                self.waiting - 1
            }
        };
        let out = &mut self.outgoing[place];
        out.message.extend_from_slice(&encode_header(train));
        out.message.extend_from_slice(bytes);
        out.packets += bytes.len().div_ceil(train.segment) as u64;
        lost
    }

    /// Sends one message; how many packets were lost.
    fn send(&mut self, dir: &Fd, path: &Path, place: usize) -> u64 {
        let out = &mut self.outgoing[place];
        let sent = address(dir, path, out.to).is_some_and(|address| {
            sys::send_to(&self.outbound, &out.message, Some(&address)).is_ok()
        });
        out.message.clear();
        let packets = std::mem::take(&mut out.packets);
        if sent { 0 } else { packets }
    }

    /// Sends the messages; returns how many packets were lost because nobody is there or the queue is full.
    #[inline]
    pub(crate) fn flush(&mut self, dir: &Fd, path: &Path) -> u64 {
        (0..std::mem::take(&mut self.waiting))
            .map(|place| self.send(dir, path, place))
            .sum()
    }

    /// Receives one message into `buffer`, which holds [`MESSAGE_LEN`]; its length. `None`: nothing is there.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        let datagram = sys::receive(&self.inbound, buffer).ok()?;
        // One that was cut short ends in a record that is not all there.
        Some(datagram.len)
    }
}

#[cfg(test)]
mod tests;
