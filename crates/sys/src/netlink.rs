//! Questions to rtnetlink(7), and what it tells by itself.

use std::io;
use std::os::fd::RawFd;

use super::{Fd, check};

/// A socket that the kernel tells of changes: of interfaces, addresses, routes or neighbours. Needs no privilege.
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
        let fd = open(libc::SOCK_NONBLOCK)?;
        // SAFETY: a sockaddr_nl of zeros is a valid one.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups.iter().fold(0, |set, group| set | 1 << (group - 1));
        let len = size_of::<libc::sockaddr_nl>();
        // SAFETY: the address is read only, and as long as is said.
        check(unsafe { libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, len) })?;
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

    /// Throws away what was told, for whom it is enough that something has changed.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        while self.receive(&mut buffer).is_some() {}
    }
}

fn open(flags: libc::c_int) -> io::Result<Fd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no pointers, and a new descriptor.
    unsafe {
        Fd::from_call(libc::syscall(
            libc::SYS_socket,
            libc::AF_NETLINK,
            kind,
            libc::NETLINK_ROUTE,
        ))
    }
}

fn receive(fd: &Fd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer goes with the buffer's length; no address is asked for.
    check(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.raw(),
            buffer.as_mut_ptr(),
            buffer.len(),
            libc::MSG_DONTWAIT,
            0usize,
            0usize,
        )
    })
}

/// Sends a question and takes the answer, which is there when sending it returns.
pub fn ask_netlink(question: &[u8]) -> io::Result<Vec<u8>> {
    let fd = open(0)?;
    // SAFETY: the question is only read; no address.
    check(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.raw(),
            question.as_ptr(),
            question.len(),
            0,
            0usize,
            0,
        )
    })?;
    let mut answer = vec![0; 4096];
    let n = receive(&fd, &mut answer)?;
    answer.truncate(n);
    Ok(answer)
}
