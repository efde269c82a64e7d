//! Randomness from the kernel.

use std::fs::File;
use std::io::Read;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::now_realtime_ns;

/// Eight random bytes.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    random_bytes(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// As many random bytes as there is room for.
pub fn random_bytes(room: &mut [u8]) {
    let mut filled = 0;
    while let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            // A signal came, which the kernel heeds while it gives many.
            Err(Errno::INTR) => {}
            Err(_) => return random_bytes_otherwise(rest),
        }
    }
}

/// Where that call was taken away from the process (seccomp(2)).
#[cold]
fn random_bytes_otherwise(room: &mut [u8]) {
    let device = File::open("/dev/urandom");
    if device.and_then(|mut file| file.read_exact(room)).is_ok() {
        return;
    }
    // The clock, the address layout and the process's number are the best there is.
    let layout = (room.as_ptr() as u64).rotate_left(32);
    let process = u64::from(std::process::id()) << 32;
    for chunk in room.chunks_mut(8) {
        let bytes = (now_realtime_ns() ^ layout ^ process).to_ne_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}
