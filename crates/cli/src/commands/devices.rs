//! `rnic devices`: device, port and GID table, like `ibv_devinfo` and `show_gids`.

use std::net::{IpAddr, Ipv6Addr};

use rnic::{BackEnd, Context, GidEntry, PathMtu, PortState};
use rnic_nic::PkeyTable;
use serde::Serialize;

use crate::platform::failure::{Failure, Result};
use crate::text::settings::{self, Setting};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print every setting that is in force, too
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    /// Of the format that docs/json.md describes. Fields may be added to it.
    version: u32,
    devices: Vec<Device>,
    /// With `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Vec<Setting>>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    guid: String,
    /// Part of the system's libibverbs; it is not opened.
    system: bool,
    ports: Vec<Port>,
}

#[derive(Debug, Serialize)]
struct Port {
    port: u8,
    state: &'static str,
    link_layer: &'static str,
    max_mtu: usize,
    active_mtu: usize,
    /// Why the port is not active.
    problem: Option<String>,
    gids: Vec<Gid>,
    /// Index 0 first.
    pkeys: Vec<u16>,
}

#[derive(Debug, Serialize)]
struct Gid {
    index: u32,
    /// As an IPv6 address.
    gid: Ipv6Addr,
    #[serde(rename = "type")]
    kind: &'static str,
    interface: String,
    address: IpAddr,
    netdev_mtu: u32,
    /// Largest path MTU of packets from this address.
    path_mtu: usize,
}

fn gid(entry: &GidEntry) -> Gid {
    Gid {
        index: entry.index,
        gid: Ipv6Addr::from(entry.gid.0),
        kind: "RoCE v2",
        interface: entry.ifname.clone(),
        address: entry.addr,
        netdev_mtu: entry.netdev_mtu,
        path_mtu: PathMtu::largest_for_netdev(entry.netdev_mtu).bytes(),
    }
}

/// Looks at the device; what keeps it from being opened is reported beside what can be listed all
/// the same.
fn look() -> (Listing, Option<Failure>) {
    // The addresses are known without opening anything.
    let table = rnic_nic::gid_table();
    let (port, failure) = match Context::open_by_name(rnic_nic::DEVICE_NAME)
        .and_then(|context| context.port_attr(1))
    {
        Ok(attr) => {
            let active = attr.state == PortState::Active && !table.is_empty();
            (("ACTIVE", attr.max_mtu, attr.active_mtu, active), None)
        }
        Err(error) => {
            let largest = table
                .iter()
                .map(|e| PathMtu::largest_for_netdev(e.netdev_mtu))
                .min();
            let mtu = largest.unwrap_or(PathMtu::M1024);
            (
                ("DOWN", PathMtu::M4096, mtu, false),
                Some(Failure::from(error)),
            )
        }
    };
    let (state, max_mtu, active_mtu, active) = port;
    let failure = failure.or_else(|| {
        (!active).then(|| {
            Failure::new("no usable address: the GID table is empty")
                .cause("no interface that is up has an IP address")
                .next("`ip link set lo up` is enough for programs on one host; `ip addr` shows what there is")
        })
    });
    let listing = Listing {
        version: 1,
        devices: rnic::devices()
            .iter()
            .map(|device| (device, device.back_end() == BackEnd::System))
            .map(|(device, system)| Device {
                name: device.name().to_owned(),
                guid: guid(device.guid()),
                system,
                ports: (!system)
                    .then(|| Port {
                        port: 1,
                        state: if active { state } else { "DOWN" },
                        link_layer: "Ethernet",
                        max_mtu: max_mtu.bytes(),
                        active_mtu: active_mtu.bytes(),
                        problem: failure.as_ref().map(ToString::to_string),
                        gids: table.iter().map(gid).collect(),
                        pkeys: PkeyTable::of_process().all().to_vec(),
                    })
                    .into_iter()
                    .collect(),
            })
            .collect(),
        settings: None,
    };
    (listing, failure)
}

/// As `ibv_devices` writes it.
fn guid(guid: u64) -> String {
    let hex = format!("{guid:016x}");
    let words: Vec<_> = (0..4).map(|i| &hex[4 * i..4 * i + 4]).collect();
    words.join(":")
}

/// What is printed of it for people.
fn text(listing: &Listing) -> String {
    let mut lines = Vec::new();
    for device in &listing.devices {
        let whose = if device.system { "  of the system" } else { "" };
        lines.push(format!("{}  GUID {}{whose}", device.name, device.guid));
        for port in &device.ports {
            lines.push(format!(
                "  port {}  {}  link layer {}  MTU {} (largest {})",
                port.port, port.state, port.link_layer, port.active_mtu, port.max_mtu
            ));
        }
    }
    lines.push(String::new());
    const HEAD: [&str; 8] = [
        "DEV",
        "PORT",
        "INDEX",
        "GID",
        "ADDRESS",
        "TYPE",
        "INTERFACE",
        "MTU",
    ];
    let mut rows = vec![HEAD.map(str::to_owned)];
    for device in &listing.devices {
        for port in &device.ports {
            rows.extend(port.gids.iter().map(|g| {
                [
                    device.name.clone(),
                    port.port.to_string(),
                    g.index.to_string(),
                    rnic::Gid(g.gid.octets()).to_string(),
                    g.address.to_string(),
                    g.kind.to_owned(),
                    g.interface.clone(),
                    g.path_mtu.to_string(),
                ]
            }));
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    for row in &rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, w)| format!("{cell:<w$}"))
            .collect();
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    if let Some(settings) = &listing.settings {
        pkeys(listing, &mut lines);
        lines.extend(settings::table(settings));
    }
    lines.join("\n")
}

/// What `rnic devices` prints here, or why the device cannot be opened.
pub fn shown(verbose: bool) -> Result<String> {
    let (mut listing, failure) = look();
    listing.settings = verbose.then(settings::in_force);
    failure.map_or_else(|| Ok(text(&listing)), Err)
}

/// The P_Key table of each port, as programs name its entries.
fn pkeys(listing: &Listing, lines: &mut Vec<String>) {
    lines.push(String::new());
    lines.push("P_KEY INDEX  P_KEY   MEMBERSHIP".to_owned());
    for port in listing.devices.iter().flat_map(|device| &device.ports) {
        for (index, pkey) in port.pkeys.iter().enumerate() {
            let membership = match rnic_wire::is_full_member(*pkey) {
                true => "full",
                false => "limited",
            };
            lines.push(format!("{index:<11}  {pkey:#06x}  {membership}"));
        }
    }
}

pub fn main(args: Args) -> Result<()> {
    let (mut listing, failure) = look();
    listing.settings = args.verbose.then(settings::in_force);
    if args.json {
        let text =
            serde_json::to_string_pretty(&listing).map_err(|e| Failure::new(e.to_string()))?;
        crate::say!("{text}");
    } else {
        crate::say!("{}", text(&listing));
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #[test]
    fn guids_are_written_in_four_groups() {
        assert_eq!(super::guid(0x0123_4567_89ab_cdef), "0123:4567:89ab:cdef");
        assert_eq!(super::guid(1), "0000:0000:0000:0001");
    }
}
