//! Unix sockets: connections between processes of one host, and descriptors sent through them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::{Addr, Fd, check, control, option_of, set_option, socket, with_spare};

/// Descriptors that one message carries at most.
pub const MOST_FDS: usize = 4;
const CONTROL: usize = control::space(MOST_FDS * size_of::<RawFd>());

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// A socket that takes connections at `address`: one that keeps messages apart (SOCK_SEQPACKET), or a stream.
pub fn listen(address: &Addr, kind: i32, backlog: i32) -> io::Result<Fd> {
    let fd = socket(libc::AF_UNIX, kind)?;
    super::bind(&fd, address)?;
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_listen, fd.0, backlog) })?;
    Ok(fd)
}

/// What [`accept`] found.
#[derive(Debug)]
pub enum Accepted {
    /// Somebody.
    Connection(Fd),
    /// Somebody, for whom there was no descriptor: the connection is closed. Else who came would believe to have been heard,
    /// and keep the socket readable.
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
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers mean that the address is not wanted.
    let fd = check(unsafe { libc::syscall(libc::SYS_accept4, fd.0, 0usize, 0usize, flags) })?;
    Ok(Fd(fd as RawFd))
}

/// Asks for send and receive buffers of `bytes`; what the system gives is up to it.
pub fn ask_for_buffers(fd: &Fd, bytes: i32) {
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        let _ = set_option(fd, libc::SOL_SOCKET, option, bytes);
    }
}

/// The user and process at the other end (SO_PEERCRED).
pub fn peer_of(fd: &Fd) -> io::Result<(u32, u32)> {
    // SAFETY: a C struct of integers.
    let cred: libc::ucred = unsafe { option_of(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)? };
    Ok((cred.uid, cred.pid as u32))
}

/// Sends one message with up to [`MOST_FDS`] descriptors. Never blocks, never raises SIGPIPE.
pub fn send_message(fd: &Fd, bytes: &[u8], fds: &[impl AsFd]) -> io::Result<()> {
    let mut control = Control([0; CONTROL]);
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: msghdr is a C struct of integers and pointers, for which all zero bytes are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let fds = fds.get(..MOST_FDS).unwrap_or(fds);
        let payload = fds.len() * size_of::<RawFd>();
        let places = control::begin(&mut control.0, libc::SOL_SOCKET, libc::SCM_RIGHTS, payload);
        for (place, fd) in places.chunks_exact_mut(4).zip(fds) {
            place.copy_from_slice(&fd.as_fd().as_raw_fd().to_ne_bytes());
        }
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = control::space(payload) as _;
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the header names `bytes` and the local `control`, which live through the call and are only read.
    let sent = check(unsafe { libc::syscall(libc::SYS_sendmsg, fd.0, &raw const header, flags) })?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives one message (of a stream: what is there) into `buffer`, and its descriptors into `fds`; its length, 0 at the
/// end of the connection. `None`: it was longer than the buffer or had more descriptors than fit. Never blocks.
pub fn receive_message(fd: &Fd, buffer: &mut [u8], fds: &mut Vec<Fd>) -> io::Result<Option<usize>> {
    // Cleared, since the kernel leaves out what fills up its messages.
    let mut control = Control([0; CONTROL]);
    let mut iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: msghdr is a C struct of integers and pointers, for which all zero bytes are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes at most the given lengths into `buffer` and `control`, which live through the call and
    // are borrowed by nobody else.
    let len = check(unsafe { libc::syscall(libc::SYS_recvmsg, fd.0, &raw mut header, flags) })?;
    let filled = (header.msg_controllen as usize).min(CONTROL);
    take_fds(&control.0[..filled], fds);
    let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    Ok((!cut).then_some(len.min(buffer.len())))
}

fn take_fds(control: &[u8], fds: &mut Vec<Fd>) {
    for (level, kind, data) in control::messages(control) {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // The kernel has just made these descriptors for this process; nobody else knows them.
            let numbers = data.as_chunks::<4>().0.iter();
            fds.extend(numbers.map(|number| Fd(i32::from_ne_bytes(*number))));
        }
    }
}

/// recv(2) of what is there, up to a buffer's length; 0: the peer has closed. Never blocks.
pub fn receive_bytes(fd: &Fd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`; no address is asked for.
    check(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.0,
            buffer.as_mut_ptr(),
            buffer.len(),
            libc::MSG_DONTWAIT,
            0usize,
            0usize,
        )
    })
}
