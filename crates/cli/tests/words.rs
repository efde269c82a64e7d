//! `rnic explain WORD`: each word shows a line of this machine's own output.

use serde_json::Value;

use crate::common::{expect_success, run, stdout};

fn explained(word: &str) -> Value {
    let output = run(&["explain", "--json", word]);
    expect_success(&output);
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    document["words"][0].clone()
}

/// Words that no command of this machine can show, each with its reason.
const NOWHERE: [&str; 6] = ["doorbell", "iWARP", "CNP", "PFC", "rsockets", "Soft-RoCE"];

fn shows(name: &str, devices: &str) {
    let word = explained(name);
    assert_eq!(word["name"], name);
    let Some(command) = word["here"]["command"].as_str() else {
        let why = word["nowhere"].as_str().expect("a line or a reason");
        // It is no package that this needs.
        let absent = why.contains("not installed");
        assert!(absent || NOWHERE.contains(&name), "{name}: {why}");
        return;
    };
    assert!(!NOWHERE.contains(&name), "{name}");
    let line = word["here"]["line"].as_str().expect("a line");
    assert!(!line.is_empty());
    // What can be asked again says the same.
    if command.starts_with("rnic devices") {
        assert!(devices.contains(line), "{name}: {line}");
    } else if let Some(asked) = command.strip_prefix("rnic explain ") {
        let said = stdout(&run(&["explain", asked]));
        assert!(said.starts_with(line), "{name}: {line}: {said}");
    }
}

#[test]
fn each_word_shows_a_line_of_this_machine() {
    let list = run(&["explain", "--json", "words"]);
    let list: Value = serde_json::from_str(&stdout(&list)).expect("JSON");
    let words = list["words"].as_array().expect("a list");
    let names: Vec<&str> = words.iter().map(|w| w["name"].as_str().unwrap()).collect();
    assert!(names.len() > 80, "{}", names.len());
    let devices = stdout(&run(&["devices", "-v"]));
    let (first, second) = names.split_at(names.len() / 2);
    let each = |names: &[&str]| names.iter().for_each(|name| shows(name, &devices));
    std::thread::scope(|scope| {
        scope.spawn(|| each(first));
        each(second);
    });
}

/// What a person sees: five lines, this machine's line, and what is related; and the topic of the
/// same name.
#[test]
fn a_word_is_explained_in_lines() {
    for asked in [&["QP"][..], &["queue", "pair"], &["queue-pair"]] {
        let said = stdout(&run(&[&["explain"], asked].concat()));
        let labels = [
            "QP: queue pair",
            "what:",
            "why:",
            "C:",
            "Rust:",
            "source:",
            "here:",
            "see:",
        ];
        let mut rest = &*said;
        for label in labels {
            let (_, behind) = rest
                .split_once(label)
                .unwrap_or_else(|| panic!("{label}: {said}"));
            rest = behind;
        }
        assert!(
            said.lines().all(|line| line.chars().count() <= 100),
            "{said}"
        );
    }
    let said = stdout(&run(&["explain", "send"]));
    assert!(
        said.starts_with("SEND: ") && said.contains("IBV_WR_SEND"),
        "{said}"
    );
    let list = stdout(&run(&["explain", "words"]));
    assert!(
        list.contains("\n  rkey ") && list.lines().count() > 80,
        "{list}"
    );
    // Numbers and lines of programs mean what they meant.
    assert!(stdout(&run(&["explain", "12"])).contains("IBV_WC_RETRY_EXC_ERR"));
}

/// Promise: a word that is misspelt is explained if only one is near; else the near ones are named.
#[test]
fn a_misspelt_word_is_explained() {
    let output = run(&["explain", "immedate"]);
    expect_success(&output);
    let said = stdout(&output);
    assert!(said.contains("the nearest word is `immediate`"), "{said}");
    assert!(said.contains("\nimmediate: immediate data\n"), "{said}");
    for asked in [&["xyzzyq"][..], &["--json", "immedate"]] {
        let output = run(&[&["explain"], asked].concat());
        assert_eq!(output.status.code(), Some(1), "{asked:?}");
    }
}
