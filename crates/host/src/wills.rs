//! Wills: what a process wants said to its peers should it be killed.
//!
//! A kernel would say it; here another process of the host does. Each process that has something to
//! leave keeps a file of records beside the [registry](crate::registry), locked as long as it
//! lives. Whoever comes across a file without a lock takes the [`Estate`] under his own, so that it
//! is executed once, and again only if he dies over it.
//!
//! What the records mean is their writer's business. They are checked like a packet all the same.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::registry::{Locked, Registry};
use rnic_sys::{self as sys, Fd};

/// Bytes of a will.
pub const WILL_LEN: usize = 124;
/// A record, its meaning known to the layer above.
pub type Will = [u8; WILL_LEN];

const RECORD_LEN: usize = WILL_LEN + 4;
/// Most wills of a process: one per connection.
const MOST: usize = 1 << 17;
const PREFIX: &str = "will.";

/// A will in the file of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WillId(u32);

/// The wills of this process.
#[derive(Debug)]
pub struct Wills {
    file: File,
    /// Records ever written.
    len: u32,
    free: Vec<u32>,
}

/// What a dead process left. It is this process's to execute; dropping it says that this is done.
#[derive(Debug)]
pub struct Estate {
    wills: Vec<Will>,
    _file: File,
}

impl Estate {
    /// In no order.
    pub fn wills(&self) -> &[Will] {
        &self.wills
    }
}

/// A file whose lock this process holds; removed when dropped.
#[derive(Debug)]
struct File {
    fd: Fd,
    path: PathBuf,
    pid: u32,
}

impl File {
    fn new(fd: Fd, path: PathBuf) -> File {
        File {
            fd,
            path,
            pid: std::process::id(),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // In a forked child it is the parent's, and only the descriptor is closed.
        if std::process::id() == self.pid {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn encode(will: &Will) -> [u8; RECORD_LEN] {
    let mut out = [0; RECORD_LEN];
    out[..WILL_LEN].copy_from_slice(will);
    out[WILL_LEN..].copy_from_slice(&check(will).to_ne_bytes());
    out
}

/// `None`: struck, half written, or nothing that this program wrote.
fn decode(record: &[u8; RECORD_LEN]) -> Option<Will> {
    let (will, sum) = record.split_first_chunk::<WILL_LEN>()?;
    (sum == check(will).to_ne_bytes()).then_some(*will)
}

fn check(will: &Will) -> u32 {
    let mut hash = 0x5769_6c6c_0001_u64;
    for word in will.chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    (hash >> 16) as u32
}

impl Wills {
    /// A file without wills. The registry's lock keeps others from taking it for a dead one's
    /// before it is locked.
    pub fn create(registry: &Registry, _locked: &Locked) -> io::Result<Wills> {
        let name = format!("{PREFIX}{:016x}", sys::random_u64());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let c_name = CString::new(name.as_bytes())?;
        let fd = sys::open_at(Some(registry.dir()), &c_name, flags, 0o600)?;
        let file = File::new(fd, registry.path().join(name));
        if !sys::try_lock_file(&file.fd)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Wills {
            file,
            len: 0,
            free: Vec::new(),
        })
    }

    /// Adds one.
    pub fn write(&mut self, will: &Will) -> io::Result<WillId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.len as usize == MOST => return Err(io::ErrorKind::StorageFull.into()),
            None => {
                self.len += 1;
                self.len - 1
            }
        };
        match self.put(number, &encode(will)) {
            Ok(()) => Ok(WillId(number)),
            Err(e) => {
                self.free.push(number);
                Err(e)
            }
        }
    }

    /// Takes it back; an id that this process never got is ignored.
    pub fn strike(&mut self, will: WillId) {
        if will.0 < self.len {
            let _ = self.put(will.0, &[0; RECORD_LEN]);
            self.free.push(will.0);
        }
    }

    fn put(&self, number: u32, record: &[u8; RECORD_LEN]) -> io::Result<()> {
        let offset = u64::from(number) * RECORD_LEN as u64;
        sys::write_at(&self.file.fd, record, offset).map(drop)
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.file.fd);
    }
}

/// Takes what dead processes left. The registry's lock: see [`Wills::create`].
pub fn take_of_the_dead(registry: &Registry, _locked: &Locked) -> Vec<Estate> {
    files_of_the_dead(registry)
        .map(|(fd, path)| Estate {
            wills: read(&fd).unwrap_or_default(),
            _file: File::new(fd, path),
        })
        .filter(|estate| !estate.wills.is_empty())
        .collect()
}

/// A dead process of this user and network namespace has left something that nobody has taken yet.
pub fn of_the_dead_wait() -> bool {
    let Some(registry) = Registry::of_user() else {
        return false;
    };
    let Ok(_locked) = registry.lock(Duration::from_millis(100)) else {
        return false;
    };
    files_of_the_dead(&registry).any(|(fd, _)| read(&fd).is_ok_and(|wills| !wills.is_empty()))
}

/// Locked, until they are dropped.
fn files_of_the_dead(registry: &Registry) -> impl Iterator<Item = (Fd, PathBuf)> {
    let names = std::fs::read_dir(registry.path()).into_iter().flatten();
    names.flatten().filter_map(|entry| {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(PREFIX.as_bytes()) {
            return None;
        }
        let name = CString::new(name.as_bytes()).ok()?;
        let fd = sys::open_at(Some(registry.dir()), &name, libc::O_RDWR, 0).ok()?;
        // Without a name: somebody else has just executed it.
        let dead = sys::try_lock_file(&fd).ok()? && !sys::stat(&fd).ok()?.removed;
        dead.then(|| (fd, entry.path()))
    })
}

fn read(fd: &Fd) -> io::Result<Vec<Will>> {
    let len = (sys::stat(fd)?.size as usize).min(MOST * RECORD_LEN);
    let mut bytes = vec![0; len];
    let n = sys::read_at(fd, &mut bytes, 0)?;
    let (records, _) = bytes[..n].as_chunks::<RECORD_LEN>();
    Ok(records.iter().filter_map(decode).collect())
}

#[cfg(test)]
mod tests;
