//! System calls, raw and typed.
//!
//! Every call goes through `syscall(2)` and not through libc's function of that name: the drop-in libraries of this
//! project and `librspreload` export `socket`, `read`, `write`, `poll`, `close` ..., and the device's own descriptors
//! must never take that detour. Lengths and addresses that the kernel hands back are bounded here; nothing above this
//! module sees a raw pointer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use libc::c_long;

mod barrier;
mod control;
mod datagram;
mod epoll;
mod file;
mod interface;
mod memory;
mod netlink;
pub mod process;
pub mod segment;
mod spare;
mod unix;
mod xdp;
pub use barrier::*;
pub use datagram::*;
pub use epoll::*;
pub use file::*;
pub use interface::*;
pub use memory::*;
pub use netlink::*;
pub use process::has_ended;
pub use spare::*;
pub use unix::*;
pub use xdp::*;

fn check(ret: c_long) -> io::Result<usize> {
    // The errno of a failed raw call is left where libc's would be.
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

/// An owned descriptor, closed by the raw call: neither a preloaded library's `close` nor a cancellation point.
#[derive(Debug)]
pub struct Fd(RawFd);

impl From<std::os::fd::OwnedFd> for Fd {
    fn from(fd: std::os::fd::OwnedFd) -> Fd {
        Fd(std::os::fd::IntoRawFd::into_raw_fd(fd))
    }
}

impl Fd {
    /// From the result of a system call that makes a descriptor.
    ///
    /// # Safety
    /// It is that, and nobody else has the descriptor.
    pub unsafe fn from_call(ret: c_long) -> io::Result<Fd> {
        check(ret).map(|fd| Fd(fd as RawFd))
    }

    /// One more descriptor of the same file.
    pub fn duplicate(&self) -> io::Result<Fd> {
        Fd::duplicate_of(self.0)
    }

    /// The same for a number of somebody else's.
    pub fn duplicate_of(fd: RawFd) -> io::Result<Fd> {
        // SAFETY: no pointers, and a new descriptor.
        unsafe { Fd::from_call(libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0)) }
    }

    /// The number, for `poll` and the like.
    pub fn raw(&self) -> RawFd {
        self.0
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: closing a descriptor touches no memory; `self` owns it, so nobody else's number is closed.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// A socket address as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Addr {
    bytes: [u8; 112],
    len: u32,
}

impl Addr {
    /// Room for an address that the kernel fills in.
    pub const fn empty() -> Addr {
        Addr {
            bytes: [0; 112],
            len: 0,
        }
    }

    /// From an Internet address; a link-local IPv6 one carries its interface in `scope_id`.
    pub fn inet(addr: &SocketAddr) -> Addr {
        let mut out = Addr::empty();
        match addr {
            SocketAddr::V4(v4) => {
                out.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                out.bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
                out.bytes[4..8].copy_from_slice(&v4.ip().octets());
                out.len = 16;
            }
            SocketAddr::V6(v6) => {
                out.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                out.bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
                out.bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                out.bytes[8..24].copy_from_slice(&v6.ip().octets());
                out.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                out.len = 28;
            }
        }
        out
    }

    /// From the path of a unix socket; `None` when it is longer than the 107 bytes that fit.
    pub fn unix(path: &[u8]) -> Option<Addr> {
        let mut out = Addr::empty();
        if path.len() > 107 || path.contains(&0) {
            return None;
        }
        out.bytes[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        out.bytes[2..2 + path.len()].copy_from_slice(path);
        out.len = 2 + path.len() as u32 + 1;
        Some(out)
    }

    /// As an Internet address, with IPv4-mapped ones as IPv4; `None` for any other family.
    pub fn to_inet(self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match i32::from(u16::from_ne_bytes([b[0], b[1]])) {
            libc::AF_INET => {
                let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
                Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
            }
            libc::AF_INET6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&b[8..24]);
                let ip = Ipv6Addr::from(octets);
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                Some(match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
                    None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
                })
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Addr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_inet().fmt(f)
    }
}

/// A non-blocking, close-on-exec socket.
pub fn socket(family: i32, kind: i32) -> io::Result<Fd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })?;
    Ok(Fd(fd as RawFd))
}

/// bind(2).
pub fn bind(fd: &Fd, addr: &Addr) -> io::Result<()> {
    // SAFETY: `addr.bytes` is valid for `addr.len` (<= 112) bytes for the length of the call, which only reads them.
    check(unsafe { libc::syscall(libc::SYS_bind, fd.0, addr.bytes.as_ptr(), addr.len) })?;
    Ok(())
}

/// connect(2).
pub fn connect(fd: &Fd, addr: &Addr) -> io::Result<()> {
    // SAFETY: as in `bind`.
    check(unsafe { libc::syscall(libc::SYS_connect, fd.0, addr.bytes.as_ptr(), addr.len) })?;
    Ok(())
}

/// getsockname(2), for Internet sockets.
pub fn local_addr(fd: &Fd) -> io::Result<SocketAddr> {
    let mut addr = Addr::empty();
    addr.len = addr.bytes.len() as u32;
    // SAFETY: the kernel writes at most `addr.len` bytes, the size of the array, and then the length itself.
    check(unsafe {
        libc::syscall(
            libc::SYS_getsockname,
            fd.0,
            addr.bytes.as_mut_ptr(),
            &raw mut addr.len,
        )
    })?;
    addr.to_inet().ok_or(io::ErrorKind::InvalidData.into())
}

/// setsockopt(2) with an `int`.
pub fn set_option(fd: &Fd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option value is the local `value`, its length is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd.0,
            level,
            name,
            &raw const value,
            size_of::<i32>(),
        )
    })?;
    Ok(())
}

/// Joins (or leaves) a multicast group on an interface.
pub fn set_membership(fd: &Fd, group: IpAddr, ifindex: u32, member: bool) -> io::Result<()> {
    #[repr(C)]
    struct Mreqn {
        group: [u8; 4],
        address: [u8; 4],
        ifindex: u32,
    }
    #[repr(C)]
    struct Mreq6 {
        group: [u8; 16],
        ifindex: u32,
    }
    let set = |level: i32, name: i32, value: *const u8, len: usize| {
        // SAFETY: `value` points to one of the local structures below, whose length is given.
        check(unsafe { libc::syscall(libc::SYS_setsockopt, fd.0, level, name, value, len) })
            .map(drop)
    };
    match group {
        IpAddr::V4(v4) => {
            let request = Mreqn {
                group: v4.octets(),
                address: [0; 4],
                ifindex,
            };
            let name = if member {
                libc::IP_ADD_MEMBERSHIP
            } else {
                libc::IP_DROP_MEMBERSHIP
            };
            set(
                libc::IPPROTO_IP,
                name,
                (&raw const request).cast(),
                size_of::<Mreqn>(),
            )
        }
        IpAddr::V6(v6) => {
            let request = Mreq6 {
                group: v6.octets(),
                ifindex,
            };
            let name = if member {
                libc::IPV6_ADD_MEMBERSHIP
            } else {
                libc::IPV6_DROP_MEMBERSHIP
            };
            set(
                libc::IPPROTO_IPV6,
                name,
                (&raw const request).cast(),
                size_of::<Mreq6>(),
            )
        }
    }
}

/// getsockopt(2) of an `int`.
pub fn get_option(fd: &Fd, level: i32, name: i32) -> io::Result<i32> {
    // SAFETY: an integer.
    unsafe { option_of(fd, level, name) }
}

/// getsockopt(2) of any option; what the kernel does not fill in is zero.
///
/// # Safety
/// Any bytes are a value of `T`: it consists of integers.
unsafe fn option_of<T>(fd: &Fd, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: all zero bytes are a value, as the caller vouches for.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which may have any.
    check(unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd.0,
            level,
            name,
            &raw mut value,
            &raw mut len,
        )
    })?;
    Ok(value)
}

/// One instruction of a classic BPF program: code, jump if true, jump if false, constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BpfInsn {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Constant.
    pub k: u32,
}

/// Attaches `program` to the SO_REUSEPORT group of `fd`, to choose the socket.
pub fn attach_reuseport_program(fd: &Fd, program: &[BpfInsn]) -> io::Result<()> {
    attach_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Attaches `program` to `fd`, to choose how many bytes of a packet it gets.
pub fn attach_filter(fd: &Fd, program: &[BpfInsn]) -> io::Result<()> {
    attach_program(fd, libc::SO_ATTACH_FILTER, program)
}

fn attach_program(fd: &Fd, option: i32, program: &[BpfInsn]) -> io::Result<()> {
    #[repr(C)]
    struct Fprog {
        len: u16,
        filter: *const BpfInsn,
    }
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fprog = Fprog {
        len,
        filter: program.as_ptr(),
    };
    // SAFETY: `fprog` has the layout of `struct sock_fprog` and points at `len` instructions that outlive the call;
    // the kernel copies and verifies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd.0,
            libc::SOL_SOCKET,
            option,
            &raw const fprog,
            size_of::<Fprog>(),
        )
    })?;
    Ok(())
}

/// Waits until `fd` is readable or the time is over; true: readable. For joining only, never on the packet path.
pub fn wait_readable(fd: &impl AsFd, milliseconds: i32) -> bool {
    poll_one(fd, libc::POLLIN, milliseconds) != 0
}

/// The other end of a connection is closed.
pub fn is_hung_up(fd: &Fd) -> bool {
    poll_one(fd, 0, 0) & libc::POLLHUP != 0
}

/// ppoll(2) of one descriptor: what happened.
fn poll_one(fd: &impl AsFd, events: i16, milliseconds: i32) -> i16 {
    let mut poll = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: c_long::from(milliseconds % 1000) * 1_000_000,
    };
    // SAFETY: one pollfd, one timespec, both local; no signal mask is given.
    let n = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut poll,
            1,
            &raw const timeout,
            0usize,
            0usize,
        )
    };
    if n == 1 { poll.revents } else { 0 }
}

/// Bytes of randomness from the system.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most 8 bytes to `bytes`.
    let n = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if n == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // The call was taken away from the process (seccomp(2)).
    let device = open_at_following(c"/dev/urandom", libc::O_RDONLY, 0);
    if device.is_ok_and(|file| read_at(&file, &mut bytes, 0).is_ok_and(|n| n == bytes.len())) {
        return u64::from_ne_bytes(bytes);
    }
    // Time and pid at least keep seeds distinct.
    now_realtime_ns() ^ (u64::from(std::process::id()) << 32)
}

/// Nanoseconds since 1970, for capture files.
pub fn now_realtime_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// Effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// `release` of uname(2) as (major, minor); (0, 0) if it cannot be read.
pub fn kernel_version() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|p| p.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests;
