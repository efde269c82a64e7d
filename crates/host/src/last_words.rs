//! Last words: what a process wants said to its peers should it be killed.
//!
//! A kernel would say it; here another process of the host does. Each process that has something to
//! leave keeps a file of records beside the [registry](crate::registry), locked as long as it
//! lives. A process that finds a file without a lock takes the lock: the records are now its
//! [`DeadProcess`], and it sends them. So they are sent once, and again only if it dies over it.
//!
//! What the records mean is their writer's business. They are checked like a packet all the same.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::registry::{Locked, Registry};
use rnic_sys::{self as sys, Fd};

/// Bytes of one record of last words.
pub const LAST_WORDS_LEN: usize = 124;
/// A record, for one connection. The layer above knows its meaning.
pub type LastWords = [u8; LAST_WORDS_LEN];

const RECORD_LEN: usize = LAST_WORDS_LEN + 4;
/// Most records of a process: one per connection.
const MOST: usize = 1 << 17;
const PREFIX: &str = "last-words.";

/// A record in the file of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LastWordsId(u32);

/// The last words of this process.
#[derive(Debug)]
pub struct LastWordsFile {
    file: File,
    /// Records ever written.
    len: u32,
    free: Vec<u32>,
}

/// What a dead process left. This process has to send it; dropping it says that this is done.
#[derive(Debug)]
pub struct DeadProcess {
    last_words: Vec<LastWords>,
    _file: File,
}

impl DeadProcess {
    /// Its records, in no order.
    pub fn last_words(&self) -> &[LastWords] {
        &self.last_words
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

fn encode(last_words: &LastWords) -> [u8; RECORD_LEN] {
    let mut out = [0; RECORD_LEN];
    out[..LAST_WORDS_LEN].copy_from_slice(last_words);
    out[LAST_WORDS_LEN..].copy_from_slice(&check(last_words).to_ne_bytes());
    out
}

/// `None`: removed, half written, or nothing that this program wrote.
fn decode(record: &[u8; RECORD_LEN]) -> Option<LastWords> {
    let (last_words, sum) = record.split_first_chunk::<LAST_WORDS_LEN>()?;
    (sum == check(last_words).to_ne_bytes()).then_some(*last_words)
}

fn check(last_words: &LastWords) -> u32 {
    let mut hash = 0x5769_6c6c_0001_u64;
    for word in last_words.chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    (hash >> 16) as u32
}

impl LastWordsFile {
    /// A file without records. The registry's lock keeps others from taking it for a dead
    /// process's before it is locked.
    pub fn create(registry: &Registry, _locked: &Locked) -> io::Result<LastWordsFile> {
        let name = format!("{PREFIX}{:016x}", sys::random_u64());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let c_name = CString::new(name.as_bytes())?;
        let fd = sys::open_at(Some(registry.dir()), &c_name, flags, 0o600)?;
        let file = File::new(fd, registry.path().join(name));
        if !sys::try_lock_file(&file.fd)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(LastWordsFile {
            file,
            len: 0,
            free: Vec::new(),
        })
    }

    /// Adds a record.
    pub fn write(&mut self, last_words: &LastWords) -> io::Result<LastWordsId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.len as usize == MOST => return Err(io::ErrorKind::StorageFull.into()),
            None => {
                self.len += 1;
                self.len - 1
            }
        };
        match self.put(number, &encode(last_words)) {
            Ok(()) => Ok(LastWordsId(number)),
            Err(e) => {
                self.free.push(number);
                Err(e)
            }
        }
    }

    /// Takes a record back; an id that this process never got is ignored.
    pub fn remove(&mut self, id: LastWordsId) {
        if id.0 < self.len {
            let _ = self.put(id.0, &[0; RECORD_LEN]);
            self.free.push(id.0);
        }
    }

    fn put(&self, number: u32, record: &[u8; RECORD_LEN]) -> io::Result<()> {
        let offset = u64::from(number) * RECORD_LEN as u64;
        sys::write_at(&self.file.fd, record, offset).map(drop)
    }

    /// Closes it as the kernel does when a process is killed: what it says is for others to find.
    pub fn leave_behind(mut self) {
        // No process has this number, so none removes the file.
        self.file.pid = 0;
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.file.fd);
    }
}

/// Takes what dead processes left. The registry's lock: see [`LastWordsFile::create`].
pub fn take_from_the_dead(registry: &Registry, _locked: &Locked) -> Vec<DeadProcess> {
    files_of_the_dead(registry)
        .map(|(fd, path)| DeadProcess {
            last_words: read(&fd).unwrap_or_default(),
            _file: File::new(fd, path),
        })
        .filter(|process| !process.last_words.is_empty())
        .collect()
}

/// A dead process of this user and network namespace has left something that nobody has taken yet.
pub fn dead_left_any() -> bool {
    let Some(registry) = Registry::of_user() else {
        return false;
    };
    let Ok(_locked) = registry.lock(Duration::from_millis(100)) else {
        return false;
    };
    files_of_the_dead(&registry).any(|(fd, _)| read(&fd).is_ok_and(|records| !records.is_empty()))
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
        // Without a name: another process has just sent them.
        let dead = sys::try_lock_file(&fd).ok()? && !sys::stat(&fd).ok()?.removed;
        dead.then(|| (fd, entry.path()))
    })
}

fn read(fd: &Fd) -> io::Result<Vec<LastWords>> {
    let len = (sys::stat(fd)?.size as usize).min(MOST * RECORD_LEN);
    let mut bytes = vec![0; len];
    let n = sys::read_at(fd, &mut bytes, 0)?;
    let (records, _) = bytes[..n].as_chunks::<RECORD_LEN>();
    Ok(records.iter().filter_map(decode).collect())
}

#[cfg(test)]
mod tests;
