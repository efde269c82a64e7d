//! Netlink sockets of processes among themselves (netlink(7), NETLINK_USERSOCK).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::fs::FileType;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::{Fd, get_option, random_bytes};

/// A socket of the type and with the flags that `kind` holds, as for socket(2).
pub fn netlink_peer(kind: i32) -> io::Result<Fd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let made = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::from_raw((kind & !flags) as u32),
        SocketFlags::from_bits_retain((kind & flags) as u32),
        Some(netlink::USERSOCK),
    );
    Ok(made?.into())
}

/// A socket, by a number that is somebody else's. It may be closed, and be another file, at any
/// time: each call says so, or does to that file what it would do to a socket.
#[derive(Clone, Copy, Debug)]
pub struct NumberOfSocket<'a>(BorrowedFd<'a>);

impl NumberOfSocket<'_> {
    /// `None`: no descriptor has a number like this.
    pub fn new(fd: RawFd) -> Option<NumberOfSocket<'static>> {
        // SAFETY: the number is only used in calls, which fail if no descriptor has it.
        (fd >= 0).then(|| NumberOfSocket(unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// The inode, by which the kernel knows a socket whatever its number; `None`: it is no socket.
    pub fn inode(self) -> Option<u64> {
        let stat = rustix::fs::fstat(self.0).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_ino)
    }

    /// Its port, if it is one of netlink's and has one.
    pub fn port(self) -> Option<u32> {
        let address = net::getsockname(self.0).ok()?;
        let address = SocketAddrNetlink::try_from(address).ok()?;
        Some(address.pid()).filter(|port| *port != 0)
    }

    /// Gives it a port; of 0 the kernel chooses one.
    pub fn bind(self, port: u32) -> io::Result<()> {
        Ok(net::bind(self.0, &SocketAddrNetlink::new(port, 0))?)
    }

    /// From now on it takes what comes from that port alone.
    pub fn connect(self, port: u32) -> io::Result<()> {
        Ok(net::connect(self.0, &SocketAddrNetlink::new(port, 0))?)
    }

    /// Is an option of netlink's on?
    pub fn has_option(self, name: i32) -> bool {
        get_option(&self.0, libc::SOL_NETLINK, name).is_ok_and(|value| value != 0)
    }

    /// Sends a datagram to a port, without waiting for room.
    pub fn send_to(self, datagram: &[u8], port: u32) -> io::Result<()> {
        let to = SocketAddrNetlink::new(port, 0);
        Ok(net::sendto(self.0, datagram, SendFlags::DONTWAIT, &to).map(drop)?)
    }
}

impl<'a> From<&'a Fd> for NumberOfSocket<'a> {
    fn from(fd: &'a Fd) -> NumberOfSocket<'a> {
        NumberOfSocket(fd.as_fd())
    }
}

/// A port that nobody has, nor can guess.
pub fn unknown_port() -> u32 {
    let mut port = [0; 4];
    random_bytes(&mut port);
    // Of those that the kernel does not give to processes by their number.
    u32::from_ne_bytes(port) | 1 << 31
}
