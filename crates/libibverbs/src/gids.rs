//! The GID table of a device as the program sees it.

use std::fs;
use std::net::IpAddr;

use rnic_sys::InterfaceAddress;
use rnic_types::{Gid, GidEntry};

/// A row as a device tells it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub index: u32,
    pub gid: [u8; 16],
    pub ifindex: u32,
}

/// The rows with what the system says of their interfaces. Where it says nothing, the port's MTU
/// counts.
pub fn table(rows: Vec<Row>, port_mtu: u32, is_up: bool) -> Vec<GidEntry> {
    // Where it cannot be read (out of descriptors), the system says nothing of any interface.
    let interfaces =
        rnic_sys::interface_addresses().map_or_else(|_| Vec::new(), |(found, _)| found);
    let mtu = |name: &str| rnic_sys::interface_mtu(name).unwrap_or(port_mtu);
    let entry = |row: Row| {
        let gid = Gid(row.gid);
        let addr = gid.ip();
        let of_addr = |found: &&InterfaceAddress| match row.ifindex {
            0 => found.addr == addr,
            ifindex => found.index == ifindex,
        };
        let found = interfaces.iter().filter(of_addr);
        // Of one address on two interfaces, that which leads to other hosts.
        let interface = found.min_by_key(|found| (found.loopback, found.index));
        let ifindex = interface.map_or(row.ifindex, |found| found.index);
        let is_link_local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        GidEntry {
            index: row.index,
            gid,
            addr,
            ifindex,
            ifname: interface.map_or_else(String::new, |found| found.name.clone()),
            netdev_mtu: interface.map_or(port_mtu, |found| mtu(&found.name)),
            scope_id: if is_link_local { ifindex } else { 0 },
            loopback: interface.map_or(addr.is_loopback(), |found| found.loopback),
            running: interface.map_or(is_up, |found| found.running),
        }
    };
    rows.into_iter().map(entry).collect()
}

/// What sysfs says of a row, for libraries that have no call for it: it is RoCE v2, and the index of
/// its interface is this (0: unknown).
pub fn roce_v2_interface(device: &str, port: u8, index: u32) -> Option<u32> {
    let folder = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs");
    let kind = fs::read_to_string(format!("{folder}/types/{index}")).ok()?;
    if kind.trim() != "RoCE v2" {
        return None;
    }
    let name = fs::read_to_string(format!("{folder}/ndevs/{index}")).unwrap_or_default();
    let ifindex = fs::read_to_string(format!("/sys/class/net/{}/ifindex", name.trim()));
    Some(ifindex.map_or(0, |text| text.trim().parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: a row has what the system says of its interface, and else what the port has.
    #[test]
    fn rows_have_what_the_system_says_of_their_interfaces() {
        const PORT_MTU: u32 = 1234;
        let (found, _) = rnic_sys::interface_addresses().expect("interfaces");
        let lo = found.iter().find(|found| found.addr.is_loopback());
        let lo = lo.expect("a loopback interface that is up");
        // Documentation's (RFC 3849): no interface of this host has it.
        let elsewhere = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
        let row = |index, addr, ifindex| Row {
            index,
            gid: Gid::from(addr).0,
            ifindex,
        };
        let rows = vec![
            row(3, lo.addr, 0),
            row(5, elsewhere, lo.index),
            row(7, elsewhere, 0),
        ];
        let table = table(rows, PORT_MTU, false);
        let indexes: Vec<u32> = table.iter().map(|entry| entry.index).collect();
        assert_eq!(indexes, [3, 5, 7]);
        for entry in &table[..2] {
            assert_eq!(
                (entry.ifindex, entry.ifname.as_str()),
                (lo.index, lo.name.as_str())
            );
            assert_eq!(Some(entry.netdev_mtu), rnic_sys::interface_mtu(&lo.name));
            assert_eq!((entry.loopback, entry.running), (true, lo.running));
        }
        let unknown = &table[2];
        assert_eq!((unknown.ifindex, unknown.ifname.as_str()), (0, ""));
        assert_eq!(
            (unknown.netdev_mtu, unknown.loopback, unknown.running),
            (PORT_MTU, false, false)
        );
        assert_eq!(unknown.addr, elsewhere);
    }
}
