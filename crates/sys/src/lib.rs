//! System calls, raw and typed.
//!
//! No call goes through libc: the drop-in libraries of this project and `librspreload` export
//! `socket`, `read`, `write`, `poll`, `close` ..., and the device's own descriptors must never take
//! that detour. Nor does a call change errno, which is the program's, or act upon a cancellation of
//! its thread. So calls are those of [rustix], whose own back end makes them without libc; what it
//! does not have is in here, by number (`raw.rs`). Lengths and addresses that the kernel hands back
//! are bounded here; with few exceptions, which are unsafe functions, nothing above this crate sees
//! a raw pointer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use raw::raw;

mod asleep;
mod barrier;
mod blame;
mod capability;
pub mod child;
mod clock;
mod control;
mod datagram;
mod epoll;
mod events;
mod file;
mod futex;
pub mod guarded;
mod interface;
mod kept;
mod memory;
mod netlink;
mod note;
mod pages;
pub mod path;
pub mod process;
mod random;
mod raw;
mod room;
mod route;
pub mod segment;
pub mod signal;
mod spare;
pub mod tally;
mod threads;
mod unix;
mod usersock;
mod xdp;
pub use asleep::*;
pub use barrier::*;
pub use blame::failed_call;
pub use capability::*;
pub use clock::*;
pub use datagram::*;
pub use epoll::*;
pub use events::*;
pub use file::*;
pub use futex::*;
pub use interface::*;
pub use kept::*;
pub use memory::*;
pub use netlink::*;
pub use note::*;
pub use pages::*;
pub use process::has_ended;
pub use random::*;
pub use route::*;
pub use spare::*;
pub use threads::*;
pub use unix::*;
pub use usersock::*;
pub use xdp::*;

/// An owned descriptor, closed by the raw call: neither a preloaded library's `close` nor a
/// cancellation point.
#[derive(Debug)]
pub struct Fd(RawFd);

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        // That one would be closed by libc.
        Fd(fd.into_raw_fd())
    }
}

impl Fd {
    /// From the number that a system call has made.
    ///
    /// # Safety
    /// It is the number of an open descriptor, and nobody else has it.
    unsafe fn from_number(made: usize) -> Fd {
        Fd(made as RawFd)
    }

    /// Takes a descriptor from who had it, to close it; `None`: no descriptor has a number like
    /// this. What is no open descriptor is closed in vain.
    ///
    /// # Safety
    /// Nobody else uses the number any more.
    pub unsafe fn take(number: RawFd) -> Option<Fd> {
        (number >= 0).then_some(Fd(number))
    }

    /// Gives it away: who gets the number closes it.
    pub fn give(self) -> RawFd {
        std::mem::ManuallyDrop::new(self).0
    }

    /// One more descriptor of the same file.
    pub fn duplicate(&self) -> io::Result<Fd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self, 0)?.into())
    }

    /// The same for a number of somebody else's.
    pub fn duplicate_of(fd: RawFd) -> io::Result<Fd> {
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the number is only used in the call, which fails if it is no open descriptor. If
        // another thread closes it meanwhile, it is another file that gets one more descriptor,
        // which its caller would have to expect in any case.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?.into())
    }

    /// The number, for `poll` and the like.
    pub fn raw(&self) -> RawFd {
        self.0
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as `self` lives, and is not -1, as it was made by a call that
        // succeeded.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: `self` owns the descriptor, and is gone after this, so nobody uses the number any
        // more.
        unsafe { rustix::io::close(self.0) };
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

// SAFETY: `bytes` holds an address of `len` bytes, at most its own length, in the form of its
// family: each constructor writes it so, or the kernel has.
unsafe impl SocketAddrArg for Addr {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(self.bytes.as_ptr().cast(), self.len)
    }
}

/// A non-blocking, close-on-exec socket.
pub fn socket(family: i32, kind: i32) -> io::Result<Fd> {
    let family = AddressFamily::from_raw(family as u16);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let kind = SocketType::from_raw(kind as u32);
    let made = net::socket_with(family, kind, flags, None);
    Ok(blame::of("socket", made)?.into())
}

/// bind(2).
pub fn bind(fd: &Fd, addr: &Addr) -> io::Result<()> {
    blame::of("bind", net::bind(fd, addr))
}

/// connect(2).
pub fn connect(fd: &Fd, addr: &Addr) -> io::Result<()> {
    Ok(net::connect(fd, addr)?)
}

/// getsockname(2), for Internet sockets.
pub fn local_addr(fd: &Fd) -> io::Result<SocketAddr> {
    let addr = SocketAddr::try_from(net::getsockname(fd)?)?;
    Ok(match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    })
}

/// setsockopt(2) with an `int`.
pub fn set_option(fd: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: any bytes may be read of an `int`.
    unsafe { set_option_to(fd, level, name, &value) }
}

/// setsockopt(2) with a value of any kind.
///
/// # Safety
/// If the option's value points to memory, that memory is there for the call to read.
unsafe fn set_option_to<T>(fd: &impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (call, fd) = (libc::SYS_setsockopt, fd.as_fd().as_raw_fd());
    let value: *const T = value;
    // SAFETY: the call reads `size_of::<T>()` bytes at `value`, which is borrowed, and what they
    // point to, for which the caller vouches.
    unsafe { raw!(call, fd, level, name, value, size_of::<T>()) }.map(drop)
}

/// Joins (or leaves) a multicast group on an interface.
pub fn set_membership(fd: &Fd, group: IpAddr, ifindex: u32, member: bool) -> io::Result<()> {
    use net::sockopt;
    let any = Ipv4Addr::UNSPECIFIED;
    let done = match (group, member) {
        (IpAddr::V4(group), true) => {
            sockopt::set_ip_add_membership_with_ifindex(fd, &group, &any, ifindex)
        }
        (IpAddr::V4(group), false) => {
            sockopt::set_ip_drop_membership_with_ifindex(fd, &group, &any, ifindex)
        }
        (IpAddr::V6(group), true) => sockopt::set_ipv6_add_membership(fd, &group, ifindex),
        (IpAddr::V6(group), false) => sockopt::set_ipv6_drop_membership(fd, &group, ifindex),
    };
    Ok(done?)
}

/// getsockopt(2) of an `int`.
pub fn get_option(fd: &impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    // SAFETY: any bytes are an `i32`.
    unsafe { option_of(fd, level, name) }
}

/// getsockopt(2) of any option; what the kernel does not fill in is zero.
///
/// # Safety
/// Any bytes are a value of `T`: it consists of integers.
unsafe fn option_of<T>(fd: &impl AsFd, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: zeros are a value of `T`, as any bytes are by the caller's word.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as u32;
    let (call, fd) = (libc::SYS_getsockopt, fd.as_fd().as_raw_fd());
    // SAFETY: the kernel writes at most `len` bytes to `value`, its size, and then the length
    // itself; both are local, and any bytes are a value, as the caller vouches for.
    unsafe { raw!(call, fd, level, name, &raw mut value, &raw mut len) }?;
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
        // Said, so that no uninitialised bytes go to the kernel.
        padding: [u8; 6],
        filter: *const BpfInsn,
    }
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    const { assert!(size_of::<Fprog>() == 16) };
    let fprog = Fprog {
        len,
        padding: [0; 6],
        filter: program.as_ptr(),
    };
    // SAFETY: `fprog` has the layout of `struct sock_fprog`, and points at `len` instructions that
    // are borrowed for the call; the kernel copies and verifies them.
    unsafe { set_option_to(fd, libc::SOL_SOCKET, option, &fprog) }
}

/// Waits until `fd` is readable or the time is over; true: readable. For joining only, never on the
/// packet path.
pub fn wait_readable(fd: &impl AsFd, milliseconds: i32) -> bool {
    !poll_one(fd, PollFlags::IN, milliseconds).is_empty()
}

/// The other end of a connection is closed.
pub fn is_hung_up(fd: &Fd) -> bool {
    poll_one(fd, PollFlags::empty(), 0).contains(PollFlags::HUP)
}

/// ppoll(2) of one descriptor: what happened.
fn poll_one(fd: &impl AsFd, events: PollFlags, milliseconds: i32) -> PollFlags {
    let mut polled = [PollFd::new(fd, events)];
    let timeout = Timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(1) => polled[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// Effective user id.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group id.
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
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
