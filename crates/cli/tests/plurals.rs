//! Every count says its unit in the singular or plural as it needs: by `text::count`.

use std::fs;
use std::path::{Path, PathBuf};

/// Units of counts. Not those of measures, like "ms".
const UNITS: [&str; 24] = [
    "times",
    "bytes",
    "packets",
    "messages",
    "completions",
    "requests",
    "receives",
    "operations",
    "queue pairs",
    "entries",
    "records",
    "processes",
    "lines",
    "retries",
    "timeouts",
    "datagrams",
    "QPs",
    "RNR NAKs",
    "NAKs",
    "answers",
    "frames",
    "conversations",
    "copies",
    "work requests",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs")
            && !path.ends_with("tests.rs")
            && !path.ends_with("text/count.rs")
        {
            found.push(path);
        }
    }
}

/// The line puts a variable number before a unit in the plural.
fn is_wrong(line: &str) -> bool {
    // An arm of a match, whose arms before it are those of 0 and 1; what is said of many only; rates; and path MTUs,
    // which are never 1.
    let allowed = [
        "=> format!(\"{",
        "=> format!(\" ({",
        "path_mtu",
        "path MTU",
        "IP packets of",
        "work requests failed",
        "messages/s",
        "right in all",
        "that are not in",
        "{answer} answers the",
    ];
    if allowed.iter().any(|allowed| line.contains(allowed)) {
        return false;
    }
    UNITS.iter().any(|unit| {
        line.match_indices(&format!("}} {unit}"))
            .any(|(at, found)| {
                let behind = &line[at + found.len()..];
                let ends = !behind.starts_with(|c: char| c.is_alphanumeric());
                let name = line[..at].rsplit('{').next().unwrap_or_default();
                let constant =
                    !name.is_empty() && name == name.to_uppercase() && !name.contains(':');
                // A factor has decimals.
                ends && !constant && !name.contains(":.")
            })
    })
}

#[test]
fn the_rule_finds_what_it_is_for() {
    assert!(is_wrong("format!(\"{n} bytes\")"));
    assert!(is_wrong("\"{} packets came\","));
    assert!(!is_wrong("\"{MESSAGE} bytes\""));
    assert!(!is_wrong("n => format!(\"{n} times\"),"));
    assert!(!is_wrong("\"{} packetsful\""));
    assert!(!is_wrong("\"{factor:.2} times as fast\""));
}

#[test]
fn counts_have_units_that_agree() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    assert!(files.len() > 60, "{}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        for (n, line) in text.lines().enumerate().filter(|(_, line)| is_wrong(line)) {
            wrong.push(format!("{}:{}: {}", file.display(), n + 1, line.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
