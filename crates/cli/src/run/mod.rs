//! `rnic run`: starts a program with our libibverbs and librdmacm in front of the system's.

mod elf;
mod library;
mod program;
mod report;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rnic::nic::{FaultSpec, XdpSpec};

use crate::failure::{Failure, Result};
use crate::sys;
use report::{Collector, Wishes};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic run -- ibv_devinfo -v
  rnic run -- ibv_rc_pingpong -g 0                      # server; the client adds the server's address
  rnic run --faults drop=1%,reorder=5%,seed=42 -- ib_write_bw
  rnic run --pcap trace.pcap -- ./my_program            # then: rnic dissect trace.pcap
  rnic run --stats --lint -- ./my_program               # what moved; what would fail on hardware

The program and its children find rnic0 instead of the machine's RDMA devices. `rnic devices` lists the GID indices
that programs ask for (-g of ibv_rc_pingpong, -x of perftest).

When the program has failed, rnic says which work request failed first and why, on standard error. The program's exit
status or signal is that of `rnic run`.")]
pub struct Args {
    /// Bad wire for what the program sends: drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42 (any of them)
    #[arg(long, value_name = "SPEC")]
    pub faults: Option<String>,
    /// Seed of the faults, if not part of SPEC; the same seed and traffic give the same faults
    #[arg(long, value_name = "N", requires = "faults")]
    pub seed: Option<u64>,
    /// Write every packet sent and received to FILE; an old FILE is replaced. Each program needs a file of its own
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Packets to and from other hosts by these interfaces go past the kernel's network stack (AF_XDP): eth0, or eth0,eth1; with
    /// :generic behind a name for any driver. Takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; the firewall sees none of them
    #[arg(long, value_name = "INTERFACES")]
    pub xdp: Option<String>,
    /// End with counters: messages, bytes, packets, retransmissions, NAKs, drops, per queue pair and in total
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub stats: Option<Format>,
    /// End with warnings of what works here and would fail on hardware
    #[arg(long)]
    pub lint: bool,
    /// What is said at the end is one line of JSON, the last line of standard error
    #[arg(long)]
    pub json: bool,
    /// Say nothing but why the program cannot be started: not what was chosen, nor why it failed (RNIC_QUIET=1 for the program)
    #[arg(long, short)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    pub program: Vec<OsString>,
}

/// How counters are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// As --json
    Json,
}

pub fn main(args: Args) -> Result<()> {
    let [program, rest @ ..] = &args.program[..] else {
        return Err(Failure::new("no program given").next("`rnic run -- PROGRAM ARGS...`"));
    };
    let faults = args
        .faults
        .as_deref()
        .map(|text| faults(text, args.seed))
        .transpose()?;
    let path = program::find(program)?;
    program::check(&path)?;
    let library = library::find()?;
    let folder = library::folder(&library)?;
    let xdp = args.xdp.as_deref().map(interfaces).transpose()?;
    // Last: what can be refused is, and an old capture is still there.
    let pcap = args.pcap.as_deref().map(capture).transpose()?;

    let mut command = Command::new(&path);
    command.arg0(program).args(rest);
    command.env(
        "LD_LIBRARY_PATH",
        prepend(folder.as_os_str().to_owned(), "LD_LIBRARY_PATH"),
    );
    command.env(
        "LD_PRELOAD",
        prepend(folder.join(library::PRELOAD).into_os_string(), "LD_PRELOAD"),
    );
    if let Some(faults) = faults {
        if !args.quiet {
            crate::remark!(
                "rnic: faults {faults} (packets take the network stack within this host, too)"
            );
        }
        command.env("RNIC_FAULTS", faults.to_string());
    }
    if let Some(xdp) = xdp {
        command.env("RNIC_XDP", xdp.to_string());
    }
    if let Some(pcap) = pcap {
        if !args.quiet {
            crate::remark!(
                "rnic: packets go to {0}, by the network stack within this host, too; `rnic dissect {0}` says what they mean",
                pcap.display()
            );
        }
        command.env("RNIC_PCAP", pcap);
    }
    if args.quiet {
        command.env("RNIC_QUIET", "1");
    }
    let wishes = Wishes {
        quiet: args.quiet,
        stats: args.stats.is_some(),
        lint: args.lint,
        json: args.json || args.stats == Some(Format::Json),
    };
    sys::keep_signals(&mut command);
    if wishes.none() {
        for name in ["RNIC_REPORT", "RNIC_STATS", "RNIC_LINT"] {
            command.env_remove(name);
        }
        // Returns only if it fails.
        let error = command.exec();
        return Err(program::not_started(&path, &error));
    }
    let collector = Collector::new(&library::runtime()?)?;
    collector.prepare(&mut command, wishes);
    let ward =
        sys::start_ward(&mut command).map_err(|error| program::not_started(&path, &error))?;
    let status = ward.wait()?;
    // What a kernel does for whoever was killed: its peers elsewhere hear of it. If nobody can be told, so be it.
    let _ = rnic::nic::cm::execute_wills_of_the_dead();
    let report = collector.read();
    drop(collector);
    let name = Path::new(program).file_name().unwrap_or(program);
    report::close(
        &report,
        &name.to_string_lossy(),
        status,
        wishes,
        args.faults.is_some(),
    );
    sys::end_like(status)
}

/// `first`, before what the variable has.
fn prepend(first: OsString, variable: &str) -> OsString {
    let mut value = first;
    if let Some(old) = std::env::var_os(variable).filter(|old| !old.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// Checked here, so that a mistake is not found by the program; and with a seed, so that the run can be repeated.
pub fn faults(text: &str, seed: Option<u64>) -> Result<FaultSpec> {
    let mut spec: FaultSpec = text.parse().map_err(|error| {
        Failure::new(format!("the fault specification `{text}` cannot be read"))
            .cause(format!("{error}"))
            .next("an example: --faults drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42")
            .status(2)
    })?;
    spec.seed = match (spec.seed, seed) {
        (Some(a), Some(b)) if a != b => {
            return Err(
                Failure::new(format!("two seeds: {a} in --faults and {b} in --seed")).status(2),
            );
        }
        (a, b) => Some(a.or(b).unwrap_or_else(fresh_seed)),
    };
    Ok(spec)
}

/// Checked here as well: the program would only see that the device cannot be opened.
fn interfaces(text: &str) -> Result<XdpSpec> {
    text.parse().map_err(|error| {
        Failure::new(format!("the interfaces `{text}` cannot be read"))
            .cause(format!("{error}"))
            .next("an example: --xdp eth0; `ip link` lists the names")
            .status(2)
    })
}

/// Short enough to be typed again.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() % 1_000_000
}

/// Empties or makes the file: the program's NIC writes the header when it finds nothing in it.
fn capture(path: &Path) -> Result<PathBuf> {
    let unwritable = |error: std::io::Error| {
        Failure::new(format!("cannot write the capture file {}", path.display()))
            .cause(error.to_string())
            .next("choose a file in a folder that you may write to: --pcap /tmp/rnic.pcap")
    };
    let absolute = std::path::absolute(path).map_err(unwritable)?;
    std::fs::File::create(&absolute).map_err(unwritable)?;
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_checked_and_seeded() {
        assert_eq!(faults("drop=1%,seed=7", None).unwrap().seed, Some(7));
        assert_eq!(faults("drop=1%", Some(8)).unwrap().seed, Some(8));
        assert!(faults("drop=1%", None).unwrap().seed.is_some());
        assert!(faults("drop=1%,seed=7", Some(8)).is_err());
        for bad in ["drop=101%", "nonsense", "drop=x"] {
            let text = faults(bad, None).unwrap_err().to_string();
            assert!(text.contains(bad) && text.contains("next:"), "{text}");
        }
    }

    #[test]
    fn interfaces_are_checked() {
        assert_eq!(
            interfaces("eth0,eth1:generic").unwrap().to_string(),
            "eth0,eth1:generic"
        );
        for bad in ["", "eth0:fast", "eth0,"] {
            let text = interfaces(bad).unwrap_err().to_string();
            assert!(text.contains("next:"), "{text}");
        }
    }

    #[test]
    fn a_capture_file_is_made_and_emptied() {
        let path = std::env::temp_dir().join(format!("rnic-capture-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        assert_eq!(capture(&path).unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
        let text = capture(Path::new("/no/such/folder/x.pcap"))
            .unwrap_err()
            .to_string();
        assert!(text.contains("/no/such/folder/x.pcap"), "{text}");
    }
}
