//! A test that cannot test says so in one way, so that none passes unseen.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/skip").to_owned()
}

/// Rust files below `folder`, but those that were built.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// What `println!` says of a skipped test the harness swallows.
#[test]
fn no_test_says_by_itself_that_it_was_skipped() {
    let mut found = Vec::new();
    for folder in ["crates", "bench", "interop"] {
        sources(&repository().join(folder), &mut found);
    }
    let word = "SKIPPED".to_owned();
    let own = Path::new("crates/skip");
    let mut wrong = Vec::new();
    let mut users = 0;
    for path in found {
        let name = path.strip_prefix(repository()).expect("it lies within");
        if name.starts_with(own) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        users += text.matches("skipped(").count();
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            if !comment && (line.contains(&word) || line.contains("RNIC_SKIP_LOG\")")) {
                wrong.push(format!("{}:{}: {line}", name.display(), number + 1));
            }
        }
    }
    assert!(users > 20, "{users}: it looks where tests are");
    assert_eq!(wrong, Vec::<String>::new(), "use rnic_skip::skipped");
}

/// Not a test: what the next ones start.
#[test]
#[ignore = "started by the other tests"]
fn one_that_is_skipped() {
    rnic_skip::skipped("the ark", "it does not rain");
}

fn skip(environment: &[(&str, &str)]) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "one_that_is_skipped", "--ignored"])
        .env_remove("RNIC_TEST_NO_SKIP")
        .env_remove("RNIC_SKIP_LOG")
        .envs(environment.iter().copied());
    command.output().expect("it starts")
}

#[test]
fn a_skipped_test_passes_and_is_seen() {
    let log =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skipped-{}", std::process::id()));
    let path = log.to_str().expect("a path");
    for forbidden in ["", "0"] {
        let output = skip(&[("RNIC_SKIP_LOG", path), ("RNIC_TEST_NO_SKIP", forbidden)]);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("SKIPPED the ark: it does not rain\n"),
            "{said}"
        );
    }
    let logged = std::fs::read_to_string(&log).expect("the log");
    assert_eq!(logged, "SKIPPED the ark: it does not rain\n".repeat(2));
    std::fs::remove_file(log).expect("removed");
}

#[test]
fn where_nothing_may_be_skipped_it_fails() {
    let output = skip(&[("RNIC_TEST_NO_SKIP", "1")]);
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("SKIPPED the ark"), "{said}");
}
