//! Runs the learner's program on the software NIC, and judges what it did.
//!
//! The check in C says what arrived and what was returned. What the NIC saw comes from the report of
//! `rnic run`. The program's own output is shown, and counts for nothing.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rnic_sys::{child::kill_group, signal};
use serde_json::Value;

use super::build::Built;
use super::exercises::Exercise;
use crate::commands::run::library;
use crate::platform::failure::{Failure, Result};
use crate::text::count;

/// What the report needs once the program was told to end.
const TO_REPORT: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What is as it should be.
    pub right: Vec<String>,
    /// What is not.
    pub wrong: Vec<String>,
    /// What the NIC saw, and why: lines with their labels.
    pub why: Vec<(&'static str, String)>,
    /// What the program wrote to standard error.
    pub said: String,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.wrong.is_empty() && !self.right.is_empty()
    }
}

/// The two processes of a check.
#[derive(Clone, Copy, Debug)]
struct Sides {
    learner: u32,
    peer: u32,
}

impl Sides {
    /// Of the line that the check begins with: "=LEARNER PEER".
    fn read(line: &str) -> Option<Sides> {
        let (learner, peer) = line.strip_prefix('=')?.split_once(' ')?;
        Some(Sides {
            learner: learner.parse().ok()?,
            peer: peer.parse().ok()?,
        })
    }

    /// The words of a report, in which both sides have the name of the program.
    fn name(self, program: &str, text: &str) -> String {
        let called = |pid: u32| format!("{program} (pid {pid})");
        let beside = |pid: u32| format!("the peer, {},", called(pid));
        text.replace(&beside(self.learner), "the peer, your program,")
            .replace(&beside(self.peer), "the peer")
            .replace(&called(self.learner), "your program")
            .replace(&called(self.peer), "the course's peer")
    }

    /// Whether that was seen at the peer, to which the learner's program is "the peer".
    fn is_of_peer(self, program: &str, what: &str) -> bool {
        what.starts_with(&format!("{program} (pid {}): ", self.peer))
    }
}

/// Runs it for no longer than `patience`.
pub fn check(exercise: &Exercise, built: &Built, patience: Duration) -> Result<Verdict> {
    use std::os::unix::process::CommandExt;
    // Without it nothing runs, and that is no mistake of the learner's.
    library::find()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["run", "--json", "--stats", "--lint", "--"])
        .args([&built.program, &built.verdicts])
        .env_remove(rnic_settings::PCAP.name)
        .env_remove(rnic_settings::FAULTS.name)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let group = child.id();
    let Some(mut errors) = child.stderr.take() else {
        return Err(Failure::new("the program has no standard error"));
    };
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        // What came before an error is what there is.
        let _ = errors.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let ended = ends_within(&mut child, patience)?;
    let hung = ended.is_none();
    if hung {
        // `rnic run` passes it on, and says what was waited for.
        signal::send(&child, libc::SIGINT);
        ends_within(&mut child, TO_REPORT)?;
    }
    // Also those that the program has left behind.
    kill_group(group);
    child.wait()?;
    let said = reader.join().unwrap_or_default();
    let verdicts = fs::read(&built.verdicts)?;
    let verdicts = String::from_utf8_lossy(&verdicts);
    let (said, report) = split(&said)?;
    Ok(judge(
        exercise,
        &verdicts,
        said,
        &report,
        hung.then_some(patience),
    ))
}

/// How it ended, if it does in time.
fn ends_within(child: &mut Child, time: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + time;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the program said, and the report in the last line.
fn split(text: &str) -> Result<(&str, Value)> {
    let text = text.trim_end();
    let at = text.rfind('\n').map_or(0, |at| at + 1);
    let (said, last) = text.split_at(at);
    match serde_json::from_str(last) {
        Ok(report @ Value::Object(_)) => Ok((said, report)),
        _ => Err(
            Failure::new("the program cannot be judged: `rnic run` gave no report")
                .cause(text.to_owned()),
        ),
    }
}

fn judge(
    exercise: &Exercise,
    verdicts: &str,
    said: &str,
    report: &Value,
    hung: Option<Duration>,
) -> Verdict {
    let mut verdict = Verdict {
        said: said.to_owned(),
        ..Verdict::default()
    };
    let mut whole = false;
    let sides = verdicts.lines().find_map(Sides::read);
    for line in verdicts.lines() {
        match line.split_at_checked(1) {
            Some(("+", text)) => verdict.right.push(text.to_owned()),
            Some(("-", text)) => verdict.wrong.push(text.to_owned()),
            Some((".", _)) => whole = true,
            _ => {}
        }
    }
    if let Some(patience) = hung {
        let seconds = patience.as_secs_f64();
        let text = format!("the program had not ended after {seconds} s, and was ended");
        verdict.wrong.push(text);
    } else if let Some(signal) = report["signal"].as_i64() {
        let text = format!("the program was ended by signal {signal}");
        verdict.wrong.push(match signal {
            11 => format!("{text}: it used memory that is not its own (a crash)"),
            _ => text,
        });
    } else if !whole {
        let text = "the program ended before the check was over: does it call exit()?";
        verdict.wrong.push(text.to_owned());
    }
    if let Some((operation, least)) = exercise.requested {
        let counted = requested(report, operation);
        if verdict.wrong.is_empty() && counted < least {
            verdict.wrong.push(format!(
                "the NIC has done {}, and {least} or more are needed",
                count(counted, &format!("{operation} request"))
            ));
        }
    }
    lint(report, &mut verdict);
    if !exercise.fails_on_purpose {
        why(report, exercise.program(), sides, &mut verdict);
    }
    verdict
}

/// Operations of a kind that all queue pairs were asked for.
fn requested(report: &Value, operation: &str) -> u64 {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let processes = list(&report["stats"]["processes"]);
    let queue_pairs = processes.iter().flat_map(|p| list(&p["queue_pairs"]));
    queue_pairs
        .filter_map(|qp| qp["counters"]["requested"][operation]["messages"].as_u64())
        .sum()
}

/// What works here and fails on hardware is wrong, too.
fn lint(report: &Value, verdict: &mut Verdict) {
    let found = report["lint"].as_array().into_iter().flatten();
    for finding in found {
        let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        verdict.wrong.push(text("what"));
        verdict.why.push(("cause", text("why")));
        verdict.why.push(("next", text("fix")));
    }
}

/// What the NIC saw of it. Without a request or call that failed there is nothing to say.
fn why(report: &Value, program: &str, sides: Option<Sides>, verdict: &mut Verdict) {
    let has = |name: &str| report[name].as_array().is_some_and(|list| !list.is_empty());
    let facts = [
        "failures",
        "refusals",
        "refused_verbs",
        "waits",
        "connections",
    ];
    let failure = &report["failure"];
    if verdict.wrong.is_empty() || failure.is_null() || !facts.iter().any(|name| has(name)) {
        return;
    }
    let strings = |name: &str| -> Vec<String> {
        let all = failure[name].as_array().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    let what = failure["what"].as_str().unwrap_or_default();
    let seen = strings("seen");
    if let Some(refused) = refused_before(report)
        && !seen.iter().any(|text| text.contains(&refused.verb))
    {
        verdict.why.push((
            "seen",
            format!("{} was refused with errno {}", refused.verb, refused.errno),
        ));
        verdict.why.push(("cause", refused.reason));
        // What became of the connection then is a consequence.
        if !["failures", "refusals", "waits"]
            .iter()
            .any(|name| has(name))
        {
            return;
        }
    }
    let of_peer = sides.is_some_and(|sides| sides.is_of_peer(program, what));
    // How it ended is said already.
    let what = match what.split_once("was ended by signal 2; ") {
        Some((_, waited)) => waited,
        None if what.contains(" ended with exit status ") => "",
        None => what,
    };
    let mut told: Vec<(&'static str, String)> = Vec::new();
    if !what.is_empty() {
        told.push(("what", what.to_owned()));
    }
    let lines = |label, texts: Vec<String>| texts.into_iter().map(move |text| (label, text));
    told.extend(lines("seen", seen));
    if let Some(cause) = failure["cause"].as_str() {
        told.push(("cause", cause.to_owned()));
    }
    told.extend(lines("maybe", strings("candidates")));
    told.extend(lines("next", strings("next")));
    if let Some(sides) = sides {
        for (_, text) in &mut told {
            *text = sides.name(program, text);
        }
    }
    if of_peer {
        let text = "the course's peer saw this: in these lines \"the peer\" is your program";
        verdict.why.push(("where", text.to_owned()));
    }
    verdict.why.extend(told);
}

/// A call that was refused, and that the program did not do without.
struct Refused {
    verb: String,
    errno: i64,
    reason: String,
}

/// The first one, if it was before what else failed.
fn refused_before(report: &Value) -> Option<Refused> {
    let list = |name: &str| report[name].as_array().into_iter().flatten();
    let verb = list("refused_verbs").find(|verb| verb["survived"] == false)?;
    let at = verb["ns"].as_u64()?;
    let others = ["failures", "refusals", "waits", "connections"];
    let mut others = others.iter().flat_map(|name| list(name));
    if others.any(|other| other["ns"].as_u64().is_some_and(|ns| ns < at)) {
        return None;
    }
    Some(Refused {
        verb: verb["verb"].as_str()?.to_owned(),
        errno: verb["errno"].as_i64()?,
        reason: verb["reason"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::exercises::ALL;
    use super::*;

    fn of(verdicts: &str, report: Value, hung: bool) -> Verdict {
        let hung = hung.then_some(Duration::from_secs(3));
        judge(&ALL[5], verdicts, "", &report, hung)
    }

    fn counted(writes: u64) -> Value {
        let requested = json!({ "write": { "messages": writes } });
        let queue_pair = json!({ "counters": { "requested": requested } });
        json!({ "stats": { "processes": [{ "queue_pairs": [queue_pair] }] } })
    }

    /// Promise: it passes only if all that was checked is right, the check came to its end, and the
    /// NIC has seen the operations.
    #[test]
    fn all_has_to_be_right() {
        assert!(of("+a\n+b\n.\n", counted(1), false).passed());
        for (verdicts, writes, hung) in [
            ("+a\n-b\n.\n", 1, false),
            ("+a\n", 1, false),
            (".\n", 1, false),
            ("", 1, false),
            ("+a\n.\n", 0, false),
            ("+a\n.\n", 1, true),
        ] {
            let verdict = of(verdicts, counted(writes), hung);
            assert!(!verdict.passed(), "{verdicts} {writes} {hung}");
        }
        let mut crashed = counted(1);
        crashed["signal"] = 11.into();
        assert!(!of("+a\n.\n", crashed, false).passed());
        let mut found = counted(1);
        found["lint"] = json!([{ "what": "w", "why": "y", "fix": "f" }]);
        let verdict = of("+a\n.\n", found, false);
        assert_eq!(
            (verdict.wrong, verdict.why.len()),
            (vec!["w".to_owned()], 2)
        );
    }

    /// Promise: what is said of the other side is said to be of the other side.
    #[test]
    fn the_report_names_the_two_sides() {
        let report = json!({
            "failures": [{ "ns": 2 }],
            "failure": {
                "what": "write (pid 12): a work request failed",
                "seen": ["write (pid 11) refused it"],
                "cause": "the peer posts too late",
            },
        });
        let verdict = of("=11 12\n-w\n.\n", report.clone(), false);
        let labels: Vec<&str> = verdict.why.iter().map(|(label, _)| *label).collect();
        assert_eq!(labels, ["where", "what", "seen", "cause"]);
        assert!(verdict.why[1].1.starts_with("the course's peer: a work"));
        assert_eq!(verdict.why[2].1, "your program refused it");
        let verdict = of("=12 11\n-w\n.\n", report, false);
        assert!(verdict.why[0].1.starts_with("your program: a work"));
    }

    /// Promise: a call that was refused comes before what followed from it.
    #[test]
    fn a_refused_call_is_told_before_its_consequences() {
        let refused = json!([{ "verb": "ibv_post_send", "errno": 22, "reason": "r", "ns": 1, "survived": false }]);
        let mut report = json!({
            "refused_verbs": refused,
            "connections": [{ "ns": 2 }],
            "failure": { "what": "w", "seen": ["s"], "cause": "the application refused" },
        });
        let why = of("-w\n.\n", report.clone(), false).why;
        assert_eq!(why[0].1, "ibv_post_send was refused with errno 22");
        assert_eq!(why[1], ("cause", "r".to_owned()));
        assert_eq!(why.len(), 2);
        // Not if the failure was first.
        report["connections"][0]["ns"] = 0.into();
        assert_eq!(of("-w\n.\n", report, false).why[0].1, "w");
    }

    #[test]
    fn the_report_is_the_last_line() {
        let (said, report) = split("a\n{\n{\"x\":1}\n").unwrap();
        assert_eq!((said, &report["x"]), ("a\n{\n", &1.into()));
        assert!(split("no report").is_err() && split("").is_err());
    }
}
