//! Path records.

use rnic_wire::{Gid, PathMtu};

/// A path record (IBTA vol. 1, 15.2.5.16; `struct ib_user_path_rec`), in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// Peer.
    pub dgid: Gid,
    /// Own.
    pub sgid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// P_Key.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// What fits the way, as far as this side knows it.
    pub mtu: PathMtu,
    /// `enum ibv_rate`.
    pub rate: u8,
    /// Packet life time, 4.096 us * 2^n.
    pub packet_life_time: u8,
}
