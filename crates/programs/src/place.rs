//! Where programs run: which network, which user, which runtime folder.

use crate::devices::{self, Gid};
use crate::netns::Netns;
use crate::process::{self, Finished, Process};
use crate::skip;
use crate::trial::Trial;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Who runs the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Current,
    /// The user 65534, without groups or capabilities.
    Nobody,
}

impl User {
    /// The user id to change to, if any.
    pub fn id(self) -> Option<u32> {
        match self {
            User::Current => None,
            User::Nobody => Some(65534),
        }
    }

    /// Whether the tests may run programs as this user; says so if not.
    pub fn available(self, what: &str) -> bool {
        if self == User::Current {
            return true;
        }
        if !skip::is_root() {
            skip::skipped(
                &format!("{what} as another user"),
                "the tests do not run as root; they are unprivileged",
            );
            return false;
        }
        skip::have_programs(&format!("{what} as another user"), &["setpriv"])
    }
}

/// Options of `rnic run`.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The argument of `--faults`.
    pub faults: Option<String>,
    /// The argument of `--pcap`.
    pub pcap: Option<PathBuf>,
}

impl RunOptions {
    /// With `--faults SPEC`.
    pub fn faults(spec: impl Into<String>) -> RunOptions {
        RunOptions {
            faults: Some(spec.into()),
            pcap: None,
        }
    }

    /// With `--pcap FILE`.
    pub fn pcap(file: impl Into<PathBuf>) -> RunOptions {
        RunOptions {
            faults: None,
            pcap: Some(file.into()),
        }
    }
}

/// Where programs run. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Place {
    netns: Option<Netns>,
    user: User,
    /// `RNIC_RUNTIME_DIR` and `XDG_RUNTIME_DIR`; None leaves what any program of this user gets.
    runtime: Option<PathBuf>,
    binaries: PathBuf,
}

impl Place {
    /// `runtime` None gives a place in an own namespace a folder of its own.
    pub(crate) fn new(
        trial: &Trial,
        netns: Option<Netns>,
        user: User,
        runtime: Option<PathBuf>,
    ) -> Place {
        let runtime = runtime.or_else(|| {
            netns
                .is_some()
                .then(|| trial.new_folder("runtime", user, 0o700))
        });
        Place {
            netns,
            user,
            runtime,
            binaries: trial.folder().to_owned(),
        }
    }

    /// The same place with a runtime folder of its own: programs elsewhere cannot read what these
    /// leave there, as if they were on another host.
    pub fn apart(&self, trial: &Trial) -> Place {
        Place {
            runtime: Some(trial.new_folder("runtime", self.user, 0o700)),
            ..self.clone()
        }
    }

    /// The namespace; None is this machine's own.
    pub fn netns(&self) -> Option<&Netns> {
        self.netns.as_ref()
    }

    /// Who runs the programs here.
    pub fn user(&self) -> User {
        self.user
    }

    /// The `rnic` program under test.
    pub fn rnic(&self) -> PathBuf {
        self.binaries.join("rnic")
    }

    /// A command that runs `program` here; arguments may be added.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut line: Vec<OsString> = Vec::new();
        if let User::Nobody = self.user {
            line.extend(
                [
                    "setpriv",
                    "--reuid=65534",
                    "--regid=65534",
                    "--clear-groups",
                    "--inh-caps=-all",
                    "--",
                ]
                .map(OsString::from),
            );
        }
        line.push(program.as_ref().to_owned());
        let mut command = match &self.netns {
            Some(netns) => netns.enter(&line[0]),
            None => Command::new(&line[0]),
        };
        command.args(&line[1..]);
        command.env("LC_ALL", "C");
        command
            .env_remove("LD_PRELOAD")
            .env_remove("LD_LIBRARY_PATH");
        for name in [
            "RNIC_FAULTS",
            "RNIC_PCAP",
            "RNIC_GSO",
            "RNIC_HOST_PATH",
            "RNIC_RUNTIME_DIR",
            "RNIC_REPORT",
            "RNIC_STATS",
            "RNIC_LINT",
            "RNIC_XDP",
        ] {
            command.env_remove(name);
        }
        if let Some(host_path) = std::env::var_os("RNIC_TEST_HOST_PATH") {
            command.env("RNIC_HOST_PATH", host_path);
        }
        if let Some(runtime) = &self.runtime {
            command
                .env("RNIC_RUNTIME_DIR", runtime)
                .env("XDG_RUNTIME_DIR", runtime);
        }
        if let User::Nobody = self.user {
            command.env("HOME", "/nonexistent").env("USER", "nobody");
            command.current_dir("/");
        }
        command
    }

    /// A command that runs `rnic run OPTIONS -- program args` here.
    pub fn rnic_run<I, S>(
        &self,
        options: &RunOptions,
        program: impl AsRef<OsStr>,
        args: I,
    ) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command(self.rnic());
        command.arg("run");
        if let Some(faults) = &options.faults {
            command.arg("--faults").arg(faults);
        }
        if let Some(pcap) = &options.pcap {
            command.arg("--pcap").arg(pcap);
        }
        command.arg("--").arg(program).args(args);
        command
    }

    /// Starts `rnic run -- program args`, and waits for its end.
    ///
    /// # Panics
    /// When it is still running after a minute.
    pub fn finish<I, S>(&self, program: impl AsRef<OsStr>, args: I) -> Finished
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Process::spawn(self.rnic_run(&RunOptions::default(), program, args))
            .wait(Duration::from_secs(60))
    }

    /// The device's GID table, as `rnic devices --json` tells it.
    ///
    /// # Panics
    /// When the command fails or prints something else.
    pub fn gids(&self) -> Vec<Gid> {
        let mut command = self.command(self.rnic());
        command.args(["devices", "--json"]);
        let finished = Process::spawn(command).wait(Duration::from_secs(60));
        finished.expect_success();
        devices::parse_gids(&finished.stdout)
    }

    /// The GID of an address.
    ///
    /// # Panics
    /// When the table lacks it.
    pub fn gid(&self, address: &str) -> Gid {
        let address: IpAddr = address.parse().expect("an address");
        let gids = self.gids();
        gids.iter()
            .find(|gid| gid.address == address)
            .cloned()
            .unwrap_or_else(|| panic!("no GID {address} in {gids:?}"))
    }

    /// The runtime folder of programs here, if it is not the one that any program of this user
    /// gets.
    pub fn runtime(&self) -> Option<&Path> {
        self.runtime.as_deref()
    }
}

/// A TCP port that no socket of this machine's own network has, and that is given once.
///
/// Below those that the kernel gives to whoever asks for none, and nothing is bound to find it:
/// what another test starts at that moment would have the socket, too, until it executes its
/// program, and a look for who listens there would find that.
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<usize> = 16384..32768;
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    loop {
        // Processes begin apart.
        let nth = 97 * std::process::id() as usize + CALLS.fetch_add(1, Ordering::Relaxed);
        let port = (PORTS.start + nth % PORTS.len()) as u16;
        if !process::is_in_use(port) {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Ports are free, and no two tests get the same.

    use super::*;

    #[test]
    fn ports_are_free_and_given_once() {
        let ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
        let mut once = ports.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), ports.len());
        // Nobody holds them.
        let bound: Vec<_> = ports[..10]
            .iter()
            .map(|port| std::net::TcpListener::bind(("0.0.0.0", *port)).expect("free"))
            .collect();
        for listener in bound {
            assert!(process::is_in_use(
                listener.local_addr().expect("bound").port()
            ));
        }
    }
}
