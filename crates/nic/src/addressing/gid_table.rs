//! The GID table: one RoCE v2 entry per address of the host.
//!
//! As on hardware, an entry keeps its index as long as its address is there: one that went leaves
//! its row empty, and a new one takes the first empty row. The rows are this process's own, from
//! its first look at the table on.

use std::net::IpAddr;
use std::time::Duration;

pub use rnic_types::GidEntry;
use rnic_wire::{Gid, PathMtu};
use rustix_futex_sync::{Mutex, MutexGuard};

use crate::sync::within::within;

/// What a row stands for: an address and, if it is link-local, its scope.
type Key = (IpAddr, u32);

/// Who has which row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    keys: Vec<Option<Key>>,
    /// The table when it could be read last.
    last: Vec<GidEntry>,
}

impl Rows {
    /// Gives each of `present` its row: the one it had, or the first that is empty.
    fn assign(&mut self, present: &[Key]) -> Vec<u32> {
        for row in &mut self.keys {
            if row.is_some_and(|key| !present.contains(&key)) {
                *row = None;
            }
        }
        let mut place = |key: &Key| {
            let kept = self.keys.iter().position(|row| row.as_ref() == Some(key));
            let index = kept.or_else(|| self.keys.iter().position(Option::is_none));
            match index {
                Some(index) => self.keys[index] = Some(*key),
                None => self.keys.push(Some(*key)),
            }
            index.unwrap_or(self.keys.len() - 1) as u32
        };
        present.iter().map(&mut place).collect()
    }
}

static ROWS: Mutex<Rows> = Mutex::new(Rows {
    keys: Vec::new(),
    last: Vec::new(),
});

pub(crate) type RowsGuard = MutexGuard<'static, Rows>;

/// Held across fork(2), so that the child finds it free.
pub(crate) fn lock_rows() -> RowsGuard {
    ROWS.lock()
}

/// The rows, unless they stay locked far longer than anybody holds them: then this is a child made
/// by a bare system call, and a thread of its parent had them.
fn lock_rows_soon() -> Option<RowsGuard> {
    within(Duration::from_millis(200), || ROWS.try_lock())
}

/// Reads the host's addresses. At first: interfaces in the order of their index, loopback last; on
/// each IPv4 first, then global IPv6, then link-local. So index 0 is the address other hosts know.
/// Sorted by index; empty rows are left out.
///
/// Where it cannot be read (out of descriptors) it is as it was: that is no news of the host's
/// addresses.
pub fn gid_table() -> Vec<GidEntry> {
    table_of(rnic_sys::interface_addresses().map(|(found, _)| found))
}

fn table_of(found: std::io::Result<Vec<rnic_sys::InterfaceAddress>>) -> Vec<GidEntry> {
    let Ok(mut found) = found else {
        return lock_rows_soon().map_or(Vec::new(), |rows| rows.last.clone());
    };
    found.sort_by_key(|a| {
        let kind = match a.addr {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        // The sort is stable: addresses of one kind stay in the kernel's order.
        (a.loopback, a.index, kind)
    });
    // One address on two interfaces cannot be told apart by its GID; the first counts.
    let mut seen = Vec::new();
    found.retain(|a| {
        let key = key(a);
        let fresh = !seen.contains(&key);
        seen.push(key);
        fresh
    });
    let keys: Vec<Key> = found.iter().map(key).collect();
    let rows = match lock_rows_soon() {
        Some(mut rows) => rows.assign(&keys),
        None => Rows::default().assign(&keys),
    };
    let mut mtus = Vec::new();
    let mut mtu_of = |a: &rnic_sys::InterfaceAddress| {
        let known = mtus.iter().find(|(index, _)| *index == a.index);
        known.map(|(_, mtu)| *mtu).unwrap_or_else(|| {
            let mtu = rnic_sys::interface_mtu(&a.name).unwrap_or(1500);
            mtus.push((a.index, mtu));
            mtu
        })
    };
    let mut table: Vec<GidEntry> = found
        .into_iter()
        .zip(rows)
        .map(|(a, index)| GidEntry {
            index,
            gid: Gid::from(a.addr),
            addr: a.addr,
            ifindex: a.index,
            netdev_mtu: mtu_of(&a),
            scope_id: key(&a).1,
            ifname: a.name,
            loopback: a.loopback,
            running: a.running,
        })
        .collect();
    table.sort_by_key(|entry| entry.index);
    if let Some(mut rows) = lock_rows_soon() {
        rows.last.clone_from(&table);
    }
    table
}

fn key(address: &rnic_sys::InterfaceAddress) -> Key {
    match address.addr {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => (address.addr, address.scope_id),
        addr => (addr, 0),
    }
}

/// The port's active MTU: what every interface of the table can carry. Loopback counts only when it
/// is alone, so that a default MTU works towards other hosts too.
pub(crate) fn active_mtu(table: &[GidEntry]) -> PathMtu {
    let smallest = |loopback: bool| {
        table
            .iter()
            .filter(|e| e.loopback == loopback)
            .map(|e| e.netdev_mtu)
            .min()
    };
    PathMtu::largest_for_netdev(smallest(false).or_else(|| smallest(true)).unwrap_or(1500))
}

/// The row whose interface stands for the device where one has to: the first that can carry packets
/// to other hosts, else the first that can carry any, else the first.
pub fn netdev(table: &[GidEntry]) -> Option<&GidEntry> {
    let running = |loopback: bool| {
        table
            .iter()
            .find(move |row| row.running && row.loopback == loopback)
    };
    running(false).or_else(|| running(true)).or(table.first())
}

/// The device's GUID in host order: EUI-64 of the first hardware address, else derived from the
/// machine's id.
pub fn device_guid() -> u64 {
    if let Ok((_, Some(m))) = rnic_sys::interface_addresses() {
        return u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]]);
    }
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    // Locally administered, as an address nobody assigned must be.
    (hash & !(1 << 56)) | 2 << 56
}

#[cfg(test)]
mod tests {
    //! Rows are stable.

    use super::*;

    fn key(last: u8) -> Key {
        (IpAddr::from([10, 0, 0, last]), 0)
    }

    #[test]
    fn a_row_stays_as_long_as_its_address() {
        let mut rows = Rows::default();
        assert_eq!(rows.assign(&[key(1), key(2), key(3)]), [0, 1, 2]);
        assert_eq!(rows.assign(&[key(3), key(1)]), [2, 0], "2 is gone");
        assert_eq!(
            rows.assign(&[key(4), key(5), key(3), key(1)]),
            [1, 3, 2, 0],
            "the first empty row, then a new one"
        );
        assert_eq!(rows.assign(&[]), []);
        assert_eq!(rows.assign(&[key(9), key(1)]), [0, 1]);
    }

    #[test]
    fn the_interface_of_the_device_leads_elsewhere_if_one_does() {
        let row = |ifname: &str, loopback, running| GidEntry {
            index: 0,
            gid: Gid::from(IpAddr::from([127, 0, 0, 1])),
            addr: IpAddr::from([127, 0, 0, 1]),
            ifindex: 1,
            ifname: ifname.to_owned(),
            netdev_mtu: 1500,
            scope_id: 0,
            loopback,
            running,
        };
        let chosen = |table: &[GidEntry]| netdev(table).map(|row| row.ifname.clone());
        let (lo, down, up) = (
            row("lo", true, true),
            row("down", false, false),
            row("up", false, true),
        );
        let all = [down.clone(), lo.clone(), up];
        assert_eq!(chosen(&all).as_deref(), Some("up"));
        assert_eq!(chosen(&all[..2]).as_deref(), Some("lo"));
        assert_eq!(chosen(&all[..1]).as_deref(), Some("down"));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_as_it_was() {
        let names = |table: &[GidEntry]| -> Vec<_> {
            table.iter().map(|row| (row.index, row.addr)).collect()
        };
        let before = names(&gid_table());
        let out_of_descriptors = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(names(&table_of(Err(out_of_descriptors))), before);
    }
}
