//! `rnic run --watch`: says while the program hangs what it waits for.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Collector, Report, waits};

/// Between two looks at what the program has recorded, at most.
const LOOK: Duration = Duration::from_millis(250);

/// A thread that looks, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells of each wait that has lasted so long, once.
    pub fn start(collector: &Collector, after: Duration) -> Watch {
        let (end, ended) = channel();
        let file = collector.file.clone();
        let thread = std::thread::spawn(move || {
            let mut told = HashSet::new();
            while ended.recv_timeout(LOOK.min(after)) == Err(RecvTimeoutError::Timeout) {
                look(&file, after, &mut told);
            }
        });
        Watch {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(file: &PathBuf, after: Duration, told: &mut HashSet<(u64, u64)>) {
    let Ok(file) = std::fs::File::open(file) else {
        return;
    };
    let report = Report::read(file, 0);
    let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    for wait in &report.waits {
        let is_long = report.read_at.saturating_sub(wait.since) >= after;
        if wait.over.is_none() && is_long && told.insert((wait.process, wait.wait)) {
            waits::lasting(&report, wait).print();
        }
    }
}
