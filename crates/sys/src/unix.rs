//! Unix sockets: connections between processes of one host, and descriptors sent through them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags,
};

use crate::{Addr, Fd, set_option, socket, with_spare};

/// Descriptors that one message carries at most.
pub const MOST_FDS: usize = 4;
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

/// A socket that takes connections at `address`: one that keeps messages apart (SOCK_SEQPACKET), or
/// a stream.
pub fn listen(address: &Addr, kind: i32, backlog: i32) -> io::Result<Fd> {
    let fd = socket(libc::AF_UNIX, kind)?;
    crate::bind(&fd, address)?;
    net::listen(&fd, backlog)?;
    Ok(fd)
}

/// What [`accept`] found.
#[derive(Debug)]
pub enum Accepted {
    /// Somebody.
    Connection(Fd),
    /// A process, for which there was no descriptor: the connection is closed. Else it would
    /// believe to have been heard, and keep the socket readable.
    Refused,
    /// Nobody.
    Nobody,
    /// There is no descriptor, not even to refuse.
    NoRoom,
}

/// The next connection of a socket that listens. Never blocks.
pub fn accept(listener: &Fd) -> Accepted {
    match accept_one(listener) {
        Ok(connection) => Accepted::Connection(connection),
        Err(e) if is_out_of_descriptors(&e) => {
            match with_spare(|| accept_one(listener).map(drop)) {
                Some(Ok(())) => Accepted::Refused,
                Some(Err(e)) if !is_out_of_descriptors(&e) => Accepted::Nobody,
                _ => Accepted::NoRoom,
            }
        }
        Err(_) => Accepted::Nobody,
    }
}

/// The process, or the system, has no descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn accept_one(fd: &Fd) -> io::Result<Fd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::accept_with(fd, flags)?.into())
}

/// Asks for send and receive buffers of `bytes`; what the system gives is up to it.
pub fn ask_for_buffers(fd: &Fd, bytes: i32) {
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        let _ = set_option(fd, libc::SOL_SOCKET, option, bytes);
    }
}

/// The user and process at the other end (SO_PEERCRED).
pub fn peer_of(fd: &Fd) -> io::Result<(u32, u32)> {
    // SAFETY: a C struct of integers. (rustix has no value for the process number 0, which means
    // one of another namespace.)
    let cred: libc::ucred = unsafe { crate::option_of(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)? };
    Ok((cred.uid, cred.pid as u32))
}

/// Sends one message with up to [`MOST_FDS`] descriptors. Never blocks, never raises SIGPIPE.
pub fn send_message(fd: &Fd, bytes: &[u8], fds: &[impl AsFd]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); CONTROL];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let mut borrowed = [fd.as_fd(); MOST_FDS];
    let count = fds.len().min(MOST_FDS);
    for (to, from) in borrowed.iter_mut().zip(fds) {
        *to = from.as_fd();
    }
    let fds: &[BorrowedFd<'_>] = &borrowed[..count];
    if count > 0 && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = net::sendmsg(fd, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives one message (of a stream: what is there) into `buffer`, and its descriptors into `fds`;
/// its length, 0 at the end of the connection. `None`: it was longer than the buffer or had more
/// descriptors than fit. Never blocks.
pub fn receive_message(fd: &Fd, buffer: &mut [u8], fds: &mut Vec<Fd>) -> io::Result<Option<usize>> {
    let mut room = [MaybeUninit::uninit(); CONTROL];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let most = buffer.len();
    let received = net::recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(brought) = message {
            fds.extend(brought.map(Fd::from));
        }
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    Ok((!received.flags.intersects(cut)).then_some(received.bytes.min(most)))
}

/// recv(2) of what is there, up to a buffer's length; 0: the peer has closed. Never blocks.
pub fn receive_bytes(fd: &Fd, buffer: &mut [u8]) -> io::Result<usize> {
    let (taken, _) = net::recv(fd, buffer, RecvFlags::DONTWAIT)?;
    Ok(taken)
}
