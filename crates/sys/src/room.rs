//! How much memory the machine has left for this process, and how much more a range of it needs.
//!
//! Whoever makes pages present without asking fills the machine until the kernel ends some process.
//! So this asks: the system as a whole (`/proc/meminfo`), and the control groups that the process
//! is in (cgroups(7), both versions).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes that can still be made present, about; `None`: it is not known.
pub(crate) fn left() -> Option<u64> {
    let of_system = read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| of_meminfo(&text));
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = of_groups(&groups, Path::new("/sys/fs/cgroup"));
    of_system.into_iter().chain(of_groups).min()
}

/// The number at the start of what follows a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// What is free or can be made free. Large pages are set aside, for mappings that ask for them:
/// which ones do is not known here, so they count.
fn of_meminfo(text: &str) -> Option<u64> {
    let kib = |name| field(text, name);
    let set_aside = kib("Hugetlb:").unwrap_or(0);
    let swap = kib("SwapFree:").unwrap_or(0);
    Some((kib("MemAvailable:")? + swap + set_aside) * 1024)
}

/// What the group of a folder has left, if it is limited.
type Left = fn(&Path) -> Option<u64>;

/// The least that any of the process's groups, and of those above them, has left.
fn of_groups(groups: &str, root: &Path) -> Option<u64> {
    let lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((root.to_path_buf(), path, of_unified as Left)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((root.join("memory"), path, of_legacy as Left))
            }
            _ => None,
        }
    });
    let least = |(root, path, of): (PathBuf, &str, Left)| {
        let folder = root.join(path);
        let above = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&root));
        above.filter_map(of).min()
    };
    lines.filter_map(least).min()
}

/// A number in a file.
fn number(folder: &Path, name: &str) -> Option<u64> {
    field(&read_to_string(folder.join(name)).ok()?, "")
}

/// What a limit leaves, files in memory not counted: they make room.
fn beneath(limit: u64, used: u64, folder: &Path, prefix: &str) -> u64 {
    let stat = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let files = |name| field(&stat, &format!("{prefix}{name} ")).unwrap_or(0);
    let files = files("inactive_file") + files("active_file");
    limit.saturating_sub(used.saturating_sub(files))
}

fn of_unified(folder: &Path) -> Option<u64> {
    // "max" is no number.
    let limit = number(folder, "memory.max")?;
    Some(beneath(
        limit,
        number(folder, "memory.current")?,
        folder,
        "",
    ))
}

fn of_legacy(folder: &Path) -> Option<u64> {
    let limit = number(folder, "memory.limit_in_bytes")?;
    let used = number(folder, "memory.usage_in_bytes")?;
    Some(beneath(limit, used, folder, "total_"))
}

/// Bytes of a range of whole pages that are not in memory, but not much more than `most`; 0: it is
/// not known.
pub(crate) fn missing(start: usize, end: usize, page: usize, most: u64) -> u64 {
    const PIECE: usize = 64 << 20;
    let mut present = Vec::new();
    if present.try_reserve_exact(PIECE / page + 1).is_err() {
        return 0;
    }
    present.resize(PIECE / page + 1, 0u8);
    let mut missing = 0;
    for at in (start..end).step_by(PIECE) {
        let len = PIECE.min(end - at);
        // SAFETY: the kernel checks the range, and writes one byte for each of its pages.
        let known = unsafe { libc::mincore(at as *mut libc::c_void, len, present.as_mut_ptr()) };
        if known != 0 {
            // A hole, which is met by whoever makes the pages present.
            return 0;
        }
        let absent = present[..len.div_ceil(page)]
            .iter()
            .filter(|page| *page & 1 == 0);
        missing += (absent.count() * page) as u64;
        if missing > most {
            break;
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    //! What the kernel's files say, and what is in memory.

    use super::*;

    #[test]
    fn what_the_system_has_left() {
        let text = "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\nSwapFree: 2 kB\nHugetlb: 8 kB\n";
        assert_eq!(of_meminfo(text), Some(50 << 10));
        assert_eq!(of_meminfo("MemTotal: 100 kB\n"), None);
        assert!(left().is_some());
    }

    #[test]
    fn the_narrowest_group_counts() {
        let root = std::env::temp_dir().join(format!("rnic-groups-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let file = root.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write(
            "a/memory.stat",
            "anon 5\ninactive_file 30\nactive_file 20\n",
        );
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "10\n");
        assert_eq!(of_groups("0::/a/b\n", &root), Some(150));
        assert_eq!(of_groups("0::/\n", &root), None);
        write("memory/c/memory.limit_in_bytes", "500\n");
        write("memory/c/memory.usage_in_bytes", "600\n");
        write(
            "memory/c/memory.stat",
            "inactive_file 400\ntotal_inactive_file 40\n",
        );
        assert_eq!(of_groups("7:cpu:/a\n4:memory,hugetlb:/c\n", &root), Some(0));
        assert_eq!(of_groups("4:memory:/c\n0::/a\n", &root), Some(0));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_was_never_touched_is_missing() {
        let len = 8 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping, of which one page is written; its end is cut off at last.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            let (start, end) = (at.addr(), at.addr() + len);
            assert_eq!(missing(start, end, 4096, u64::MAX), len as u64);
            at.cast::<u8>().write(1);
            assert_eq!(missing(start, end, 4096, u64::MAX), len as u64 - 4096);
            libc::munmap(at.byte_add(len / 2), len / 2);
            assert_eq!(missing(start, end, 4096, u64::MAX), 0);
            libc::munmap(at, len / 2);
        }
    }
}
