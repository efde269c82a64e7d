//! The variables RNIC_*: which there are, and what is said of those that are wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{Scratch, expect_success, rnic, run, run_here, stderr, stdout};

/// Opens the device.
fn devices(name: &str, value: &str) -> Output {
    let mut command = rnic();
    command.arg("devices").env(name, value);
    command.output().expect("rnic starts")
}

const CHOICES: [(&str, &[&str]); 2] = [
    ("RNIC_HOST_PATH", &["on", "rings", "off"]),
    ("RNIC_GSO", &["on", "local", "off"]),
];

#[test]
fn values_that_mean_nothing_are_refused() {
    for (name, accepted) in CHOICES {
        for value in ["OFF", "foo", "2", " off"] {
            let output = devices(name, value);
            assert_eq!(output.status.code(), Some(1), "{name}={value}");
            let said = stderr(&output);
            let all = [name, value].into_iter().chain(accepted.iter().copied());
            for part in all {
                assert!(said.contains(part), "no {part} in {said}");
            }
        }
        for value in accepted.iter().chain(&["", "0", "1"]) {
            expect_success(&devices(name, value));
        }
    }
}

#[test]
fn a_p_key_table_that_makes_no_sense_is_refused() {
    for value in ["0x8000", "0xffff,0xffff", "1,two", "0x10000"] {
        let output = devices("RNIC_PKEYS", value);
        assert_eq!(output.status.code(), Some(1), "{value}");
        let said = stderr(&output);
        let all = ["RNIC_PKEYS", value, "0x8001 to 0xffff"];
        assert!(all.iter().all(|part| said.contains(part)), "{said}");
    }
    expect_success(&devices("RNIC_PKEYS", "0x8001,0x0002,7"));
}

#[test]
fn a_capture_file_that_cannot_be_opened_is_named() {
    let output = devices("RNIC_PCAP", "/nonexistent/y");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("RNIC_PCAP") && said.contains("/nonexistent/y"),
        "{said}"
    );
    assert!(
        !said.contains("RNIC_RUNTIME_DIR"),
        "it would not help: {said}"
    );
}

#[test]
fn an_interface_without_ethernet_is_said_to_be_one() {
    let said = stderr(&devices("RNIC_XDP", "lo"));
    assert!(said.contains("lo is not an Ethernet interface"), "{said}");
    let said = stderr(&devices("RNIC_XDP", "nosuch"));
    assert!(said.contains("no such interface"), "{said}");
}

#[test]
fn a_library_that_is_none_is_refused_before_the_loader_sees_it() {
    let scratch = Scratch::new("no-library");
    let mut command = run_here(&scratch);
    command.env("RNIC_LIB", "/etc/passwd");
    let output = command
        .args(["--", "echo", "ran"])
        .output()
        .expect("rnic starts");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    for part in ["/etc/passwd", "not a shared library", "next:"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(!said.contains("ELF header"), "{said}");
    assert_eq!(stdout(&output), "");
}

/// Of `rnic run` for its program, and of the tests.
const INTERNAL: [&str; 12] = [
    "RNIC_REPORT",
    "RNIC_STATS",
    "RNIC_LINT",
    "RNIC_WATCH",
    "RNIC_TRACE",
    "RNIC_USAGE",
    "RNIC_RECORD",
    "RNIC_TEST_NO_SKIP",
    "RNIC_SKIP_LOG",
    // Of a build for measurements (`bench/run --ablate`).
    "RNIC_ABLATE",
    // Of the build: which libraries are inside.
    "RNIC_LIBRARY_ID",
    "RNIC_RECORDER_ID",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The variables that are string literals in the sources. Only `settings` may name one: whoever
/// wants a setting asks there.
fn read_by_the_sources() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).expect("crates").flatten() {
        // These two are for tests alone.
        let is_for_tests = ["programs", "skip"].contains(&&*entry.file_name().to_string_lossy());
        let source = entry.path().join("src");
        if source.is_dir() && !is_for_tests {
            sources(&source, &mut files);
        }
    }
    assert!(files.len() > 100, "{}", files.len());
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        for rest in text.split("\"RNIC_").skip(1) {
            let name = rest.split('"').next().unwrap_or_default();
            let is_name = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
            if !name.is_empty() && name.bytes().all(is_name) {
                let name = format!("RNIC_{name}");
                let place = file.to_string_lossy();
                let may = place.contains("/settings/src/") || INTERNAL.contains(&&*name);
                assert!(
                    may,
                    "{place} names {name}; rnic-settings is the place for that"
                );
                names.insert(name);
            }
        }
    }
    for name in INTERNAL {
        names.remove(name);
    }
    names
}

#[test]
fn every_variable_is_in_the_help_and_in_the_document() {
    let read = read_by_the_sources();
    assert!(
        read.contains("RNIC_LIBRDMACM") && read.contains("RNIC_LIB"),
        "{read:?}"
    );

    let help = stdout(&run(&["--help"]));
    let groups: Vec<_> = help
        .split("\n\n")
        .filter(|part| part.starts_with("Environment of"))
        .collect();
    let in_group = |group: &str| -> BTreeSet<String> {
        let rows = group
            .lines()
            .filter_map(|line| line.strip_prefix("  RNIC_"));
        let names = rows.filter_map(|row| row.split_whitespace().next());
        names.map(|name| format!("RNIC_{name}")).collect()
    };
    let [programs, run_alone] = &groups[..] else {
        panic!("two groups: {help}")
    };
    assert_eq!(in_group(run_alone), ["RNIC_LIB".to_owned()].into());
    let all: BTreeSet<_> = in_group(programs)
        .union(&in_group(run_alone))
        .cloned()
        .collect();
    assert_eq!(all, read, "rnic --help");

    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/running.md");
    let document = std::fs::read_to_string(document).expect("docs/running.md");
    let rows = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `RNIC_"));
    let names = rows.filter_map(|row| row.split(['=', '`']).next());
    let documented: BTreeSet<_> = names.map(|name| format!("RNIC_{name}")).collect();
    assert_eq!(documented, read, "docs/running.md");
}

/// What a variable accepts is said wherever it is explained.
#[test]
fn choices_are_documented() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/running.md");
    let document = std::fs::read_to_string(document).expect("docs/running.md");
    let help = stdout(&run(&["--help"]));
    for (name, accepted) in CHOICES {
        let row = format!("| `{name}` |");
        let in_help = format!("  {name} ");
        for (text, start) in [(&document, row), (&help, in_help)] {
            let line = text.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap_or_else(|| panic!("no {start}"));
            for value in accepted {
                assert!(line.contains(&format!("`{value}`")), "no {value}: {line}");
            }
        }
    }
}

#[test]
fn devices_says_which_settings_are_in_force() {
    let mut command = rnic();
    command.args(["devices", "-v"]).env("RNIC_WAIT", "spin");
    let output = command.output().expect("rnic starts");
    expect_success(&output);
    let said = stdout(&output);
    let row = |name: &str| {
        let found = said.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    assert_eq!(
        row("RNIC_WAIT").split_whitespace().collect::<Vec<_>>(),
        ["*", "RNIC_WAIT", "spin"]
    );
    assert_eq!(
        row("RNIC_GSO").split_whitespace().collect::<Vec<_>>(),
        ["RNIC_GSO", "on"]
    );
    for name in read_by_the_sources() {
        assert!(name == "RNIC_LIB" || !row(&name).is_empty());
    }

    let output = {
        let mut command = rnic();
        command
            .args(["devices", "-v", "--json"])
            .env("RNIC_SHARDS", "many");
        command.output().expect("rnic starts")
    };
    assert_eq!(output.status.code(), Some(1));
    let listing: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let settings = listing["settings"].as_array().expect("a list");
    let shards = settings
        .iter()
        .find(|s| s["variable"] == "RNIC_SHARDS")
        .expect("one");
    assert_eq!(
        (&shards["value"], &shards["is_set"]),
        (&"many".into(), &true.into())
    );
    let problem = shards["problem"].as_str().expect("a problem");
    assert!(problem.contains("1 to 16"), "{problem}");
}
