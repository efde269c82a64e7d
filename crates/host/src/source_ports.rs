//! Which process sent a packet that came from an address of this host: the sending sockets of this
//! user's processes.
//!
//! Every user of a host may send from each of its addresses, so an address says nothing of who
//! sent. A socket's port does: nobody else can bind it meanwhile. So each process holds a file lock
//! for each address and port that it sends from, in a file beside the registry that other users
//! cannot open. The lock's place in the file names address and port; nothing is ever written. A
//! killed process's locks go when its ports do.
//!
//! A process says by one more lock for each of its ranges that it notes its ports. Where that is
//! missing (it is gone, or is no process of this user) nothing can be said.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::addresses::fold;
use crate::registry::Registry;
use rnic_sys::{self as sys, Fd};

/// Begins the locks of ports; those of ranges lie before.
const PORTS: u64 = 1 << 61;

/// The file of this user and network namespace, for processes that ask and for the process's own
/// ports.
#[derive(Debug)]
pub struct SourcePorts {
    /// What this process holds is held by this one.
    held: Fd,
    /// Another one, for which one's own locks show.
    asked: Fd,
}

impl SourcePorts {
    /// Opens the file.
    pub fn open(registry: &Registry) -> io::Result<SourcePorts> {
        let open = || {
            let flags = libc::O_RDWR | libc::O_CREAT;
            sys::open_at(Some(registry.dir()), c"source_ports", flags, 0o600)
        };
        Ok(SourcePorts {
            held: open()?,
            asked: open()?,
        })
    }

    /// This process has a range, and notes its ports from now on.
    pub fn add_range(&self, range: u32) -> io::Result<()> {
        sys::try_lock_byte(&self.held, range.into()).map(drop)
    }

    /// The process leaves: from now on its sockets may close before what they sent is read.
    pub fn leave(&self, ranges: impl Iterator<Item = u32>) {
        for range in ranges {
            sys::unlock_byte(&self.held, range.into());
        }
    }

    /// This process sends from there.
    pub fn note(&self, from: &SocketAddr) -> io::Result<()> {
        sys::try_lock_byte(&self.held, place(from.ip(), from.port())).map(drop)
    }

    /// It does not any more.
    pub fn forget(&self, from: &SocketAddr) {
        sys::unlock_byte(&self.held, place(from.ip(), from.port()));
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.held);
    }

    /// Did a process of this user send what came from this port of an address of this host? `None`:
    /// the process that has this range, which it seems to be from, is gone, or does not note its
    /// ports.
    pub fn is_from(&self, range: u32, source: IpAddr, port: u16) -> Option<bool> {
        let locked = |offset| sys::byte_is_locked(&self.asked, offset).ok();
        if !locked(range.into())? {
            return None;
        }
        locked(place(source, port))
    }
}

/// The place of a lock: 16 bits of the port, 33 of the address.
fn place(source: IpAddr, port: u16) -> u64 {
    let source = source.to_canonical();
    let address = match source {
        IpAddr::V4(_) => fold(source),
        IpAddr::V6(_) => 1 << 32 | fold(source).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32,
    };
    PORTS | address << 16 | u64::from(port)
}

#[cfg(test)]
mod tests;
