//! The sockets that programs have for NETLINK_RDMA.
//!
//! Each is a netlink socket of a protocol that the kernel has for processes among themselves
//! (NETLINK_USERSOCK). So binding, options, addresses, waiting, dup(2), fork(2) and closing are the
//! kernel's affair. What a program sends to the kernel by it is answered here; the answers are sent
//! to it by a second socket, which exists as long as that takes. The program's is connected to that
//! one, and then to nobody, so that the kernel takes nothing for it from other processes.
//!
//! A socket holds some 200 kB. What does not fit is sent when the program comes to receive.

use core::ffi::{c_int, c_void};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic_nic::resources::{Kind, Survey};
use rnic_nic::{DeviceAttr, PortState, device_guid, gid_table, netdev};
use rustix_futex_sync::{Mutex, MutexGuard};

use super::message::Options;
use super::nldev::{self, Datagrams, World};

/// What programs get in its place.
const NETLINK_USERSOCK: c_int = 2;

/// So many are known before those that are closed are looked for.
const MANY: usize = 64;
/// A fork may have left the lock taken for ever: then there are no such sockets.
const ORPHANED_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

struct Socket {
    /// By which it is known, whatever descriptor leads to it.
    inode: u64,
    /// Answers under way.
    waiting: VecDeque<Datagrams>,
    /// The next one, which found no room.
    next: Option<Vec<u8>>,
}

/// The sockets of the process with this id.
struct Sockets {
    pid: u32,
    all: Vec<Socket>,
}

static SOCKETS: Mutex<Sockets> = Mutex::new(Sockets {
    pid: 0,
    all: Vec::new(),
});
/// There is one, or was.
static ANY: AtomicBool = AtomicBool::new(false);

fn lock_soon() -> Option<MutexGuard<'static, Sockets>> {
    let mut sockets = rnic_nic::within(ORPHANED_LOCK_TIMEOUT, || SOCKETS.try_lock())?;
    let pid = std::process::id();
    if sockets.pid != pid {
        sockets.pid = pid;
        // In a forked child: the parent goes on with what it was asked.
        for socket in &mut sockets.all {
            socket.waiting.clear();
            socket.next = None;
        }
    }
    Some(sockets)
}

/// `struct sockaddr_nl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    family: u16,
    pad: u16,
    port: u32,
    groups: u32,
}

const ADDRESS_LEN: u32 = size_of::<Address>() as u32;

impl Address {
    fn of(port: u32) -> Address {
        Address {
            family: libc::AF_NETLINK as u16,
            pad: 0,
            port,
            groups: 0,
        }
    }
}

/// A descriptor of our own, closed by the raw call.
struct Own(RawFd);

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// socket(2) for NETLINK_RDMA; -1 and errno.
pub fn open(kind: c_int) -> c_int {
    let fd = make(kind);
    if fd >= 0
        && let Some(inode) = inode(fd)
        && let Some(mut sockets) = lock_soon()
    {
        if sockets.all.len() >= MANY {
            forget_closed(&mut sockets.all);
        }
        sockets.all.push(Socket {
            inode,
            waiting: VecDeque::new(),
            next: None,
        });
        ANY.store(true, Ordering::Release);
    }
    fd
}

fn make(kind: c_int) -> RawFd {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, kind, NETLINK_USERSOCK) as RawFd }
}

/// The inode of a socket.
fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: integers, which the kernel fills in: its `struct stat` is libc's on 64-bit systems.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let failed = unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut stat) } != 0;
    (!failed && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat.st_ino)
}

/// A program may open one socket after the other for ever.
fn forget_closed(all: &mut Vec<Socket>) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let links = entries
        .flatten()
        .filter_map(|e| std::fs::read_link(e.path()).ok());
    let open: Vec<u64> = links
        .filter_map(|link| {
            let name = link.to_str()?.strip_prefix("socket:[")?;
            name.strip_suffix(']')?.parse().ok()
        })
        .collect();
    all.retain(|socket| open.contains(&socket.inode));
}

/// The descriptor leads to one of these sockets; errno is as it was. Where there are none, this is
/// all that it costs.
#[inline]
pub fn is_one(fd: RawFd) -> bool {
    ANY.load(Ordering::Acquire) && known(fd).is_some()
}

#[cold]
fn known(fd: RawFd) -> Option<u64> {
    let mut found = None;
    crate::export::seam::keeping_errno(|| {
        found = inode(fd).filter(|inode| {
            lock_soon().is_some_and(|sockets| sockets.all.iter().any(|s| s.inode == *inode))
        });
    });
    found
}

/// Answers what the program sent to the kernel by one of the sockets.
pub fn ask(fd: RawFd, datagram: &[u8]) {
    let Some(inode) = known(fd) else { return };
    let Some(port) = port_of(fd) else { return };
    let answers = answers(fd, datagram, port);
    if let Some(mut sockets) = lock_soon()
        && let Some(socket) = sockets.all.iter_mut().find(|s| s.inode == inode)
    {
        socket.waiting.push_back(answers);
        socket.send(fd, port);
    }
}

/// The program comes to receive by one of the sockets: there is room for more.
pub fn receive(fd: RawFd) {
    let Some(inode) = known(fd) else { return };
    if let Some(mut sockets) = lock_soon()
        && let Some(socket) = sockets.all.iter_mut().find(|s| s.inode == inode)
        && (socket.next.is_some() || !socket.waiting.is_empty())
        && let Some(port) = port_of(fd)
    {
        socket.send(fd, port);
    }
}

/// What came by one of the sockets came from the kernel.
///
/// # Safety
/// `address` is NULL, or has `len` bytes that may be written.
pub unsafe fn from_kernel(address: *mut c_void, len: u32) {
    let at = std::mem::offset_of!(Address, port);
    if !address.is_null() && len >= ADDRESS_LEN {
        // SAFETY: within the bytes that there are; they need no alignment.
        unsafe { address.byte_add(at).cast::<u32>().write_unaligned(0) };
    }
}

/// The port that an address of netlink names: 0 is the kernel's. `None`: it is another address.
///
/// # Safety
/// `address` has `len` bytes.
pub unsafe fn port_named(address: *const c_void, len: u32) -> Option<u32> {
    if len < ADDRESS_LEN {
        return None;
    }
    // SAFETY: so many bytes are there; they need no alignment.
    let address = unsafe { address.cast::<Address>().read_unaligned() };
    (c_int::from(address.family) == libc::AF_NETLINK).then_some(address.port)
}

impl Socket {
    /// Sends as many answers as the socket holds.
    fn send(&mut self, fd: RawFd, port: u32) {
        let (Some(sender), from) = (Own::new(), strange()) else {
            return;
        };
        if bind(sender.0, from).is_err()
            || connect(sender.0, strange()).is_err()
            || connect(fd, from).is_err()
        {
            return;
        }
        let to = Address::of(port);
        loop {
            let next = self.next.take().or_else(|| self.make());
            let Some(datagram) = next else { break };
            // SAFETY: bytes and an address that live through the call, which only reads them.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_sendto,
                    sender.0,
                    datagram.as_ptr(),
                    datagram.len(),
                    libc::MSG_DONTWAIT,
                    &raw const to,
                    ADDRESS_LEN,
                )
            };
            if sent < 0 {
                if std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
                    self.next = Some(datagram);
                }
                break;
            }
        }
        let _ = connect(fd, strange());
    }

    /// The next answer.
    fn make(&mut self) -> Option<Vec<u8>> {
        while let Some(first) = self.waiting.front_mut() {
            if let Some(datagram) = first.next() {
                return Some(datagram);
            }
            self.waiting.pop_front();
        }
        None
    }
}

impl Own {
    fn new() -> Option<Own> {
        let fd = make(libc::SOCK_RAW | libc::SOCK_CLOEXEC);
        (fd >= 0).then_some(Own(fd))
    }
}

/// A port that nobody has, nor can guess.
fn strange() -> u32 {
    let mut port = 0u32;
    // SAFETY: the kernel writes at most four bytes.
    unsafe { libc::syscall(libc::SYS_getrandom, &raw mut port, size_of::<u32>(), 0) };
    // Of those that the kernel does not give to processes by their number.
    port | 1 << 31
}

fn check(result: libc::c_long) -> std::io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn bind(fd: RawFd, port: u32) -> std::io::Result<()> {
    let address = Address::of(port);
    // SAFETY: an address that lives through the call.
    check(unsafe { libc::syscall(libc::SYS_bind, fd, &raw const address, ADDRESS_LEN) })
}

fn connect(fd: RawFd, port: u32) -> std::io::Result<()> {
    let address = Address::of(port);
    // SAFETY: an address that lives through the call.
    check(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const address, ADDRESS_LEN) })
}

/// The own port of a socket; one that has none gets one, as it does from the kernel when it sends.
fn port_of(fd: RawFd) -> Option<u32> {
    let named = || {
        let mut address = Address::of(0);
        let mut len = ADDRESS_LEN;
        // SAFETY: room for an address, and its length.
        let named =
            unsafe { libc::syscall(libc::SYS_getsockname, fd, &raw mut address, &raw mut len) };
        (named == 0 && address.port != 0).then_some(address.port)
    };
    named().or_else(|| bind(fd, 0).ok().and_then(|()| named()))
}

fn option(fd: RawFd, name: c_int) -> bool {
    let (mut value, mut len): (c_int, u32) = (0, size_of::<c_int>() as u32);
    // SAFETY: room for a number, and its length.
    let got = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_NETLINK,
            name,
            &raw mut value,
            &raw mut len,
        )
    };
    got == 0 && value != 0
}

fn is_admin() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_NET_ADMIN: u32 = 12;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable, for 32 capabilities each.
    let mut data = [0u32; 6];
    // SAFETY: the kernel reads the header and writes two sets of three words.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    got == 0 && data[0] >> CAP_NET_ADMIN & 1 == 1
}

fn answers(fd: RawFd, datagram: &[u8], port: u32) -> Datagrams {
    let table = gid_table();
    let attr = DeviceAttr::new();
    let survey = RefCell::new(Survey::default());
    let list = |kind: Kind| survey.borrow_mut().list(kind);
    let counters = || survey.borrow_mut().counters();
    let world = World {
        guid: device_guid(),
        cap_flags: attr.device_cap_flags.into(),
        fw_version: attr.fw_ver,
        state: PortState::of(&table),
        netdev: netdev(&table).map(|row| (row.ifindex, row.ifname.clone())),
        is_admin: is_admin(),
        options: Options {
            cap_ack: option(fd, libc::NETLINK_CAP_ACK),
            ext_ack: option(fd, libc::NETLINK_EXT_ACK),
        },
        list: &list,
        counters: &counters,
    };
    let answers = nldev::answer(datagram, port, &world);
    tell_silent(&survey.borrow().silent());
    answers
}

/// What is shown is not all. Said of a process once.
fn tell_silent(pids: &[u32]) {
    static TOLD: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let Some(mut told) = rnic_nic::within(ORPHANED_LOCK_TIMEOUT, || TOLD.try_lock()) else {
        return;
    };
    let news: Vec<u32> = pids
        .iter()
        .copied()
        .filter(|pid| !told.contains(pid))
        .collect();
    told.clear();
    told.extend_from_slice(pids);
    drop(told);
    if news.is_empty() || rnic_settings::QUIET.is_on() {
        return;
    }
    let (es, whose) = match news.len() {
        1 => ("", "its"),
        _ => ("es", "their"),
    };
    let pids: Vec<String> = news.iter().map(u32::to_string).collect();
    rnic_host::log(format_args!(
        "process{es} {} did not answer (stopped?): {whose} objects are not shown",
        pids.join(", ")
    ));
}

#[cfg(test)]
mod tests;
