//! The public interface is what `public-api.txt` lists: nothing comes to it, or goes, unnoticed.
//! `tools/check-crates` makes the list of the compiler's own account of the interface; here its
//! names are compared with the sources, which needs no more than the toolchain that builds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

/// The names of public items in the sources, before their tests.
fn declared() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&Path::new(CRATE).join("src"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        let text = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .expect("some");
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
        if let Some(names) = path.strip_prefix("nic::{") {
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
