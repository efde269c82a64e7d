//! Memory from the kernel: pages of the process's own, huge ones, and pages that others map, too.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use crate::error::{Error, Result};
use crate::raw::given::{SharedMemory, StableMemory};

fn failed(verb: &'static str, reason: impl Into<String>) -> Error {
    let source = io::Error::last_os_error();
    let reason = format!("{}: {source}", reason.into());
    Error::Verb {
        verb,
        reason,
        source,
    }
}

/// A mapping, which ends with it.
struct Pages {
    first: NonNull<u8>,
    len: NonZeroUsize,
}

// SAFETY: it owns its pages; who may touch them is decided by the types that hold it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, readable and writable: of a descriptor from `offset`, or of nothing.
    fn map(len: usize, flags: i32, of: Option<(BorrowedFd<'_>, i64)>) -> Option<Pages> {
        let len = NonZeroUsize::new(len)?;
        let (fd, offset) = of.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), offset));
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: at an address that the kernel chooses, so nothing that is mapped changes.
        let at = unsafe { libc::mmap(null_mut(), len.get(), rights, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let first = NonNull::new(at.cast())?;
        Some(Pages { first, len })
    }

    fn place(&self) -> (NonNull<u8>, usize) {
        (self.first, self.len.get())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and unmapped once. Nothing of it is borrowed,
        // and a device has let go: a registration keeps what it is of.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.len.get()) };
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{}", self.first, self.len)
    }
}

/// Size of huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugePageSize {
    /// What the kernel takes by default (`Hugepagesize` in /proc/meminfo).
    #[default]
    Default,
    /// 2 MiB.
    TwoMiB,
    /// 1 GiB.
    OneGiB,
}

impl HugePageSize {
    fn bytes(self) -> usize {
        match self {
            HugePageSize::Default => default_size(),
            HugePageSize::TwoMiB => 2 << 20,
            HugePageSize::OneGiB => 1 << 30,
        }
    }
}

/// What `Hugepagesize` of /proc/meminfo says; 2 MiB if there is none.
fn default_size() -> usize {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("Hugepagesize:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kib.map_or(2 << 20, |kib: usize| kib << 10)
}

/// Zeroed pages that are the process's alone (mmap(2) with `MAP_PRIVATE | MAP_ANONYMOUS`). They are
/// bytes until they are registered ([`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt)).
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// # let pd = rnic::Context::open()?.alloc_pd()?;
/// let mut pages = rnic::Mapping::anonymous(1 << 16)?;
/// pages[..5].copy_from_slice(b"hello");
/// let buffer = pd.adopt(pages)?;
/// assert_eq!(buffer[..5], *b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mapping(Pages);

impl Mapping {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// 0 bytes; there is no room.
    pub fn anonymous(len: usize) -> Result<Mapping> {
        check(len)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = Pages::map(len, flags, None);
        let pages = pages.ok_or_else(|| failed("mmap", format!("{len} bytes")))?;
        Ok(Mapping(pages))
    }

    /// Maps at least `len` bytes of huge pages (`MAP_HUGETLB`), which are there at once: a card needs
    /// fewer entries for them in its table. Whole pages: [`Mapping::len`](slice::len) says how many
    /// bytes it is.
    ///
    /// # Errors
    /// 0 bytes; the kernel has no such pages, or too few of them are reserved: the error says how
    /// to reserve them.
    pub fn huge_pages(len: usize, size: HugePageSize) -> Result<Mapping> {
        check(len)?;
        let page = size.bytes();
        let whole = len.checked_next_multiple_of(page).ok_or_else(|| {
            Error::InvalidArgument(format!("{len} bytes are more than there are addresses"))
        })?;
        // The code is the logarithm of the size.
        let code = (page.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        match Pages::map(whole, flags | libc::MAP_HUGETLB | code, None) {
            Some(pages) => Ok(Mapping(pages)),
            None => {
                let source = io::Error::last_os_error();
                let reason = no_huge_pages(whole / page, page >> 10, &source);
                Err(Error::Verb {
                    verb: "mmap",
                    reason,
                    source,
                })
            }
        }
    }
}

/// Why there are none, and what to do.
fn no_huge_pages(wanted: usize, kib: usize, why: &io::Error) -> String {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB");
    let free = fs::read_to_string(format!("{folder}/free_hugepages"));
    match free.ok().and_then(|text| text.trim().parse::<usize>().ok()) {
        None => format!(
            "this kernel has no huge pages of {kib} kB ({why}); the folders of /sys/kernel/mm/hugepages name the sizes that there are"
        ),
        Some(free) => format!(
            "{wanted} huge pages of {kib} kB are wanted and {free} are free ({why}): reserve them as root, `echo {wanted} > {folder}/nr_hugepages`, or take Mapping::anonymous"
        ),
    }
}

fn check(len: usize) -> Result<()> {
    match len {
        0 => Err(Error::InvalidArgument(
            "a mapping has 1 byte at least".to_owned(),
        )),
        _ => Ok(()),
    }
}

impl Deref for Mapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let (first, len) = self.0.place();
        // SAFETY: mapped, zeroed by the kernel, and nobody else's.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (first, len) = self.0.place();
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
    }
}

// SAFETY: a private mapping, which does not move, and which it owns alone.
unsafe impl StableMemory for Mapping {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        self.0.place()
    }
}

/// Pages that other processes may map, too (mmap(2) with `MAP_SHARED`). Their bytes may change at
/// any time, so there are no slices of them: they become a region
/// ([`ProtectionDomain::adopt_writable`](crate::ProtectionDomain::adopt_writable)).
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// # let pd = rnic::Context::open()?.alloc_pd()?;
/// let memory = rnic::SharedMapping::memfd("inbox", 4096)?;
/// // Another process gets this, over a UNIX socket for example.
/// let for_others = memory.file().try_clone_to_owned().expect("a descriptor");
/// let region = pd.adopt_writable(memory).readable().build()?;
/// region.copy_in(0, b"for all")?;
/// let same = pd.adopt_writable(rnic::SharedMapping::of_memfd(for_others, 0, 4096)?).build()?;
/// let mut bytes = [0; 7];
/// same.copy_out(0, &mut bytes)?;
/// assert_eq!(&bytes, b"for all");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SharedMapping {
    pages: Pages,
    file: OwnedFd,
}

impl SharedMapping {
    /// Makes a file without a name of `len` zeroed bytes (memfd_create(2)), and maps it. It cannot be
    /// made smaller (`F_SEAL_SHRINK`). `name` is what /proc shows.
    ///
    /// # Errors
    /// 0 bytes, a name with a zero in it; the kernel's refusal.
    pub fn memfd(name: &str, len: usize) -> Result<SharedMapping> {
        const VERB: &str = "memfd_create";
        check(len)?;
        let name = CString::new(name)
            .map_err(|_| Error::InvalidArgument("a name with a zero in it".to_owned()))?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a text that ends with a zero.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd < 0 {
            return Err(failed(VERB, "no descriptor"));
        }
        // SAFETY: just made, and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = i64::try_from(len)
            .map_err(|_| Error::InvalidArgument(format!("{len} bytes are too many")))?;
        // SAFETY: a descriptor of ours and a number.
        if unsafe { libc::ftruncate(fd, size) } != 0 {
            return Err(failed("ftruncate", format!("{len} bytes")));
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } != 0 {
            return Err(failed("fcntl", "it cannot be sealed"));
        }
        SharedMapping::map(file, 0, len)
    }

    /// Maps a file of [`SharedMapping::memfd`], from another process for example.
    ///
    /// # Errors
    /// It is no such file, or one that can be made smaller, which would take pages away from the
    /// region: only those with `F_SEAL_SHRINK` are taken. The range leaves it, or `offset` is not at
    /// the start of a page.
    pub fn of_memfd(file: OwnedFd, offset: u64, len: usize) -> Result<SharedMapping> {
        check(len)?;
        // SAFETY: a descriptor of ours.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(Error::InvalidArgument(
                "the file can be made smaller: only a memfd with F_SEAL_SHRINK stays as long as a region of it".to_owned(),
            ));
        }
        check_range(&file, offset, len)?;
        SharedMapping::map(file, offset, len)
    }

    /// Maps a part of any file, of a file system for example. What is written goes to the file.
    ///
    /// # Errors
    /// It cannot be mapped so, or the range leaves it.
    ///
    /// # Safety
    /// As long as the memory is mapped, nobody makes the file smaller: pages behind its end are an
    /// error of the bus (SIGBUS), for the program and for a device.
    pub unsafe fn of_file(file: OwnedFd, offset: u64, len: usize) -> Result<SharedMapping> {
        check(len)?;
        check_range(&file, offset, len)?;
        SharedMapping::map(file, offset, len)
    }

    fn map(file: OwnedFd, offset: u64, len: usize) -> Result<SharedMapping> {
        let at = i64::try_from(offset)
            .map_err(|_| Error::InvalidArgument(format!("an offset of {offset}")))?;
        let pages = Pages::map(len, libc::MAP_SHARED, Some((file.as_fd(), at)));
        let pages = pages.ok_or_else(|| failed("mmap", format!("{len} bytes from {offset}")))?;
        Ok(SharedMapping { pages, file })
    }

    /// The file, for others to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// All of it is in the file.
fn check_range(file: &OwnedFd, offset: u64, len: usize) -> Result<()> {
    // SAFETY: numbers, which may all be zero.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a descriptor of ours, and the structure that the call fills.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(failed("fstat", "no such file"));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let end = offset.checked_add(len as u64);
    match end.is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(Error::OutOfRange {
            what: "mapping of a file",
            offset,
            len: len as u64,
            size,
        }),
    }
}

// SAFETY: a mapping of a file that stays as long: it is sealed, or `of_file`'s caller answers for it.
// It does not move, and no reference to it is made.
unsafe impl SharedMemory for SharedMapping {
    fn place(&mut self) -> (NonNull<u8>, usize) {
        self.pages.place()
    }
}
