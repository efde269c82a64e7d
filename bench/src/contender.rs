//! Who is measured: perftest over rnic, a floor, or a peer. Each gives one or more figures per run.

use std::process::Command;

use rnic_programs::place::free_port;

use crate::Result;
use crate::asleep::{self, Sleeper};
use crate::floor::Kind;
use crate::pair::{self, Running};
use crate::place::{End, Ends, Wire};
use crate::setting::{Figure, Setting, Unit, Way, needs, rnic_run};
use crate::tables::{self, Perftest};

#[derive(Clone, Debug)]
pub enum Program {
    /// perftest under `rnic run`, with these arguments.
    Perftest {
        program: &'static str,
        args: String,
        way: Way,
        unit: Unit,
    },
    /// The same four times at once, on both processors.
    FourPairs {
        program: &'static str,
        args: String,
        way: Way,
    },
    /// `rnic bench`: a ping-pong beside a bulk transfer of the same two processes. perftest has one
    /// or the other.
    Beside {
        way: Way,
    },
    /// crates/programs/c/scale.c.
    Scale {
        count: u32,
    },
    Floor {
        kind: Kind,
        wire: Wire,
    },
    /// ucx_perftest over these transports.
    Ucx {
        transports: &'static str,
        args: String,
        unit: Unit,
    },
    /// fi_pingpong over this provider.
    Libfabric {
        provider: &'static str,
        endpoint: &'static str,
        args: String,
    },
    /// One that sleeps until there is work.
    Sleeper(Sleeper),
}

/// How long a program that needs no other may take.
const ALONE: std::time::Duration = std::time::Duration::from_secs(60);

fn perftest_command(
    setting: &Setting,
    (program, args, way): (&str, &str, Way),
    server: bool,
    port: u16,
    pin: bool,
) -> Result<Command> {
    let Ends(at_server, at_client) = setting.places.ends(way.wire())?;
    let end = if server { at_server } else { at_client };
    let command = match pin {
        true => setting.pinned(end, server),
        false => end.command("env"),
    };
    let mut command = rnic_run(setting, command, way);
    command
        .arg(program)
        // Not to warn of processors whose clock changes.
        .args(["-F", "-x", &end.gid.to_string(), "-p", &port.to_string()])
        .args(setting.args(args));
    if !server {
        command.arg(at_server.addr);
    }
    Ok(command)
}

impl Program {
    /// Needed, and where from: what is missing on this machine is no failure.
    pub fn missing(&self, setting: &Setting) -> Option<String> {
        let installed = match self {
            Program::Perftest { program, .. } | Program::FourPairs { program, .. } => {
                needs(program, "perftest")
            }
            Program::Ucx { .. } => needs("ucx_perftest", "ucx-utils"),
            Program::Libfabric { .. } => needs("fi_pingpong", "libfabric-bin"),
            Program::Scale { .. } => asleep::c_compiler(),
            Program::Floor { .. } | Program::Beside { .. } => Ok(()),
            Program::Sleeper(sleeper) => return sleeper.missing(setting),
        };
        let wire = match self {
            Program::Perftest { way, .. } => way.wire(),
            Program::Floor { wire, .. } => *wire,
            _ => Wire::Lo,
        };
        let reachable = setting.places.ends(wire).map(drop);
        installed
            .map_err(|error| error.to_string())
            .and(reachable)
            .err()
    }

    /// One run.
    pub fn run(&self, setting: &Setting) -> Result<Vec<Figure>> {
        match self {
            Program::Perftest {
                program,
                args,
                way,
                unit,
            } => {
                let port = free_port();
                let command =
                    |server| perftest_command(setting, (program, args, *way), server, port, true);
                let text = pair::meet(command(true)?, command(false)?, port, false)?;
                let table = tables::perftest(&text);
                match (unit, table.ok_or("perftest's table is not understood")?) {
                    (Unit::Micros, Perftest::Latency { median, p99 }) => Ok(vec![
                        (String::new(), Unit::Micros, median),
                        ("99%".into(), Unit::Micros, p99),
                    ]),
                    (Unit::Gigabytes, Perftest::Bandwidth { bytes, .. }) => {
                        Ok(vec![(String::new(), Unit::Gigabytes, bytes)])
                    }
                    (Unit::Millions, Perftest::Bandwidth { messages, .. }) => {
                        Ok(vec![(String::new(), Unit::Millions, messages)])
                    }
                    _ => Err("perftest printed another table".into()),
                }
            }
            Program::FourPairs { program, args, way } => four_pairs(setting, (program, args, *way)),
            Program::Beside { way } => beside(setting, *way),
            Program::Scale { count } => scale(setting, *count),
            Program::Floor { kind, wire } => floor(setting, *kind, *wire),
            Program::Ucx {
                transports,
                args,
                unit,
            } => ucx(setting, transports, args, *unit),
            Program::Libfabric {
                provider,
                endpoint,
                args,
            } => libfabric(setting, provider, endpoint, args),
            Program::Sleeper(sleeper) => sleeper.run(setting),
        }
    }
}

fn four_pairs(setting: &Setting, what: (&str, &str, Way)) -> Result<Vec<Figure>> {
    let rate = |text: &str| match tables::perftest(text) {
        Some(Perftest::Bandwidth { bytes, .. }) => Ok(bytes),
        _ => Err(crate::Error::from("perftest's table is not understood")),
    };
    let port = free_port();
    let command = |server, port| perftest_command(setting, what, server, port, false);
    let alone = rate(&pair::meet(
        command(true, port)?,
        command(false, port)?,
        port,
        false,
    )?)?;
    let mut servers = Vec::new();
    for _ in 0..4 {
        let port = free_port();
        let mut server = Running::start(command(true, port)?, std::process::Stdio::null())?;
        server.wait_for_listener(port)?;
        servers.push((server, port));
    }
    let mut pairs = Vec::new();
    for (server, port) in servers {
        let client = Running::start(command(false, port)?, std::process::Stdio::null())?;
        pairs.push((server, client));
    }
    let mut rates = Vec::new();
    for (server, client) in pairs {
        rates.push(rate(&pair::finish(server, client, false)?)?);
    }
    let sum: f64 = rates.iter().sum();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(vec![
        (String::new(), Unit::Gigabytes, sum),
        ("one pair alone".into(), Unit::Gigabytes, alone),
        ("least share".into(), Unit::Share, 4.0 * least / sum),
        ("four / one".into(), Unit::Share, sum / alone),
    ])
}

/// What a program prints that needs no other; None: it failed.
pub fn output_of(command: Command) -> Result<Option<String>> {
    let mut running = Running::start(command, std::process::Stdio::null())?;
    let output = running.output(std::time::Instant::now() + ALONE)?;
    Ok(output.ok.then_some(output.stdout))
}

/// 8 bytes beside RDMA WRITEs of 1 MiB.
fn beside(setting: &Setting, way: Way) -> Result<Vec<Figure>> {
    let Ends(end, _) = setting.places.ends(way.wire())?;
    let milliseconds = ((1000.0 * setting.effort) as u64).max(20).to_string();
    let run = |what: &str, args: &str| {
        // It starts the second process by itself, and takes a processor for each.
        let mut command = end.command(&setting.places.rnic);
        command
            .env("RNIC_HOST_PATH", way.host_path())
            .envs(setting.ablated.map(|name| ("RNIC_ABLATE", name)))
            .args(["bench", "--json", "--milliseconds", &milliseconds])
            .args(["--what", what])
            .args(args.split(' '));
        output_of(command)?.ok_or_else(|| crate::Error::from("rnic bench failed"))
    };
    let latency = run("latency", "--op send --size 8 --beside 1M")?;
    let bandwidth = run("bandwidth", "--op write --size 1M")?;
    let found = tables::beside(&latency, &bandwidth);
    let found = found.ok_or("the report of rnic bench is not understood")?;
    Ok(vec![
        (String::new(), Unit::Micros, found.beside),
        ("99%".into(), Unit::Micros, found.beside_99),
        ("alone".into(), Unit::Micros, found.alone),
        ("passed".into(), Unit::Bytes, found.passed),
        ("bulk kept".into(), Unit::Share, found.kept),
    ])
}

fn scale(setting: &Setting, count: u32) -> Result<Vec<Figure>> {
    let program = asleep::compiled(setting, "gcc", "scale")?;
    let Ends(end, _) = setting.places.ends(Wire::Lo)?;
    let mut command = rnic_run(setting, setting.pinned(end, true), Way::Host);
    command.arg(&program).arg(count.to_string());
    let found = output_of(command)?.and_then(|text| tables::scale(&text));
    let found = found.ok_or("scale.c failed, or prints something else")?;
    Ok(vec![
        (String::new(), Unit::Micros, found.many),
        ("alone".into(), Unit::Micros, found.alone),
        ("100".into(), Unit::Micros, found.hundred),
        ("idle".into(), Unit::Bytes, found.idle),
    ])
}

fn floor(setting: &Setting, kind: Kind, wire: Wire) -> Result<Vec<Figure>> {
    let Ends(server, client) = setting.places.ends(wire)?;
    let program = std::env::current_exe()?;
    let command = |end: &End, lead: bool| {
        let mut command = end.command(&program);
        command.args(["floor", &kind.text(), "--addr", end.addr]);
        command.args([
            "--milliseconds",
            &((600.0 * setting.effort) as u64).max(20).to_string(),
        ]);
        if let Some((a, b)) = setting.cpus {
            command.args(["--cpu", &if lead { b } else { a }.to_string()]);
        }
        if lead {
            command.arg("--lead");
        }
        command
    };
    let text = pair::connected(command(server, false), command(client, true))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("result ")?.parse().ok())
        .ok_or("no result")?;
    Ok(vec![(String::new(), unit_of_floor(kind), value)])
}

pub fn unit_of_floor(kind: Kind) -> Unit {
    match kind {
        Kind::UdpPingPong | Kind::UdpWake | Kind::EventfdWake | Kind::RingPingPong => Unit::Micros,
        Kind::RingRate(_) | Kind::StreamRate(_) => Unit::Millions,
        Kind::Stream(_)
        | Kind::VmWrite
        | Kind::VmWriteTo(_)
        | Kind::VmRead
        | Kind::DoubleCopy
        | Kind::Memcpy => Unit::Gigabytes,
    }
}

fn ucx(setting: &Setting, transports: &str, args: &str, unit: Unit) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = setting.places.ends(Wire::Lo)?;
    let port = free_port();
    let command = |end: &End, server| {
        let mut command = setting.pinned(end, server);
        command
            .env("UCX_TLS", transports)
            // Only warnings about the machine.
            .env("UCX_LOG_LEVEL", "error")
            .args(["ucx_perftest", "-p", &port.to_string()]);
        command
    };
    let mut client = command(at_client, false);
    client
        .arg(at_server.addr)
        .arg("-f")
        .args(setting.args(args));
    let text = pair::meet(command(at_server, true), client, port, false)?;
    let found = tables::ucx(&text).ok_or("ucx_perftest's table is not understood")?;
    let value = match unit {
        Unit::Micros => found.latency,
        Unit::Gigabytes => found.bytes,
        _ => found.messages,
    };
    Ok(vec![(String::new(), unit, value)])
}

fn libfabric(setting: &Setting, provider: &str, endpoint: &str, args: &str) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = setting.places.ends(Wire::Lo)?;
    let port = free_port();
    let command = |end: &End, server| {
        let mut command = setting.pinned(end, server);
        command
            .args(["fi_pingpong", "-p", provider, "-e", endpoint])
            .args(setting.args(args))
            .args([if server { "-B" } else { "-P" }, &port.to_string()]);
        command
    };
    let mut client = command(at_client, false);
    client.arg(at_server.addr);
    let text = pair::meet(command(at_server, true), client, port, false)?;
    let value = tables::libfabric(&text).ok_or("fi_pingpong's table is not understood")?;
    Ok(vec![(String::new(), Unit::Micros, value)])
}
