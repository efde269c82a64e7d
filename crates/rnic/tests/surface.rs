//! The public interface is what `public-api.txt` lists: no name comes to it, or goes, unnoticed.
//! `tools/check-crates` makes the list of the compiler's own account of the interface, and compares
//! signatures; here its names are compared with the sources, which needs no more than the toolchain
//! that builds them. Against the last release, the list says whether the version has to step.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Lines about this crate's own items.
fn listed() -> Vec<String> {
    let text = fs::read_to_string(Path::new(CRATE).join("public-api.txt")).expect("the list");
    let own = text.split("\n# Of ").next().expect("a first part");
    own.lines().map(str::to_owned).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("sources") {
        let path = entry.expect("an entry").path();
        let is_test = path.file_name().is_some_and(|name| name == "tests.rs");
        match path.is_dir() {
            true => sources(&path, found),
            false if !is_test => found.push(path),
            false => {}
        }
    }
}

/// The sources, before their tests.
fn texts() -> Vec<String> {
    let mut files = Vec::new();
    sources(&Path::new(CRATE).join("src"), &mut files);
    let before_tests = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a source");
        let parts = text.split_once("#[cfg(test)]\nmod tests {");
        parts.map_or(text.clone(), |(before, _)| before.to_owned())
    };
    files.into_iter().map(before_tests).collect()
}

/// The names of public items in the sources.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for text in texts() {
        for line in text.lines() {
            let Some(item) = line.trim_start().strip_prefix("pub ") else {
                continue;
            };
            let mut words = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let kinds = [
                "fn", "struct", "enum", "trait", "const", "static", "type", "mod",
            ];
            let qualifiers = ["unsafe", "const", "async"];
            let mut kind = words.next().unwrap_or_default();
            let mut name = words.next().unwrap_or_default();
            if qualifiers.contains(&kind) && kinds.contains(&name) {
                (kind, name) = (name, words.next().unwrap_or_default());
            }
            if kinds.contains(&kind) {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 100, "{} names", names.len());
    // In a private module, so that nobody else can implement the trait above it.
    names.remove("Sealed");
    names
}

/// The path that a line begins with, without what is in angle brackets.
fn path_of(line: &str) -> String {
    let mut deep = 0u32;
    let mut path = String::new();
    for c in line.chars() {
        match c {
            '<' => deep += 1,
            '>' => deep = deep.saturating_sub(1),
            '(' | ' ' if deep == 0 => break,
            c if deep == 0 => path.push(c),
            _ => {}
        }
    }
    path
}

/// A name that is public in the sources is in the list.
#[test]
fn nothing_new_is_public_unnoticed() {
    let listed = listed();
    // Of an item, not of what its signature mentions.
    let items: BTreeSet<String> = (listed.iter())
        .filter_map(|line| {
            let start = line.find("rnic::")?;
            let path = path_of(&line[start..]);
            let name = path.trim_end_matches(':').rsplit("::").next()?;
            Some(name.to_owned())
        })
        .collect();
    let new: Vec<_> = declared()
        .into_iter()
        .filter(|name| !items.contains(name.as_str()))
        .collect();
    assert!(
        new.is_empty(),
        "public, but not in public-api.txt: {new:?}. If that is meant: tools/check-crates accept"
    );
}

/// What the list names is declared in the sources: what goes, goes from the list, too.
#[test]
fn nothing_listed_is_gone_unnoticed() {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "type", "mod"];
    // They stand in no source: `derive` makes them.
    const DERIVED: [&str; 4] = ["eq", "hash", "serialize", "deserialize"];
    let mut declared = BTreeSet::new();
    for text in texts() {
        let words: Vec<&str> = text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2).filter(|pair| KINDS.contains(&pair[0])) {
            declared.insert((pair[0].to_owned(), pair[1].to_owned()));
        }
    }
    let mut seen = 0;
    let mut gone = Vec::new();
    for line in listed() {
        let Some(start) = line.find("rnic::") else {
            continue;
        };
        let kind = line[..start].split_whitespace().next_back();
        let path = path_of(&line[start..]);
        let name = path.trim_end_matches(':').rsplit("::").next();
        let (Some(kind), Some(name)) = (kind.filter(|kind| KINDS.contains(kind)), name) else {
            continue;
        };
        seen += 1;
        let is_known = DERIVED.contains(&name);
        if !is_known && !declared.contains(&(kind.to_owned(), name.to_owned())) {
            gone.push(line);
        }
    }
    assert!(seen > 500, "{seen}");
    assert!(
        gone.is_empty(),
        "in public-api.txt, but gone: {gone:#?}. If that is meant: tools/check-crates accept"
    );
}

/// What is re-exported from other crates are named values, never a whole crate or module.
#[test]
fn re_exports_are_those_of_the_list() {
    let source = fs::read_to_string(Path::new(CRATE).join("src/lib.rs")).expect("lib.rs");
    let mut named = BTreeSet::new();
    for part in source.split("pub use ").skip(1) {
        let (path, _) = part.split_once(';').expect("an end");
        assert!(!path.contains('*') && !path.contains(" as "), "{path}");
        assert!(
            path.contains("::"),
            "a whole crate would be public: pub use {path}"
        );
        let values = path.strip_prefix("nic::{");
        if let Some(names) = values.or(path.strip_prefix("rnic_types::{")) {
            let names = names.trim_end_matches('}').split(',');
            named.extend(names.map(str::trim).filter(|name| !name.is_empty()));
        }
    }
    let listed = listed();
    let expected: BTreeSet<&str> = (listed.iter())
        .filter_map(|line| line.strip_prefix("pub use rnic::"))
        .filter(|name| !name.contains("::"))
        .collect();
    assert_eq!(named, expected);
}

/// Signatures name no type of the crates beneath that a user could not name through this one.
#[test]
fn every_type_of_a_signature_can_be_named() {
    let listed = listed();
    let named: BTreeSet<&str> = (listed.iter())
        .filter_map(|line| line.strip_prefix("pub use rnic::"))
        .collect();
    let mut seen = 0;
    for line in &listed {
        for part in line.split("rnic_").skip(1) {
            let path = part
                .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .next()
                .unwrap_or_default();
            let name = path.rsplit("::").next().unwrap_or_default();
            assert!(named.contains(name), "{name} in {line}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Handles may go to other threads, and be shared by them.
#[test]
fn handles_are_for_all_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<rnic::Context>();
    shared::<rnic::ProtectionDomain>();
    shared::<rnic::CompletionQueue>();
    shared::<rnic::CompletionChannel>();
    shared::<rnic::SharedReceiveQueue>();
    shared::<rnic::PreparedQueuePair<rnic::Rc>>();
    shared::<rnic::QueuePair<rnic::Rc>>();
    shared::<rnic::QueuePair<rnic::Uc>>();
    shared::<rnic::DatagramQueuePair>();
    shared::<rnic::AddressHandle>();
    shared::<rnic::XrcDomain>();
    shared::<rnic::XrcTarget>();
    shared::<rnic::Buffer>();
    shared::<rnic::ReadableRegion>();
    shared::<rnic::WritableRegion>();
    shared::<rnic::MemoryWindow>();
    shared::<rnic::Completion>();
    shared::<rnic::Error>();
    shared::<rnic::CmChannel>();
    shared::<rnic::CmListener>();
    shared::<rnic::CmConnection>();
}

/// The lines of a list, with the crate beneath that a type comes from left out: that may change.
fn promises(list: &str) -> BTreeSet<String> {
    let without_origin = |line: &str| {
        let mut rest = line;
        let mut promise = String::new();
        while let Some(at) = rest.find("rnic_") {
            let begins = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            promise.push_str(&rest[..at]);
            rest = &rest[at..];
            // Modules have small letters.
            let path_len = |text: &str| {
                text.split_once("::")
                    .filter(|(word, _)| {
                        !word.is_empty()
                            && word
                                .chars()
                                .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
                    })
                    .map(|(word, _)| word.len() + 2)
            };
            match path_len(rest).filter(|_| begins) {
                Some(_) => {
                    while let Some(len) = path_len(rest) {
                        rest = &rest[len..];
                    }
                    promise.push_str("beneath::");
                }
                None => {
                    promise.push_str("rnic_");
                    rest = &rest["rnic_".len()..];
                }
            }
        }
        promise + rest
    };
    let lines = list.lines().filter(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with("# "))
        .map(without_origin)
        .collect()
}

/// What of `new` may break a program that was written for `old` (Cargo's "SemVer Compatibility").
fn breaks(old: &str, new: &str) -> Vec<String> {
    let (old, new) = (promises(old), promises(new));
    let gone = old.difference(&new).map(|line| format!("gone: {line}"));
    // A variant, a field, or an item of a trait, of what was there and could be matched, filled in
    // or implemented in full.
    let completes = |line: &&String| {
        let mut item = line.as_str();
        while let Some((_, rest)) = item
            .strip_prefix("#[")
            .and_then(|rest| rest.split_once("] "))
        {
            item = rest;
        }
        let Some(item) = item.strip_prefix("pub ") else {
            return false;
        };
        let has_kind = |kinds: &[&str]| kinds.iter().any(|kind| item.starts_with(kind));
        if has_kind(&[
            "enum ", "struct ", "mod ", "trait ", "use ", "type ", "static ",
        ]) {
            return false;
        }
        let is_part = !has_kind(&["fn ", "const ", "unsafe ", "async "]);
        let starts = ["rnic::", "beneath::"].map(|root| item.find(root));
        let start = starts.into_iter().flatten().min().unwrap_or(0);
        let path = path_of(&item[start..]);
        let Some((parent, _)) = path.trim_end_matches(':').rsplit_once("::") else {
            return false;
        };
        let is_of = |kind: &str, line: &str| {
            let rest = line.split_once(&format!("pub {kind} {parent}"));
            rest.is_some_and(|(before, rest)| {
                let is_longer = rest.starts_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
                let is_open = is_part && before.contains("#[non_exhaustive]");
                !(is_longer || is_open)
            })
        };
        let kinds: &[&str] = if is_part {
            &["enum", "struct"]
        } else {
            &["trait"]
        };
        old.iter()
            .any(|line| kinds.iter().any(|kind| is_of(kind, line)))
    };
    let added = new.difference(&old).filter(completes);
    gone.chain(added.map(|line| format!("new: {line}")))
        .collect()
}

/// The part of a version whose step allows a break: the first number that is not 0.
fn major(version: &str) -> Vec<u64> {
    let numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let mut major = Vec::new();
    for number in numbers {
        major.push(number);
        if number != 0 {
            break;
        }
    }
    major
}

fn version_of(manifest: &str) -> &str {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""));
    line.and_then(|rest| rest.split('"').next())
        .expect("the version of the workspace")
}

/// What git prints; `None` where it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "-C", CRATE]);
    let output = command.args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).expect("text");
    output.status.success().then_some(text)
}

/// Promise: what breaks programs written for the last release (the tag `v...`) steps the version.
/// Before the first tag nothing is promised, and only the rule itself is tested.
#[test]
fn a_break_steps_the_version() {
    let Some(tag) = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]) else {
        return;
    };
    let at = |path: &str| git(&["show", &format!("{}:{path}", tag.trim())]).expect("the release");
    let (old_list, old) = (at("crates/rnic/public-api.txt"), at("Cargo.toml"));
    let read = |path: &str| fs::read_to_string(Path::new(CRATE).join(path)).expect("a file");
    let (list, new) = (read("public-api.txt"), read("../../Cargo.toml"));
    let (old, new) = (version_of(&old), version_of(&new));
    let broken = breaks(&old_list, &list);
    assert!(
        broken.is_empty() || major(new) > major(old),
        "{new} breaks programs written for {old}, so the version has to step: {broken:#?}"
    );
}

#[test]
fn what_breaks_programs_is_told_from_what_does_not() {
    let old = "# Of rnic-nic\n\
        pub struct rnic::Cap\n\
        pub rnic::Cap::max: u32\n\
        pub fn rnic::Cap::of(rnic_nic::queues::State) -> Self\n\
        #[non_exhaustive] pub enum rnic::Open\n\
        pub rnic::Open::A\n\
        #[repr(u8)] pub enum rnic_nic::State\n\
        pub rnic_nic::State::Up = 1\n\
        pub trait rnic::Sink\n\
        pub fn rnic::Sink::put(&self, value: rnic::Open)\n";
    let with = |line: &str| breaks(old, &format!("{old}{line}\n")).len();
    // Nothing, another order, or another crate beneath.
    assert_eq!(breaks(old, old), Vec::<String>::new());
    let moved = old.replace("rnic_nic::queues::", "rnic_types::");
    assert_eq!(
        breaks(old, &moved.replace("rnic_nic::", "rnic_types::")),
        Vec::<String>::new()
    );
    // What comes and could not be named before.
    for line in [
        "pub fn rnic::Cap::other(&self) -> rnic::Open",
        "pub struct rnic::New",
        "pub rnic::New::field: u8",
        "pub rnic::Open::B",
        "pub const rnic::Cap::MOST: u32",
        "pub fn rnic_types::State::name(self) -> &'static str",
        "pub rnic::Capital::field: u8",
    ] {
        assert_eq!(with(line), 0, "{line}");
    }
    // What completes something that programs could match, fill in or implement.
    for line in [
        "pub rnic::Cap::min: u32",
        "pub rnic_types::State::Down = 2",
        "pub fn rnic::Sink::flush(&self)",
        "pub const rnic::Sink::ROOM: usize",
    ] {
        assert_eq!(with(line), 1, "{line}");
    }
    // What goes, each line but the headings.
    for line in old.lines().skip(1) {
        let without = old.replace(&format!("{line}\n"), "");
        assert!(!breaks(old, &without).is_empty(), "without {line}");
    }
    let other = old.replace("max: u32", "max: u64");
    assert_eq!(breaks(old, &other).len(), 2, "a type that changed");
    for (old, new, allows) in [
        ("0.1.0", "0.1.1", false),
        ("0.1.9", "0.2.0", true),
        ("0.9.0", "1.0.0", true),
        ("1.2.0", "1.3.0", false),
        ("1.2.0", "2.0.0", true),
        ("0.0.1", "0.0.2", true),
        ("0.1.0", "0.1.0", false),
    ] {
        assert_eq!(major(new) > major(old), allows, "{old} to {new}");
    }
}
