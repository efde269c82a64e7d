//! Address vectors: which way leads to a peer.

use std::net::IpAddr;

use rnic_link::{Address, AddressVector, IbPath, PathSpec};
pub use rnic_types::AhAttr;

use crate::addressing::gid_table::GidEntry;
use crate::addressing::group::group_address;
use crate::error::{Error, Result};

/// Turns an address vector into what leads to the peer, or says why nothing does. `lid`: the port's.
pub(crate) fn address_vector(
    verb: &'static str,
    attr: &AhAttr,
    dest_qpn: u32,
    table: &[GidEntry],
    lid: Option<u16>,
) -> Result<AddressVector> {
    if let Some(local_lid) = lid.filter(|_| !attr.is_global) {
        return by_lid(verb, attr, local_lid);
    }
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
    let spec = PathSpec {
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
    };
    Ok(spec.into())
}

fn by_lid(verb: &'static str, attr: &AhAttr, local_lid: u16) -> Result<AddressVector> {
    if attr.dlid == 0 {
        return Err(Error::invalid(verb, "the destination LID is 0"));
    }
    Ok(AddressVector::Ib(IbPath {
        local_lid,
        remote_lid: attr.dlid,
        sl: attr.sl & 0xf,
    }))
}

/// Bytes of BTH, RETH, immediate data and ICRC in front of and behind a full payload, which the
/// XRCETH adds to.
const HEADROOM: u32 = 12 + 16 + 4 + 4;

/// The most bytes of a full packet beside its payload.
pub(crate) fn headroom(remote: &Address) -> u32 {
    remote.header_len() + HEADROOM
}
