//! What `rnic devices --json` says.

use serde_json::Value;
use std::net::{IpAddr, Ipv6Addr};

/// A row of the GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index, what `ibv_rc_pingpong -g` and perftest's `-x` take.
    pub index: u32,
    /// The GID, written as IPv6 address.
    pub gid: Ipv6Addr,
    /// The address it stands for.
    pub address: IpAddr,
    /// The network interface that has the address.
    pub interface: String,
    /// What kind of GID it is, e.g. `RoCE v2`.
    pub kind: String,
}

/// Reads the GID tables of all devices in the output of `rnic devices --json`.
///
/// # Panics
/// When it is not the expected JSON.
pub fn parse_gids(json: &str) -> Vec<Gid> {
    let value: Value =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("not JSON: {error}\n{json}"));
    let mut gids = Vec::new();
    for device in value["devices"]
        .as_array()
        .unwrap_or_else(|| panic!("no devices in {json}"))
    {
        for port in device["ports"]
            .as_array()
            .unwrap_or_else(|| panic!("no ports in {json}"))
        {
            for gid in port["gids"]
                .as_array()
                .unwrap_or_else(|| panic!("no gids in {json}"))
            {
                gids.push(parse_gid(gid).unwrap_or_else(|| panic!("not a GID: {gid}")));
            }
        }
    }
    gids
}

fn parse_gid(value: &Value) -> Option<Gid> {
    Some(Gid {
        index: u32::try_from(value["index"].as_u64()?).ok()?,
        gid: value["gid"].as_str()?.parse().ok()?,
        address: value["address"].as_str()?.parse().ok()?,
        interface: value["interface"].as_str()?.to_owned(),
        kind: value["type"].as_str()?.to_owned(),
    })
}
