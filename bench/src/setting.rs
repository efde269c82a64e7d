//! What is measured and where: figures and their units, rnic's paths, the machine's places.

use std::path::PathBuf;
use std::process::Command;

use rnic_programs::{netns::Netns, skip::find_program};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::place::{End, Places, Wire};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "GB/s")]
    Gigabytes,
    #[serde(rename = "M/s")]
    Millions,
    #[serde(rename = "bytes")]
    Bytes,
    /// Of what would be fair.
    #[serde(rename = "share")]
    Share,
    /// Of a processor, or of several, for a million messages.
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "k/s")]
    Thousands,
    /// Of a processor's time.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// Above a column.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Micros => "time",
            Unit::Gigabytes | Unit::Millions | Unit::Thousands => "rate",
            Unit::Bytes => "bytes",
            Unit::Share => "share",
            Unit::Seconds | Unit::Percent => "processor time",
        }
    }

    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Micros if value < 1.0 => format!("{value:.3} us"),
            Unit::Micros => format!("{value:.2} us"),
            Unit::Gigabytes => format!("{value:.2} GB/s"),
            Unit::Millions => format!("{value:.2} M/s"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Share => format!("{value:.2}"),
            Unit::Seconds if value < 100.0 => format!("{value:.1} s"),
            Unit::Seconds => format!("{value:.0} s"),
            Unit::Thousands => format!("{value:.1} k/s"),
            Unit::Percent => format!("{value:.2}%"),
        }
    }

    /// Whether less is better.
    pub fn less_is_better(self) -> bool {
        matches!(
            self,
            Unit::Micros | Unit::Bytes | Unit::Seconds | Unit::Percent
        )
    }
}

/// Which path rnic takes between processes of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Host,
    Udp(Wire),
    /// Past the kernel's network stack.
    Xdp(Wire),
}

impl Way {
    pub fn wire(self) -> Wire {
        match self {
            Way::Host => Wire::Lo,
            Way::Udp(wire) | Way::Xdp(wire) => wire,
        }
    }

    /// As `RNIC_HOST_PATH`.
    pub fn host_path(self) -> &'static str {
        match self {
            Way::Host => "on",
            Way::Udp(_) | Way::Xdp(_) => "off",
        }
    }
}

/// A figure's name, its unit and its value.
pub type Figure = (String, Unit, f64);

/// How long, and where from.
pub struct Setting {
    pub places: Places,
    /// One for the server and one for the client.
    pub cpus: Option<(usize, usize)>,
    /// Iterations and times, as shares of what a full run takes.
    pub effort: f64,
    /// Where programs in C are.
    pub c_programs: PathBuf,
    /// Where whole programs are that are not of this machine's packages.
    pub programs: PathBuf,
    /// `RNIC_ABLATE`: a policy that is taken out.
    pub ablated: Option<&'static str>,
}

impl Setting {
    pub fn pinned(&self, end: &End, server: bool) -> Command {
        match self.cpus {
            Some((a, b)) => {
                let mut command = end.command("taskset");
                command.args(["-c", &if server { a } else { b }.to_string()]);
                command
            }
            None => end.command("env"),
        }
    }

    pub fn count(&self, full: u64) -> String {
        ((full as f64 * self.effort) as u64).max(200).to_string()
    }

    /// With `N=COUNT` for a number of iterations.
    pub fn args(&self, text: &str) -> Vec<String> {
        let word = |word: &str| match word.strip_prefix("N=") {
            Some(count) => self.count(count.parse().unwrap_or(1000)),
            None => word.to_owned(),
        };
        text.split_whitespace().map(word).collect()
    }
}

pub fn needs(program: &str, package: &str) -> Result<()> {
    match find_program(program) {
        Some(_) => Ok(()),
        None => Err(format!("{program} is not installed (apt-get install {package})").into()),
    }
}

pub fn rnic_run(setting: &Setting, mut command: Command, way: Way) -> Command {
    command
        .env("RNIC_HOST_PATH", way.host_path())
        .envs(setting.ablated.map(|name| ("RNIC_ABLATE", name)))
        .arg(&setting.places.rnic)
        .arg("run");
    if let Way::Xdp(_) = way {
        command.args(["--xdp", Netns::INTERFACE]);
    }
    command.arg("--");
    command
}
