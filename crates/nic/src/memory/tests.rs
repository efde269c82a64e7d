//! The memory table grants exactly what was registered, and what windows open of it.

mod detached_payload;
mod paged;
mod properties;
mod windows;

use super::*;
use rnic_transport::{AtomicOp, Pd, RemoteAccess, RemoteFault};

const PD: Pd = Pd(7);
const QPN: u32 = 0x55;

fn spec(buffer: &mut [u8], iova: u64, access: Access) -> RegionSpec {
    RegionSpec {
        pd: PD,
        base: buffer.as_mut_ptr() as usize,
        len: buffer.len() as u64,
        iova,
        access,
        paged: access.contains(Access::ON_DEMAND),
    }
}

/// A table with one region of `len` bytes at iova 0x1000.
fn table(buffer: &mut [u8], access: Access) -> (MemoryTable, u32) {
    let mut table = MemoryTable::default();
    // SAFETY: the tests keep the buffer alive while they use the table.
    let key = unsafe { table.insert(spec(buffer, 0x1000, access)) };
    (table, key.unwrap())
}

const ALL: Access = Access(15);

/// As the engine does it in the table of each shard.
fn with_no_windows(
    table: &mut MemoryTable,
    key: u32,
    act: impl FnOnce(&mut MemoryTable),
) -> Result<(), WindowsBound> {
    table.windows.close(key)?;
    act(table);
    table.windows.reopen(key);
    Ok(())
}

fn remove(table: &mut MemoryTable, key: u32) -> Result<(), WindowsBound> {
    with_no_windows(table, key, |table| table.remove(key))
}

fn disable(table: &mut MemoryTable, key: u32) -> Result<(), WindowsBound> {
    with_no_windows(table, key, |table| table.disable(key))
}

/// # Safety
/// As [`MemoryTable::change`].
unsafe fn change(table: &mut MemoryTable, key: u32, spec: RegionSpec) -> Result<(), WindowsBound> {
    // SAFETY: by contract.
    with_no_windows(table, key, |table| unsafe { table.change(key, spec) })
}

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
        let remote = table.check_remote(PD, QPN, key, va, len, RemoteAccess::Write);
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
        let remote = |right| table.check_remote(PD, QPN, key, 0x1000, 8, right).is_ok();
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
        table.write_remote(Pd(8), QPN, key, 0x1000, &[1; 8]),
        Err(RemoteFault::OtherPd)
    );
    assert_eq!(remove(&mut table, key), Ok(()));
    assert_eq!(
        table.write_remote(PD, QPN, key, 0x1000, &[1; 8]),
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
            table
                .write_remote(PD, QPN, key, 0x1000, &[0xee; 96])
                .unwrap();
            let data: Vec<u8> = (0..len as u8).collect();
            table
                .write_remote(PD, QPN, key, 0x1000 + at, &data)
                .unwrap();
            let mut seen = vec![0; 96];
            table.read_remote(PD, QPN, key, 0x1000, &mut seen).unwrap();
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
    let spec = RegionSpec {
        base: words.as_mut_ptr() as usize,
        len: 16,
        ..spec(&mut [], 0x1000, ALL)
    };
    // SAFETY: `words` outlives the table's use.
    let key = unsafe { table.insert(spec) }.unwrap();
    let cas = |compare, swap| {
        table.atomic(
            PD,
            QPN,
            key,
            0x1000,
            AtomicOp::CompareSwap { compare, swap },
        )
    };
    assert_eq!(cas(4, 9), Ok(5));
    assert_eq!(cas(5, 9), Ok(5));
    assert_eq!(cas(0, 0), Ok(9));
    let add = AtomicOp::FetchAdd { add: u64::MAX };
    assert_eq!(table.atomic(PD, QPN, key, 0x1008, add), Ok(5));
    assert_eq!(table.atomic(PD, QPN, key, 0x1008, add), Ok(4));
    assert_eq!(
        table.atomic(PD, QPN, key, 0x100c, add),
        Err(RemoteFault::OutOfRange)
    );
}

#[test]
fn an_atomic_write_is_one_store_or_none() {
    let mut words = [5u64; 2];
    let mut table = MemoryTable::default();
    let base = words.as_mut_ptr() as usize;
    let aligned = RegionSpec {
        base,
        len: 16,
        ..spec(&mut [], 0x1000, ALL)
    };
    // As through a zero-based region: an aligned address over memory that is not.
    let crooked = RegionSpec {
        base: base + 4,
        len: 8,
        ..spec(&mut [], 0, ALL)
    };
    let reader = RegionSpec {
        access: Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
        ..aligned
    };
    // SAFETY: `words` outlives the table's use.
    let [aligned, crooked, reader] =
        [aligned, crooked, reader].map(|spec| unsafe { table.insert(spec) }.unwrap());
    let value = 9u64.to_ne_bytes();
    let store = |key, va| table.atomic_write(PD, QPN, key, va, value);
    assert_eq!(store(crooked, 0), Err(RemoteFault::OutOfRange));
    assert_eq!(store(reader, 0x1000), Err(RemoteFault::NoRight));
    assert_eq!(store(aligned, 0x1010), Err(RemoteFault::OutOfRange));
    assert_eq!(store(aligned, 0x1008), Ok(()));
    assert_eq!(words, [5, 9]);
}

#[test]
fn a_flush_needs_the_right_to_its_placement() {
    use RemoteAccess::{FlushGlobal, FlushPersistent};
    let mut buffer = [0u8; 64];
    let (table, key) = table(&mut buffer, Access::LOCAL_WRITE | Access::FLUSH_GLOBAL);
    let flush = |key, range, access| table.flush(PD, QPN, key, range, access);
    assert_eq!(flush(key, Some((0x1000, 64)), FlushGlobal), Ok(()));
    assert_eq!(flush(key, None, FlushGlobal), Ok(()));
    let refused = |range, access| flush(key, range, access).unwrap_err();
    let (right, range) = (RemoteFault::NoRight, RemoteFault::OutOfRange);
    assert_eq!(refused(Some((0x1000, 64)), FlushPersistent), right);
    assert_eq!(refused(None, FlushPersistent), right);
    assert_eq!(refused(Some((0x1000, 65)), FlushGlobal), range);
    assert_eq!(refused(Some((0xfff, 1)), FlushGlobal), range);
    let unknown = Err(RemoteFault::UnknownKey);
    assert_eq!(flush(key ^ 1, None, FlushGlobal), unknown);
    assert_eq!(flush(key ^ 1, Some((0x1000, 1)), FlushGlobal), unknown);
}

#[test]
fn keys_are_not_found_by_counting() {
    let mut buffer = [0u8; 8];
    let mut table = MemoryTable::default();
    // SAFETY: the buffer outlives the table.
    let keys: Vec<u32> = (0..64)
        .map(|_| unsafe { table.insert(spec(&mut buffer, 0, ALL)) }.unwrap())
        .collect();
    let near = keys
        .windows(2)
        .filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 16)
        .count();
    assert!(near < 8, "{near} of 63 neighbours are close: {keys:x?}");
}

#[test]
fn a_region_that_becomes_another_keeps_its_key() {
    let (mut first, mut second) = ([0u8; 64], [0u8; 32]);
    let (mut table, key) = table(&mut first, ALL);
    // SAFETY: the buffer outlives the table.
    let changed = unsafe {
        change(
            &mut table,
            key,
            spec(&mut second, 0x8000, Access::LOCAL_WRITE),
        )
    };
    assert_eq!(changed, Ok(()));
    assert_eq!(
        table.write_remote(PD, QPN, key, 0x1000, &[1; 8]),
        Err(RemoteFault::OutOfRange)
    );
    assert_eq!(
        table.write_remote(PD, QPN, key, 0x8000, &[1; 8]),
        Err(RemoteFault::NoRight)
    );
    assert_eq!(table.write_local(PD, key, 0x8000, &[1; 8]), Ok(()));
    assert_eq!(disable(&mut table, key), Ok(()));
    assert!(table.write_local(PD, key, 0x8000, &[1; 8]).is_err());
    assert_eq!(remove(&mut table, key), Ok(()));
    assert_eq!((first, second[..8].as_ref()), ([0; 64], [1; 8].as_ref()));
}

#[test]
fn the_null_region_reads_zeros_and_swallows_writes_anywhere() {
    let mut table = MemoryTable::default();
    let key = table.insert_null(PD).unwrap();
    let mut out = [7u8; 16];
    for va in [0, 0x1234, u64::MAX - 16] {
        assert_eq!(table.write_local(PD, key, va, &[1; 16]), Ok(()));
        assert_eq!(table.read_local(PD, key, va, &mut out), Ok(()));
        assert_eq!(out, [0; 16]);
        assert!(
            table
                .check_remote(PD, QPN, key, va, 1, RemoteAccess::Read)
                .is_err()
        );
    }
}

#[test]
fn device_memory_is_counted_and_bounded() {
    let memory = DeviceMemory::alloc(100).unwrap();
    assert!(memory.write(60, &[3; 40]) && !memory.write(61, &[3; 40]));
    assert!(!memory.write(u64::MAX, &[3; 1]));
    let mut out = [9u8; 100];
    assert!(memory.read(0, &mut out));
    assert_eq!((&out[..60], &out[60..]), (&[0; 60][..], &[3; 40][..]));
    assert!(
        DeviceMemory::alloc(DEVICE_MEMORY).is_none(),
        "100 are taken"
    );
    drop(memory);
    assert!(DeviceMemory::alloc(DEVICE_MEMORY).is_some());
}
