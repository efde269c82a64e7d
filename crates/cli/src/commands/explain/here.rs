//! Where the output of this machine shows a word: the command is run, or its work done, and the
//! line taken out of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use super::{lookup, number};
use crate::commands::run::folders;
use crate::commands::{devices, dissect};
use crate::platform::failure::{Failure, Result};
use crate::topics::words::Here;

/// A line, and what prints it.
#[derive(Debug, Serialize)]
pub struct Place {
    pub command: String,
    pub line: String,
}

/// Where it shows, or why it does not.
pub type Shown = std::result::Result<Place, String>;

/// Looks there now.
pub fn look(here: Here) -> Shown {
    let found = match here {
        Here::Nowhere(why) => return Err(why.to_owned()),
        Here::Devices(mark) => of("rnic devices", devices::shown(false), mark),
        Here::Settings(mark) => of("rnic devices -v", devices::shown(true), mark),
        Here::Devinfo(mark) => return devinfo(mark),
        Here::Packets(mark) => {
            let command = "rnic dissect --packets, of requests that were made just now";
            of(command, captured(|file| dissect::shown(file, true)), mark)
        }
        Here::Dissect(mark) => {
            let command = "rnic dissect, of requests that were made just now";
            of(command, captured(|file| dissect::shown(file, false)), mark)
        }
        Here::Field(name) => field(name),
        Here::Limit(name) => limit(name),
        Here::Explain(asked) => explained(asked),
    };
    found.map_err(|failure| {
        // The rest of a failure's words is what the command itself would say.
        let text = failure.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("rnic: ").unwrap_or(first).to_owned()
    })
}

/// The first line of a text that has the mark.
fn of(command: &str, text: Result<String>, mark: &str) -> Result<Place> {
    let text = text.map_err(|failure| failure.during(command))?;
    let line = text.lines().find(|line| line.contains(mark));
    let line = line.ok_or_else(|| Failure::new(format!("`{command}` does not show it now")))?;
    Ok(Place {
        command: command.to_owned(),
        line: line.trim().to_owned(),
    })
}

/// The program may not be installed.
fn devinfo(mark: &str) -> Shown {
    let said = "rnic run -- ibv_devinfo -v";
    let absent = format!("{said} (of ibverbs-utils, which is not installed) has a line: {mark}");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["run", "--quiet", "--", "ibv_devinfo", "-v"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(absent);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // By whole words: max_qp is no max_qp_wr.
    let is = |line: &&str| {
        let line = line.trim();
        line.strip_prefix(mark)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let line = text.lines().find(is).ok_or(absent)?;
    Ok(Place {
        command: said.to_owned(),
        line: line.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

/// Removes the file that a look needed.
struct Capture(PathBuf);

impl Drop for Capture {
    fn drop(&mut self) {
        // It lies in a folder of its own for such files; nobody misses it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What `read` says of a capture that `rnic part lab` makes now.
fn captured<T>(read: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let name = format!("explain-{}.pcap", std::process::id());
    let file = Capture(folders::runtime()?.join(name));
    std::fs::write(&file.0, b"")?;
    let output = Command::new(std::env::current_exe()?)
        .args(["part", "lab"])
        .env(rnic_settings::PCAP.name, &file.0)
        .env_remove(rnic_settings::FAULTS.name)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().next().unwrap_or_default();
        let why = why.strip_prefix("rnic: ").unwrap_or(why);
        return Err(Failure::new(format!(
            "no packets could be made to show it: {why}"
        )));
    }
    read(&file.0)
}

/// A field, as the page shows it.
fn field(name: &str) -> Result<Place> {
    let line = captured(|file| {
        let mut found = None;
        dissect::each_packet(file, |packet| {
            let class = packet.outer.traffic_class;
            let line = match name {
                "ip.tos" => Some(format!(
                    "Traffic class  {class:#04x} (DSCP {}, ECN {})",
                    class >> 2,
                    class & 3
                )),
                "bth.solicited" if packet.bth.solicited => Some("Solicited  true".to_owned()),
                "aeth.msn" => packet.ext.aeth.map(|aeth| format!("MSN  {}", aeth.msn)),
                _ => None,
            };
            found = line.or(found.take());
        })?;
        Ok(found)
    })?;
    let command = "rnic dissect --html PAGE, a field of a packet";
    let line = line.ok_or_else(|| Failure::new(format!("no packet has the field {name}")))?;
    Ok(Place {
        command: command.to_owned(),
        line,
    })
}

fn limit(name: &str) -> Result<Place> {
    let most = rnic::Context::open()?.device_attr().max_inline_data;
    Ok(Place {
        command: "ibv_create_qp of rnic0".to_owned(),
        line: format!("{name} may be up to {most}"),
    })
}

fn explained(asked: &str) -> Result<Place> {
    let command = format!("rnic explain {asked}");
    let found = lookup::find(&[asked.to_owned()]);
    let topic = found.topics.first();
    let topic = topic.ok_or_else(|| Failure::new(format!("`{command}` knows nothing")))?;
    Ok(Place {
        line: format!("{} {}: {}", topic.kind.title(), number(topic), topic.name),
        command,
    })
}
