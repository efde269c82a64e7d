//! System calls that the standard library lacks, and memory that two processes share. Everything
//! else here is safe code.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n),
    }
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The processors this thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    allowed.map_or(Vec::new(), |set| {
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect()
    })
}

/// Ties the calling thread to one of them.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}

/// Sets an option whose value is an int.
pub fn set_option(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    check(result.into()).map(drop)
}

/// Reads such an option.
pub fn get_option(socket: &impl AsRawFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &mut len,
        )
    };
    check(result.into()).map(|_| value)
}

/// The command leads a process group of its own, and does not outlive this process.
pub fn ward(command: &mut Command) -> &mut Command {
    command.process_group(0);
    // SAFETY: between fork and exec one system call is made, which takes no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            Ok(())
        })
    }
}

/// Kills a process group that [`ward`] made and whose leader is not reaped.
pub fn kill_group(leader: u32) {
    if let Ok(group) = i32::try_from(leader) {
        // SAFETY: takes no memory.
        unsafe { libc::killpg(group, libc::SIGKILL) };
    }
}

/// Processor time of this process and of its children that have ended and were waited for.
pub fn own_time() -> Duration {
    let time = |who| {
        // SAFETY: rusage is a plain structure, for which zeros are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a local value.
        unsafe { libc::getrusage(who, &mut usage) };
        let part = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        part(usage.ru_utime) + part(usage.ru_stime)
    };
    time(libc::RUSAGE_SELF) + time(libc::RUSAGE_CHILDREN)
}

/// Ticks per second of /proc/stat.
pub fn ticks_per_second() -> u64 {
    // SAFETY: takes and gives a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

/// An eventfd(2) that blocks.
pub fn eventfd() -> io::Result<File> {
    // SAFETY: a new descriptor, which nobody else owns.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC).into())?;
        Ok(File::from_raw_fd(fd as i32))
    }
}

/// A descriptor of another process of this user.
pub fn take_descriptor(pid: u32, number: i32) -> io::Result<File> {
    // SAFETY: both calls take numbers and give new descriptors, which nobody else owns.
    unsafe {
        let process = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let process = OwnedFd::from_raw_fd(process as i32);
        let fd = check(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            number,
            0,
        ))?;
        Ok(File::from_raw_fd(fd as i32))
    }
}

/// Processes of this user may reach this one's memory and descriptors, where Yama would ask for it.
pub fn allow_peers() {
    // SAFETY: takes numbers; without Yama it fails, and nothing is needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Copies into the memory of another process: process_vm_writev(2).
pub fn write_memory(pid: u32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: of this process only `bytes` is touched, and read; the other process has asked for
    // it.
    let n = unsafe { libc::process_vm_writev(pid as i32, &local, 1, &remote, 1, 0) };
    check(n as libc::c_long).map(|n| n as usize)
}

/// The same the other way: process_vm_readv(2).
pub fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: of this process only `bytes` is touched, which is borrowed for it.
    let n = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    check(n as libc::c_long).map(|n| n as usize)
}

/// Memory that two processes have mapped.
pub struct Shared {
    file: File,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is reached as atomics, or by copies whose bytes mean nothing to the language.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes some, of zeros; a multiple of the page size.
    pub fn new(len: usize) -> io::Result<Shared> {
        // SAFETY: the name is a C string; the descriptor is new, and nobody else owns it.
        let file = unsafe {
            let fd = check(libc::memfd_create(c"rnic-bench".as_ptr(), libc::MFD_CLOEXEC).into())?;
            File::from_raw_fd(fd as i32)
        };
        file.set_len(len as u64)?;
        Shared::map(file, len)
    }

    /// Another process's, by its number there.
    pub fn of(pid: u32, number: i32, len: usize) -> io::Result<Shared> {
        let file = take_descriptor(pid, number)?;
        // Beyond the end of the file a look would end this process.
        if file.metadata()?.len() < len as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Shared::map(file, len)
    }

    /// Its number in this process.
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn map(file: File, len: usize) -> io::Result<Shared> {
        // SAFETY: a new mapping at an address that the kernel chooses; it ends with `Shared`.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Shared { file, base, len })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned to pages and lives as long as `self`; atomics may be
        // changed by others.
        unsafe { std::slice::from_raw_parts(self.base.cast().as_ptr(), self.len / 8) }
    }

    /// Copies into it. The caller's protocol keeps the peer away from there meanwhile.
    ///
    /// # Panics
    /// When the range is not within.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: the range was just checked, and private memory does not overlap a mapping of a
        // file.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len())
        }
    }

    /// Copies from it, likewise.
    ///
    /// # Panics
    /// When the range is not within.
    pub fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: as in `copy_in`; any byte is a valid u8.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.as_ptr().add(at),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
