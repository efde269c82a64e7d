//! The memory table grants exactly what was registered.

use super::*;

const PD: Pd = Pd(7);

/// A table with one region of `len` bytes at iova 0x1000.
fn table(buffer: &mut [u8], access: Access) -> (MemoryTable, u32) {
    let mut table = MemoryTable::default();
    // SAFETY: the tests keep the buffer alive while they use the table.
    let key = unsafe {
        table.insert(
            PD,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
            0x1000,
            access,
        )
    };
    (table, key)
}

const ALL: Access = Access(15);

#[test]
fn every_edge_of_the_range_is_guarded() {
    let mut buffer = [0u8; 64];
    let (table, key) = table(&mut buffer[..], ALL);
    for (va, len, granted) in [
        (0x1000, 64, true),
        (0x1000, 65, false),
        (0x103f, 1, true),
        (0x1040, 0, true),
        (0x1040, 1, false),
        (0x0fff, 1, false),
        (u64::MAX, 2, false),
        (0x1001, u64::MAX, false),
    ] {
        let remote = table.check_remote(PD, key, va, len, RemoteAccess::Write);
        assert_eq!(remote.is_ok(), granted, "{va:#x} {len}");
        assert_eq!(table.check_local(PD, key, va, len, true).is_ok(), granted);
    }
}

#[test]
fn each_right_is_asked_for() {
    let mut buffer = [0u8; 64];
    for (access, read, write, atomic, local_write) in [
        (Access(0), false, false, false, false),
        (Access::LOCAL_WRITE, false, false, false, true),
        (Access::REMOTE_READ, true, false, false, false),
        (
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            false,
            true,
            false,
            true,
        ),
        (
            Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
            false,
            false,
            true,
            true,
        ),
    ] {
        let (table, key) = table(&mut buffer[..], access);
        let remote = |right| table.check_remote(PD, key, 0x1000, 8, right).is_ok();
        assert_eq!(remote(RemoteAccess::Read), read);
        assert_eq!(remote(RemoteAccess::Write), write);
        assert_eq!(remote(RemoteAccess::Atomic), atomic);
        assert_eq!(
            table.check_local(PD, key, 0x1000, 8, true).is_ok(),
            local_write
        );
        assert!(table.check_local(PD, key, 0x1000, 8, false).is_ok());
    }
}

#[test]
fn another_domain_and_a_revoked_key_get_nothing() {
    let mut buffer = [0u8; 64];
    let (mut table, key) = table(&mut buffer[..], ALL);
    assert_eq!(
        table.write_remote(Pd(8), key, 0x1000, &[1; 8]),
        Err(RemoteFault::OtherPd)
    );
    assert!(table.remove(key));
    assert_eq!(
        table.write_remote(PD, key, 0x1000, &[1; 8]),
        Err(RemoteFault::UnknownKey)
    );
    assert!(buffer.iter().all(|b| *b == 0));
}

#[test]
fn copies_of_every_length_and_alignment_land_exactly() {
    let mut buffer = [0u8; 96];
    let (table, key) = table(&mut buffer[..], ALL);
    for at in 16..32u64 {
        for len in 0..40usize {
            table.write_remote(PD, key, 0x1000, &[0xee; 96]).unwrap();
            let data: Vec<u8> = (0..len as u8).collect();
            table.write_remote(PD, key, 0x1000 + at, &data).unwrap();
            let mut seen = vec![0; 96];
            table.read_remote(PD, key, 0x1000, &mut seen).unwrap();
            let mut expected = vec![0xee; 96];
            expected[at as usize..at as usize + len].copy_from_slice(&data);
            assert_eq!(seen, expected, "{len} bytes at {at}");
        }
    }
}

#[test]
fn atomics_return_the_value_before() {
    let mut words = [5u64; 2];
    let mut table = MemoryTable::default();
    // SAFETY: `words` outlives the table's use.
    let key = unsafe { table.insert(PD, words.as_mut_ptr() as usize, 16, 0x1000, ALL) };
    let cas =
        |compare, swap| table.atomic(PD, key, 0x1000, AtomicOp::CompareSwap { compare, swap });
    assert_eq!(cas(4, 9), Ok(5));
    assert_eq!(cas(5, 9), Ok(5));
    assert_eq!(cas(0, 0), Ok(9));
    let add = AtomicOp::FetchAdd { add: u64::MAX };
    assert_eq!(table.atomic(PD, key, 0x1008, add), Ok(5));
    assert_eq!(table.atomic(PD, key, 0x1008, add), Ok(4));
    assert_eq!(
        table.atomic(PD, key, 0x100c, add),
        Err(RemoteFault::OutOfRange)
    );
}

#[test]
fn keys_are_not_found_by_counting() {
    let mut buffer = [0u8; 8];
    let mut table = MemoryTable::default();
    // SAFETY: the buffer outlives the table.
    let keys: Vec<u32> = (0..64)
        .map(|_| unsafe { table.insert(PD, buffer.as_mut_ptr() as usize, 8, 0, ALL) })
        .collect();
    let near = keys
        .windows(2)
        .filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 16)
        .count();
    assert!(near < 8, "{near} of 63 neighbours are close: {keys:x?}");
}
