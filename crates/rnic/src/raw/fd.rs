//! Waiting on file descriptors, and lending them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use crate::device;

/// Makes reads of `fd` return EAGAIN instead of blocking.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl with F_GETFL / F_SETFL takes and gives integers only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until `fd` is readable; `false`: the deadline passed. `None` waits for ever.
pub(crate) fn wait_readable(fd: RawFd, deadline: Option<Instant>) -> io::Result<bool> {
    wait_any(&mut [readable(fd)], deadline)
}

/// What poll(2) is asked for a descriptor; a negative one is left out.
pub(crate) fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits until one of these is ready, which its `revents` then says; `false`: the deadline passed.
/// `None` waits for ever.
pub(crate) fn wait_any(fds: &mut [libc::pollfd], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        // Rounded up, so that the last fraction of a millisecond does not spin.
        let millis = match left {
            None => -1,
            Some(left) => left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32,
        };
        // SAFETY: as many valid pollfds as the slice has, for the whole call.
        match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) } {
            1.. => return Ok(true),
            0 if left.is_some_and(|l| l <= Duration::from_millis(1)) => return Ok(false),
            0 => {}
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Whether one of these is ready; looks without waiting.
pub(crate) fn are_ready(fds: &mut [libc::pollfd]) -> bool {
    // SAFETY: as many valid pollfds as the slice has, for the whole call.
    !fds.is_empty() && unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 0) } > 0
}

/// Whether the other end of a pipe or connection is closed; looks without waiting.
pub(crate) fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    has(
        fd,
        libc::POLLRDHUP,
        libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR,
    )
}

/// A read would not wait. Looks without waiting.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    has(fd, libc::POLLIN, !0)
}

fn has(fd: BorrowedFd<'_>, asked: i16, wanted: i16) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: asked,
        revents: 0,
    };
    // SAFETY: `poll` points to one valid pollfd for the whole call.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready > 0 && poll.revents & wanted != 0
}

/// The descriptor of a completion channel.
pub(crate) fn of_channel(channel: &device::CompChannel) -> BorrowedFd<'_> {
    // SAFETY: the channel owns the descriptor and closes it when its last handle drops; `channel`
    // is one.
    unsafe { BorrowedFd::borrow_raw(channel.fd()) }
}

/// The descriptor of a channel of the connection manager.
pub(crate) fn of_events(channel: &device::cm::EventChannel) -> BorrowedFd<'_> {
    // SAFETY: the channel owns the descriptor and closes it when its last handle drops; `channel`
    // is one.
    unsafe { BorrowedFd::borrow_raw(channel.fd()) }
}

/// The descriptor of a context's asynchronous events.
pub(crate) fn of_context(context: &device::Context) -> BorrowedFd<'_> {
    // SAFETY: the device keeps the descriptor open while a handle of the context lives; `context`
    // is one.
    unsafe { BorrowedFd::borrow_raw(context.async_fd()) }
}
