//! Which XRC domains are open, in whatever process of this user: a domain that belongs to a file is
//! one domain for all processes that open it for that file.
//!
//! A process that has it open holds a lock on one byte of a file beside the
//! [registry](crate::registry), chosen by a hash of the file's identity: 61 bits, so that no two
//! domains meet. The kernel frees the locks of a process that is killed, and nothing is ever
//! written.

use std::io;
use std::time::{Duration, Instant};

use crate::registry::{LOCK_BASE, Registry};
use rnic_sys::{self as sys, Fd};

/// How long an opener waits for one that has just made the domain, for two system calls.
const PATIENCE: Duration = Duration::from_secs(1);

/// A domain, by the identity of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainKey(u64);

impl DomainKey {
    /// Of the file with this device and inode number.
    pub fn of(device: u64, inode: u64) -> DomainKey {
        // The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
        // Generators), twice.
        let mix = |mut z: u64| {
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        DomainKey(mix(mix(device.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ inode) >> 3)
    }

    fn offset(self) -> u64 {
        LOCK_BASE + self.0
    }
}

/// Why a domain was not opened.
#[derive(Debug)]
pub enum DomainError {
    /// O_EXCL, and it is open.
    Open,
    /// No O_CREAT, and it is not open.
    NotOpen,
    /// The runtime folder.
    Io(io::Error),
}

impl From<io::Error> for DomainError {
    fn from(error: io::Error) -> DomainError {
        DomainError::Io(error)
    }
}

/// The domains that this process has open.
#[derive(Debug)]
pub struct DomainLocks {
    file: Fd,
}

impl DomainLocks {
    /// Opens the file of locks.
    pub fn new(registry: &Registry) -> io::Result<DomainLocks> {
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = sys::open_at(Some(registry.dir()), c"domains", flags, 0o600)?;
        Ok(DomainLocks { file })
    }

    /// Opens a domain that this process has not open.
    pub fn hold(&self, key: DomainKey, create: bool, exclusive: bool) -> Result<(), DomainError> {
        let offset = key.offset();
        if create && exclusive {
            if !sys::try_lock_byte_as(&self.file, offset, false)? {
                return Err(DomainError::Open);
            }
        } else if !create || exclusive {
            let open = sys::byte_is_locked(&self.file, offset)?;
            if open && exclusive {
                return Err(DomainError::Open);
            }
            if !open {
                return Err(DomainError::NotOpen);
            }
        }
        let start = Instant::now();
        while !sys::try_lock_byte_as(&self.file, offset, true)? {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Closes a domain that this process has open.
    pub fn release(&self, key: DomainKey) {
        sys::unlock_byte(&self.file, key.offset());
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.file);
    }
}

#[cfg(test)]
mod tests {
    //! Two handles of the folder are two processes.

    use super::*;
    use rnic_skip::Folder;

    fn open(folder: &Folder) -> DomainLocks {
        DomainLocks::new(&Registry::open(folder.path()).unwrap()).unwrap()
    }

    #[test]
    fn a_domain_is_open_as_long_as_some_process_has_it_open() {
        let folder = Folder::new();
        let (a, b, c) = (open(&folder), open(&folder), open(&folder));
        let (key, other) = (DomainKey::of(3, 17), DomainKey::of(3, 18));
        assert!(matches!(
            a.hold(key, false, false),
            Err(DomainError::NotOpen)
        ));
        a.hold(key, true, true).unwrap();
        assert!(matches!(b.hold(key, true, true), Err(DomainError::Open)));
        assert!(matches!(b.hold(key, false, true), Err(DomainError::Open)));
        b.hold(key, false, false).unwrap();
        c.hold(key, true, false).unwrap();
        c.hold(other, true, true).unwrap();
        // As by SIGKILL.
        drop(a);
        assert!(matches!(
            open(&folder).hold(key, true, true),
            Err(DomainError::Open)
        ));
        b.release(key);
        c.release(key);
        assert!(matches!(
            b.hold(key, false, false),
            Err(DomainError::NotOpen)
        ));
        b.hold(key, true, true).unwrap();
    }
}
