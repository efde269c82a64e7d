//! Questions to rtnetlink(7).

use std::io;

use super::{Fd, check};

/// Sends a question and takes the answer, which is there when sending it returns.
pub fn ask_netlink(question: &[u8]) -> io::Result<Vec<u8>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers, and a new descriptor.
    let fd = unsafe {
        Fd::from_call(libc::syscall(
            libc::SYS_socket,
            libc::AF_NETLINK,
            kind,
            libc::NETLINK_ROUTE,
        ))
    }?;
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
    // SAFETY: the pointer goes with the vector's length; no address is asked for.
    let n = check(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.raw(),
            answer.as_mut_ptr(),
            answer.len(),
            libc::MSG_DONTWAIT,
            0usize,
            0usize,
        )
    })?;
    answer.truncate(n);
    Ok(answer)
}
