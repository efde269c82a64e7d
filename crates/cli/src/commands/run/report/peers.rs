//! What other runs of this user tell of the peers of this one: their files lie in the same folder.
//!
//! Such a file belongs to other processes, which may be at work on it, may have been killed over it,
//! and may have written anything. So it is read up to a length, only as a plain file of this user,
//! and of its lines only those count that concern a queue pair which failed here.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::record::{Attempt, Connected, Ends, Failure, Record};
use super::{Process, Report};
use crate::platform::files;

/// How the names of the files begin.
pub const PREFIX: &str = "report-";

/// How long the file of a run that has ended is kept.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Most bytes of such files, and most files: the newest stay.
const KEPT_BYTES: u64 = 16 << 20;
const KEPT_FILES: usize = 64;
/// Most that is read of one file, of one line in it, and of all files.
const MOST_OF_FILE: u64 = 8 << 20;
const MOST_OF_LINE: usize = 16 << 10;
const MOST_FILES: usize = 256;
const MOST_RECORDS: usize = 4096;

/// How the lines begin that matter where nothing failed here.
const QUICK: [&[u8]; 5] = [
    br#"{"record":"process""#,
    br#"{"record":"failure""#,
    br#"{"record":"dropped""#,
    br#"{"record":"partition""#,
    br#"{"record":"unheard""#,
];

/// A report file that a run has left.
struct Found {
    path: PathBuf,
    file: File,
    len: u64,
    written: SystemTime,
    /// Nobody holds it any more.
    ended: bool,
}

/// A plain file of this user's, opened without being led elsewhere or made to wait.
fn open(path: PathBuf) -> Option<Found> {
    let (file, meta) = files::own(&path)?;
    Some(Found {
        len: meta.len(),
        written: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        ended: file.try_lock_shared().is_ok(),
        path,
        file,
    })
}

fn is_report(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

fn find(folder: &Path) -> impl Iterator<Item = Found> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| is_report(&entry.file_name()))
        .filter_map(|entry| open(entry.path()))
}

/// Time since then; of the future none.
fn age(then: SystemTime) -> Duration {
    then.elapsed().unwrap_or_default()
}

/// Removes files of runs that ended long ago, and the older ones of too many.
pub fn prune(runtime: &Path) {
    let mut ended: Vec<Found> = find(runtime).filter(|found| found.ended).collect();
    ended.sort_by_key(|found| age(found.written));
    let mut bytes = 0u64;
    for (newer, found) in ended.into_iter().enumerate() {
        bytes = bytes.saturating_add(found.len);
        if age(found.written) > KEPT_FOR || bytes > KEPT_BYTES || newer >= KEPT_FILES {
            let _ = std::fs::remove_file(&found.path);
        }
    }
}

impl Report {
    /// Reads what the files in `folders` tell of the peers of what failed here, or of who sent what
    /// was refused here. `own`: the file of this run.
    pub fn look_at_others(&mut self, folders: &[PathBuf], own: Option<&Path>) {
        let failures = self.failures.iter().map(|failure| &failure.ends);
        let refusals = self.refusals.iter().map(|refusal| &refusal.ends);
        let wanted: Vec<Ends> = failures
            .chain(refusals)
            .filter(|ends| ends.peer_qpn.is_some())
            .cloned()
            .collect();
        if self.processes.is_empty() {
            return;
        }
        let mut others = Report::default();
        let found = folders.iter().flat_map(|folder| find(folder));
        let fresh = found.filter(|found| !found.ended || age(found.written) <= KEPT_FOR);
        for mut found in fresh
            .filter(|found| own != Some(found.path.as_path()))
            .take(MOST_FILES)
        {
            self.take_from(&mut found, &wanted, &mut others);
        }
        others.failures.sort_by_key(|failure| failure.ns);
        others.refusals.sort_by_key(|refusal| refusal.ns);
        others.connected.sort_by_key(|connected| connected.ns);
        others.left.sort_by_key(|left| left.ns);
        others.attempts.sort_by_key(|attempt| attempt.ns);
        self.others = Some(Box::new(others));
    }

    fn take_from(&self, found: &mut Found, wanted: &[Ends], others: &mut Report) {
        let mut text = Vec::new();
        let _ = found.file.rewind();
        if (&found.file)
            .take(MOST_OF_FILE)
            .read_to_end(&mut text)
            .is_err()
        {
            return;
        }
        // Of other processes it has nothing to tell.
        let mut own: Vec<u64> = Vec::new();
        let quick = wanted.is_empty() && self.attempts.is_empty();
        for line in text.split(|byte| *byte == b'\n') {
            if line.len() > MOST_OF_LINE || (quick && !QUICK.iter().any(|b| line.starts_with(b))) {
                continue;
            }
            let Ok(record) = serde_json::from_slice(line) else {
                continue;
            };
            if let Record::Process {
                process,
                pid,
                program,
            } = record
            {
                // Numbers are random: the same one again is no honest one's.
                let known = self.processes.iter().chain(&others.processes);
                if known.clone().all(|p| p.id != process) && others.processes.len() < MOST_RECORDS {
                    own.push(process);
                    others.processes.push(Process {
                        id: process,
                        pid,
                        program,
                        opened: true,
                    });
                    if found.ended {
                        others.ended.insert(process);
                    }
                }
            } else if others.records() < MOST_RECORDS
                && concerns(&record, wanted)
                    .or_else(|| self.asked(&record))
                    .or_else(|| self.meant(&record))
                    .or_else(|| self.unanswerable(&record))
                    .is_some_and(|process| own.contains(&process))
            {
                others.add(record);
            }
        }
    }

    fn records(&self) -> usize {
        self.failures.len()
            + self.refusals.len()
            + self.partitions.len()
            + self.dropped.len()
            + self.connected.len()
            + self.left.len()
            + self.unheard.len()
            + self.attempts.len()
    }

    /// The process that tells this of a request which got no answer, and was for a queue pair here that
    /// has another peer; or of one whose answer from here had packets of another path MTU.
    fn meant(&self, record: &Record) -> Option<u64> {
        let Record::Failure(failure) = record else {
            return None;
        };
        let is_meant = self.connected_elsewhere(failure).is_some()
            || self.answered_by_other_mtu(failure).is_some();
        is_meant.then_some(failure.process)
    }

    /// The process that tells this of what it dropped, which this run sent by a service without answers:
    /// UD names its sender, and UC is connected.
    fn unanswerable(&self, record: &Record) -> Option<u64> {
        let mut unanswered = self.connected.iter().filter(|own| own.qp_type == "UC");
        let mut leads = |ends: &Ends| unanswered.any(|own| own.ends.is_opposite(ends));
        let (process, is_from_here) = match record {
            Record::Dropped(dropped) => (
                dropped.process,
                leads(&dropped.ends)
                    || self.has(
                        dropped.src_qpn,
                        dropped.src_pid,
                        dropped.src_program.as_deref(),
                    ),
            ),
            Record::Partition(partition) => (partition.process, leads(&partition.ends)),
            Record::Unheard(unheard) => (
                unheard.process,
                unanswered.any(|own| unheard.is_of(&own.ends))
                    || self.has(
                        unheard.src_qpn,
                        unheard.src_pid,
                        unheard.src_program.as_deref(),
                    ),
            ),
            _ => return None,
        };
        is_from_here.then_some(process)
    }

    /// That queue pair of UD is one of this run's. Numbers of processes come again, and so that of the
    /// queue pair and the name have to fit; a kernel keeps a name's beginning.
    fn has(&self, qpn: Option<u32>, pid: Option<u32>, name: Option<&str>) -> bool {
        let (Some(qpn), Some(pid), Some(name)) = (qpn, pid, name) else {
            return false;
        };
        let is_it = |own: &Process| own.pid == pid && own.program.starts_with(name);
        let process = self.processes.iter().find(|own| is_it(own));
        let has = |process: &Process| {
            let mut lives = self.connected.iter();
            lives.any(|own| (own.process, own.ends.qpn) == (process.id, qpn))
        };
        !name.is_empty() && process.is_some_and(has)
    }

    /// How a queue pair of this run was connected when requests came for it whose answers went
    /// elsewhere: it takes another queue pair for its peer than the one that failed.
    pub fn connected_elsewhere(&self, failure: &Failure) -> Option<&Connected> {
        const RETRY_EXCEEDED: u32 = 12;
        if failure.status != RETRY_EXCEEDED {
            return None;
        }
        let lives = self.connected.iter().filter(|own| own.answers());
        let lives = lives.filter(|own| failure.ends.leads_to(&own.ends));
        // The two may have been connected with each other before.
        let mut fits = lives
            .clone()
            .filter(|own| own.ends.is_opposite(&failure.ends));
        let life = lives
            .filter(|own| own.ns <= failure.ns)
            .max_by_key(|own| own.ns)?;
        let left = self.left.iter().any(|left| {
            (left.process, left.ends.qpn) == (life.process, life.ends.qpn)
                && (life.ns..failure.ns).contains(&left.ns)
        });
        (fits.next().is_none() && !left).then_some(life)
    }

    /// The queue pair of this run that answered an RDMA READ, and the path MTUs here and at the
    /// requester: they differ, so that the requester took none of the answer (status 7).
    pub fn answered_by_other_mtu(&self, failure: &Failure) -> Option<(&Connected, u64, u64)> {
        const BAD_RESPONSE: u32 = 7;
        if failure.status != BAD_RESPONSE {
            return None;
        }
        let lives = self.connected.iter().filter(|own| own.answers());
        let life = lives
            .filter(|own| own.ends.is_opposite(&failure.ends) && own.ns <= failure.ns)
            .max_by_key(|own| own.ns)?;
        let (own, theirs) = (life.path_mtu?, failure.path_mtu?);
        (own != theirs).then_some((life, own, theirs))
    }

    /// The process that tells this of a connection for which a process of this run asked.
    fn asked(&self, record: &Record) -> Option<u64> {
        let Record::Connection(side) = record else {
            return None;
        };
        let between = |a: &Attempt| (&a.local, &a.peer) == (&side.peer, &side.local);
        let known = side.local.is_some() && side.peer.is_some();
        let meant = known && self.attempts.iter().any(between);
        meant.then_some(side.process)
    }
}

/// The process that tells this of a queue pair which one of these takes for its peer.
fn concerns(record: &Record, wanted: &[Ends]) -> Option<u64> {
    let (process, ends) = match record {
        Record::Failure(failure) => (failure.process, &failure.ends),
        Record::Refusal(refusal) => (refusal.process, &refusal.ends),
        Record::Partition(partition) => (partition.process, &partition.ends),
        Record::Dropped(dropped) => (dropped.process, &dropped.ends),
        Record::Connected(connected) => (connected.process, &connected.ends),
        Record::Left(left) => (left.process, &left.ends),
        Record::Unheard(unheard) => {
            let meant = wanted.iter().any(|own| unheard.is_of(own));
            return meant.then_some(unheard.process);
        }
        _ => return None,
    };
    let meant = wanted.iter().any(|own| own.leads_to(ends));
    meant.then_some(process)
}

#[cfg(test)]
mod tests;
