//! Questions to rtnetlink(7), and what it tells by itself.

use std::io;
use std::os::fd::RawFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::Fd;

/// A socket that the kernel tells of changes: of interfaces, addresses, routes or neighbours. Needs
/// no privilege.
#[derive(Debug)]
pub struct RouteEvents(Fd);

/// What [`RouteEvents::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEvent {
    /// So many bytes of messages.
    Told(usize),
    /// There was more than the socket holds: anything may have changed.
    Lost,
}

impl RouteEvents {
    /// `groups`: the numbers of multicast groups (`RTNLGRP_`), 32 at most.
    pub fn open(groups: &[u32]) -> io::Result<RouteEvents> {
        let fd = open(SocketFlags::NONBLOCK)?;
        let groups = groups.iter().fold(0, |set, group| set | 1 << (group - 1));
        net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(RouteEvents(fd))
    }

    /// Readable when there is something to [receive](RouteEvents::receive).
    pub fn raw_fd(&self) -> RawFd {
        self.0.raw()
    }

    /// The next that was told; `None`: nothing is there.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<RouteEvent> {
        match receive(&self.0, buffer) {
            Ok(0) => None,
            Ok(n) => Some(RouteEvent::Told(n)),
            Err(error) => (error.raw_os_error() == Some(libc::ENOBUFS)).then_some(RouteEvent::Lost),
        }
    }

    /// Throws away what was told, for a caller to whom it is enough that something has changed.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        while self.receive(&mut buffer).is_some() {}
    }
}

fn open(flags: SocketFlags) -> io::Result<Fd> {
    let flags = flags | SocketFlags::CLOEXEC;
    // NETLINK_ROUTE is protocol 0.
    let made = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    Ok(made.into())
}

fn receive(fd: &Fd, buffer: &mut [u8]) -> io::Result<usize> {
    let (taken, _) = net::recv(fd, buffer, RecvFlags::DONTWAIT)?;
    Ok(taken)
}

/// Sends a question and takes the answer, which is there when sending it returns.
pub fn ask_netlink(question: &[u8]) -> io::Result<Vec<u8>> {
    let fd = open(SocketFlags::empty())?;
    net::send(&fd, question, SendFlags::empty())?;
    let mut answer = vec![0; 4096];
    let n = receive(&fd, &mut answer)?;
    answer.truncate(n);
    Ok(answer)
}
