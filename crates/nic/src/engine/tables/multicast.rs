//! Multicast groups: `ibv_attach_mcast(3)`, and which queue pairs get a copy of what arrives.
//!
//! A group is an IP multicast group. Its MGID is the IPv6 address of the group, or its IPv4 address
//! mapped (what librdmacm uses for RoCE v2 over IPv4). As a queue pair that attaches does not say
//! over which of the port's GIDs it wants to hear the group, it is joined on every interface of the
//! GID table, also on those that appear later.
//!
//! An IPv6 MGID also has a group over IPv4, or programs with an MGID of their own invention
//! (perftest) would be without multicast wherever GIDs are IPv4: see [`group_address`].

use std::collections::HashMap;
use std::net::IpAddr;

use rnic_link::{Address, Port};
use rnic_wire::Gid;

use crate::addressing::gid_table::GidEntry;
use crate::addressing::group::group_address;
use crate::error::{Error, Result};

/// The groups that queue pairs of this process are attached to.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_address: HashMap<IpAddr, Group>,
    /// (MGID, QP number) pairs.
    attached: Vec<(Gid, u32)>,
}

#[derive(Debug, Default)]
struct Group {
    members: Vec<u32>,
    /// Interfaces on which it was joined.
    interfaces: Vec<u32>,
}

const ATTACH: &str = "ibv_attach_mcast";

impl Groups {
    /// Attaches a queue pair; nothing happens if it is attached already.
    pub(crate) fn attach(
        &mut self,
        mgid: Gid,
        qpn: u32,
        table: &[GidEntry],
        link: &mut Port,
    ) -> Result<()> {
        if !mgid.ip().is_multicast() {
            return Err(Error::invalid(
                ATTACH,
                format!("{} is no multicast GID", mgid.ip()),
            ));
        }
        if self.attached.contains(&(mgid, qpn)) {
            return Ok(());
        }
        let (joined, refused) = self.join(mgid, qpn, table, link);
        if !joined {
            let Some((group, interface, e)) = refused else {
                return Err(Error::invalid(
                    ATTACH,
                    format!("no GID of the port is of the family of {}", mgid.ip()),
                ));
            };
            return Err(Error::new(
                ATTACH,
                e.raw_os_error().unwrap_or(libc::EIO),
                format!("cannot join {group} on {interface}: {e}"),
            ));
        }
        self.attached.push((mgid, qpn));
        Ok(())
    }

    /// Joins what an MGID means on every interface of `table`. Gives whether the queue pair is a
    /// member of anything now, and what the kernel refused last.
    fn join(
        &mut self,
        mgid: Gid,
        qpn: u32,
        table: &[GidEntry],
        link: &mut Port,
    ) -> (bool, Option<(IpAddr, String, std::io::Error)>) {
        let (mut joined, mut refused) = (false, None);
        for v4 in [true, false] {
            let Some(address) = group_address(mgid, v4) else {
                continue;
            };
            let group = self.by_address.entry(address).or_default();
            for entry in table.iter().filter(|e| e.addr.is_ipv4() == v4) {
                if group.interfaces.contains(&entry.ifindex) {
                    continue;
                }
                match link.join(address, entry.ifindex) {
                    Ok(()) => group.interfaces.push(entry.ifindex),
                    Err(e) => refused = Some((address, entry.ifname.clone(), e)),
                }
            }
            if group.interfaces.is_empty() && group.members.is_empty() {
                self.by_address.remove(&address);
                continue;
            }
            if !group.members.contains(&qpn) {
                group.members.push(qpn);
            }
            joined = true;
        }
        (joined, refused)
    }

    /// The table has changed: leaves groups on the interfaces that are gone from it, and joins on
    /// new ones.
    pub(crate) fn follow(&mut self, table: &[GidEntry], link: &mut Port) {
        for (address, group) in &mut self.by_address {
            group.interfaces.retain(|ifindex| {
                let here =
                    |e: &GidEntry| e.ifindex == *ifindex && e.addr.is_ipv4() == address.is_ipv4();
                let stays = table.iter().any(here);
                if !stays {
                    link.leave(*address, *ifindex);
                }
                stays
            });
        }
        for (mgid, qpn) in self.attached.clone() {
            // What the kernel refuses now (too many groups) is missed, and tried again at the next
            // change.
            let _ = self.join(mgid, qpn, table, link);
        }
    }

    /// Detaches it.
    pub(crate) fn detach(&mut self, mgid: Gid, qpn: u32, link: &mut Port) -> Result<()> {
        let place = self.attached.iter().position(|a| *a == (mgid, qpn));
        let Some(place) = place else {
            return Err(Error::invalid(
                "ibv_detach_mcast",
                format!("the queue pair is not attached to {}", mgid.ip()),
            ));
        };
        self.attached.swap_remove(place);
        for address in [true, false]
            .into_iter()
            .filter_map(|v4| group_address(mgid, v4))
        {
            let Some(group) = self.by_address.get_mut(&address) else {
                continue;
            };
            // Two MGIDs may mean one group.
            let still = self.attached.iter().any(|&(other, q)| {
                q == qpn && group_address(other, address.is_ipv4()) == Some(address)
            });
            if !still {
                group.members.retain(|m| *m != qpn);
            }
            if group.members.is_empty() {
                for ifindex in &group.interfaces {
                    link.leave(address, *ifindex);
                }
                self.by_address.remove(&address);
            }
        }
        Ok(())
    }

    /// The queue pair is attached to some group.
    pub(crate) fn has(&self, qpn: u32) -> bool {
        self.attached.iter().any(|(_, q)| *q == qpn)
    }

    /// Detaches a queue pair that is destroyed from everything.
    pub(crate) fn forget(&mut self, qpn: u32, link: &mut Port) {
        while let Some((mgid, _)) = self.attached.iter().find(|(_, q)| *q == qpn).copied() {
            let _ = self.detach(mgid, qpn, link);
        }
    }

    /// The queue pairs that get a copy of a packet to `address`, each once.
    pub(crate) fn members(&self, address: Address) -> &[u32] {
        let group = address.ip().and_then(|ip| self.by_address.get(&ip));
        group.map_or(&[], |group| &group.members)
    }
}
