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

use libc::sockaddr_nl;
use rnic_nic::resources::{Kind, Survey};
use rnic_nic::{device_guid, gid_table, netdev};
use rnic_sys::{NumberOfSocket, may_administer_network, netlink_peer, unknown_port};
use rustix_futex_sync::{Mutex, MutexGuard};

use super::message::Options;
use super::nldev::{self, Datagrams, World};
use crate::export::seam::kernel_answer;

const ADDRESS_LEN: u32 = size_of::<sockaddr_nl>() as u32;
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

/// socket(2) for NETLINK_RDMA; -1 and errno.
pub fn open(kind: c_int) -> c_int {
    let made = netlink_peer(kind);
    let inode = made
        .as_ref()
        .ok()
        .and_then(|fd| NumberOfSocket::from(fd).inode());
    if let Some(inode) = inode
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
    kernel_answer(made.map(|fd| fd.give() as usize)) as c_int
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
        found = NumberOfSocket::new(fd)
            .and_then(NumberOfSocket::inode)
            .filter(|inode| {
                lock_soon().is_some_and(|sockets| sockets.all.iter().any(|s| s.inode == *inode))
            });
    });
    found
}

/// Answers what the program sent to the kernel by one of the sockets.
pub fn ask(fd: RawFd, datagram: &[u8]) {
    let (Some(inode), Some(fd)) = (known(fd), NumberOfSocket::new(fd)) else {
        return;
    };
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
    let (Some(inode), Some(fd)) = (known(fd), NumberOfSocket::new(fd)) else {
        return;
    };
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
    let at = std::mem::offset_of!(sockaddr_nl, nl_pid);
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
    let address = unsafe { address.cast::<sockaddr_nl>().read_unaligned() };
    (c_int::from(address.nl_family) == libc::AF_NETLINK).then_some(address.nl_pid)
}

impl Socket {
    /// Sends as many answers as the socket holds.
    fn send(&mut self, fd: NumberOfSocket<'_>, port: u32) {
        let Ok(sender) = netlink_peer(libc::SOCK_RAW | libc::SOCK_CLOEXEC) else {
            return;
        };
        let (sender, from) = (NumberOfSocket::from(&sender), unknown_port());
        if sender.bind(from).is_err()
            || sender.connect(unknown_port()).is_err()
            || fd.connect(from).is_err()
        {
            return;
        }
        while let Some(datagram) = self.next.take().or_else(|| self.make()) {
            if let Err(error) = sender.send_to(&datagram, port) {
                if error.kind() == std::io::ErrorKind::WouldBlock {
                    self.next = Some(datagram);
                }
                break;
            }
        }
        let _ = fd.connect(unknown_port());
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

/// The own port of a socket; one that has none gets one, as it does from the kernel when it sends.
fn port_of(fd: NumberOfSocket<'_>) -> Option<u32> {
    fd.port()
        .or_else(|| fd.bind(0).ok().and_then(|()| fd.port()))
}

fn answers(fd: NumberOfSocket<'_>, datagram: &[u8], port: u32) -> Datagrams {
    let table = gid_table();
    let attr = rnic_nic::device_attr();
    let survey = RefCell::new(Survey::default());
    let list = |kind: Kind| survey.borrow_mut().list(kind);
    let counters = || survey.borrow_mut().counters();
    let world = World {
        guid: device_guid(),
        cap_flags: attr.device_cap_flags.into(),
        fw_version: attr.fw_ver,
        state: rnic_nic::port_state(&table),
        netdev: netdev(&table).map(|row| (row.ifindex, row.ifname.clone())),
        is_admin: may_administer_network(),
        options: Options {
            cap_ack: fd.has_option(libc::NETLINK_CAP_ACK),
            ext_ack: fd.has_option(libc::NETLINK_EXT_ACK),
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
