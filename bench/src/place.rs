//! Where programs run: namespaces made for it, or this machine's loopback.

use std::ffi::OsStr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rnic_programs::devices;
use rnic_programs::netns::Netns;

use crate::Result;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// One network namespace, its loopback interface.
    Lo,
    /// A virtual cable between two network namespaces, with large frames.
    Veth,
    /// One with those of Ethernet.
    Ethernet,
}

/// One end.
pub struct End {
    netns: Option<Netns>,
    pub addr: &'static str,
    /// Index of the address in the device's GID table.
    pub gid: u32,
    runtime: PathBuf,
}

/// The ends of one wire, server first.
pub struct Ends(pub End, pub End);

/// The programs, the wires, and a folder for what processes share.
pub struct Places {
    pub rnic: PathBuf,
    folder: PathBuf,
    lo: Ends,
    veth: std::result::Result<Ends, String>,
    ethernet: std::result::Result<Ends, String>,
    /// What could not be had, for people.
    pub notes: Vec<String>,
}

impl Drop for Places {
    fn drop(&mut self) {
        // What is left there belongs to processes that have ended.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Places {
    pub fn new(binaries: &Path) -> Result<Places> {
        let rnic = binaries.join("rnic");
        if !rnic.is_file() {
            return Err(format!(
                "{} does not exist (cargo build --release -p rnic-cli -p rnic-abi, or RNIC_BIN_DIR)",
                rnic.display()
            )
            .into());
        }
        let folder = std::env::temp_dir().join(format!("rnic-bench-{}", std::process::id()));
        // Processes keep their meeting place there, which is nobody else's.
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let mut notes = Vec::new();
        let end = |netns: Option<&Netns>, addr| -> Result<End> {
            let mut end = End {
                netns: netns.cloned(),
                addr,
                gid: 0,
                runtime: folder.clone(),
            };
            end.gid = end.find_gid(&rnic)?;
            Ok(end)
        };
        let here = Netns::new();
        if let Err(why) = &here {
            notes.push(format!(
                "no network namespace can be made ({why}): measured over this machine's own loopback"
            ));
        }
        let here = here.ok();
        let lo = || {
            Ok::<_, crate::Error>(Ends(
                end(here.as_ref(), "127.0.0.1")?,
                end(here.as_ref(), "127.0.0.1")?,
            ))
        };
        let veth = |mtu| -> Result<Ends> {
            let left = here.as_ref().ok_or("no network namespace can be made")?;
            let left = left.sibling()?;
            let right = left.sibling()?;
            left.link(&right, mtu);
            Ok(Ends(
                end(Some(&left), "10.77.0.1")?,
                end(Some(&right), "10.77.0.2")?,
            ))
        };
        let veth = |mtu| veth(mtu).map_err(|error| error.to_string());
        let (lo, veth, ethernet) = (lo(), veth(9000), veth(1500));
        if let Err(why) = &veth {
            notes.push(format!("no veth pair: {why}"));
        }
        Ok(Places {
            lo: lo?,
            veth,
            ethernet,
            rnic,
            folder,
            notes,
        })
    }

    pub fn ends(&self, wire: Wire) -> std::result::Result<&Ends, String> {
        match wire {
            Wire::Lo => Ok(&self.lo),
            Wire::Veth => self.veth.as_ref().map_err(Clone::clone),
            Wire::Ethernet => self.ethernet.as_ref().map_err(Clone::clone),
        }
    }

    /// For what programs leave behind.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl End {
    /// A command that runs the program here; arguments may be added.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.netns {
            Some(netns) => netns.enter(program),
            None => Command::new(program),
        };
        command.env("LC_ALL", "C");
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("RNIC_")) {
                command.env_remove(name);
            }
        }
        if self.netns.is_some() {
            command.env("RNIC_RUNTIME_DIR", &self.runtime);
        }
        command
    }

    fn find_gid(&self, rnic: &Path) -> Result<u32> {
        let output = self.command(rnic).args(["devices", "--json"]).output()?;
        if !output.status.success() {
            return Err(format!(
                "rnic devices: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )
            .into());
        }
        devices::parse_gids(&String::from_utf8_lossy(&output.stdout))
            .into_iter()
            .find(|gid| gid.address.to_string() == self.addr)
            .map(|gid| gid.index)
            .ok_or_else(|| format!("the device has no address {}", self.addr).into())
    }
}
