//! A file that stays open in a process that knows nothing of it.

use std::ffi::CString;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};

use crate::Fd;

/// A file for appending to and for writing to within. Its descriptor has a high number: programs
/// count on getting the lowest ones, and some close all that they do not know. One that was closed,
/// or that another file has got, is opened anew.
#[derive(Debug, Default)]
pub struct KeptFile {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    fd: Fd,
    /// Device and inode.
    id: (u64, u64),
    /// A forked child opens its own: the position of the parent's is the parent's.
    pid: u32,
}

/// Fewer descriptors leave none to spare.
const FEWEST: u64 = 64;

/// Numbers above need a longer table in the kernel.
const MOST: u64 = 1024;

impl KeptFile {
    /// None is open yet.
    pub const fn new() -> KeptFile {
        KeptFile { open: None }
    }

    /// The file of that name, open.
    ///
    /// # Errors
    /// Of open(2).
    fn get(&mut self, path: &Path) -> io::Result<&Fd> {
        if self.open.as_ref().is_some_and(|open| !open.is_ours()) {
            // The number is somebody else's.
            std::mem::forget(self.open.take());
        }
        if self.open.as_ref().is_some_and(Open::is_inherited) {
            self.close();
        }
        match self.open {
            Some(ref open) => Ok(&open.fd),
            None => Ok(&self.open.insert(Open::new(path)?).fd),
        }
    }

    /// Appends all of it with one call, so that others who append do not come in between. Gives the
    /// position behind.
    ///
    /// # Errors
    /// Of open(2) and pwritev2(2); ENOSPC if less fitted.
    pub fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<u64> {
        let fd = self.get(path)?;
        let all = [IoSlice::new(bytes)];
        // The offset is the file's own position, which is moved.
        let written = rustix::io::pwritev2(fd, &all, u64::MAX, ReadWriteFlags::APPEND);
        let end = match written {
            Ok(written) if written == bytes.len() => fs::seek(fd, fs::SeekFrom::Current(0)),
            Ok(_) => Err(Errno::NOSPC),
            Err(error) => Err(error),
        };
        self.close_if_low();
        Ok(end?)
    }

    /// Writes all of it at `offset`.
    ///
    /// # Errors
    /// Of open(2) and pwrite(2); ENOSPC if less fitted.
    pub fn write_at(&mut self, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fd = self.get(path)?;
        let done = match rustix::io::pwrite(fd, bytes, offset) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(Errno::NOSPC),
            Err(error) => Err(error),
        };
        self.close_if_low();
        Ok(done?)
    }

    /// Closes it, if it is open.
    pub fn close(&mut self) {
        match self.open.take() {
            Some(open) if open.is_ours() => drop(open),
            // The number is somebody else's.
            other => std::mem::forget(other),
        }
    }

    /// A descriptor for which there was no high number is not kept.
    fn close_if_low(&mut self) {
        let is_low = |open: &Open| floor().is_none_or(|floor| open.fd.raw() < floor);
        if self.open.as_ref().is_some_and(is_low) {
            self.close();
        }
    }
}

/// The lowest number that is high; `None`: there are too few.
fn floor() -> Option<i32> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    (limit >= FEWEST).then(|| (limit.min(MOST) / 8 * 7) as i32)
}

impl Open {
    fn new(path: &Path) -> io::Result<Open> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let low = crate::open_at_following(&path, libc::O_WRONLY, 0)?;
        let high = floor().and_then(|floor| rustix::io::fcntl_dupfd_cloexec(&low, floor).ok());
        let fd = high.map_or(low, Fd::from);
        let id = crate::stat(&fd)?.id;
        let pid = std::process::id();
        Ok(Open { fd, id, pid })
    }

    fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }

    /// The number is still that of the file.
    fn is_ours(&self) -> bool {
        crate::stat(&self.fd).is_ok_and(|stat| stat.id == self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("rnic-kept-{}-{name}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        path
    }

    /// Promise: what is appended and what is written within arrives by one descriptor, whose number
    /// is high and which no program inherits by exec(3).
    #[test]
    fn one_descriptor_with_a_high_number() {
        let path = file("high");
        let mut kept = KeptFile::new();
        assert_eq!(kept.append(&path, b"one\n").expect("appended"), 4);
        let number = kept.open.as_ref().map(|open| open.fd.raw());
        assert!(
            number.is_some_and(|number| Some(number) >= floor()),
            "{number:?}"
        );
        // Somebody else appends, too.
        std::fs::write(&path, "one\nTWO\n").expect("written");
        assert_eq!(kept.append(&path, b"three\n").expect("appended"), 14);
        kept.write_at(&path, b"two", 4).expect("written");
        assert_eq!(kept.open.as_ref().map(|open| open.fd.raw()), number);
        let flags = rustix::io::fcntl_getfd(&kept.open.as_ref().expect("open").fd);
        assert!(flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC)));
        assert_eq!(std::fs::read(&path).expect("read"), b"one\ntwo\nthree\n");
        kept.close();
        std::fs::remove_file(&path).expect("removed");
    }

    /// Promise: a program that closes all descriptors, and one that gets the number for a file of
    /// its own, harm the file as little as it harms them.
    #[test]
    fn the_number_may_become_another_file() {
        let (path, other) = (file("ours"), file("theirs"));
        let mut kept = KeptFile::new();
        kept.append(&path, b"a\n").expect("appended");
        let number = kept.open.as_ref().expect("open").fd.raw();
        let theirs = std::fs::File::open(&other).expect("open");
        // SAFETY: the number is that of an open descriptor, whose owner looks at it before each use.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        kept.append(&path, b"b\n").expect("appended");
        assert_ne!(kept.open.as_ref().expect("open").fd.raw(), number);
        let second = kept.open.as_ref().expect("open").fd.raw();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(second) }, 0);
        kept.append(&path, b"c\n").expect("appended");
        assert_eq!(std::fs::read(&path).expect("read"), b"a\nb\nc\n");
        assert_eq!(std::fs::read(&other).expect("read"), b"");
        kept.close();
        // SAFETY: the number is that of the descriptor of `theirs` made above, which nobody else has.
        assert_eq!(unsafe { libc::close(number) }, 0, "theirs is still open");
        for path in [path, other] {
            std::fs::remove_file(path).expect("removed");
        }
    }
}
