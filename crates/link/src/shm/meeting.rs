//! How a producer gets its ring to the consumer.
//!
//! Each process listens at `host.<number>` beside its [hand-over socket](rnic_host::handover). A
//! process that opens a path to it connects there and sends one message with the file of the ring;
//! both are done before anybody has to accept, so nobody waits for a peer, which may be busy or
//! stopped, or may be setting up its own ring to us at this moment. What is in the ring waits there
//! until it is accepted. The connection stays: a byte in it wakes the consumer ([`super::wake`]),
//! and its end says that the other process is gone, however it went.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::grants::GrantTable;
use super::ring::{Consumer, DATA, grant_table_of};
use rnic_host::membership::ring_socket;
use rnic_sys::{self as sys, Addr, Fd};

/// Connections that nobody has accepted yet.
const BACKLOG: i32 = 256;
const GREETING: usize = 16;
const MAGIC: [u8; 8] = *b"rnicHST5";

fn address(dir: &Fd, path: &Path, number: u32) -> Option<Addr> {
    let name = ring_socket(number);
    Addr::unix(path.join(&name).as_os_str().as_bytes())
        .or_else(|| Addr::unix(format!("/proc/self/fd/{}/{name}", dir.raw()).as_bytes()))
}

fn greeting() -> [u8; GREETING] {
    let mut out = [0; GREETING];
    out[..8].copy_from_slice(&MAGIC);
    out[8..].copy_from_slice(&(DATA as u64).to_ne_bytes());
    out
}

/// Listens at meeting point `number` of the folder `dir`, whose name is `path`; a stale one is
/// replaced.
pub(super) fn listen(dir: &Fd, path: &Path, number: u32) -> io::Result<Fd> {
    sys::remove_at(dir, &ring_socket(number));
    let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
    sys::listen(&address, libc::SOCK_STREAM, BACKLOG)
}

/// Hands a ring to the process at meeting point `number`; gives the connection. Does not wait.
pub(super) fn hand_out(dir: &Fd, path: &Path, number: u32, ring: &Fd) -> io::Result<Fd> {
    let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM)?;
    let address = address(dir, path, number).ok_or(io::ErrorKind::InvalidInput)?;
    sys::connect(&socket, &address)?;
    sys::send_message(&socket, &greeting(), &[ring])?;
    Ok(socket)
}

/// What became of a connection that was accepted.
pub(super) enum Met {
    /// It has brought a ring.
    Ring(Consumer, GrantTable),
    /// Nothing has come yet.
    NotYet,
    /// It has brought nonsense.
    Wrong,
    /// It is over, or this process had no descriptor or no memory for what it has brought.
    Nothing,
}

/// Takes the ring that a connection brought.
pub(super) fn meet(connection: &Fd) -> Met {
    let mut said = [0; GREETING];
    let mut files = Vec::new();
    match sys::receive_message(connection, &mut said, &mut files) {
        Ok(Some(GREETING)) if said == greeting() && files.len() == 1 => {
            // In this order: the first makes sure of the file's length.
            let ring = Consumer::attach(&files[0]);
            match ring.and_then(|ring| Ok((ring, grant_table_of(&files[0])?))) {
                Ok((ring, table)) => Met::Ring(ring, table),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => Met::Wrong,
                Err(_) => Met::Nothing,
            }
        }
        Ok(Some(1..)) => Met::Wrong,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Met::NotYet,
        // Of a process that was killed meanwhile. What was cut short lacks files that there were no
        // descriptors for.
        _ => Met::Nothing,
    }
}
