//! Descriptors that say something to whoever gets them.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

use crate::Fd;

/// A descriptor that says `bytes` to whoever [`peek`]s at it. It is a socket: unlike a file it
/// cannot be opened anew through `/proc/PID/fd` by processes that it was not sent to.
pub fn note(bytes: &[u8]) -> io::Result<Fd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let (pen, note) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let (pen, note) = (Fd::from(pen), Fd::from(note));
    match rustix::io::write(&pen, bytes)? {
        // The message stays in the queue of the other end, into which nobody can put a second one.
        n if n == bytes.len() => Ok(note),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// What a [`note`] says, which goes on saying it; false: it is none of `out.len()` bytes. Never
/// blocks, whatever `fd` is.
pub fn peek(fd: RawFd, out: &mut [u8]) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: the number is only used in the call, which fails if it is no open socket, and changes
    // nothing if it is one.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let wanted = out.len();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    // With TRUNC its length is that of the message, which may be longer than there is room.
    recv(fd, out, flags).is_ok_and(|(_, len)| len == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_again_and_again_but_opened_by_nobody() {
        let note = note(b"hello").unwrap();
        let mut out = [0; 5];
        for _ in 0..2 {
            assert!(peek(note.raw(), &mut out) && &out == b"hello");
        }
        assert!(!peek(note.raw(), &mut [0; 4]), "longer than that");
        assert!(!peek(note.raw(), &mut [0; 6]), "shorter");
        let path = format!("/proc/self/fd/{}", note.raw());
        assert!(std::fs::File::open(path).is_err());
        assert!(!peek(crate::memory_file(5).unwrap().raw(), &mut out));
        let (silent, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!peek(std::os::fd::AsRawFd::as_raw_fd(&silent), &mut out));
        assert!(!peek(-1, &mut out));
    }
}
