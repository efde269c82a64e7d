//! The interposed functions of libc by which programs talk over sockets, for those of NETLINK_RDMA:
//! see [`crate::system::netlink`].
//!
//! Every other socket goes on to the C library, or to what stands in front of it (librspreload
//! interposes the same functions), at the cost of looking at a flag that is not set. read(2) and
//! write(2) are not interposed: answers can be read so, and to ask by write(2) fails with
//! ECONNREFUSED.

use core::ffi::{c_int, c_uint, c_void};

use libc::{msghdr, sockaddr};

use super::next::{call_next, hook};
use crate::export::seam::{self, set_errno};
use crate::system::netlink::socket;

/// What is asked for.
const NETLINK_RDMA: c_int = 20;
/// Longest request.
const LONGEST: usize = 1 << 16;

type Size = usize;

/// Sends `pieces` to where `address` says if that is the kernel; `None`: it is not, and the C
/// library is to send it.
///
/// # Safety
/// The arguments of sendmsg(2).
unsafe fn ask_kernel(
    fd: c_int,
    pieces: &[libc::iovec],
    address: *const c_void,
    len: c_uint,
) -> Option<isize> {
    if !address.is_null() {
        // SAFETY: by contract.
        match unsafe { socket::port_named(address, len) } {
            Some(0) => {}
            _ => return None,
        }
    }
    let length: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    if length > LONGEST {
        set_errno(libc::EMSGSIZE);
        return Some(-1);
    }
    seam::quiet(|| {
        let mut datagram = Vec::with_capacity(length);
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            // SAFETY: by contract, so many bytes of the caller.
            datagram.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
        socket::ask(fd, &datagram);
        Ok(())
    });
    Some(length as isize)
}

/// One piece.
fn piece(buffer: *const c_void, size: Size) -> [libc::iovec; 1] {
    [libc::iovec {
        iov_base: buffer.cast_mut(),
        iov_len: size,
    }]
}

/// The pieces of a message.
///
/// # Safety
/// NULL, or a message of the caller.
unsafe fn pieces<'a>(message: *const msghdr) -> &'a [libc::iovec] {
    // SAFETY: by contract.
    match unsafe { message.as_ref() } {
        Some(message) if !message.msg_iov.is_null() => {
            // SAFETY: so many, by contract.
            unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
        }
        _ => &[],
    }
}

/// The caller is about to receive; true: by one of the sockets.
fn about_to_receive(fd: c_int) -> bool {
    let ours = socket::is_one(fd);
    if ours {
        seam::keeping_errno(|| socket::receive(fd));
    }
    ours
}

/// What a caller has for an address: a place and its length.
#[derive(Clone, Copy)]
struct Room {
    address: *mut c_void,
    len: c_uint,
}

impl Room {
    /// # Safety
    /// The arguments of recvfrom(2).
    unsafe fn of(address: *mut sockaddr, len: *const c_uint) -> Room {
        Room {
            address: if len.is_null() {
                std::ptr::null_mut()
            } else {
                address.cast()
            },
            // SAFETY: by contract.
            len: unsafe { len.as_ref() }.copied().unwrap_or(0),
        }
    }

    /// What was received, if something was, came from the kernel.
    ///
    /// # Safety
    /// As [`Room::of`].
    unsafe fn was_the_kernels(self, received: isize) -> isize {
        if received >= 0 {
            // SAFETY: by contract.
            unsafe { socket::from_kernel(self.address, self.len) };
        }
        received
    }
}

hook! {
    extern "C";
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = match (domain, protocol) {
        (libc::AF_NETLINK, NETLINK_RDMA) => {
            seam::attempt(|| Some(socket::open(kind))).unwrap_or(-1)
        }
        _ => call_next!(c"socket" as fn(c_int, c_int, c_int) -> c_int, (domain, kind, protocol), -1),
    };
}

hook! {
    extern "C-unwind";
    send(fd: c_int, buffer: *const c_void, size: Size, flags: c_int) -> isize = {
        if socket::is_one(fd)
            && let Some(sent) = ask_kernel(fd, &piece(buffer, size), std::ptr::null(), 0)
        {
            return sent;
        }
        call_next!(c"send" as fn(c_int, *const c_void, Size, c_int) -> isize, (fd, buffer, size, flags), -1)
    };
    sendto(fd: c_int, buffer: *const c_void, size: Size, flags: c_int, to: *const sockaddr, len: c_uint) -> isize = {
        if socket::is_one(fd)
            && let Some(sent) = ask_kernel(fd, &piece(buffer, size), to.cast(), len)
        {
            return sent;
        }
        call_next!(c"sendto" as fn(c_int, *const c_void, Size, c_int, *const sockaddr, c_uint) -> isize,
            (fd, buffer, size, flags, to, len), -1)
    };
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = {
        if socket::is_one(fd)
            && !message.is_null()
            && let Some(sent) = ask_kernel(fd, pieces(message), (*message).msg_name, (*message).msg_namelen)
        {
            return sent;
        }
        call_next!(c"sendmsg" as fn(c_int, *const msghdr, c_int) -> isize, (fd, message, flags), -1)
    };

    recv(fd: c_int, buffer: *mut c_void, size: Size, flags: c_int) -> isize = {
        about_to_receive(fd);
        call_next!(c"recv" as fn(c_int, *mut c_void, Size, c_int) -> isize, (fd, buffer, size, flags), -1)
    };
    __recv_chk(fd: c_int, buffer: *mut c_void, size: Size, room: Size, flags: c_int) -> isize = {
        about_to_receive(fd);
        call_next!(c"__recv_chk" as fn(c_int, *mut c_void, Size, Size, c_int) -> isize,
            (fd, buffer, size, room, flags), -1)
    };
    recvfrom(fd: c_int, buffer: *mut c_void, size: Size, flags: c_int, from: *mut sockaddr, len: *mut c_uint) -> isize = {
        let place = about_to_receive(fd).then(|| Room::of(from, len));
        let received = call_next!(
            c"recvfrom" as fn(c_int, *mut c_void, Size, c_int, *mut sockaddr, *mut c_uint) -> isize,
            (fd, buffer, size, flags, from, len), -1);
        place.map_or(received, |place| place.was_the_kernels(received))
    };
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, size: Size, room: Size, flags: c_int, from: *mut sockaddr,
        len: *mut c_uint) -> isize = {
        let place = about_to_receive(fd).then(|| Room::of(from, len));
        let received = call_next!(
            c"__recvfrom_chk" as fn(c_int, *mut c_void, Size, Size, c_int, *mut sockaddr, *mut c_uint) -> isize,
            (fd, buffer, size, room, flags, from, len), -1);
        place.map_or(received, |place| place.was_the_kernels(received))
    };
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = {
        let ours = about_to_receive(fd) && !message.is_null();
        let place = ours.then(|| Room::of((*message).msg_name.cast(), &raw const (*message).msg_namelen));
        let received = call_next!(c"recvmsg" as fn(c_int, *mut msghdr, c_int) -> isize, (fd, message, flags), -1);
        place.map_or(received, |place| place.was_the_kernels(received))
    };
}
