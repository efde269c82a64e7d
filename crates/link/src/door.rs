//! Hand-over: a packet that came to the wrong process goes to the right one through a unix datagram socket.
//!
//! Each process has a door, `door.<number>` beside the registry, that only processes of the same user can reach. What
//! arrives there is checked like what arrives by UDP, ICRC included, and never handed on.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::datagram::{Arrival, Train};
use crate::sys::{self, Addr, Fd};

/// Bytes before the packets.
pub const HEADER_LEN: usize = 48;
const MAGIC: [u8; 8] = *b"rnicdoor";
const BUFFER: i32 = 4 << 20;

/// What the packets would have come with.
pub fn encode_header(train: &Train) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    out[..8].copy_from_slice(&MAGIC);
    out[8..24].copy_from_slice(&v6(train.src));
    out[24..40].copy_from_slice(&v6(train.dst));
    out[40..42].copy_from_slice(&train.src_port.to_ne_bytes());
    out[44..48].copy_from_slice(&(train.segment as u32).to_ne_bytes());
    out
}

/// Reads the header of a message; the packets lie behind it. `None`: not a message of this program.
pub fn decode_header(message: &[u8]) -> Option<Train> {
    let (header, packets) = message.split_first_chunk::<HEADER_LEN>()?;
    let ip = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    if header[..8] != MAGIC {
        return None;
    }
    Some(Train {
        src: ip(8),
        dst: ip(24),
        src_port: u16::from_ne_bytes([header[40], header[41]]),
        segment: (u32::from_ne_bytes([header[44], header[45], header[46], header[47]]) as usize)
            .max(1),
        len: packets.len(),
    })
}

/// This process's door, and the way to the others'.
#[derive(Debug)]
pub struct Door {
    inbound: Fd,
    outbound: Fd,
    message: Vec<u8>,
}

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
            message: Vec::new(),
        })
    }

    /// The descriptor that becomes readable when packets were handed over.
    pub fn raw_fd(&self) -> std::os::fd::RawFd {
        self.inbound.raw()
    }

    /// Hands packets to door `number`. An error: nobody is there, or its queue is full.
    pub(crate) fn send(
        &mut self,
        dir: &Fd,
        path: &Path,
        number: u32,
        train: &Train,
        packets: &[u8],
    ) -> io::Result<()> {
        let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
        self.message.clear();
        self.message.extend_from_slice(&encode_header(train));
        self.message.extend_from_slice(packets);
        sys::send_to(&self.outbound, &self.message, Some(&address))?;
        Ok(())
    }

    /// Receives one message into `buffer`: the train lies behind its first [`HEADER_LEN`] bytes.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrival> {
        match sys::receive(&self.inbound, buffer) {
            Ok(datagram) if datagram.truncated => Ok(Arrival::Useless),
            Ok(datagram) => {
                Ok(decode_header(&buffer[..datagram.len]).map_or(Arrival::Useless, Arrival::Train))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Arrival::Empty),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
