//! `rnic run --trace PAGE`: the way of each work request, from its post to its completion, as a
//! page. The program's NIC notes when requests are posted, done and seen; a capture has the
//! packets. Of other traced runs of this user, that go on or have just ended, the same is read, so
//! that both sides of a request are shown.

mod event;
mod page;
mod timeline;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::platform::failure::{Failure, Result};
use crate::platform::files;
use crate::platform::replace::may_be_replaced;
use event::Event;

/// How the names of the files in the runtime folder begin and end.
const PREFIX: &str = "trace-";
const EVENTS: &str = ".events";
const CAPTURE: &str = ".pcap";
/// How long the files of a run are kept for others to read.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Most that is read of one file of events, of one capture, and how many runs.
const MOST_EVENTS: u64 = 16 << 20;
const MOST_CAPTURED: u64 = 256 << 20;
const MOST_RUNS: usize = 16;

/// The files of a run that is traced.
#[derive(Debug)]
pub struct Tracing {
    page: PathBuf,
    events: PathBuf,
    capture: PathBuf,
}

/// What is read of a run.
struct Run {
    events: Vec<Event>,
    capture: Vec<u8>,
}

impl Tracing {
    /// Looks whether the page can be written, and makes the files. `pcap`: the user wants the
    /// capture, too.
    pub fn prepare(runtime: &Path, page: &Path, pcap: Option<&Path>) -> Result<Tracing> {
        let unwritable = |path: &Path, error: std::io::Error| {
            Failure::new(format!("cannot write {}", path.display()))
                .cause(error.to_string())
                .next("choose a file in a folder that you may write to: --trace /tmp/trace.html")
        };
        let page = std::path::absolute(page).map_err(|error| unwritable(page, error))?;
        if !may_be_replaced(&page, page::is_one).map_err(|error| unwritable(&page, error))? {
            return Err(
                Failure::new(format!("{} is no page of --trace", page.display()))
                    .cause("--trace replaces FILE, and this one has other content")
                    .next("choose another name, or remove the file yourself")
                    .status(2),
            );
        }
        File::create(&page).map_err(|error| unwritable(&page, error))?;
        prune(runtime);
        let name = std::collections::hash_map::RandomState::new();
        let name = std::hash::BuildHasher::hash_one(&name, std::process::id());
        let file = |end: &str| runtime.join(format!("{PREFIX}{name:016x}{end}"));
        let (events, own) = (file(EVENTS), file(CAPTURE));
        let create = |path: &Path| {
            let mut options = OpenOptions::new();
            let made = options.write(true).create_new(true).mode(0o600).open(path);
            made.map(drop).map_err(|error| unwritable(path, error))
        };
        create(&events)?;
        let capture = match pcap {
            Some(pcap) => std::path::absolute(pcap).map_err(|error| unwritable(pcap, error))?,
            None => {
                create(&own)?;
                own
            }
        };
        Ok(Tracing {
            page,
            events,
            capture,
        })
    }

    /// Tells the program where to.
    pub fn tell(&self, command: &mut Command) {
        command.env(rnic_settings::TRACE.name, &self.events);
        command.env(rnic_settings::PCAP.name, &self.capture);
    }

    /// Writes the page.
    pub fn finish(self, runtime: &Path, program: &str) -> Result<()> {
        let own = Run {
            events: event::read(&read(&self.events, MOST_EVENTS)),
            capture: read(&self.capture, MOST_CAPTURED),
        };
        let others: Vec<Run> = others(runtime, &self.events)
            .map(|events| Run {
                capture: read(&events.with_extension("pcap"), MOST_CAPTURED),
                events: event::read(&read(&events, MOST_EVENTS)),
            })
            .collect();
        let requests = timeline::of(&own, &others);
        std::fs::write(&self.page, page::of(program, &requests)).map_err(|error| {
            Failure::new(format!("cannot write {}", self.page.display())).cause(error.to_string())
        })?;
        crate::remark!("{}", page::told(&requests, &self.page));
        Ok(())
    }
}

/// A plain file of this user's, up to a length; nothing of any other.
fn read(path: &Path, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some((file, _)) = files::own(path) {
        // What came before an error is what there is.
        let _ = file.take(most).read_to_end(&mut bytes);
    }
    bytes
}

/// The files of this kind, with their age.
fn files(runtime: &Path) -> impl Iterator<Item = (PathBuf, Duration)> {
    let entries = std::fs::read_dir(runtime).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let name = path.file_name()?.to_str()?;
        let written = entry.metadata().ok()?.modified();
        let age = written.unwrap_or(SystemTime::UNIX_EPOCH).elapsed();
        let ours = name.starts_with(PREFIX) && (name.ends_with(EVENTS) || name.ends_with(CAPTURE));
        ours.then(|| (path, age.unwrap_or_default()))
    })
}

/// The events of other runs, the youngest first.
fn others(runtime: &Path, own: &Path) -> impl Iterator<Item = PathBuf> {
    let mut found: Vec<(PathBuf, Duration)> = files(runtime)
        .filter(|(path, age)| path != own && *age <= KEPT_FOR)
        .filter(|(path, _)| path.extension().is_some_and(|it| it == &EVENTS[1..]))
        .collect();
    found.sort_by_key(|(_, age)| *age);
    found.into_iter().take(MOST_RUNS).map(|(path, _)| path)
}

/// Removes what no other run will read any more.
fn prune(runtime: &Path) {
    for (path, age) in files(runtime) {
        if age > KEPT_FOR {
            let _ = std::fs::remove_file(path);
        }
    }
}
