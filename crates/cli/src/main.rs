//! The `rnic` program: a software RDMA NIC at the command line.
//!
//! The rooms, from the bottom up. Each uses rooms that stand before it in this list alone:
//!
//! * [`platform`]: output, failures, files, system calls.
//! * [`text`]: sizes, times, GIDs and settings, as people write and read them.
//! * [`topics`]: what numbers, names and messages of the verbs mean.
//! * [`peer`]: two processes that show or measure something together.
//! * [`charts`]: charts and pages of what was measured.
//! * [`commands`]: a file or folder for each command.
#![deny(unsafe_code)]
// They panic where nobody reads: `say!` and `remark!` (`platform/out.rs`) do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod charts;
mod commands;
mod peer;
mod platform;
mod text;
mod topics;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::{
    advise, bench, course, demo, devices, dissect, explain, pages, part, run, study, top, verify,
};
use platform::out;

/// A software RDMA NIC: run RDMA programs on any Linux machine, with no RDMA hardware, kernel
/// module or privilege.
#[derive(Debug, Parser)]
#[command(
    name = "rnic",
    version,
    arg_required_else_help = true,
    max_term_width = out::WIDTH,
    after_help = after_help()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What follows the help: first steps, the settings, ports. A line for each; [`parser`] breaks
/// them.
fn after_help() -> String {
    use text::settings;
    let programs = settings::help(rnic_settings::ALL);
    let run_alone = settings::help(&[&rnic_settings::LIB]);
    [
        FIRST_STEPS,
        &format!("Environment of every program that uses the NIC:\n{programs}"),
        &format!("Environment of `rnic run` alone:\n{run_alone}"),
        PORTS,
    ]
    .join("\n\n")
}

/// The parser, with helps that fit the terminal. It breaks lines as well, but knows no columns.
fn parser() -> clap::Command {
    let width = out::help_columns();
    let fitted = move |command: clap::Command| {
        let help = command.get_after_help().map(ToString::to_string);
        match help {
            Some(help) => command.after_help(out::in_columns(&help, width)),
            None => command,
        }
    };
    fitted(Cli::command()).mut_subcommands(fitted)
}

const FIRST_STEPS: &str = "\
First steps:
  rnic demo                            see RDMA happen between two processes
  rnic devices                         the device and its GIDs
  rnic run -- ibv_rc_pingpong -g 0     run an RDMA program (this is the server side)
  rnic run --pcap out.pcap -- PROGRAM  and keep its packets for Wireshark
  rnic dissect out.pcap                what the packets mean, and what went wrong
  rnic explain 12                      what an error means; also words: rnic explain rkey
  rnic course                          learn RDMA by ten broken programs that you mend";

const PORTS: &str = "\
Ports that two hosts need (rdma_cm needs no TCP):
  UDP 4791             the packets themselves (RoCEv2)
  TCP 18515            perftest (ib_send_lat, ...) and ibv_*_pingpong
  TCP 18516            rnic bench
  TCP 18517            rnic verify
  TCP 18518            rnic study";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program that uses libibverbs on the software NIC
    Run(run::Args),
    /// Judge whether RDMA suits a program, by what it does with sockets or verbs
    Advise(advise::Args),
    /// Explain a status, errno, event, state or message, its causes, and what to do
    Explain(explain::Args),
    /// Explain a RoCEv2 capture: conversations, messages, retransmissions, what went wrong
    Dissect(dissect::Args),
    /// List the device, its port and its GIDs
    Devices(devices::Args),
    /// Show every RDMA operation between two processes of this host, and measure
    Demo(demo::Args),
    /// Learn RDMA by ten broken programs that you mend
    Course(course::Args),
    /// Measure latency and bandwidth of every operation, between two processes or two hosts
    Bench(bench::Args),
    /// Answer questions about RDMA by measuring: inline or not, which operation, how to wait ...
    Study(study::Args),
    /// Transfer random data by every operation and check every byte
    Verify(verify::Args),
    /// Watch all processes that use the NIC: who talks to whom, how much, how fast, what is lost
    Top(top::Args),
    /// The second process of demo, bench, study and verify
    #[command(hide = true)]
    Part(part::Args),
    /// Write the manual pages and shell completions into a folder
    #[command(hide = true)]
    Pages(pages::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::from_arg_matches(&parser().get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let result = match cli.command {
        Command::Run(args) => run::main(args),
        Command::Advise(args) => advise::main(args),
        Command::Explain(args) => explain::main(args),
        Command::Dissect(args) => dissect::main(args),
        Command::Devices(args) => devices::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Course(args) => course::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Study(args) => study::main(args),
        Command::Verify(args) => verify::main(args),
        Command::Top(args) => top::main(args),
        Command::Part(args) => part::main(args),
        Command::Pages(args) => pages::main(args, parser()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_of_the_program_are_left_alone() {
        let cli = Cli::parse_from([
            "rnic", "run", "--faults", "drop=1%", "--", "prog", "--pcap", "x", "-h",
        ]);
        let Command::Run(args) = cli.command else {
            panic!("not run")
        };
        assert_eq!(args.program, ["prog", "--pcap", "x", "-h"]);
        assert_eq!(args.faults.as_deref(), Some("drop=1%"));
        assert!(args.pcap.is_none());
    }

    /// A newcomer leaves it out; what is behind the program is the program's all the same.
    #[test]
    fn the_dashes_before_the_program_may_be_left_out() {
        let program = |line: &[&str]| {
            let cli = Cli::try_parse_from([&["rnic", "run"], line].concat())?;
            let Command::Run(args) = cli.command else {
                panic!("not run")
            };
            assert!(args.pcap.is_none() && args.faults.is_none());
            Ok::<_, clap::Error>((args.lint, args.program))
        };
        for (line, lint, rest) in [
            (&["ibv_devices"][..], false, &["ibv_devices"][..]),
            (
                &["--lint", "prog", "--pcap", "x", "-h", "-q", "--", "-y"],
                true,
                &["prog", "--pcap", "x", "-h", "-q", "--", "-y"],
            ),
            (&["--", "prog", "--", "-h"], false, &["prog", "--", "-h"]),
            (&["--", "--odd-name"], false, &["--odd-name"]),
        ] {
            let (linted, program) = program(line).expect("a program");
            assert_eq!(linted, lint, "{line:?}");
            assert_eq!(program, rest);
        }
        assert!(program(&["--lnit", "prog"]).is_err(), "no option of rnic's");
    }

    #[test]
    fn a_program_is_needed() {
        assert!(Cli::try_parse_from(["rnic", "run"]).is_err());
        assert!(Cli::try_parse_from(["rnic", "run", "--"]).is_err());
        assert!(
            Cli::try_parse_from(["rnic", "verify", "--server", "a:1", "--client", "b:2"]).is_err()
        );
        assert!(Cli::try_parse_from(["rnic", "demo", "--gid", "0", "--addr", "::1"]).is_err());
    }
}
