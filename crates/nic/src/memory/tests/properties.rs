//! For any regions and windows, in any order of binds and invalidates: no access lands outside what
//! is open.

use proptest::prelude::*;
use rnic_transport::BindWindow;

use super::*;

const LEN: usize = 256;
const IOVA: u64 = 0x1000;
const QPNS: u32 = 2;

/// What a table is told to do; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Bind {
        window: usize,
        region: usize,
        tag: u8,
        addr: u64,
        length: u64,
        rights: u8,
        qpn: u32,
    },
    Invalidate {
        window: usize,
        qpn: u32,
    },
    Write {
        key: usize,
        tag: Option<u8>,
        qpn: u32,
        va: u64,
        len: usize,
    },
    QpGone(u32),
    Change {
        region: usize,
        start: usize,
        len: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let addr =
        || prop_oneof![8 => IOVA - 4..IOVA + LEN as u64 + 4, 2 => 0..LEN as u64, 1 => any::<u64>()];
    let length = prop_oneof![8 => 0..LEN as u64 + 4, 1 => any::<u64>()];
    prop_oneof![
        4 => (0..4usize, 0..2usize, any::<u8>(), addr(), length, any::<u8>(), 0..QPNS).prop_map(
            |(window, region, tag, addr, length, rights, qpn)| Step::Bind {
                window, region, tag, addr, length, rights, qpn
            }
        ),
        1 => (0..4usize, 0..QPNS).prop_map(|(window, qpn)| Step::Invalidate { window, qpn }),
        8 => (0..6usize, proptest::option::weighted(0.1, any::<u8>()), 0..QPNS, addr(), 0..64usize)
            .prop_map(|(key, tag, qpn, va, len)| Step::Write { key, tag, qpn, va, len }),
        1 => (0..QPNS).prop_map(Step::QpGone),
        1 => (0..2usize, 0..LEN, 0..LEN).prop_map(|(region, start, len)| Step::Change {
            region, start, len: len.min(LEN - start)
        }),
    ]
}

/// What is open by a key: the model, told apart from the table's own bookkeeping.
#[derive(Clone, Debug, Default)]
struct Open {
    key: u32,
    iova: u64,
    /// In the buffer.
    start: usize,
    len: usize,
    write: bool,
    qpn: Option<u32>,
    bound_to: Option<usize>,
}

proptest! {
    #[test]
    fn a_grant_never_leaves_its_region_or_window(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        // Two regions side by side in one buffer, with guard bytes around and between them.
        let mut buffer = vec![0u8; 3 * 64 + 2 * LEN];
        let starts = [64, 128 + LEN];
        let base = buffer.as_mut_ptr() as usize;
        let mut table = MemoryTable::default();
        let region = |start, len| RegionSpec {
            pd: PD, base: base + start, len: len as u64, iova: IOVA, access: Access(31), paged: false,
        };
        let mut open: Vec<Open> = Vec::new();
        for start in starts {
            // SAFETY: the buffer outlives the table; it is looked at through the same pointer only.
            let key = unsafe { table.insert(region(start, LEN)) }.unwrap();
            open.push(Open { key, iova: IOVA, start, len: LEN, write: true, ..Open::default() });
        }
        for type_2 in [false, false, true, true] {
            let key = table.insert_window(PD, type_2).unwrap();
            open.push(Open { key, ..Open::default() });
        }
        for step in steps {
            match step {
                Step::Bind { window, region, tag, addr, length, rights, qpn } => {
                    let type_2 = window >= 2;
                    let (window, from) = (2 + window, open[region].clone());
                    let rkey = (open[window].key & !0xff) | u32::from(tag);
                    let zero_based = rights & 8 != 0;
                    let bind = BindWindow {
                        rkey, lkey: from.key, addr, length,
                        read: rights & 1 != 0, write: rights & 2 != 0, atomic: rights & 4 != 0, zero_based,
                    };
                    let fits = length == 0
                        || addr >= IOVA && addr.checked_add(length).is_some_and(|end| end <= IOVA + from.len as u64);
                    let free = !(type_2 && open[window].bound_to.is_some());
                    prop_assert_eq!(table.bind(PD, qpn, &bind).is_ok(), fits && free);
                    if fits && free {
                        open[window] = Open {
                            key: rkey,
                            iova: if zero_based { 0 } else { addr },
                            start: from.start + addr.saturating_sub(IOVA).min(LEN as u64) as usize,
                            len: length as usize,
                            write: bind.write,
                            qpn: type_2.then_some(qpn),
                            bound_to: (length > 0).then_some(region),
                        };
                    }
                }
                Step::Invalidate { window, qpn } => {
                    let it = &mut open[2 + window];
                    let allowed = it.bound_to.is_some() && it.qpn == Some(qpn);
                    prop_assert_eq!(table.invalidate(PD, qpn, it.key).is_ok(), allowed);
                    if allowed {
                        *it = Open { key: it.key, ..Open::default() };
                    }
                }
                Step::QpGone(qpn) => {
                    table.windows.close_those_of(qpn);
                    for it in open.iter_mut().filter(|it| it.bound_to.is_some() && it.qpn == Some(qpn)) {
                        *it = Open { key: it.key, ..Open::default() };
                    }
                }
                Step::Change { region: index, start, len } => {
                    let in_use = open.iter().any(|it| it.bound_to == Some(index));
                    let (key, start) = (open[index].key, starts[index] + start);
                    // SAFETY: within the buffer.
                    let changed = unsafe { change(&mut table, key, region(start, len)) };
                    prop_assert_eq!(changed.is_ok(), !in_use);
                    if !in_use {
                        (open[index].start, open[index].len) = (start, len);
                    }
                }
                Step::Write { key, tag, qpn, va, len } => {
                    let it = open[key].clone();
                    let key = tag.map_or(it.key, |tag| (it.key & !0xff) | u32::from(tag));
                    let opened = key == it.key && (it.bound_to.is_some() || it.start != 0 && it.qpn.is_none())
                        && it.qpn.is_none_or(|owner| owner == qpn);
                    let offset = va.checked_sub(it.iova).filter(|offset| {
                        opened && it.write && offset.checked_add(len as u64).is_some_and(|end| end <= it.len as u64)
                    });
                    // SAFETY: the buffer, which nobody else looks at now.
                    let before = unsafe { std::slice::from_raw_parts(base as *const u8, 3 * 64 + 2 * LEN) }.to_vec();
                    let data: Vec<u8> = before.iter().take(len).map(|b| b ^ 0xa5).collect();
                    let done = table.write_remote(PD, qpn, key, va, &data);
                    let mut expected = before;
                    if let Some(offset) = offset {
                        let at = it.start + offset as usize;
                        expected[at..at + len].copy_from_slice(&data);
                    }
                    prop_assert_eq!(done.is_ok(), offset.is_some(), "{:?} {:#x} {}", it, va, len);
                    // SAFETY: as above.
                    let after = unsafe { std::slice::from_raw_parts(base as *const u8, 3 * 64 + 2 * LEN) };
                    prop_assert_eq!(after, &expected[..]);
                }
            }
        }
        for it in &open[2..] {
            table.windows.remove(it.key);
        }
        prop_assert!(!table.windows.belongs_to_a_queue_pair());
        for it in &open[..2] {
            prop_assert_eq!(remove(&mut table, it.key), Ok(()));
        }
    }
}
