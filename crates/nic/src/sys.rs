//! System calls that have no safe wrapper in the standard library.
//!
//! One of the modules of this crate with unsafe code. Everything here takes and gives plain values.

mod netlink;
mod process;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) use netlink::{NextHop, is_known, next_hop};
pub(crate) use process::{
    DEVICE_SLOT, Gate, SLOTS, is_proc, note, own_memory, peek, read_at, write_at,
};

/// An eventfd in semaphore mode: one token per event, readable while tokens are left.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: eventfd takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is owned by nobody else.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds `n` tokens.
    pub(crate) fn add(&self, n: u64) {
        let value = n.to_ne_bytes();
        // SAFETY: the pointer and length are those of `value`.
        // By raw system call: a preloaded library may have its own idea of `write`.
        unsafe { libc::syscall(libc::SYS_write, self.fd(), value.as_ptr(), value.len()) };
    }

    /// Takes one token, blocking unless the application made the descriptor non-blocking.
    pub(crate) fn take(&self) -> io::Result<()> {
        let mut value = [0u8; 8];
        // SAFETY: the pointer and length are those of `value`.
        let n =
            unsafe { libc::syscall(libc::SYS_read, self.fd(), value.as_mut_ptr(), value.len()) };
        if n == 8 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Takes one token if there is one, whatever the application set on the descriptor.
    pub(crate) fn try_take(&self) -> bool {
        if !poll(&[self.fd()], Some(Duration::ZERO)).is_ok_and(|r| r[0]) {
            return false;
        }
        let mut value = [0u8; 8];
        let iov = libc::iovec {
            iov_base: value.as_mut_ptr().cast(),
            iov_len: value.len(),
        };
        // SAFETY: one iovec that describes `value`; RWF_NOWAIT never blocks.
        let n = unsafe { libc::preadv2(self.fd(), &iov, 1, -1, libc::RWF_NOWAIT) };
        n == 8
    }
}

/// Which file a descriptor refers to. Holds on to the file, so that no other one gets its number.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    held: OwnedFd,
    device: libc::dev_t,
    inode: libc::ino_t,
}

impl FileIdentity {
    pub(crate) fn of(fd: RawFd) -> io::Result<FileIdentity> {
        // SAFETY: takes no pointer.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is owned by nobody else.
        FileIdentity::of_owned(unsafe { OwnedFd::from_raw_fd(copy) })
    }

    /// Keeps the descriptor.
    pub(crate) fn of_owned(held: OwnedFd) -> io::Result<FileIdentity> {
        // SAFETY: an all-zero stat is a valid value of that plain C struct.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is a valid place for the answer.
        if unsafe { libc::fstat(held.as_raw_fd(), &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(FileIdentity {
            held,
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// One more descriptor of the file.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.held.try_clone()
    }

    /// Device and inode.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    pub(crate) fn same(&self, other: &FileIdentity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Waits until one of up to 8 descriptors is readable; says which are. `None`: for ever.
pub(crate) fn poll(fds: &[RawFd], timeout: Option<Duration>) -> io::Result<[bool; 8]> {
    let mut set = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; 8];
    let n = fds.len().min(8);
    for (slot, fd) in set.iter_mut().zip(fds) {
        slot.fd = *fd;
    }
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let ts_ptr = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` has at least `n` entries, `ts` lives across the call, no signal mask is given.
    let r = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            set.as_mut_ptr(),
            n,
            ts_ptr,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(set.map(|s| s.revents != 0))
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// With the thread's cancellation off: for what the data path does seldom and by the standard library, whose system calls
/// are cancellation points, where a `pthread_cancel(3)` would unwind us with our locks held.
pub(crate) fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::c_int);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: a state that the C library gave; it may take NULL.
            unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
        }
    }
    const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
    let mut old = 0;
    // SAFETY: `old` is a place for the state before.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
    let _restore = Restore(old);
    body()
}

/// Monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the epoch.
pub(crate) fn wallclock_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid place for the answer; the clocks asked for always exist.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    (ts.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(ts.tv_nsec as u64)
}

/// Bytes of the pages that a range touches: what hardware would lock for it.
pub(crate) fn pages(start: usize, len: usize) -> u64 {
    // SAFETY: sysconf takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let first = start / page;
    let end = start.saturating_add(len).div_ceil(page);
    (end.saturating_sub(first) as u64) * page as u64
}

/// Bytes that the process may lock; `None`: no limit holds for it.
pub(crate) fn memlock_limit() -> Option<u64> {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    if effective & (1 << CAP_IPC_LOCK) != 0 {
        return None;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let r = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (r == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// How often the scheduler took the core from this thread although it wanted to run.
pub(crate) fn involuntary_switches() -> i64 {
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nivcsw
}

/// Prepares the calling thread to be the background engine: no signals for it, short timer slack, any core.
pub(crate) fn become_background_thread() {
    // SAFETY: prctl with plain integers; the cpu set is a local value whose size is given.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize);
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        for cpu in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut all);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &all);
    }
    ask_for_short_slice();
}

/// `struct sched_attr` of sched_setattr(2), first published size.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks the scheduler for short turns (Linux 6.12 and later, no privilege): a thread that needs microseconds then gets
/// them soon after it wakes, even on a core where the application spins. Elsewhere nothing changes.
fn ask_for_short_slice() {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: the structure has the size it says; the kernel reads and writes no more than that.
    unsafe {
        let mut attr = SchedAttr::default();
        let size = size_of::<SchedAttr>() as u32;
        if libc::syscall(libc::SYS_sched_getattr, 0, &mut attr, size, 0) != 0
            || attr.policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.size = size;
        attr.runtime = SLICE_NS;
        attr.flags = 0;
        libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0);
    }
}

/// Blocks every signal in this thread while `f` runs; a thread spawned by `f` inherits that.
pub(crate) fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: zeroed sigset_t values are filled by sigfillset / pthread_sigmask before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// Random bytes from the kernel.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the pointer and length are those of `bytes`.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n != 8 {
        // Before the entropy pool is up: the clock and the address layout are the best there is.
        return now_ns() ^ (bytes.as_ptr() as u64).rotate_left(32);
    }
    u64::from_ne_bytes(bytes)
}

/// Pages of a descriptor, mapped for the device alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: usize,
    len: usize,
}

impl Mapping {
    /// Bytes of a dmabuf; EBADF or EINVAL if it is none.
    pub(crate) fn size_of_dmabuf(fd: RawFd) -> Result<u64, i32> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"));
        let info = info.map_err(|_| libc::EBADF)?;
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        // Only dmabufs name an exporter.
        field("exp_name:").ok_or(libc::EINVAL)?;
        let size = field("size:").and_then(|size| size.trim().parse().ok());
        size.ok_or(libc::EINVAL)
    }

    /// `None` if the descriptor cannot be mapped so. `offset` is that of a page.
    pub(crate) fn new(fd: RawFd, offset: u64, len: usize, write: bool) -> Option<Mapping> {
        let protection = match write {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        let offset = i64::try_from(offset).ok()?;
        // SAFETY: a fresh mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd,
                offset,
            )
        };
        (at != libc::MAP_FAILED).then_some(Mapping {
            at: at as usize,
            len,
        })
    }

    pub(crate) fn address(&self) -> usize {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which whoever held it has stopped using.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.len) };
    }
}

/// What `RNIC_GUARDED_MEMORY` says.
pub(crate) fn guarded_memory() -> bool {
    std::env::var_os("RNIC_GUARDED_MEMORY").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Makes the pages of a range present and checks that they may be read (and written).
/// Gives the errno that `ibv_reg_mr` reports: EFAULT for unmapped or forbidden memory.
pub(crate) fn populate(addr: usize, len: usize, write: bool) -> Result<(), i32> {
    const MADV_POPULATE_READ: i32 = 22;
    const MADV_POPULATE_WRITE: i32 = 23;
    if len == 0 {
        return Ok(());
    }
    let page = 4096usize;
    let start = addr & !(page - 1);
    let end = addr.checked_add(len).ok_or(libc::EFAULT)?;
    let span = end.checked_next_multiple_of(page).ok_or(libc::EFAULT)? - start;
    let advice = if write {
        MADV_POPULATE_WRITE
    } else {
        MADV_POPULATE_READ
    };
    loop {
        // SAFETY: populating changes no contents; the kernel checks the range.
        let r = unsafe { libc::madvise(start as *mut libc::c_void, span, advice) };
        if r == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => continue,
            // ENOMEM: a hole; EFAULT: cannot be faulted in. Hardware's pinning says EFAULT to both.
            Some(libc::ENOMEM | libc::EFAULT) => return Err(libc::EFAULT),
            // EINVAL: a kernel before 5.14, a mapping of device pages, or one without that right.
            Some(libc::EINVAL) => return permitted(start, start + span, write),
            Some(libc::EHWPOISON) => return Err(libc::EFAULT),
            _ => return Err(libc::EFAULT),
        }
    }
}

/// Whether every page of a range is mapped with that right, as /proc/self/maps says.
fn permitted(start: usize, end: usize, write: bool) -> Result<(), i32> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| libc::EFAULT)?;
    match covered(&maps, start, end, |line| allows(line, write)) {
        true => Ok(()),
        false => Err(libc::EFAULT),
    }
}

/// A line of `maps` gives the right to read, and to write if that is asked for.
fn allows(line: &str, write: bool) -> bool {
    let rights = line.split_ascii_whitespace().nth(1).unwrap_or("");
    rights.starts_with('r') && (!write || rights.as_bytes().get(1) == Some(&b'w'))
}

/// A line of `maps` is a shared mapping of a file that has a name.
fn outlasts(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let shared = fields.next().is_some_and(|rights| rights.ends_with('s'));
    let path = fields.nth(3).unwrap_or("");
    shared && path.starts_with('/') && !line.ends_with(" (deleted)")
}

/// Every page of a range is a shared mapping of a file that has a name, as /proc/self/maps says: what is written there
/// outlasts the process.
pub(crate) fn is_shared_file(start: usize, len: usize) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return false;
    };
    covered(&maps, start, start.saturating_add(len), outlasts)
}

/// Writes a range of shared mappings to their files and waits until the disk has it; the errno if part of it is not
/// mapped, or cannot be written.
pub(crate) fn write_back(addr: usize, len: usize) -> Result<(), i32> {
    let page = 4096usize;
    let start = addr & !(page - 1);
    let span = addr.saturating_add(len) - start;
    // SAFETY: changes no contents; the kernel checks the range.
    match unsafe { libc::msync(start as *mut libc::c_void, span, libc::MS_SYNC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// The lines of `maps`, which are sorted, cover the range without a hole, and each of them is fit.
fn covered(maps: &str, start: usize, end: usize, fit: impl Fn(&str) -> bool) -> bool {
    let mut at = start;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let Some((from, to)) = range else { continue };
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        let (from, to) = (number(from), number(to));
        if to <= at {
            continue;
        }
        if from > at || !fit(line) {
            return false;
        }
        at = to;
        if at >= end {
            return true;
        }
    }
    at >= end
}

/// One page that reads zero in any forked child, however it was forked.
#[derive(Debug)]
pub(crate) struct ForkWitness(*mut u32);

// SAFETY: the page is only read after construction, and lives as long as the process.
unsafe impl Send for ForkWitness {}
// SAFETY: as above.
unsafe impl Sync for ForkWitness {}

impl ForkWitness {
    pub(crate) fn new() -> ForkWitness {
        // SAFETY: a fresh anonymous mapping; failure is checked before use.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return ForkWitness(std::ptr::null_mut());
            }
            libc::madvise(page, 4096, libc::MADV_WIPEONFORK);
            let word = page.cast::<u32>();
            word.write_volatile(1);
            ForkWitness(word)
        }
    }

    /// Still the process that made it.
    pub(crate) fn same_process(&self) -> bool {
        // SAFETY: a non-null pointer is the page mapped in `new`, never unmapped.
        self.0.is_null() || unsafe { self.0.read_volatile() } == 1
    }
}

/// A socket that becomes readable when an interface or an address of the host changes (rtnetlink(7)). Needs no privilege.
#[derive(Debug)]
pub(crate) struct RouteSocket(OwnedFd);

impl RouteSocket {
    /// By raw system calls: a preloaded library may have its own idea of sockets.
    pub(crate) fn open() -> io::Result<RouteSocket> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        // SAFETY: the descriptor is fresh and owned from its first line on; `address` is a whole sockaddr_nl.
        unsafe {
            let fd = libc::syscall(
                libc::SYS_socket,
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                libc::NETLINK_ROUTE,
            ) as RawFd;
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_nl = std::mem::zeroed();
            address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
            address.nl_groups = groups as u32;
            let len = size_of::<libc::sockaddr_nl>();
            match libc::syscall(libc::SYS_bind, fd.as_raw_fd(), &raw const address, len) {
                0 => Ok(RouteSocket(fd)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Throws away what was told: that something changed is enough, also where messages were lost (ENOBUFS).
    pub(crate) fn drain(&self) {
        let mut message = [0u8; 4096];
        loop {
            // SAFETY: the pointer and length are those of `message`.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_recvfrom,
                    self.fd(),
                    message.as_mut_ptr(),
                    message.len(),
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut::<libc::sockaddr>(),
                    std::ptr::null_mut::<libc::socklen_t>(),
                )
            };
            let lost = || io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if n <= 0 && !lost() {
                return;
            }
        }
    }
}

/// Has the kernel look for the neighbour that leads to an address: sends an empty datagram to its discard port (RFC 863).
pub(crate) fn knock(source: SocketAddr, peer: SocketAddr) {
    const DISCARD: u16 = 9;
    let family = match peer {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    // SAFETY: the descriptor is fresh and owned from its first line on; every address is as long as it is said to be.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::syscall(libc::SYS_socket, family, kind, 0) as RawFd;
        if fd < 0 {
            return;
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let (address, len) = socket_address(source, 0);
        libc::syscall(libc::SYS_bind, fd.as_raw_fd(), &raw const address, len);
        let (address, len) = socket_address(peer, DISCARD);
        let nothing = std::ptr::null::<u8>();
        let fd = fd.as_raw_fd();
        libc::syscall(libc::SYS_sendto, fd, nothing, 0, 0, &raw const address, len);
    }
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Source address; with its scope if it is link-local.
    pub(crate) source: SocketAddr,
    /// What the route carries, bytes of IP packet.
    pub(crate) mtu: Option<u32>,
}

/// Asks the kernel for the way to an address, from `source` if it is given. Nothing is sent.
pub(crate) fn way_to(source: Option<SocketAddr>, peer: SocketAddr) -> io::Result<Way> {
    let (family, level, option) = match peer {
        SocketAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let checked = |r: libc::c_long| match r {
        0.. => Ok(r),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the descriptor is fresh and owned from its first line on; every address is as long as it is said to be; by
    // raw system calls, as a preloaded library may have its own idea of sockets.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = checked(libc::syscall(libc::SYS_socket, family, kind, 0))? as RawFd;
        let fd = OwnedFd::from_raw_fd(fd);
        if let Some(source) = source {
            let (address, len) = socket_address(source, 0);
            let r = libc::syscall(libc::SYS_bind, fd.as_raw_fd(), &raw const address, len);
            checked(r)?;
        }
        let (address, len) = socket_address(peer, rnic_wire::ROCE_PORT);
        let r = libc::syscall(libc::SYS_connect, fd.as_raw_fd(), &raw const address, len);
        checked(r)?;
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let to = (&raw mut address, &raw mut len);
        checked(libc::syscall(
            libc::SYS_getsockname,
            fd.as_raw_fd(),
            to.0,
            to.1,
        ))?;
        let source = match i32::from(address.ss_family) {
            libc::AF_INET => {
                let sin = (&raw const address).cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
                SocketAddr::from((ip, 0))
            }
            _ => {
                let sin6 = (&raw const address).cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                SocketAddrV6::new(ip, 0, 0, sin6.sin6_scope_id).into()
            }
        };
        let mut mtu: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        let r = libc::syscall(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            level,
            option,
            &raw mut mtu,
            &raw mut len,
        );
        Ok(Way {
            source,
            mtu: (r == 0).then_some(mtu as u32),
        })
    }
}

fn socket_address(addr: SocketAddr, port: u16) -> (libc::sockaddr_storage, usize) {
    // SAFETY: an all-zero sockaddr_storage is valid, and has room and alignment for each address written into it.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let len = match addr {
            SocketAddr::V4(v4) => {
                let sin = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                sin.sin_family = libc::AF_INET as libc::sa_family_t;
                sin.sin_port = port.to_be();
                sin.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let sin6 = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                sin6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                sin6.sin6_port = port.to_be();
                sin6.sin6_addr.s6_addr = v6.ip().octets();
                sin6.sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, len)
    }
}

/// One address of an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceAddress {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) addr: IpAddr,
    pub(crate) scope_id: u32,
    pub(crate) loopback: bool,
    /// Somebody has switched it on.
    up: bool,
    /// Its link can carry packets: there is a carrier, and nothing else keeps it from it (RFC 2863, operstate).
    pub(crate) running: bool,
}

/// Addresses of all interfaces that are up, and the first hardware address found there.
pub(crate) fn interface_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let (mut found, mac) = all_addresses()?;
    found.retain(|entry| entry.up);
    Ok((found, mac))
}

/// Addresses of all interfaces, and the first hardware address of one that is up.
fn all_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` receives a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut mac = None;
    let mut cursor = list;
    while !cursor.is_null() {
        // SAFETY: getifaddrs gives a null-terminated list of valid nodes; names are C strings; each address has
        // the size that its family says.
        unsafe {
            let entry = &*cursor;
            cursor = entry.ifa_next;
            let flags = entry.ifa_flags as libc::c_int;
            if entry.ifa_addr.is_null() {
                continue;
            }
            let up = flags & libc::IFF_UP != 0;
            let name = std::ffi::CStr::from_ptr(entry.ifa_name);
            let index = libc::if_nametoindex(name.as_ptr());
            let (addr, scope_id) = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let sin = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    let v4 = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
                    (IpAddr::V4(v4), 0)
                }
                libc::AF_INET6 => {
                    let sin6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    let v6 = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                    (IpAddr::V6(v6), sin6.sin6_scope_id)
                }
                libc::AF_PACKET => {
                    let sll = entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned();
                    let bytes = &sll.sll_addr[..6];
                    if up && mac.is_none() && sll.sll_halen == 6 && bytes.iter().any(|b| *b != 0) {
                        mac = bytes.try_into().ok();
                    }
                    continue;
                }
                _ => continue,
            };
            found.push(InterfaceAddress {
                name: name.to_string_lossy().into_owned(),
                index,
                addr,
                scope_id,
                loopback: flags & libc::IFF_LOOPBACK != 0,
                up,
                running: flags & libc::IFF_RUNNING != 0,
            });
        }
    }
    // SAFETY: `list` came from getifaddrs and is not used after this.
    unsafe { libc::freeifaddrs(list) };
    Ok((found, mac))
}

/// The interface that has an address, and whether it is up.
pub(crate) fn interface_of(wanted: IpAddr) -> Option<(String, bool)> {
    all_addresses()
        .ok()?
        .0
        .into_iter()
        .find(|entry| entry.addr == wanted)
        .map(|entry| (entry.name, entry.up))
}

/// MTU of an interface, bytes; asked of the kernel by ioctl, since sysfs may show another network namespace.
pub(crate) fn interface_mtu(name: &str) -> Option<u32> {
    // SAFETY: an all-zero ifreq is valid; the name is copied with room for its terminator; the socket is closed.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        if name.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let fd = libc::syscall(
            libc::SYS_socket,
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        ) as RawFd;
        if fd < 0 {
            return None;
        }
        let r = libc::ioctl(fd, libc::SIOCGIFMTU, &mut request);
        libc::syscall(libc::SYS_close, fd);
        (r == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::{allows, covered, outlasts};

    #[test]
    fn only_shared_mappings_of_files_with_names_outlast_the_process() {
        for (line, want) in [
            ("1000-2000 rw-s 00000000 fe:01 77 /data/my file", true),
            ("1000-2000 r--s 00000000 fe:01 77 /data/file", true),
            ("1000-2000 rw-p 00000000 fe:01 77 /data/file", false),
            (
                "1000-2000 rw-s 00000000 fe:01 77 /data/file (deleted)",
                false,
            ),
            (
                "1000-2000 rw-s 00000000 00:01 77 /memfd:name (deleted)",
                false,
            ),
            (
                "1000-2000 rw-s 00000000 00:01 77 anon_inode:[perf_event]",
                false,
            ),
            ("1000-2000 rw-p 00000000 00:00 0 ", false),
            ("1000-2000 rw-p 00000000 00:00 0 [heap]", false),
        ] {
            assert_eq!(outlasts(line), want, "{line}");
        }
    }

    #[test]
    fn a_range_is_covered_only_with_every_right_and_no_hole() {
        let maps = "1000-3000 r--p 0 0:0 0 /lib\n3000-5000 rw-p 0 0:0 0\n6000-7000 rw-s 0 0:0 0\n7000-8000 ---p 0";
        for (start, end, write, want) in [
            (0x1000, 0x5000, false, true),
            (0x2000, 0x4000, true, false),
            (0x3000, 0x5000, true, true),
            (0x4000, 0x7000, false, false),
            (0x6000, 0x7000, true, true),
            (0x7000, 0x8000, false, false),
            (0x0, 0x2000, false, false),
            (0x9000, 0xa000, false, false),
        ] {
            assert_eq!(
                covered(maps, start, end, |line| allows(line, write)),
                want,
                "{start:#x} {end:#x}"
            );
        }
    }
}
