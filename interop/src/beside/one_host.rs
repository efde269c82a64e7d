//! Two processes of one host.

use super::plan::Measure;
use super::{Contestant, MEASUREMENT_TIMEOUT, table};
use crate::lab::{End, Family, Lab};
use crate::pair::{LONG, port, try_finish};
use rnic_programs::process::Process;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

const CONTESTANTS: [Contestant; 3] = [
    Contestant::SOFT_ROCE,
    Contestant {
        end: End::Rnic,
        environment: &[("RNIC_HOST_PATH", "off")],
        name: "rnic, UDP",
    },
    Contestant {
        end: End::Rnic,
        environment: &[],
        name: "rnic, its own way",
    },
];

/// Both processes use one device and one address.
pub fn run(job: &Path, measures: &[Measure], rounds: usize) -> ExitCode {
    let lab = Lab::set_up(job);
    let title = "two processes of one host";
    table::fill(job, title, &CONTESTANTS, measures, rounds, |who, what| {
        let port = port();
        let mut server = Process::spawn(command(&lab, job, who, what, port));
        server.try_listener(port, LONG)?;
        let began = Instant::now();
        let mut client = command(&lab, job, who, what, port);
        client.arg("127.0.0.1");
        let outcome = try_finish(server, Process::spawn(client), began, MEASUREMENT_TIMEOUT)?;
        let number = what.read(&outcome.client.stdout);
        number
            .filter(|_| outcome.client.ok())
            .ok_or_else(|| outcome.describe())
    })
}

fn command(lab: &Lab, job: &Path, who: &Contestant, what: &Measure, port: u16) -> Command {
    let mut command = lab.command(who.end, &what.path(job));
    who.dress(&mut command);
    command
        .args(&what.args)
        .args(["-d", who.end.device()])
        .args(["-x", &lab.gid(who.end, Family::V4)])
        .args(["-p", &port.to_string()]);
    command
}
