//! `rnic run`: starts a program with our libibverbs and librdmacm in front of the system's.

mod capture;
mod elf;
mod embedded;
pub mod environment;
pub mod folders;
pub mod library;
pub mod program;
pub mod report;
#[cfg(test)]
mod scratch;
mod trace;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rnic_nic::{FaultSpec, XdpSpec};
use rnic_sys::signal::without_file_size_signal;

use crate::platform::failure::{Failure, Result};
use crate::platform::signals::{self, Ended};
use environment::Environment;
use report::{Collector, Watch, Wishes};
use trace::Tracing;

#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "rnic run [OPTIONS] [--] PROGRAM [ARGS]...\n       rnic run --print-env[=FORMAT] [OPTIONS]",
    after_help = "\
Examples:
  rnic run -- ibv_devinfo -v
  rnic run -- ibv_rc_pingpong -g 0                 # server; the client adds the server's address
  rnic run --faults drop=1%,reorder=5%,seed=42 -- ib_write_bw
  rnic run --pcap trace.pcap -- ./my_program       # then: rnic dissect trace.pcap
  rnic run --stats --lint -- ./my_program          # what moved; what would fail on hardware
  rnic run --watch 5 -- ./my_program               # if it hangs: what it waits for
  eval \"$(rnic run --print-env)\"                   # every program of this shell gets the NIC

The program and its children see rnic0 instead of the machine's RDMA devices. `rnic devices` lists the GID indices \
that programs ask for (-g of ibv_rc_pingpong, -x of perftest).

If the program fails, rnic says on standard error which work request failed first, and why; if it is interrupted \
while it waits, what it waited for. `rnic run` ends with the \
program's exit status, or by the same signal; with 127 if there is no such program, 126 if it cannot be run, 2 for \
arguments that make no sense, 1 if anything else keeps the program from starting.

`rnic --help` lists the environment variables and the ports."
)]
pub struct Args {
    /// Damage what the program sends: drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42 (any
    /// of them)
    #[arg(long, value_name = "SPEC")]
    pub faults: Option<String>,
    /// Seed of the faults, if not part of SPEC; the same seed and traffic give the same faults
    #[arg(long, value_name = "N", requires = "faults")]
    pub seed: Option<u64>,
    /// Write every packet sent and received to FILE, replacing an older capture. Each program needs
    /// a file of its own
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Let packets to and from other hosts bypass the kernel's network stack (AF_XDP) on these
    /// interfaces: eth0 or eth0,eth1; append :generic to a name if the driver has no XDP, :zerocopy
    /// to let the card itself read and write. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
    /// Firewall rules do not apply to these packets
    #[arg(long, value_name = "INTERFACES")]
    pub xdp: Option<String>,
    /// End with counters: messages, bytes, packets, retransmissions, NAKs, drops, per queue pair
    /// and in total
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub stats: Option<Format>,
    /// End with warnings about what works here and would fail on hardware
    #[arg(long)]
    pub lint: bool,
    /// Say while the program still runs what it waits for: every thread that has waited in a call of
    /// the NIC's for so long, and every completion queue polled in vain, each once
    #[arg(long, value_name = "SECONDS", value_parser = patience, conflicts_with = "print_env")]
    pub watch: Option<Duration>,
    /// Draw the way of each send work request from its post to its completion, stage by stage, as a
    /// page. Run the peer with it, too, and both sides are drawn
    #[arg(long, value_name = "FILE", conflicts_with = "print_env")]
    pub trace: Option<PathBuf>,
    /// Report in JSON: one line, the last of standard error (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Say nothing, unless the program cannot be started (sets RNIC_QUIET=1 for the program)
    #[arg(long, short)]
    pub quiet: bool,
    /// Start no program: print the variables that give a program the NIC, for a shell, for other
    /// programs (json), or as NAME=VALUE for $GITHUB_ENV (github)
    #[arg(
        long,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "sh",
        conflicts_with = "program"
    )]
    pub print_env: Option<environment::Format>,
    /// With --print-env: have the NIC record failures in FILE, which `rnic explain --report FILE`
    /// puts into words
    #[arg(
        long,
        value_name = "FILE",
        requires = "print_env",
        conflicts_with = "program"
    )]
    pub report: Option<PathBuf>,
    /// The program and its arguments. All that follows PROGRAM belongs to it, options included
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "print_env",
        value_name = "PROGRAM"
    )]
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

impl Args {
    fn wishes(&self) -> Wishes {
        Wishes {
            quiet: self.quiet,
            stats: self.stats.is_some(),
            lint: self.lint,
            json: self.json || self.stats == Some(Format::Json),
        }
    }
}

pub fn main(args: Args) -> Result<()> {
    let wishes = args.wishes();
    if let Some(format) = args.print_env {
        return environment::print(&args, format);
    }
    let program = args.program.first().map(|program| name(program));
    start(args).map_err(|failure| match wishes.json {
        true => {
            let line = report::not_started(&program.unwrap_or_default(), &failure, wishes);
            failure.machine_line(line)
        }
        false => failure,
    })
}

/// The program without its folder.
fn name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

/// Returns only if the program could not be started.
fn start(args: Args) -> Result<()> {
    let wishes = args.wishes();
    let [program, rest @ ..] = &args.program[..] else {
        return Err(Failure::new("no program given").next("`rnic run -- PROGRAM ARGS...`"));
    };
    let path = program::find(program)?;
    program::check(&path)?;
    let made = without_file_size_signal(|| environment::of(&args));
    let Environment { variables, library } = made.map_err(of_limits)?;

    let mut command = Command::new(&path);
    command.arg0(program).args(rest).envs(variables);
    signals::keep_signals(&mut command);
    command.env_remove(rnic_settings::TRACE.name);
    if wishes.none() && args.watch.is_none() && args.trace.is_none() {
        for name in [
            rnic_settings::REPORT.name,
            rnic_settings::STATS.name,
            rnic_settings::LINT.name,
            rnic_settings::WATCH.name,
        ] {
            command.env_remove(name);
        }
        if library.held.is_some() {
            // The library is in this process, which has to outlive the program.
            let ward = signals::start_ward(&mut command)
                .map_err(|error| program::not_started(&path, &error))?;
            signals::end_like(ward.wait()?.status);
        }
        // Returns only if it fails.
        let error = command.exec();
        return Err(program::not_started(&path, &error));
    }
    let collector = match folders::runtime() {
        Err(_) if library.held.is_some() => Collector::in_memory()?,
        runtime => {
            let runtime = runtime?;
            Collector::new(&runtime).map_err(|error| {
                let call = rnic_sys::failed_call(&error);
                let of = call.map_or(String::new(), |call| format!(", of {call}"));
                Failure::new(format!("cannot make a file in {}", runtime.display()))
                    .cause(format!("{error}{of}"))
                    .next(match error.raw_os_error() {
                        Some(libc::EPERM) => {
                            "a sandbox (seccomp) or the file system forbids it: allow that call, or set RNIC_RUNTIME_DIR to another folder"
                        }
                        _ => "set RNIC_RUNTIME_DIR to a folder of yours with room",
                    })
            })?
        }
    };
    collector.prepare(&mut command, wishes);
    match args.watch {
        Some(_) => command.env(rnic_settings::WATCH.name, "1"),
        None => command.env_remove(rnic_settings::WATCH.name),
    };
    let tracing = match &args.trace {
        Some(page) => {
            let runtime = folders::runtime()?;
            let tracing = Tracing::prepare(&runtime, page, args.pcap.as_deref())?;
            tracing.tell(&mut command);
            Some((tracing, runtime))
        }
        None => None,
    };
    let ward =
        signals::start_ward(&mut command).map_err(|error| program::not_started(&path, &error))?;
    let watch = args.watch.map(|after| Watch::start(&collector, after));
    let Ended {
        status,
        interrupted,
    } = ward.wait()?;
    drop(watch);
    // What a kernel does for whoever was killed: its peers elsewhere hear of it. If nobody can be
    // told, so be it.
    let _ = without_file_size_signal(rnic_nic::cm::send_last_words_of_the_dead);
    let mut report = collector.read();
    report.interrupted = interrupted;
    drop(collector);
    if let Some((tracing, runtime)) = tracing
        && let Err(failure) = tracing.finish(&runtime, &name(program))
    {
        failure.print();
    }
    report::close(
        &report,
        &name(program),
        status,
        wishes,
        args.faults.is_some(),
    );
    signals::end_like(status)
}

/// What a file that cannot grow means.
fn of_limits(failure: Failure) -> Failure {
    let text = failure.to_string();
    if text.contains(&std::io::Error::from_raw_os_error(libc::EFBIG).to_string()) {
        return failure.next("raise the limit of a file's size: `ulimit -f unlimited`");
    }
    failure
}

/// Checked here, so that a mistake is not found by the program; and with a seed, so that the run
/// can be repeated.
pub fn faults(text: &str, seed: Option<u64>) -> Result<FaultSpec> {
    let unreadable = |why: String| {
        Failure::new(format!("the fault specification `{text}` cannot be read"))
            .cause(why)
            .next("an example: --faults drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42")
            .status(2)
    };
    // An unset variable of a script, most likely: it would change the path of all packets and
    // damage none.
    if text.trim().is_empty() {
        return Err(unreadable("it is empty".to_owned()));
    }
    let mut spec: FaultSpec = text
        .parse()
        .map_err(|error| unreadable(format!("{error}")))?;
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

/// A time in seconds.
fn patience(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("it must be more than 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_checked_and_seeded() {
        assert_eq!(faults("drop=1%,seed=7", None).unwrap().seed, Some(7));
        assert_eq!(faults("drop=1%", Some(8)).unwrap().seed, Some(8));
        assert!(faults("drop=1%", None).unwrap().seed.is_some());
        assert!(faults("drop=1%,seed=7", Some(8)).is_err());
        for bad in ["drop=101%", "nonsense", "drop=x", "", " "] {
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
}
