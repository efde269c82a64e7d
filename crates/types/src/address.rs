//! Addresses: rows of GID tables, and what leads to a peer.

use alloc::string::String;
use core::net::IpAddr;

use crate::Gid;

/// An entry of the GID table. All are of type RoCE v2.
#[derive(Clone, Debug)]
pub struct GidEntry {
    /// Position in the table, what `sgid_index` names.
    pub index: u32,
    /// The GID: the IPv6 address, or the IPv4 address mapped.
    pub gid: Gid,
    /// The same as an address.
    pub addr: IpAddr,
    /// Interface that has the address.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// Its MTU, bytes.
    pub netdev_mtu: u32,
    /// Scope of a link-local address, else 0.
    pub scope_id: u32,
    /// On a loopback interface.
    pub loopback: bool,
    /// The interface can carry packets now: its cable is plugged in, so to speak.
    pub running: bool,
}

/// Address vector (`struct ibv_ah_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of ibv_modify_qp(3)")]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: bool,
    pub port_num: u8,
}
