//! Makes a change that rnic can make itself, and measures what it does to the program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::evidence::{Evidence, Verbs};
use super::judge::{Judgement, Verdict};
use super::trace::{self, Program, Run, With};
use crate::platform::failure::Result;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// What was changed.
    pub change: String,
    /// Of what the figures are.
    pub of: &'static str,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub factor: Option<f64>,
    /// Why there are none.
    pub why_not: Option<String>,
}

impl Attempt {
    fn failed(change: String, of: &'static str, why: impl Into<String>) -> Attempt {
        Attempt {
            change,
            of,
            before: None,
            after: None,
            factor: None,
            why_not: Some(why.into()),
        }
    }
}

/// Everything that can be tried. Failures are results, too.
pub fn all(
    program: &Program<'_>,
    judgement: &Judgement,
    evidence: &Evidence,
    run: &Run,
    limit: Option<Duration>,
) -> Vec<Attempt> {
    let mut all = Vec::new();
    if run.interrupted {
        return all;
    }
    let changes = judgement
        .advice
        .iter()
        .filter_map(|advice| advice.by_itself);
    for (name, value) in changes {
        let change = format!("{name}={value}");
        let of = "requests per second";
        let with = With {
            variable: Some((name, value)),
            limit: Some(limit.unwrap_or(patience(run))),
            silent: true,
            ..With::default()
        };
        all.push(match trace::recorded(program, with) {
            Ok((_, again)) if again.interrupted => return all,
            Ok((_, again)) if again.stopped && limit.is_none() => {
                Attempt::failed(change, of, "it did not end in ten times the time")
            }
            // What fails in the change alone says nothing of it.
            Ok((_, again)) if run.failure().is_none() && again.failure().is_some() => {
                Attempt::failed(change, of, again.failure().unwrap_or_default())
            }
            Ok((after, _)) => compared(change, of, rate(evidence), rate(&after)),
            Err(failure) => Attempt::failed(change, of, failure.to_string()),
        });
    }
    if judgement.verdict == Verdict::Rsockets {
        all.extend(rsockets(program, run, limit));
    }
    all
}

/// A program that takes ten times as long has stalled.
fn patience(run: &Run) -> Duration {
    Duration::from_secs_f64((10.0 * run.seconds).max(10.0))
}

fn compared(change: String, of: &'static str, before: f64, after: f64) -> Attempt {
    let factor = after / before;
    match factor.is_finite() && factor > 0.0 {
        true => Attempt {
            change,
            of,
            before: Some(before),
            after: Some(after),
            factor: Some(factor),
            why_not: None,
        },
        false => Attempt::failed(change, of, "a run had too few of them"),
    }
}

fn rate(evidence: &Evidence) -> f64 {
    let of = |verbs: &Verbs| verbs.requests.count() as f64 / verbs.seconds;
    evidence.verbs.as_ref().map_or(f64::NAN, of)
}

/// The preload library of the installed librdmacm.
fn shim() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let found = folders.map(|folder| Path::new(folder).join("rsocket/librspreload.so"));
    found.into_iter().find(|path| path.is_file())
}

/// `None`: somebody ended it.
fn rsockets(program: &Program<'_>, run: &Run, limit: Option<Duration>) -> Option<Attempt> {
    let change = "rsockets instead of TCP".to_owned();
    let of = "runs per second";
    let Some(shim) = shim() else {
        let why = "librspreload.so is not installed (Debian: librdmacm1)";
        return Some(Attempt::failed(change, of, why));
    };
    if limit.is_some() {
        let why = "a server alone tells nothing: both sides have to change";
        return Some(Attempt::failed(change, of, why));
    }
    let runs = || -> Result<(Run, Run)> {
        let with = With {
            limit: Some(patience(run)),
            silent: true,
            ..With::default()
        };
        let tcp = trace::bare(program, false, with)?;
        let preload = Some(&*shim);
        Ok((tcp, trace::bare(program, true, With { preload, ..with })?))
    };
    Some(match runs() {
        Ok((before, after)) if before.interrupted || after.interrupted => return None,
        Ok((_, after)) if after.stopped => {
            let why = "it stalled: it was ended after ten times the time";
            Attempt::failed(change, of, why)
        }
        Ok((before, after)) if before.failure().is_some() || after.failure().is_some() => {
            let how = after.failure().or(before.failure());
            Attempt::failed(change, of, how.unwrap_or_default())
        }
        Ok((before, after)) => compared(change, of, 1.0 / before.seconds, 1.0 / after.seconds),
        Err(failure) => Attempt::failed(change, of, failure.to_string()),
    })
}
