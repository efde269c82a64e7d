//! Which descriptors the threads of this process sleep on, as the kernel tells by procfs: whoever
//! waits for a descriptor of ours in poll(2) or epoll_wait(2) does not tell us.

use std::io;
use std::os::fd::RawFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::read;

use crate::process::read_bytes;

/// Descriptors that one call is looked through for.
const MOST: usize = 1024;
/// How deep sets of sets are looked into (epoll_ctl(2), ELOOP).
const DEEPEST: u32 = 5;
/// Bytes of a file of procfs that are read.
const LONGEST: usize = 64 * 1024;

/// The threads of this process, as the kernel numbers them.
pub fn threads() -> Vec<u32> {
    let list = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, c"/proc/self/task", flags, Mode::empty())?;
        let mut room = Vec::with_capacity(8192);
        let mut entries = RawDir::new(dir, room.spare_capacity_mut());
        let mut threads = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            threads.extend(name.parse::<u32>());
        }
        Ok::<_, rustix::io::Errno>(threads)
    };
    list().unwrap_or_default()
}

/// What a thread sleeps on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// Until one of these is ready, in order.
    pub fds: Vec<RawFd>,
    /// In read(2), and not in one of the calls for several descriptors.
    pub reads: bool,
}

/// The descriptors that a thread of this process sleeps on until they are readable, or something
/// else. `None`: it does not sleep so, or nobody may know.
pub fn asleep_on(thread: u32) -> Option<Asleep> {
    let text = read_proc(&format!("/proc/self/task/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let call = words.next()?.parse::<libc::c_long>().ok()?;
    let mut arguments = [0u64; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    let [first, second, ..] = arguments;
    let mut fds = Vec::new();
    match call {
        libc::SYS_read => fds.push(first as RawFd),
        call if is_epoll(call) => in_set(first as RawFd, 0, &mut fds),
        call if is_poll(call) => in_array(first, second as usize, &mut fds)?,
        call if is_select(call) => in_bits(first as usize, second, &mut fds)?,
        _ => return None,
    }
    fds.sort_unstable();
    fds.dedup();
    Some(Asleep {
        fds,
        reads: call == libc::SYS_read,
    })
}

fn is_epoll(call: libc::c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if call == libc::SYS_epoll_wait {
        return true;
    }
    matches!(call, libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2)
}

fn is_poll(call: libc::c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if call == libc::SYS_poll {
        return true;
    }
    call == libc::SYS_ppoll
}

fn is_select(call: libc::c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if call == libc::SYS_select {
        return true;
    }
    call == libc::SYS_pselect6
}

/// Those of poll(2). The memory may be something else by now: what is read is only numbers.
fn in_array(at: u64, count: usize, fds: &mut Vec<RawFd>) -> Option<()> {
    const SIZE: usize = size_of::<libc::pollfd>();
    let mut bytes = vec![0; count.min(MOST) * SIZE];
    copy(at, &mut bytes)?;
    for entry in bytes.chunks_exact(SIZE) {
        let fd = RawFd::from_ne_bytes(entry[..4].try_into().ok()?);
        if fd >= 0 {
            fds.push(fd);
        }
    }
    Some(())
}

/// Those that select(2) waits for to be readable.
fn in_bits(end: usize, at: u64, fds: &mut Vec<RawFd>) -> Option<()> {
    if at == 0 {
        return Some(());
    }
    let end = end.min(MOST);
    let mut bytes = vec![0; end.div_ceil(64) * 8];
    copy(at, &mut bytes)?;
    let is_in = |fd: &usize| bytes[fd / 8] >> (fd % 8) & 1 == 1;
    fds.extend((0..end).filter(is_in).map(|fd| fd as RawFd));
    Some(())
}

fn copy(at: u64, bytes: &mut [u8]) -> Option<()> {
    let copied = bytes.is_empty() || read_bytes(std::process::id(), at, bytes).ok()? == bytes.len();
    copied.then_some(())
}

/// Those of an epoll set, and of sets in it.
fn in_set(set: RawFd, deep: u32, fds: &mut Vec<RawFd>) {
    let Ok(text) = read_proc(&format!("/proc/self/fdinfo/{set}")) else {
        return;
    };
    for line in text.lines() {
        let member = line.strip_prefix("tfd:").map(str::trim_start);
        let member = member.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        if let Some(member) = member.filter(|_| fds.len() < MOST) {
            fds.push(member);
            if deep < DEEPEST && is_set(member) {
                fds.pop();
                in_set(member, deep + 1, fds);
            }
        }
    }
}

fn is_set(fd: RawFd) -> bool {
    let link = rustix::fs::readlinkat(CWD, format!("/proc/self/fd/{fd}"), Vec::new());
    link.is_ok_and(|name| name.to_bytes() == b"anon_inode:[eventpoll]")
}

/// A number that all duplicates of an eventfd have in common, and no other eventfd; `None`: it is
/// none, or the kernel has no such numbers (before 5.2).
pub fn eventfd_id(fd: RawFd) -> Option<u64> {
    let text = read_proc(&format!("/proc/self/fdinfo/{fd}")).ok()?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("eventfd-id:"))?;
    id.trim().parse().ok()
}

fn read_proc(path: &str) -> io::Result<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while text.len() < LONGEST {
        match read(&file, &mut piece)? {
            0 => break,
            n => text.extend_from_slice(&piece[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::{EventFd, thread_id};

    /// What the thread sleeps on once it does.
    fn sleeper(sleep: impl FnOnce() + Send + 'static, expected: &[RawFd]) {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).expect("a listener");
            sleep();
        });
        let id = told.recv().expect("a number");
        assert!(threads().contains(&id));
        while asleep_on(id).is_none_or(|asleep| asleep.fds != expected) {
            std::thread::yield_now();
        }
        // It is woken by whoever made the descriptors, and ends.
        drop(thread);
    }

    fn enter(set: RawFd, member: RawFd) {
        // SAFETY: zeros are an event, which the call only reads.
        unsafe {
            let mut event: libc::epoll_event = std::mem::zeroed();
            event.events = libc::EPOLLIN as u32;
            assert_eq!(
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, member, &raw mut event),
                0
            );
        }
    }

    #[test]
    fn the_descriptors_that_threads_sleep_on_are_known() {
        let event = EventFd::new().expect("an eventfd");
        let fd = event.fd();
        let copy = crate::Fd::duplicate_of(fd).expect("a duplicate");
        let other = EventFd::new().expect("an eventfd");
        assert!(eventfd_id(fd).is_some());
        assert_eq!(eventfd_id(fd), eventfd_id(copy.raw()));
        assert_ne!(eventfd_id(fd), eventfd_id(other.fd()));
        assert_eq!(eventfd_id(io::stdin().as_raw_fd()), None);

        let poll = move || {
            let _ = crate::poll(&[fd], None);
        };
        sleeper(poll, &[fd]);
        let block = move || {
            let mut token = [0; 8];
            // SAFETY: eight bytes of a local variable.
            unsafe { libc::read(fd, token.as_mut_ptr().cast(), 8) };
        };
        sleeper(block, &[fd]);
        let select = move || {
            // SAFETY: zeros are an empty set, and a local variable.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(fd, &raw mut set);
                let no_set = std::ptr::null_mut();
                libc::select(fd + 1, &raw mut set, no_set, no_set, std::ptr::null_mut());
            }
        };
        sleeper(select, &[fd]);
        // A set in a set.
        let [inner, outer] = [copy.raw(), -1].map(|member| {
            // SAFETY: no pointers.
            let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            if member >= 0 {
                enter(set, member);
            }
            set
        });
        enter(outer, inner);
        let epoll = move || {
            // SAFETY: zeros are an event, and a place for one.
            unsafe {
                let mut event: libc::epoll_event = std::mem::zeroed();
                libc::epoll_wait(outer, &raw mut event, 1, -1);
            }
        };
        sleeper(epoll, &[copy.raw()]);
        event.add(8);
        let own = asleep_on(thread_id());
        assert!(own.is_none_or(|asleep| !asleep.fds.contains(&fd)));
    }
}
