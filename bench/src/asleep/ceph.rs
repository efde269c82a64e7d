//! `rados bench` on a Ceph cluster of one OSD that keeps objects in memory. The client, the OSD and
//! the monitor are processes of one host.

use std::process::{Command, Stdio};
use std::time::Duration;

use rnic_programs::ceph::{self, Ceph, Messenger};
use rnic_programs::place::free_port;

use super::programs::{metered_for, processor, say_within};
use super::{MEAN, Over, TCP, after, ends};
use crate::Result;
use crate::pair::Running;
use crate::place::Ends;
use crate::setting::{Figure, Setting, Unit};

/// Longer than a cluster takes to start, or than anything here takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(90);
/// Of a full run.
const SECONDS: f64 = 2.0;
/// What is there to read.
const OBJECTS: &str = "1000";

/// A load of `rados bench`.
#[derive(Clone, Debug)]
pub struct Rados {
    pub bytes: u32,
    /// Of what was written before.
    pub reads: bool,
    /// Ceph's threads that poll sleep as soon as there is nothing.
    pub sleeps: bool,
}

pub fn has(setting: &Setting) -> Result<()> {
    ceph::find(&setting.programs.join("ceph"))
        .map(drop)
        .map_err(Into::into)
}

/// A cluster that nobody has used, of this run's.
fn fresh(setting: &Setting) -> Result<Ceph> {
    let root = ceph::find(&setting.programs.join("ceph"))?;
    let folder = setting.places.folder();
    let prepared = folder.join("ceph");
    let cluster = Ceph::new(root, prepared.clone());
    if !prepared.exists() {
        let Ends(end, _) = ends(setting, TCP)?;
        let command = cluster.prepare(TCP.command(setting, end), free_port())?;
        if let Err(error) = say_within(command, HANG_TIMEOUT) {
            std::fs::remove_dir_all(&prepared)?;
            return Err(error);
        }
    }
    let used = folder.join("ceph-used");
    if used.exists() {
        std::fs::remove_dir_all(&used)?;
    }
    Ok(cluster.copy(used)?)
}

pub fn run(setting: &Setting, load: &Rados, over: Over) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = ends(setting, over)?;
    let cluster = fresh(setting)?;
    let by = match (over.is_rdma(), load.sleeps) {
        (false, _) => Messenger::Sockets,
        (true, false) => Messenger::Rdma,
        (true, true) => Messenger::RdmaAsleep,
    };
    let server = cluster.serve(over.command(setting, at_server), by);
    let server = Running::start(server, Stdio::null())?;
    let rados = |words: &[&str]| -> Command {
        let mut command = cluster.rados(over.command(setting, at_client), by);
        command.args(words);
        command
    };
    let seconds = (SECONDS * setting.effort).ceil().max(2.0).to_string();
    let write = |more: &[&str]| -> Command {
        let size = load.bytes.to_string();
        let mut command = rados(&["bench", &seconds, "write", "-b", &size, "-t", "16"]);
        command.args(more);
        command
    };
    // It waits until there is an OSD.
    say_within(rados(&["put", "first", "/dev/null"]), HANG_TIMEOUT)?;
    let work = match load.reads {
        true => {
            let some = write(&["--no-cleanup", "--max-objects", OBJECTS]);
            say_within(some, HANG_TIMEOUT)?;
            rados(&["bench", &seconds, "rand", "-t", "16"])
        }
        // The objects stay: to remove them would be work, too.
        false => write(&["--no-cleanup"]),
    };
    // What a client costs that does little.
    let (_, little) = metered_for(&server, rados(&["stat", "first"]), HANG_TIMEOUT)?;
    let (text, much) = metered_for(&server, work, HANG_TIMEOUT)?;
    let made = match load.reads {
        true => "Total reads made:",
        false => "Total writes made:",
    };
    // As columns.
    let number = |words: &str| -> Result<f64> {
        let (_, rest) = text
            .split_once(words)
            .ok_or_else(|| format!("rados bench did not say `{words}`"))?;
        after(&format!("= {}", rest.trim_start()), "= ")
    };
    let (count, time) = (number(made)?, number("Total time run:")?);
    Ok(vec![
        (String::new(), Unit::Thousands, count / time / 1e3),
        (
            MEAN.into(),
            Unit::Micros,
            number("Average Latency(s):")? * 1e6,
        ),
        processor(much - little, count),
    ])
}
