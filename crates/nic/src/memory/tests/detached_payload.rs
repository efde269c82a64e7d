//! Detached payloads: copied to where they belong, within what was granted, or not at
//! all.

use std::cell::Cell;

use rnic_link::Uncopied;
use rnic_transport::{LocalFault, Misplaced};

use super::*;

/// A packet in memory of its own, of which only the first bytes can be had.
struct Packet<'a> {
    bytes: &'a [u8],
    can_be_had: usize,
    /// Bytes that were copied last.
    last: Cell<usize>,
}

impl PacketMemory for Packet<'_> {
    unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) -> Result<(), Uncopied> {
        let Some(part) = self.bytes[..self.can_be_had].get(from..from + len) else {
            return Err(Uncopied::Lost);
        };
        self.last.set(len);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, len) };
        Ok(())
    }
}

/// Pulls parts of every length to every alignment, into a region of this kind.
fn pulls_like_it_writes(access: Access) {
    const FROM: usize = 28;
    let bytes: Vec<u8> = (0..=255).collect();
    let packet = Packet {
        bytes: &bytes,
        can_be_had: 256,
        last: Cell::new(0),
    };
    let mut buffer = [0u8; 96];
    let (table, key) = table(&mut buffer[..], access);
    for at in 24..32u64 {
        for len in 0..40usize {
            table
                .write_remote(PD, QPN, key, 0x1000, &[0xee; 96])
                .unwrap();
            let pulled = table.pull_remote(PD, QPN, key, 0x1000 + at, &packet, (FROM, len));
            assert_eq!(pulled, Ok(()));
            let mut expected = vec![0xee; 96];
            expected[at as usize..at as usize + len].copy_from_slice(&bytes[FROM..FROM + len]);
            let mut seen = vec![0; 96];
            table.read_remote(PD, QPN, key, 0x1000, &mut seen).unwrap();
            assert_eq!(seen, expected, "{len} bytes at {at}");
        }
    }
}

#[test]
fn a_detached_payload_lands_where_one_that_is_here_would() {
    pulls_like_it_writes(ALL);
    pulls_like_it_writes(ALL | Access::ON_DEMAND);
}

#[test]
fn nothing_is_copied_without_a_grant() {
    let bytes = [1u8; 128];
    let packet = Packet {
        bytes: &bytes,
        can_be_had: 128,
        last: Cell::new(0),
    };
    let mut buffer = [0u8; 64];
    let (table, key) = table(&mut buffer[..], Access::LOCAL_WRITE);
    let remote = |va, len| table.pull_remote(PD, QPN, key, va, &packet, (0, len));
    let local = |va, len| table.pull_local(PD, key, va, &packet, (0, len));
    assert_eq!(
        remote(0x1000, 8),
        Err(Misplaced::Refused(RemoteFault::NoRight))
    );
    assert_eq!(
        remote(0x1001, 64),
        Err(Misplaced::Refused(RemoteFault::OutOfRange))
    );
    assert_eq!(
        local(0x1001, 64),
        Err(Misplaced::Refused(LocalFault::OutOfRange))
    );
    assert_eq!(packet.last.get(), 0, "nothing was touched");
    assert_eq!(local(0x1000, 64), Ok(()));
}

#[test]
fn what_cannot_be_had_is_lost() {
    let bytes = [1u8; 9000];
    for can_be_had in [0, 7, 8, 4096, 8999] {
        let packet = Packet {
            bytes: &bytes,
            can_be_had,
            last: Cell::new(0),
        };
        for access in [ALL, ALL | Access::ON_DEMAND] {
            let mut buffer = [0u8; 9000];
            let (table, key) = table(&mut buffer[..], access);
            let pulled = table.pull_local(PD, key, 0x1000, &packet, (0, 9000));
            assert_eq!(pulled, Err(Misplaced::Lost), "{can_be_had}");
        }
    }
}
