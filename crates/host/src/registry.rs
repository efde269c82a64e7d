//! Which process has which QPNs: a file in a folder that only the user can enter.
//!
//! The 24-bit QPN space is cut into [`RANGES`] ranges of [`RANGE_LEN`]. A range belongs to a
//! process exactly as long as that process holds the lock on the range's byte (an
//! open-file-description lock: the kernel drops it when the process ends, however it ends). The
//! file's contents only say what the owner wants known: its pid, its first range, its slot in the
//! SO_REUSEPORT group. They are changed under a lock on a second file.
//!
//! The file is read and written by `pread` and `pwrite`, not mapped: hand-over and steering need a
//! few entries now and then, and a file that somebody truncates then gives a short read and not
//! SIGBUS. Every process of the user can write it, so whatever is read is checked like a packet.
//!
//! # Where
//! `$RNIC_RUNTIME_DIR`, else `/tmp/rnic-<uid>`, and in it a folder per network namespace. Not
//! `$XDG_RUNTIME_DIR`: the processes that share the port are those of one user, and a login
//! session, `su`, `cron` and a service of the same user do not agree on that variable; with two
//! registries they would give out the same QPNs twice.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::HostError;
use rnic_sys::{self as sys, Fd};

/// Bits of a QPN below its range.
pub const RANGE_BITS: u32 = 12;
/// QPNs of a range.
pub const RANGE_LEN: u32 = 1 << RANGE_BITS;
/// Ranges. The first (QP0, QP1 and what Soft-RoCE starts with) and the last (multicast, probes) are
/// never given out.
pub const RANGES: u32 = 1 << (24 - RANGE_BITS);

/// The range that a QPN lies in.
pub fn range_of(qpn: u32) -> u32 {
    (qpn & 0xff_ffff) >> RANGE_BITS
}

/// A range of QP numbers that belongs to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpnRange {
    /// First number.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl QpnRange {
    /// The QPNs of a range.
    pub fn of(range: u32) -> QpnRange {
        QpnRange {
            first: range << RANGE_BITS,
            count: RANGE_LEN,
        }
    }
}

const MAGIC: [u8; 8] = *b"rnicQPN1";
const HEADER_LEN: usize = 4096;
const ENTRY_LEN: usize = 8;
const FILE_LEN: usize = HEADER_LEN + ENTRY_LEN * RANGES as usize;
/// Byte locks lie beyond the contents.
pub const LOCK_BASE: u64 = 1 << 32;
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const NO_SLOT: u16 = 0xffff;

/// What the registry says about a claimed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Process that claimed it.
    pub pid: u32,
    /// First range of that process: its sockets in the folder have that number.
    pub first_range: u32,
    /// The process's slot in the SO_REUSEPORT group, if it knows.
    pub slot: Option<u8>,
}

impl Entry {
    fn encode(entry: Option<&Entry>) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        if let Some(e) = entry {
            out[..4].copy_from_slice(&e.pid.to_ne_bytes());
            out[4..6].copy_from_slice(&(e.first_range as u16).to_ne_bytes());
            let slot = e.slot.map_or(NO_SLOT, u16::from);
            out[6..8].copy_from_slice(&slot.to_ne_bytes());
        }
        out
    }

    /// `None`: free, or no entry that this program could have written.
    fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes: &[u8; ENTRY_LEN] = bytes.try_into().ok()?;
        let [p0, p1, p2, p3, d0, d1, i0, i1] = *bytes;
        let pid = u32::from_ne_bytes([p0, p1, p2, p3]);
        let first_range = u32::from(u16::from_ne_bytes([d0, d1]));
        let slot = u8::try_from(u16::from_ne_bytes([i0, i1])).ok();
        let sane = pid != 0 && may_be_claimed(first_range);
        sane.then_some(Entry {
            pid,
            first_range,
            slot,
        })
    }
}

/// Which process takes the requests whose process the steering program cannot know. It is in the
/// lock's file, so that the registry's times tell only of processes that come and go
/// (`Registry::changed`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    /// First range of that process.
    pub range: u32,
    /// Counted up once a second while the process runs.
    beat: u32,
}

impl Taker {
    /// The process with that first range, from now on.
    pub fn new(range: u32) -> Taker {
        // Another one than whatever was seen of an earlier taker.
        let beat = sys::random_u64() as u32;
        Taker { range, beat }
    }

    /// It still runs.
    pub fn again(self) -> Taker {
        Taker {
            beat: self.beat.wrapping_add(1),
            ..self
        }
    }
}

fn may_be_claimed(range: u32) -> bool {
    (1..RANGES - 1).contains(&range)
}

/// The open registry of this user and network namespace.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    dir: Fd,
    file: Fd,
    lock: Arc<Fd>,
    cookie: u64,
    own: Vec<u32>,
    own_bits: Box<[u64; RANGES as usize / 64]>,
}

/// The registry's lock, held.
pub struct Locked(Arc<Fd>);

impl Drop for Locked {
    fn drop(&mut self) {
        sys::unlock_file(&self.0);
    }
}

/// The user's runtime folder.
pub fn runtime_dir() -> PathBuf {
    /// What the variable said at first and what that meant: it means the same after chdir(2).
    static FIRST: OnceLock<(OsString, PathBuf)> = OnceLock::new();
    match rnic_settings::RUNTIME_DIR.text() {
        Some(dir) => {
            let whole = || std::path::absolute(&dir).unwrap_or_else(|_| dir.clone().into());
            let (said, meant) = FIRST.get_or_init(|| (dir.clone(), whole()));
            if *said == dir { meant.clone() } else { whole() }
        }
        _ => format!("/tmp/rnic-{}", sys::effective_uid()).into(),
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Opens a folder of ours, making it if need be; refuses one that others own or may enter.
fn open_private_dir(parent: Option<&Fd>, name: &OsStr) -> io::Result<Fd> {
    let name = c_string(name)?;
    match sys::make_dir_at(parent, &name, 0o700) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let dir = sys::open_at(parent, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let stat = sys::stat(&dir)?;
    if stat.uid != sys::effective_uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it belongs to uid {}; remove it or set RNIC_RUNTIME_DIR",
                stat.uid
            ),
        ));
    }
    if stat.mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users may enter it; `chmod 700` it or set RNIC_RUNTIME_DIR",
        ));
    }
    Ok(dir)
}

/// The process of this user that has a QPN's range now; `None` if none has.
pub fn owner(qpn: u32) -> Option<u32> {
    let registry = Registry::of_user()?;
    let range = range_of(qpn);
    let entry = registry.entry(range)?;
    registry.is_live(range).ok()?.then_some(entry.pid)
}

impl Registry {
    /// Opens the registry below `runtime`, making what is missing.
    pub fn open(runtime: &Path) -> Result<Registry, HostError> {
        let path = Registry::place(runtime);
        let mut registry = Registry::attach(runtime, &path)?;
        registry.cookie = registry
            .first_look()
            .map_err(|source| HostError::Runtime { path, source })?;
        Ok(registry)
    }

    /// For a look from outside: as it is, without a claim to be in it.
    pub fn of_user() -> Option<Registry> {
        let runtime = runtime_dir();
        Registry::attach(&runtime, &Registry::place(&runtime)).ok()
    }

    /// Where a link that this thread opens now would be registered: its runtime folder's part for
    /// its network namespace.
    pub fn of_this_thread() -> PathBuf {
        Registry::place(&runtime_dir())
    }

    fn place(runtime: &Path) -> PathBuf {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino());
        runtime.join(format!("net-{namespace}"))
    }

    /// The cookie of the header, which is written if there is none.
    fn first_look(&self) -> io::Result<u64> {
        let _locked = self.lock(LOCK_PATIENCE)?;
        self.read_or_write_header()
    }

    /// Opens the files without a look at the header. An error names the folder that is wrong.
    fn attach(runtime: &Path, path: &Path) -> Result<Registry, HostError> {
        let of = |path: &Path| {
            let path = path.to_owned();
            move |source| HostError::Runtime { path, source }
        };
        let base = open_private_dir(None, runtime.as_os_str()).map_err(of(runtime))?;
        let name = path.file_name().unwrap_or_default();
        let dir = open_private_dir(Some(&base), name).map_err(of(path))?;
        let file = |name| {
            let flags = libc::O_RDWR | libc::O_CREAT;
            sys::open_at(Some(&dir), name, flags, 0o600).map_err(of(path))
        };
        Ok(Registry {
            path: path.into(),
            file: file(c"registry")?,
            lock: Arc::new(file(c"lock")?),
            dir,
            cookie: 0,
            own: Vec::new(),
            own_bits: Box::new([0; RANGES as usize / 64]),
        })
    }

    /// Header: magic, cookie, next range to try. A file with another header (torn, or of another
    /// program) gets a new one; what its entries say counts only where a lock is held, so they may
    /// stay.
    fn read_or_write_header(&self) -> io::Result<u64> {
        let mut header = [0u8; 24];
        let n = sys::read_at(&self.file, &mut header, 0)?;
        let (magic, rest) = header.split_at(8);
        let (cookie, _) = rest.split_at(8);
        let cookie = u64::from_ne_bytes(cookie.try_into().unwrap_or_default());
        if n == header.len()
            && magic == MAGIC
            && cookie != 0
            && sys::stat(&self.file)?.size == FILE_LEN as u64
        {
            return Ok(cookie);
        }
        let cookie = sys::random_u64() | 1;
        sys::truncate(&self.file, FILE_LEN as u64)?;
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&cookie.to_ne_bytes());
        // Not always 1: after a reboot peers may still know the QPNs of before.
        let next = 1 + (sys::random_u64() % u64::from(RANGES - 2)) as u32;
        header[16..20].copy_from_slice(&next.to_ne_bytes());
        sys::write_at(&self.file, &header, 0)?;
        Ok(cookie)
    }

    /// Takes the lock under which entries change; waits at most `patience`.
    pub fn lock(&self, patience: Duration) -> io::Result<Locked> {
        let start = Instant::now();
        while !sys::try_lock_file(&self.lock)? {
            if start.elapsed() >= patience {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a process holds its lock and does not let go (is one of yours stopped?)",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Locked(self.lock.clone()))
    }

    /// The random number by which processes of this registry know each other.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When somebody came or went last, if that is known; see [`sys::Stat::modified`].
    pub fn changed(&self) -> Option<u64> {
        sys::stat(&self.file).ok().map(|stat| stat.modified)
    }

    /// The folder that it lies in.
    pub fn dir(&self) -> &Fd {
        &self.dir
    }

    /// The file once more: what this handle has locked shows there as locked.
    pub fn reopen(&self) -> io::Result<Fd> {
        sys::open_at(Some(&self.dir), c"registry", libc::O_RDWR, 0)
    }

    /// Ranges held by this registry handle, in the order of their claims.
    pub fn own(&self) -> &[u32] {
        &self.own
    }

    /// Is the range held by this handle?
    #[inline]
    pub fn owns(&self, range: u32) -> bool {
        self.own_bits
            .get(range as usize / 64)
            .is_some_and(|word| word >> (range % 64) & 1 != 0)
    }

    /// Claims the next free range, going round, so that a dead process's QPNs are not given out
    /// again soon. `Ok(Err(live))`: all are taken, by `live` processes.
    pub fn claim(&mut self, _locked: &Locked, slot: Option<u8>) -> io::Result<Result<u32, usize>> {
        let mut next = [0u8; 4];
        sys::read_at(&self.file, &mut next, 16)?;
        let usable = RANGES - 2;
        let start = u32::from_ne_bytes(next) % usable;
        for i in 0..usable {
            let range = 1 + (start + i) % usable;
            if self.owns(range) || !sys::try_lock_byte(&self.file, LOCK_BASE + u64::from(range))? {
                continue;
            }
            let entry = Entry {
                pid: std::process::id(),
                first_range: *self.own.first().unwrap_or(&range),
                slot,
            };
            // `start` counts from 0 where ranges count from 1.
            sys::write_at(&self.file, &range.to_ne_bytes(), 16)?;
            self.write(range, Some(&entry))?;
            self.own.push(range);
            self.own_bits[range as usize / 64] |= 1 << (range % 64);
            return Ok(Ok(range));
        }
        Ok(Err(self.first_ranges()?.len()))
    }

    /// The next claim tries this range first.
    pub fn claim_from(&self, _locked: &Locked, range: u32) -> io::Result<()> {
        // As it was left by the claim of the one before.
        let before = range.saturating_sub(1);
        sys::write_at(&self.file, &before.to_ne_bytes(), 16).map(drop)
    }

    fn write(&self, range: u32, entry: Option<&Entry>) -> io::Result<()> {
        let offset = HEADER_LEN + ENTRY_LEN * range as usize;
        sys::write_at(&self.file, &Entry::encode(entry), offset as u64)?;
        Ok(())
    }

    /// Tells the others this process's slot in the group.
    pub fn publish_slot(&self, _locked: &Locked, slot: Option<u8>) -> io::Result<()> {
        for &range in &self.own {
            let entry = Entry {
                pid: std::process::id(),
                first_range: self.own[0],
                slot,
            };
            self.write(range, Some(&entry))?;
        }
        Ok(())
    }

    /// The process that takes requests; whether it lives, and runs, is for the asker to find out.
    pub fn taker(&self) -> Option<Taker> {
        let mut bytes = [0; 8];
        let n = sys::read_at(&self.lock, &mut bytes, 0).ok()?;
        let [r0, r1, r2, r3, b0, b1, b2, b3] = bytes;
        let range = u32::from_ne_bytes([r0, r1, r2, r3]);
        let beat = u32::from_ne_bytes([b0, b1, b2, b3]);
        (n == bytes.len() && may_be_claimed(range)).then_some(Taker { range, beat })
    }

    /// Another one under the lock, the same one without. Should it fail, the next look finds no
    /// progress.
    pub fn set_taker(&self, taker: Taker) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&taker.range.to_ne_bytes());
        bytes[4..].copy_from_slice(&taker.beat.to_ne_bytes());
        let _ = sys::write_at(&self.lock, &bytes, 0);
    }

    /// Gives all ranges back.
    pub fn release_all(&mut self) {
        for range in std::mem::take(&mut self.own) {
            let _ = self.write(range, None);
            sys::unlock_byte(&self.file, LOCK_BASE + u64::from(range));
        }
        self.own_bits.fill(0);
    }

    /// What the registry says about `range`; whether its owner lives, a connection to it shows.
    pub fn entry(&self, range: u32) -> Option<Entry> {
        if !may_be_claimed(range) {
            return None;
        }
        let mut bytes = [0; ENTRY_LEN];
        let offset = HEADER_LEN + ENTRY_LEN * range as usize;
        let n = sys::read_at(&self.file, &mut bytes, offset as u64).ok()?;
        Entry::decode(&bytes[..n])
    }

    /// All ranges with an entry, of live and of dead processes.
    fn entries(&self) -> io::Result<Vec<(u32, Entry)>> {
        let mut bytes = vec![0; ENTRY_LEN * RANGES as usize];
        let n = sys::read_at(&self.file, &mut bytes, HEADER_LEN as u64)?;
        Ok(bytes[..n]
            .chunks_exact(ENTRY_LEN)
            .enumerate()
            .filter_map(|(range, bytes)| Some((range as u32, Entry::decode(bytes)?)))
            .filter(|&(range, _)| may_be_claimed(range))
            .collect())
    }

    /// A process that lives has that range.
    pub fn is_live(&self, range: u32) -> io::Result<bool> {
        // A lock of one's own does not show.
        Ok(self.owns(range) || sys::byte_is_locked(&self.file, LOCK_BASE + u64::from(range))?)
    }

    /// Ranges of live processes.
    pub fn live(&self) -> io::Result<Vec<(u32, Entry)>> {
        let mut out = Vec::new();
        for (range, entry) in self.entries()? {
            if self.is_live(range)? {
                out.push((range, entry));
            }
        }
        Ok(out)
    }

    /// The first ranges of live processes.
    pub fn first_ranges(&self) -> io::Result<Vec<u32>> {
        let mut first_ranges: Vec<u32> = self
            .live()?
            .iter()
            .map(|(_, entry)| entry.first_range)
            .collect();
        first_ranges.sort_unstable();
        first_ranges.dedup();
        Ok(first_ranges)
    }

    /// Ranges whose process is gone without giving them back.
    pub fn dead(&self) -> io::Result<Vec<(u32, Entry)>> {
        let mut out = Vec::new();
        for (range, entry) in self.entries()? {
            if !self.is_live(range)? {
                out.push((range, entry));
            }
        }
        Ok(out)
    }

    /// Clears the entry of a dead process. Its liveness was looked at under the same lock.
    pub fn clear(&self, _locked: &Locked, range: u32) -> io::Result<()> {
        self.write(range, None)
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.file);
        sys::touch(&self.lock);
        sys::touch(&self.dir);
    }
}

#[cfg(test)]
pub(crate) mod tests;
