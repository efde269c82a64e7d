//! What is printed for machines: a version in each document, and docs/json.md has every field and
//! no other.

use crate::fields;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::common::{Scratch, rnic, run, run_here, stderr, stdout};

#[track_caller]
fn document(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn is_documented(document: &Value, section: &str) {
    assert_eq!(document["version"], 1);
    assert_eq!(fields::of(document), fields::documented(section));
}

#[test]
fn bench_devices_and_explain() {
    let bench = run(&[
        "bench",
        "--json",
        "--milliseconds",
        "5",
        "--op",
        "send",
        "--size",
        "8",
        "--beside",
        "4K",
    ]);
    is_documented(&document(&bench), "`rnic bench --json`");
    is_documented(
        &document(&run(&["devices", "--verbose", "--json"])),
        "`rnic devices --json`",
    );
    let explain = document(&run(&["explain", "--json", "12"]));
    let word = document(&run(&["explain", "--json", "send"]));
    assert_eq!(
        (&explain["version"], &word["version"]),
        (&1.into(), &1.into())
    );
    let both: BTreeSet<_> = fields::of(&explain)
        .union(&fields::of(&word))
        .cloned()
        .collect();
    assert_eq!(both, fields::documented("`rnic explain --json`"));
    assert!(!explain["also"].as_array().expect("a list").is_empty());
}

#[test]
fn study() {
    let scratch = Scratch::new("study-json");
    let file = scratch.0.join("study.json");
    let name = file.to_str().expect("text");
    // One of them has the texts' figures and a model, the other one a chart of processor time.
    let asked = ["inline", "polling", "--rounds", "1", "--seconds", "0.1"];
    let output = run(&[&["study", "--json", name][..], &asked].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read(&file).expect("written");
    let document: Value = serde_json::from_slice(&text).expect("JSON");
    is_documented(&document, "`rnic study --json`");
}

/// The last line of standard error.
#[track_caller]
fn last_line(command: &mut Command) -> (Value, Option<i32>, String) {
    let output = command.output().expect("rnic starts");
    let said = stderr(&output);
    let line = said.lines().last().unwrap_or_default();
    let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said}"));
    (value, output.status.code(), said)
}

/// The names of counters are the NIC's: here those of `rnic demo`, which is a program like any
/// other.
#[test]
fn counters_of_a_program() {
    let scratch = Scratch::new("counters");
    let mut command = run_here(&scratch);
    command.args([
        "--stats",
        "--json",
        "--",
        env!("CARGO_BIN_EXE_rnic"),
        "demo",
    ]);
    let (value, status, said) = last_line(command.arg("--no-bench"));
    assert_eq!(
        (status, &value["exit_status"]),
        (Some(0), &0.into()),
        "{said}"
    );
    assert_eq!(value["started"], true);
    let total = &value["stats"]["total"];
    let mut counted = BTreeSet::new();
    for name in ["counters", "drops", "link"] {
        assert!(total[name].is_object(), "{said}");
        counted.extend(fields::of(&total[name]));
    }
    let others = fields::documented("`rnic run --json`");
    let all: BTreeSet<_> = fields::of(&value);
    let unknown: Vec<_> = all
        .difference(&others)
        .filter(|name| !counted.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "not in docs/json.md: {unknown:?}");
    let counters: BTreeSet<_> = counted.difference(&others).cloned().collect();
    assert_eq!(counters, fields::documented("Counters"));
}

#[test]
fn a_program_that_cannot_be_started_has_a_line_as_well() {
    let scratch = Scratch::new("unstarted");
    for option in ["--json", "--stats=json"] {
        let mut command = run_here(&scratch);
        let (value, status, said) = last_line(command.args([option, "--", "no-such-program"]));
        assert_eq!(status, Some(127));
        assert!(
            said.starts_with("rnic: the program `no-such-program`"),
            "{said}"
        );
        assert_eq!(value["version"], 1);
        assert_eq!(
            (&value["started"], &value["exit_status"]),
            (&false.into(), &Value::Null)
        );
        assert_eq!(value["program"], "no-such-program");
        let what = value["failure"]["what"].as_str().expect("words");
        assert!(what.contains("not found"), "{what}");
    }
    let mut command = run_here(&scratch);
    command.args(["--json", "--faults", "nonsense", "--", "true"]);
    let (value, status, _) = last_line(&mut command);
    assert_eq!((status, &value["started"]), (Some(2), &false.into()));
    // Without it there are words alone.
    let mut command = rnic();
    let output = command
        .args(["run", "--", "no-such-program"])
        .output()
        .expect("rnic starts");
    assert!(!stderr(&output).contains('{') && stdout(&output).is_empty());
}
