//! Address vectors: which way leads to a peer.

use std::net::IpAddr;

use rnic_link::PathSpec;
use rnic_wire::Gid;

use crate::addressing::gid_table::GidEntry;
use crate::addressing::group::group_address;
use crate::error::{Error, Result};

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

/// Turns an address vector into the two ends of a path, or says why there is none.
pub(crate) fn path_spec(
    verb: &'static str,
    attr: &AhAttr,
    dest_qpn: u32,
    table: &[GidEntry],
) -> Result<PathSpec> {
    if !attr.is_global {
        return Err(Error::invalid(
            verb,
            "is_global is 0: RoCE addresses peers by GID, set ah_attr.is_global and grh (many tools: option -g INDEX)",
        ));
    }
    let index = attr.sgid_index;
    let source = table
        .iter()
        .find(|e| e.index == u32::from(index))
        .ok_or_else(|| {
            Error::invalid(
                verb,
                format!(
                    "sgid_index {index}: the GID table has {} entries",
                    table.len()
                ),
            )
        })?;
    let named = IpAddr::from(attr.dgid);
    if named.is_unspecified() {
        return Err(Error::invalid(verb, "the destination GID is zero"));
    }
    let remote = if named.is_multicast() {
        group_address(attr.dgid, source.addr.is_ipv4()).unwrap_or(named)
    } else {
        named
    };
    if remote.is_ipv4() != source.addr.is_ipv4() {
        return Err(Error::invalid(
            verb,
            format!(
                "GID index {index} is {}, but the peer's GID is {remote}: choose on both sides a GID of the same kind",
                source.addr
            ),
        ));
    }
    Ok(PathSpec {
        local: source.addr,
        scope_id: if remote.is_multicast() && remote.is_ipv6() {
            source.ifindex
        } else {
            source.scope_id
        },
        remote,
        dest_qpn,
        traffic_class: attr.traffic_class,
        hop_limit: attr.hop_limit,
    })
}

/// Bytes of IP, UDP, BTH, RETH, immediate data and ICRC in front of and behind a full payload,
/// which the XRCETH adds to.
const HEADROOM_V4: u32 = 20 + 8 + 12 + 16 + 4 + 4;
const HEADROOM_V6: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// The most bytes of a full packet beside its payload.
pub(crate) fn headroom(remote: IpAddr) -> u32 {
    match remote {
        IpAddr::V4(_) => HEADROOM_V4,
        IpAddr::V6(_) => HEADROOM_V6,
    }
}
