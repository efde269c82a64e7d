//! Which address to use.

use std::net::IpAddr;

use rnic::{Context, GidEntry};

use crate::platform::failure::{Failure, Result};

/// The choice of a GID on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(multiple = false)]
pub struct Choice {
    /// Use this entry of the GID table (see `rnic devices`)
    #[arg(long, value_name = "INDEX")]
    pub gid: Option<u32>,
    /// Use this local address
    #[arg(long, value_name = "IP")]
    pub addr: Option<IpAddr>,
}

impl Choice {
    /// The entry chosen, or `default`'s.
    pub fn resolve(
        &self,
        context: &Context,
        default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
    ) -> Result<GidEntry> {
        let table = || {
            let list: Vec<_> = context
                .gid_table()
                .iter()
                .map(|e| format!("{} = {}", e.index, e.addr))
                .collect();
            match list.is_empty() {
                true => "the table is empty: no interface that is up has an address".to_owned(),
                false => format!("the table has {}", list.join(", ")),
            }
        };
        match (self.gid, self.addr) {
            (Some(index), _) => context.gid(index),
            (None, Some(addr)) => context.gid_for(addr),
            (None, None) => default(context),
        }
        .map_err(|error| {
            Failure::new(error.to_string())
                .cause(table())
                .next("`rnic devices`")
        })
    }

    /// The same choice as arguments.
    pub fn to_args(&self) -> Vec<String> {
        match (self.gid, self.addr) {
            (Some(index), _) => vec!["--gid".into(), index.to_string()],
            (None, Some(addr)) => vec!["--addr".into(), addr.to_string()],
            (None, None) => Vec::new(),
        }
    }
}

/// The GID of the address that the TCP connection uses, which the peer can reach, if the device has
/// it.
pub fn same_way(addr: IpAddr) -> impl FnOnce(&Context) -> rnic::Result<GidEntry> {
    move |context| {
        let known = context.gid_for(addr.to_canonical());
        known.or_else(|_| context.routable_gid(1))
    }
}
