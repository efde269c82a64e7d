//! Only memory that the NIC may touch takes part.

use rnic_transport::Sge;

use super::*;
use crate::memory::RegionSpec;

const PD: Pd = Pd(7);

fn table(buffer: &mut [u8], access: Access) -> (MemoryTable, u32) {
    let mut table = MemoryTable::default();
    let spec = RegionSpec {
        pd: PD,
        base: buffer.as_mut_ptr() as usize,
        len: buffer.len() as u64,
        iova: 0x1000,
        access,
        paged: access.contains(Access::ON_DEMAND),
    };
    // SAFETY: the tests keep the buffer alive while they use the table.
    let key = unsafe { table.insert(spec) }.unwrap();
    (table, key)
}

fn spans(table: &MemoryTable, list: &[Sge], write: bool, offset: u64, len: u32) -> Option<String> {
    let data = SendData::Gather(list.iter().copied().collect());
    let part = OneSided {
        pd: PD,
        dest_qpn: 1,
        mtu: rnic_wire::PathMtu::M256,
        write,
        rkey: 2,
        va: 3,
        data: &data,
        offset,
        len,
        whole: offset as u32 + len,
        ends: true,
    };
    let mut out = [Span::EMPTY; PIECES];
    let count = table.spans(&part, &mut out)?;
    Some(format!("{:?}", &out[..count]))
}

#[test]
fn parts_are_cut_from_the_list() {
    let mut buffer = [0u8; 64];
    let at = |offset: usize, len: usize| Span::new(buffer.as_ptr() as usize + offset, len);
    let want = |list: &[Span]| Some(format!("{list:?}"));
    let sge = |lkey, addr, length| Sge { addr, length, lkey };
    let expected = [
        want(&[at(0, 10), at(32, 4)]),
        want(&[at(5, 5), at(32, 2)]),
        want(&[at(33, 3)]),
    ];
    let (table, key) = table(&mut buffer, Access::LOCAL_WRITE);
    let list = [sge(key, 0x1000, 10), sge(key, 0, 0), sge(key, 0x1020, 4)];
    assert_eq!(spans(&table, &list, true, 0, 14), expected[0]);
    assert_eq!(spans(&table, &list, true, 5, 7), expected[1]);
    assert_eq!(spans(&table, &list, false, 11, 3), expected[2]);
    assert_eq!(
        spans(&table, &list, true, 0, 15),
        None,
        "more than there is"
    );
    for bad in [
        sge(key ^ 1, 0x1000, 4),
        sge(key, 0x103f, 4),
        sge(key, u64::MAX, 4),
    ] {
        assert_eq!(spans(&table, &[bad], true, 0, 4), None, "{bad:?}");
    }
    let many = [sge(key, 0x1000, 1); PIECES + 1];
    assert_eq!(spans(&table, &many, true, 0, many.len() as u32), None);
}

#[test]
fn rights_and_kinds_of_memory_are_looked_at() {
    let mut buffer = [0u8; 64];
    let remote = Access::REMOTE_READ | Access::REMOTE_WRITE;
    for (access, writable, reachable) in [
        (Access(0), false, Some((false, false))),
        (Access::LOCAL_WRITE, true, Some((false, false))),
        (Access::LOCAL_WRITE | remote, true, Some((true, true))),
        (Access::REMOTE_READ, false, Some((true, false))),
        (
            Access::LOCAL_WRITE | remote | Access::ON_DEMAND,
            false,
            None,
        ),
    ] {
        let (table, key) = table(&mut buffer, access);
        let list = [Sge {
            addr: 0x1000,
            length: 4,
            lkey: key,
        }];
        assert_eq!(spans(&table, &list, false, 0, 4).is_some(), writable);
        let found = table.reachable(PD, key);
        assert_eq!(found.map(|r| (r.read, r.write)), reachable, "{access:?}");
        assert!(table.reachable(Pd(8), key).is_none());
        assert!(table.reachable(PD, key ^ 1).is_none());
    }
    let mut table = MemoryTable::default();
    let null = table.insert_null(PD).unwrap();
    assert!(table.reachable(PD, null).is_none());
    let window = table.insert_window(PD, false).unwrap();
    assert!(table.reachable(PD, window).is_none());
}
