//! The `rnic` program: a software RDMA NIC at the command line.
#![deny(unsafe_code)]
// They panic where nobody reads: `say!` and `remark!` (`out.rs`) do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod demo;
mod devices;
mod dissect;
mod explain;
mod failure;
mod gid;
mod measure;
mod node;
mod out;
mod part;
mod run;
#[allow(
    unsafe_code,
    reason = "the one place: system calls that the standard library lacks"
)]
mod sys;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A software RDMA NIC: run RDMA programs on any Linux machine, with no RDMA hardware, kernel module or privilege.
#[derive(Debug, Parser)]
#[command(name = "rnic", version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
First steps:
  rnic demo                                 see RDMA happen between two processes
  rnic devices                              the device and its GIDs
  rnic run -- ibv_rc_pingpong -g 0          run an RDMA program (this is the server side)
  rnic run --pcap out.pcap -- PROGRAM       and keep its packets for Wireshark
  rnic dissect out.pcap                     what the packets mean, and what went wrong
  rnic explain 12                           what an error means

Environment of every program that uses the NIC:
  RNIC_FAULTS   bad wire for what the process sends: drop=1%,dup=1%,reorder=5%,corrupt=1%,delay=10us,seed=42
  RNIC_PCAP     file to append packets to
  RNIC_XDP      interfaces whose packets go past the kernel's network stack (root): eth0, or eth0:generic
  RNIC_HOST_PATH   off: UDP between processes of this host, too; rings: shared memory, but all RDMA in packets
  RNIC_GSO      off, local (this host alone): where the kernel may cut batches into packets; everywhere
  RNIC_SHARDS   1 to 16, or auto: engines for threads with completion queues of their own; auto, half of the cores
  RNIC_GUARDED_MEMORY   1: memory that was unmapped without deregistration is an error, not the end of the process
  RNIC_LOG      1: why each verb was refused, in words
  RNIC_LIB      the library that `rnic run` puts in front (librnic_verbs.so)
  RNIC_RUNTIME_DIR   folder for what processes of one user share";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program that uses libibverbs on the software NIC
    Run(run::Args),
    /// Say what a status, errno, event, state or message means, why it comes, and what to do
    Explain(explain::Args),
    /// Say what a capture of RoCEv2 holds: conversations, messages, retransmissions, what went wrong
    Dissect(dissect::Args),
    /// List the device, its port and its GIDs
    Devices(devices::Args),
    /// Two processes on this host do every RDMA operation, check every byte, and measure
    Demo(demo::Args),
    /// Measure latency and bandwidth of every operation, between two processes or two hosts
    Bench(bench::Args),
    /// Transfer random data by every operation and check every byte
    Verify(verify::Args),
    /// The second process of demo, bench and verify
    #[command(hide = true)]
    Part(part::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Explain(args) => explain::main(args),
        Command::Dissect(args) => dissect::main(args),
        Command::Devices(args) => devices::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Verify(args) => verify::main(args),
        Command::Part(args) => part::main(args),
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
    use clap::CommandFactory;

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
