//! The process's own memory: what may be locked, what is mapped and with which rights, what a fork
//! leaves of it.

use std::io;
use std::os::fd::RawFd;

use rustix::thread::CapabilitySet;

use crate::raw::raw;
use crate::room;

/// Bytes of a page: 4096 on x86-64; on aarch64 the kernel may have 16 or 64 KiB.
pub fn page_size() -> usize {
    // SAFETY: sysconf takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page)
        .ok()
        .filter(|page| page.is_power_of_two())
        .unwrap_or(4096)
}

/// Bytes of the pages that a range touches: what hardware would lock for it.
pub fn pages(start: usize, len: usize) -> u64 {
    let page = page_size();
    let first = start / page;
    let end = start.saturating_add(len).div_ceil(page);
    (end.saturating_sub(first) as u64) * page as u64
}

/// Bytes that the process may lock; `None`: no limit holds for it.
pub fn memlock_limit() -> Option<u64> {
    if crate::capability::has(CapabilitySet::IPC_LOCK) {
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

/// Pages of a descriptor, mapped for the device alone.
#[derive(Debug)]
pub struct Mapping {
    at: usize,
    len: usize,
}

impl Mapping {
    /// Bytes of a dmabuf; EBADF or EINVAL if it is none.
    pub fn size_of_dmabuf(fd: RawFd) -> Result<u64, i32> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"));
        let info = info.map_err(|_| libc::EBADF)?;
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        // Only dmabufs name an exporter.
        field("exp_name:").ok_or(libc::EINVAL)?;
        let size = field("size:").and_then(|size| size.trim().parse().ok());
        size.ok_or(libc::EINVAL)
    }

    /// `None` if the descriptor cannot be mapped so. `offset` is that of a page.
    pub fn new(fd: RawFd, offset: u64, len: usize, write: bool) -> Option<Mapping> {
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

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which whoever held it has stopped using.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.len) };
    }
}

/// msync(2), past the C library, for which it is a cancellation point: whoever polls must not be
/// cancelled here.
fn sync(start: usize, span: usize, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: changes no contents; the kernel checks the range.
    unsafe { raw!(libc::SYS_msync, start, span, flags) }.map(drop)
}

/// Something is mapped at every byte of a range.
pub fn is_mapped(addr: usize, len: usize) -> bool {
    let start = addr & !(page_size() - 1);
    let span = (addr - start).saturating_add(len);
    sync(start, span, libc::MS_ASYNC).is_ok()
}

/// Makes the pages of a range present and checks that they may be read (and written). Gives the
/// errno that `ibv_reg_mr` reports: EFAULT for unmapped or forbidden memory, ENOMEM if the machine
/// has not so much left.
pub fn populate(addr: usize, len: usize, write: bool) -> Result<(), i32> {
    if len == 0 {
        return Ok(());
    }
    let page = page_size();
    let start = addr & !(page - 1);
    let end = addr.checked_add(len).ok_or(libc::EFAULT)?;
    let end = end.checked_next_multiple_of(page).ok_or(libc::EFAULT)?;
    // Short ranges cost more to ask for than they can do harm.
    if end - start >= LONG {
        // Of device pages nothing is said here, and they need no memory.
        match make_present(start, page, write) {
            Err(libc::EINVAL) => return permitted(start, end, write),
            outcome => outcome?,
        }
        let left = room::left().unwrap_or(u64::MAX);
        if room::missing(start, end, page, left) > left {
            return Err(libc::ENOMEM);
        }
    }
    match make_present(start, end - start, write) {
        // A kernel before 5.14, a mapping of device pages, or one without that right.
        Err(libc::EINVAL) => permitted(start, end, write),
        outcome => outcome,
    }
}

/// So many bytes of pages are asked for only if there is memory for them.
const LONG: usize = 16 << 20;

/// The errno is EINVAL where the kernel does not do this for such a mapping.
fn make_present(start: usize, span: usize, write: bool) -> Result<(), i32> {
    const MADV_POPULATE_READ: i32 = 22;
    const MADV_POPULATE_WRITE: i32 = 23;
    let advice = if write {
        MADV_POPULATE_WRITE
    } else {
        MADV_POPULATE_READ
    };
    loop {
        // SAFETY: populating changes no contents; the kernel checks the range.
        let done = unsafe { raw!(libc::SYS_madvise, start, span, advice) };
        match done.map_err(|e| e.raw_os_error()) {
            Ok(_) => return Ok(()),
            Err(Some(libc::EINTR | libc::EAGAIN)) => {}
            Err(Some(libc::EINVAL)) => return Err(libc::EINVAL),
            // ENOMEM: a hole; EFAULT: cannot be faulted in; EHWPOISON. Hardware's pinning says
            // EFAULT to all of them.
            Err(_) => return Err(libc::EFAULT),
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

/// Why a range cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Part of it is not mapped.
    Mapping,
    /// Part of it is mapped without the right to read it.
    Reading,
    /// Part of it is mapped without the right to write to it.
    Writing,
    /// It is mapped with the rights, and still the kernel has no page: behind the end of a file.
    Pages,
}

/// What a range lacks that could not be accessed, as /proc/self/maps says now; `None`: that is not
/// known.
pub fn lack(addr: usize, len: usize, write: bool) -> Option<Lack> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    Some(lack_by(&maps, addr, addr.checked_add(len)?, write))
}

fn lack_by(maps: &str, start: usize, end: usize, write: bool) -> Lack {
    if !covered(maps, start, end, |_| true) {
        Lack::Mapping
    } else if !covered(maps, start, end, |line| allows(line, false)) {
        Lack::Reading
    } else if write && !covered(maps, start, end, |line| allows(line, true)) {
        Lack::Writing
    } else {
        Lack::Pages
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

/// Every page of a range is a shared mapping of a file that has a name, as /proc/self/maps says:
/// what is written there outlasts the process.
pub fn is_shared_file(start: usize, len: usize) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return false;
    };
    covered(&maps, start, start.saturating_add(len), outlasts)
}

/// Writes a range of shared mappings to their files and waits until the disk has it; the errno if
/// part of it is not mapped, or cannot be written.
pub fn write_back(addr: usize, len: usize) -> Result<(), i32> {
    let page = page_size();
    let start = addr & !(page - 1);
    let span = addr.saturating_add(len) - start;
    sync(start, span, libc::MS_SYNC).map_err(|e| e.raw_os_error().unwrap_or(0))
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
pub struct ForkWitness(*mut u32);

// SAFETY: the page is only read after construction, and lives as long as the process.
unsafe impl Send for ForkWitness {}
// SAFETY: as for `Send`: it is only read.
unsafe impl Sync for ForkWitness {}

impl ForkWitness {
    /// Maps the page. Where there is no memory for it, no child is ever noticed.
    #[allow(clippy::new_without_default, reason = "it is mapped for good")]
    pub fn new() -> ForkWitness {
        let len = page_size();
        // SAFETY: a fresh anonymous mapping; failure is checked before use.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return ForkWitness(std::ptr::null_mut());
            }
            libc::madvise(page, len, libc::MADV_WIPEONFORK);
            let word = page.cast::<u32>();
            word.write_volatile(1);
            ForkWitness(word)
        }
    }

    /// Still the process that made it.
    pub fn same_process(&self) -> bool {
        // SAFETY: a non-null pointer is the page mapped in `new`, never unmapped.
        self.0.is_null() || unsafe { self.0.read_volatile() } == 1
    }
}

#[cfg(test)]
mod tests {
    use super::{Lack, allows, covered, is_mapped, lack_by, outlasts, page_size, populate};

    /// Promise: a region may begin and end within a page, however large the pages of the machine
    /// are.
    #[test]
    fn ranges_within_pages_are_found() {
        let (page, bytes) = (page_size(), vec![1u8; 1 << 20]);
        assert!(page.is_power_of_two() && page >= 4096, "{page}");
        let begin = bytes.as_ptr().addr().next_multiple_of(page);
        for (start, len) in [(begin + 1, 1), (begin + 4096, 10), (begin + page - 1, 2)] {
            assert!(is_mapped(start, len), "{start:#x} {len}");
            assert_eq!(populate(start, len, true), Ok(()), "{start:#x} {len}");
        }
        assert!(!is_mapped(page, 1), "the first pages are never mapped");
        assert_eq!(populate(page, 1, false), Err(libc::EFAULT));
    }

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

    /// Promise: of memory that cannot be accessed it is told whether it is mapped, and what right is
    /// missing.
    #[test]
    fn what_a_range_lacks() {
        let maps = "1000-3000 rw-p 0 0:0 0\n3000-4000 r--p 0 0:0 0\n4000-5000 ---p 0 0:0 0\n6000-7000 rw-p 0 0:0 0\n";
        for (start, end, write, lack) in [
            (0x1000, 0x3000, true, Lack::Pages),
            (0x1000, 0x4000, false, Lack::Pages),
            (0x1000, 0x4000, true, Lack::Writing),
            (0x2fff, 0x4001, false, Lack::Reading),
            (0x4800, 0x5001, false, Lack::Mapping),
            (0x5000, 0x6000, true, Lack::Mapping),
            (0x6000, 0x7001, true, Lack::Mapping),
        ] {
            assert_eq!(lack_by(maps, start, end, write), lack, "{start:x}");
        }
    }
}
