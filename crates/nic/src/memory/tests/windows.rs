//! Windows open what they say and close when told (IBTA 10.6.7).

use rnic_transport::{BindFault, BindWindow};

use super::*;

const RIGHTS: Access = Access(31);

fn whole(rkey: u32, lkey: u32) -> BindWindow {
    BindWindow {
        rkey,
        lkey,
        addr: 0x1000,
        length: 64,
        read: true,
        write: true,
        atomic: true,
        zero_based: false,
    }
}

/// The key of the same window with another tag.
fn next(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

#[test]
fn opens_its_part_with_its_rights_under_its_new_key_alone() {
    let mut buffer = [0u8; 64];
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let old = table.insert_window(PD, true).unwrap();
    let write = |table: &MemoryTable, key, va, len: usize| {
        table.write_remote(PD, QPN, key, va, &vec![1; len])
    };
    assert_eq!(write(&table, old, 0x1000, 8), Err(RemoteFault::UnknownKey));
    let key = next(old);
    let part = BindWindow {
        addr: 0x1010,
        length: 16,
        read: false,
        ..whole(key, lkey)
    };
    assert_eq!(table.bind(PD, QPN, &part), Ok(()));
    assert_eq!(write(&table, old, 0x1010, 8), Err(RemoteFault::UnknownKey));
    assert_eq!(write(&table, key, 0x1010, 16), Ok(()));
    assert_eq!(write(&table, key, 0x1010, 17), Err(RemoteFault::OutOfRange));
    assert_eq!(write(&table, key, 0x100f, 1), Err(RemoteFault::OutOfRange));
    assert_eq!(
        table.read_remote(PD, QPN, key, 0x1010, &mut [0]),
        Err(RemoteFault::NoRight)
    );
    assert_eq!(
        table.write_remote(PD, QPN + 1, key, 0x1010, &[1]),
        Err(RemoteFault::NoRight),
        "a type-2 window belongs to its queue pair"
    );
    assert_eq!(
        table.check_local(PD, key, 0x1010, 1, false),
        Err(rnic_transport::LocalFault::UnknownKey),
        "a window has no lkey"
    );
    let mut expected = [0u8; 64];
    expected[16..32].fill(1);
    assert_eq!(buffer, expected);
}

#[test]
fn zero_based_counts_from_its_first_byte() {
    let mut buffer = [0u8; 64];
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let key = table.insert_window(PD, true).unwrap();
    let bind = BindWindow {
        addr: 0x1020,
        length: 8,
        zero_based: true,
        ..whole(key, lkey)
    };
    assert_eq!(table.bind(PD, QPN, &bind), Ok(()));
    assert_eq!(table.write_remote(PD, QPN, key, 0, &[5; 8]), Ok(()));
    assert!(table.write_remote(PD, QPN, key, 0x1020, &[5; 8]).is_err());
    assert_eq!(buffer[32..40], [5; 8]);
}

#[test]
fn every_reason_to_refuse_a_bind() {
    let (mut plain, mut closed, mut readonly) = ([0u8; 64], [0u8; 64], [0u8; 64]);
    let mut other = [0u8; 64];
    let (mut table, lkey) = table(&mut plain, RIGHTS);
    let of_other_pd = RegionSpec {
        pd: Pd(8),
        ..spec(&mut other, 0x1000, RIGHTS)
    };
    // SAFETY: the buffers outlive the table.
    let (elsewhere, no_bind, no_write) = unsafe {
        (
            table.insert(of_other_pd).unwrap(),
            table.insert(spec(&mut closed, 0x1000, ALL)).unwrap(),
            table
                .insert(spec(&mut readonly, 0x1000, Access::MW_BIND))
                .unwrap(),
        )
    };
    let null = table.insert_null(PD).unwrap();
    let key = table.insert_window(PD, true).unwrap();
    let good = whole(key, lkey);
    let refusals = [
        (
            PD,
            BindWindow { rkey: lkey, ..good },
            BindFault::UnknownWindow,
        ),
        (PD, BindWindow { rkey: 0, ..good }, BindFault::UnknownWindow),
        (PD, BindWindow { lkey: 1, ..good }, BindFault::UnknownRegion),
        (
            PD,
            BindWindow { lkey: key, ..good },
            BindFault::UnknownRegion,
        ),
        (
            PD,
            BindWindow { lkey: null, ..good },
            BindFault::UnknownRegion,
        ),
        (Pd(8), good, BindFault::OtherPd),
        (
            PD,
            BindWindow {
                lkey: elsewhere,
                ..good
            },
            BindFault::RegionOfOtherPd,
        ),
        (
            PD,
            BindWindow {
                lkey: no_bind,
                ..good
            },
            BindFault::NoBindRight,
        ),
        (
            PD,
            BindWindow {
                lkey: no_write,
                ..good
            },
            BindFault::NoLocalWrite,
        ),
        (PD, BindWindow { length: 65, ..good }, BindFault::OutOfRange),
        (
            PD,
            BindWindow {
                addr: 0xfff,
                ..good
            },
            BindFault::OutOfRange,
        ),
        (
            PD,
            BindWindow {
                length: u64::MAX,
                ..good
            },
            BindFault::OutOfRange,
        ),
    ];
    for (pd, bind, fault) in refusals {
        assert_eq!(table.bind(pd, QPN, &bind), Err(fault), "{bind:?}");
    }
    let read_only = BindWindow {
        lkey: no_write,
        write: false,
        atomic: false,
        ..good
    };
    assert_eq!(table.bind(PD, QPN, &read_only), Ok(()));
    assert_eq!(
        table.bind(PD, QPN, &good),
        Err(BindFault::AlreadyBound),
        "a type-2 window is invalidated first"
    );
    assert_eq!(
        table.windows.none_bound(lkey),
        Ok(()),
        "refusals left nothing"
    );
}

#[test]
fn type_1_moves_and_closes_by_binding() {
    let mut buffer = [0u8; 64];
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let first = table.insert_window(PD, false).unwrap();
    let second = next(first);
    assert_eq!(table.bind(PD, QPN, &whole(first, lkey)), Ok(()));
    assert_eq!(table.write_remote(PD, QPN + 1, first, 0x1000, &[1]), Ok(()));
    let bind = BindWindow {
        length: 1,
        ..whole(second, lkey)
    };
    assert_eq!(table.bind(PD, QPN, &bind), Ok(()));
    assert!(table.write_remote(PD, QPN, first, 0x1000, &[1]).is_err());
    assert_eq!(table.write_remote(PD, QPN, second, 0x1000, &[1]), Ok(()));
    assert_eq!(
        remove(&mut table, lkey),
        Err(WindowsBound(1)),
        "counted once"
    );
    assert_eq!(
        table.invalidate(PD, QPN, second),
        Err(BindFault::InvalidatesType1)
    );
    let close = BindWindow {
        length: 0,
        lkey: 0,
        ..whole(next(second), lkey)
    };
    assert_eq!(table.bind(PD, QPN, &close), Ok(()));
    assert!(table.write_remote(PD, QPN, second, 0x1000, &[1]).is_err());
    assert!(
        table
            .write_remote(PD, QPN, close.rkey, 0x1000, &[1])
            .is_err()
    );
    assert_eq!(remove(&mut table, lkey), Ok(()));
}

#[test]
fn invalidation_is_for_the_owner_of_a_bound_type_2_window() {
    let mut buffer = [0u8; 64];
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let key = table.insert_window(PD, true).unwrap();
    assert_eq!(
        table.invalidate(PD, QPN, key),
        Err(BindFault::UnknownWindow),
        "bound to nothing"
    );
    assert_eq!(table.bind(PD, QPN, &whole(key, lkey)), Ok(()));
    for (pd, qpn, rkey, fault) in [
        (PD, QPN + 1, key, BindFault::OtherQp),
        (Pd(8), QPN, key, BindFault::OtherPd),
        (PD, QPN, next(key), BindFault::UnknownWindow),
        (PD, QPN, lkey, BindFault::InvalidatesRegion),
    ] {
        assert_eq!(table.invalidate(pd, qpn, rkey), Err(fault));
        assert!(table.invalidate_by_peer(pd, qpn, rkey).is_err());
    }
    assert_eq!(table.write_remote(PD, QPN, key, 0x1000, &[1]), Ok(()));
    assert_eq!(table.invalidate_by_peer(PD, QPN, key), Ok(()));
    assert!(table.write_remote(PD, QPN, key, 0x1000, &[1]).is_err());
    assert_eq!(table.bind(PD, QPN, &whole(key, lkey)), Ok(()));
    table.windows.close_those_of(QPN + 1);
    assert_eq!(table.write_remote(PD, QPN, key, 0x1000, &[1]), Ok(()));
    table.windows.close_those_of(QPN);
    assert!(table.write_remote(PD, QPN, key, 0x1000, &[1]).is_err());
    assert_eq!(remove(&mut table, lkey), Ok(()));
}

#[test]
fn a_window_does_not_outlive_its_region_nor_a_region_change_under_it() {
    let (mut buffer, mut other) = ([0u8; 64], [0u8; 64]);
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let keys: Vec<u32> = [true, false]
        .map(|type_2| table.insert_window(PD, type_2).unwrap())
        .into();
    for key in &keys {
        assert_eq!(table.bind(PD, QPN, &whole(*key, lkey)), Ok(()));
    }
    assert_eq!(remove(&mut table, lkey), Err(WindowsBound(2)));
    // SAFETY: nothing is changed.
    let changed = unsafe { change(&mut table, lkey, spec(&mut other, 0x1000, RIGHTS)) };
    assert_eq!(changed, Err(WindowsBound(2)));
    table.windows.remove(keys[1]);
    assert_eq!(remove(&mut table, lkey), Err(WindowsBound(1)));
    table.windows.close_all_of(lkey);
    table.remove(lkey);
    assert!(table.write_remote(PD, QPN, keys[0], 0x1000, &[1]).is_err());
    assert!(!table.windows.belongs_to_a_queue_pair());
    assert_eq!(buffer, [0; 64]);
}

#[test]
fn a_region_with_windows_is_neither_changed_nor_disabled() {
    let mut buffer = [0u8; 64];
    let again = spec(&mut buffer, 0x1000, ALL);
    let (mut table, lkey) = table(&mut buffer, RIGHTS);
    let key = table.insert_window(PD, true).unwrap();
    assert_eq!(table.bind(PD, QPN, &whole(key, lkey)), Ok(()));
    // What is disabled is the program's to unmap: nothing may open it any more.
    assert_eq!(disable(&mut table, lkey), Err(WindowsBound(1)));
    // SAFETY: the buffer outlives the table's use.
    let changed = unsafe { change(&mut table, lkey, again) };
    assert_eq!(changed, Err(WindowsBound(1)));
    assert!(table.check_local(PD, lkey, 0x1000, 64, true).is_ok());
    assert_eq!(table.invalidate(PD, QPN, key), Ok(()));
    assert_eq!(disable(&mut table, lkey), Ok(()));
}

#[test]
fn a_window_is_one_for_the_tables_of_all_shards() {
    let mut buffer = [0u8; 64];
    let region = spec(&mut buffer, 0x1000, RIGHTS);
    let (mut first, lkey) = table(&mut buffer, RIGHTS);
    let mut second = first.beside().expect("memory");
    // SAFETY: the buffer outlives the tables' use.
    unsafe { second.insert_as(lkey, region) };
    let [one, two] = [false, true].map(|type_2| first.insert_window(PD, type_2).unwrap());
    // A type-1 window is open to all queue pairs of its domain, a type-2 window to its own; each is
    // bound once.
    assert_eq!(second.bind(PD, QPN, &whole(one, lkey)), Ok(()));
    assert_eq!(first.bind(PD, QPN, &whole(two, lkey)), Ok(()));
    let (bind, other) = (whole(two, lkey), QPN + 1);
    assert_eq!(second.bind(PD, other, &bind), Err(BindFault::AlreadyBound));
    for table in [&first, &second] {
        assert_eq!(table.write_remote(PD, other, one, 0x1000, &[1]), Ok(()));
        let written = table.write_remote(PD, other, two, 0x1000, &[1]);
        assert_eq!(written, Err(RemoteFault::NoRight));
    }
    // While a region is taken out of one table after the other, nobody binds to what is left of it.
    assert_eq!(first.windows.close(lkey), Err(WindowsBound(2)));
    assert_eq!(first.invalidate(PD, QPN, two), Ok(()));
    second.windows.remove(one);
    assert_eq!(first.windows.close(lkey), Ok(()));
    first.disable(lkey);
    let refused = second.bind(PD, other, &bind);
    assert_eq!(refused, Err(BindFault::UnknownRegion));
    second.disable(lkey);
    first.windows.reopen(lkey);
    let refused = second.bind(PD, other, &bind);
    assert_eq!(refused, Err(BindFault::NoBindRight));
}
