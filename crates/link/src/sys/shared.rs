//! What processes share: memory files, descriptors sent through unix sockets, and sets of descriptors to wait for.

use std::io;
use std::os::fd::RawFd;

use super::{Fd, HEADER, check, cmsg_space};

/// `f_type` of memory files (statfs(2)).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A memory file of `len` bytes that can neither shrink nor grow any more.
pub fn memory_file(len: usize) -> io::Result<Fd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a terminated string that lives through the call.
    let fd = check(unsafe { libc::syscall(libc::SYS_memfd_create, c"rnic".as_ptr(), flags) })?;
    let fd = Fd(fd as RawFd);
    super::truncate(&fd, len as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Is it a memory file of `len` bytes that nobody can make shorter? Only such a one may be mapped that came from another
/// process: access behind the end of a file is SIGBUS. Files of huge pages are none, since there may be no page for them.
pub fn is_safe_memory_file(fd: &Fd, len: usize) -> bool {
    // SAFETY: no pointers. Other files than those of memory have no seals and fail.
    let seals = check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_GET_SEALS) });
    if !seals.is_ok_and(|seals| seals & libc::F_SEAL_SHRINK as usize != 0) {
        return false;
    }
    // SAFETY: `statfs` is a C struct of integers, for which all zero bytes are a value.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the local struct.
    let asked = check(unsafe { libc::syscall(libc::SYS_fstatfs, fd.0, &raw mut fs) });
    #[allow(
        clippy::unnecessary_cast,
        reason = "its type differs between C libraries"
    )]
    let plain = asked.is_ok() && fs.f_type as i64 == TMPFS_MAGIC;
    // The seal was looked at first: from then on the length holds.
    plain && super::stat(fd).is_ok_and(|stat| stat.size == len as u64)
}

/// listen(2) on a socket that has its name.
pub fn start_to_listen(fd: &Fd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_listen, fd.0, backlog) })?;
    Ok(())
}

/// Room for the control message of one descriptor.
const ONE_FD: usize = cmsg_space(4);

#[repr(C, align(8))]
struct FdControl([u8; ONE_FD]);

fn header(iov: &mut libc::iovec, control: &mut FdControl) -> libc::msghdr {
    // SAFETY: msghdr is a C struct of integers and pointers, for which all zero bytes are a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = ONE_FD as _;
    header
}

/// Sends bytes and a descriptor through a connected unix socket.
pub fn send_with_fd(socket: &Fd, bytes: &[u8], fd: &Fd) -> io::Result<usize> {
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = FdControl([0; ONE_FD]);
    let (len, w) = (HEADER + 4, size_of::<usize>());
    control.0[..w].copy_from_slice(&len.to_ne_bytes());
    control.0[w..w + 4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[w + 4..w + 8].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    control.0[HEADER..HEADER + 4].copy_from_slice(&fd.0.to_ne_bytes());
    let header = header(&mut iov, &mut control);
    // SAFETY: the header points at bytes and control data that live through the call and are only read.
    check(unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            socket.0,
            &raw const header,
            libc::MSG_NOSIGNAL,
        )
    })
}

/// Receives bytes, and a descriptor if one came with them. Never blocks.
pub fn receive_with_fd(socket: &Fd, buffer: &mut [u8]) -> io::Result<(usize, Option<Fd>)> {
    let mut iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = FdControl([0; ONE_FD]);
    let mut header = header(&mut iov, &mut control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes at most the given lengths into the buffer and the control data, which live through the
    // call.
    let len = check(unsafe { libc::syscall(libc::SYS_recvmsg, socket.0, &raw mut header, flags) })?;
    #[allow(
        clippy::unnecessary_cast,
        reason = "its type differs between C libraries"
    )]
    let filled = (header.msg_controllen as usize).min(ONE_FD);
    let control = &control.0[..filled];
    let w = size_of::<usize>();
    let int = |at: usize| {
        let bytes = control.get(at..at + 4)?;
        Some(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let mut first = None;
    if int(w) == Some(libc::SOL_SOCKET) && int(w + 4) == Some(libc::SCM_RIGHTS) {
        let mut said = [0; size_of::<usize>()];
        said.copy_from_slice(&control[..w]);
        let end = usize::from_ne_bytes(said).min(filled);
        // All that the kernel has opened for us are ours to close; the padding has room for a second one.
        for at in (HEADER..end.saturating_sub(3)).step_by(4) {
            let fd = int(at).filter(|fd| *fd >= 0).map(Fd);
            if first.is_none() {
                first = fd;
            }
        }
    }
    Ok((len, first))
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

/// A set of descriptors, readable as one when one of them is (epoll(7)).
#[derive(Debug)]
pub struct FdSet(Fd);

impl FdSet {
    /// An empty one.
    pub fn new() -> io::Result<FdSet> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        Ok(FdSet(Fd(fd as RawFd)))
    }

    /// The descriptor of the set.
    pub fn raw(&self) -> RawFd {
        self.0.0
    }

    /// Takes a descriptor out, before it is closed: a forked child may have a copy, and as long as any is open the kernel
    /// reports what happens to it.
    pub fn remove(&self, fd: &Fd) {
        // SAFETY: no event is read or written.
        let _ = check(unsafe {
            libc::syscall(
                libc::SYS_epoll_ctl,
                self.0.0,
                libc::EPOLL_CTL_DEL,
                fd.0,
                0usize,
            )
        });
    }

    /// Adds a descriptor, to be [removed](FdSet::remove) before it is closed. `name` is what [`FdSet::ready`] gives.
    pub fn add(&self, fd: &Fd, name: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: name,
        };
        // SAFETY: the kernel reads the local event.
        check(unsafe {
            libc::syscall(
                libc::SYS_epoll_ctl,
                self.0.0,
                libc::EPOLL_CTL_ADD,
                fd.0,
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// The names of some that are readable or closed by their peers.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: the kernel writes at most as many events as the local array has.
        let n = check(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.0.0,
                events.as_mut_ptr(),
                events.len(),
                0,
                0usize,
                0usize,
            )
        })
        .unwrap_or(0);
        events.into_iter().take(n).map(|event| event.u64)
    }
}
