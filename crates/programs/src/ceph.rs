//! A Ceph cluster of one monitor and one OSD that keeps objects in memory (memstore), for whoever
//! can start programs: tests and `bench`.
//!
//! Ceph need not be installed, since its packages would start services: `bench/programs` unpacks
//! them in a folder.

use crate::skip::find_program;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pool of objects.
const POOL: &str = "objects";

/// `$1` is the folder of Ceph's programs, `$2` the monitor's address, `$3` the id and `$4` the pool.
/// The monitor's and the OSD's stores are made, and the pool, over sockets.
const PREPARE: &str = r#"
set -e
"$1/monmaptool" --create --fsid "$3" --addv a "[v2:$2]" monmap
"$1/osdmaptool" osdmap --createsimple 1
"$1/ceph-mon" -i a --mkfs --monmap monmap --osdmap osdmap
"$1/ceph-osd" -i 0 --mkfs --no-mon-config --osd-uuid "$3"
"$1/ceph-mon" -i a -f &
python3 "$1/ceph" --connect-timeout 30 osd pool create "$4" 8 8
kill $!
wait $! || true
"#;

/// Ends when one of both does.
const SERVE: &str = r#"
programs=$1
shift
"$programs/ceph-mon" -i a -f "$@" &
"$programs/ceph-osd" -i 0 -f "$@" &
wait -n
echo "one has ended with status $?" >&2
exit 1
"#;

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messenger {
    /// By sockets.
    Sockets,
    /// By RDMA, with a TCP connection to agree on queue pairs. A thread of each process polls, and
    /// goes on for a millisecond after the last completion.
    Rdma,
    /// The same, but that thread sleeps as soon as there is nothing.
    RdmaAsleep,
}

impl Messenger {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Messenger::Sockets => &["--ms-type=async+posix"],
            Messenger::Rdma => &["--ms-type=async+rdma"],
            Messenger::RdmaAsleep => &["--ms-type=async+rdma", "--ms-async-rdma-polling-us=0"],
        }
    }
}

/// A cluster's folder, and the programs to run it with.
///
/// Each command is one that runs the program which is added to it, say `env`, or `rnic run --`.
#[derive(Clone, Debug)]
pub struct Ceph {
    /// Of the unpacked packages, `/` where they are installed.
    root: PathBuf,
    folder: PathBuf,
}

/// Where Ceph is: installed, or unpacked there; an error in words if it is not.
pub fn find(unpacked: &Path) -> Result<PathBuf, String> {
    if find_program("python3").is_none() {
        return Err("python3 is not installed".into());
    }
    [Path::new("/"), unpacked]
        .into_iter()
        .find(|root| {
            ["ceph", "ceph-mon", "ceph-osd", "osdmaptool", "rados"]
                .iter()
                .all(|name| root.join("usr/bin").join(name).is_file())
        })
        .map(Path::to_owned)
        .ok_or_else(|| "Ceph is not there (bench/programs gets it)".into())
}

impl Ceph {
    /// The cluster that is, or will be, in a folder.
    pub fn new(root: PathBuf, folder: PathBuf) -> Ceph {
        Ceph { root, folder }
    }

    /// Writes the configuration, and gives the command that makes the stores and the pool. The
    /// monitor will listen on `port` of 127.0.0.1.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn prepare(&self, mut command: Command, port: u16) -> io::Result<Command> {
        for store in ["mon", "osd"] {
            std::fs::create_dir_all(self.folder.join(store))?;
        }
        std::fs::write(self.folder.join("keyring"), "")?;
        std::fs::write(self.configuration(), self.settings(port))?;
        self.at_home(&mut command);
        command
            .args(["bash", "-c", PREPARE, "prepare"])
            .arg(self.root.join("usr/bin"))
            .args([&format!("127.0.0.1:{port}"), FSID, POOL]);
        Ok(command)
    }

    /// A copy of it in another folder, which must not exist: as it was prepared.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn copy(&self, folder: PathBuf) -> io::Result<Ceph> {
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&self.folder)
            .arg(&folder)
            .status()?;
        if !copied.success() {
            return Err(io::Error::other("the cluster's folder cannot be copied"));
        }
        let copy = Ceph::new(self.root.clone(), folder);
        let text = std::fs::read_to_string(copy.configuration())?;
        let [from, to] = [&self.folder, &copy.folder].map(|folder| folder.display().to_string());
        std::fs::write(copy.configuration(), text.replace(&from, &to))?;
        Ok(copy)
    }

    /// The command that runs monitor and OSD until it is killed.
    pub fn serve(&self, mut command: Command, by: Messenger) -> Command {
        self.at_home(&mut command);
        command
            .args(["bash", "-c", SERVE, "serve"])
            .arg(self.root.join("usr/bin"))
            .args(by.arguments());
        command
    }

    /// A command of `rados` on the pool; its arguments may be added. It waits until there is an
    /// OSD.
    pub fn rados(&self, mut command: Command, by: Messenger) -> Command {
        self.at_home(&mut command);
        command
            .arg(self.root.join("usr/bin/rados"))
            .args(by.arguments())
            .args(["--pool", POOL]);
        command
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    fn at_home(&self, command: &mut Command) {
        let libraries = self.libraries().map(|path| path.display().to_string());
        command
            .current_dir(&self.folder)
            .env("CEPH_CONF", self.configuration())
            .env(
                "PYTHONPATH",
                self.root.join("usr/lib/python3/dist-packages"),
            );
        // Nothing is in the way of the libraries of what is installed.
        if self.root != Path::new("/") {
            command.env("LD_LIBRARY_PATH", libraries.join(":"));
        }
    }

    /// Folders of libraries; the last is of Ceph alone.
    fn libraries(&self) -> [PathBuf; 3] {
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        [
            format!("usr/lib/{machine}"),
            format!("lib/{machine}"),
            format!("usr/lib/{machine}/ceph"),
        ]
        .map(|folder| self.root.join(folder))
    }

    fn settings(&self, port: u16) -> String {
        let [.., own] = self.libraries();
        let own = own.display();
        let home = self.folder.display();
        let mut text = format!(
            "[global]\n\
             fsid = {FSID}\n\
             mon_host = v2:127.0.0.1:{port}\n\
             mon_data = {home}/mon\n\
             osd_data = {home}/osd\n\
             run_dir = {home}\n\
             keyring = {home}/keyring\n\
             log_file = {home}/$name.log\n\
             plugin_dir = {own}\n\
             erasure_code_dir = {own}/erasure-code\n"
        );
        for setting in SETTINGS {
            let _ = writeln!(text, "{setting}");
        }
        text
    }
}

/// Of the cluster and of its OSD: it is the only one in its network.
const FSID: &str = "6b1d0f6e-6f0a-4c7e-9a51-0d3a8b6f2c11";

const SETTINGS: &[&str] = &[
    "public_network = 127.0.0.0/8",
    "auth_cluster_required = none",
    "auth_service_required = none",
    "auth_client_required = none",
    "osd_objectstore = memstore",
    "memstore_device_bytes = 8589934592",
    "osd_pool_default_size = 1",
    "osd_pool_default_min_size = 1",
    "osd_crush_chooseleaf_type = 0",
    // It is in the map that the cluster begins with.
    "osd_crush_update_on_start = false",
    "osd_class_update_on_start = false",
    "mon_allow_pool_size_one = true",
    // Who waits for the OSD need not wait for seconds.
    "paxos_propose_interval = 0.05",
    "ms_async_rdma_device_name = rnic0",
    "ms_async_rdma_receive_buffers = 16384",
];
