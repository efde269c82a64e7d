//! Between whom something is measured.

use std::net::IpAddr;

use rnic::GidEntry;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Between {
    pub local: String,
    pub interface: String,
    pub remote: String,
    pub peer: String,
    pub path_mtu: usize,
}

impl Between {
    /// `peer`: the process or host at the other end, as it is called. `path_mtu`: bytes.
    pub fn new(gid: &GidEntry, remote: IpAddr, peer: String, path_mtu: usize) -> Between {
        Between {
            local: gid.addr.to_string(),
            interface: gid.ifname.clone(),
            remote: remote.to_string(),
            peer,
            path_mtu,
        }
    }

    /// Of tests of reports.
    #[cfg(test)]
    pub fn sample() -> Between {
        Between {
            local: "127.0.0.1".to_owned(),
            interface: "lo".to_owned(),
            remote: "127.0.0.1".to_owned(),
            peer: "pid 7".to_owned(),
            path_mtu: 4096,
        }
    }

    /// One line, with the processors of this side and the load average before.
    pub fn circumstances(&self, processors: usize, load_average: f64) -> String {
        format!(
            "{} -> {} ({}), {}, path MTU {}; {processors} processors, load average {load_average}",
            self.local, self.remote, self.peer, self.interface, self.path_mtu
        )
    }
}
