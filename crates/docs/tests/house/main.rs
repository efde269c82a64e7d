//! The house keeps its order: arrows go downwards, and no circle of imports crosses a folder.
//!
//! `cargo test -p rnic-docs --test house -- --nocapture` also prints how many files of each crate
//! are part of circles.

mod circles;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use circles::{Circle, Graph, across_folders, of_files};
use source::Crate;

/// Circles that are known, by crate and folder below `src`. The list only shrinks: who opens a
/// circle, or makes it smaller, changes it here.
const KNOWN: &[(&str, &str, &[&str])] = &[];

/// The crates from the lowest floor up. A crate uses those of lower floors alone.
const FLOORS: &[&[&str]] = &[
    &["wire", "skip", "settings", "sys", "layouts"],
    &["types"],
    &["transport", "cm", "host", "dissect", "record", "convert"],
    &["link", "libibverbs"],
    &["nic"],
    &["rnic", "abi", "fabric"],
    &["cli"],
];

/// Where the device itself means an IP address: all else of it has a link's address, and looks at
/// nothing in it.
const NAMES_IP_ADDRESSES: &[&str] = &[
    // An address vector becomes an address; the GID table of a RoCE port; IP multicast groups.
    "addressing/address.rs",
    "addressing/gid_table.rs",
    "addressing/group.rs",
    "engine/tables/multicast.rs",
    // The addresses of a simulated host.
    "host.rs",
    // The network header of a datagram.
    "objects/ah.rs",
    // rdma_cm's addresses.
    "engine/services/cm/entry.rs",
    "engine/services/cm/event_translation.rs",
    "engine/services/cm/listeners.rs",
    "engine/services/cm/qp1.rs",
    "engine/services/cm/resolve.rs",
    "engine/services/resources/record.rs",
    "observe/cm.rs",
];

/// Where the device reads the system's clock, and why its host's would not do: a thread that waits
/// for somebody real waits in real time.
const READS_THE_SYSTEMS_CLOCK: &[(&str, &str)] = &[
    ("host.rs", "the clock of the system as a host"),
    // A thread gives its core to others, and sees how long they took it, or how late it wakes.
    ("driving/halt_poll.rs", "how long the others had the core"),
    ("driving/watchdog.rs", "how late the system wakes a thread"),
    ("driving/yielding.rs", "how long the others had the core"),
    // Another thread or process has what is needed, and may be stopped.
    ("driving/shards.rs", "threads that open an engine"),
    ("memory/gate.rs", "a copy of a process that may be stopped"),
    ("objects/import.rs", "the answer of another process"),
    ("sync/bias.rs", "how often a lock changes hands"),
    ("sync/busy.rs", "a process that has the host's registry"),
    ("sync/within.rs", "a lock that may never be free"),
    // What is told to a person.
    ("observe/connection.rs", "when a queue pair was taken down"),
    ("observe/waits/mod.rs", "how long a thread has waited"),
    ("observe/waits/tell.rs", "how long a thread has waited"),
    ("observe/way.rs", "how long the kernel has not answered"),
    ("queues/usage.rs", "when a queue pair was used"),
    (
        "observe/failure.rs",
        "how long ago a region was deregistered",
    ),
    ("observe/mod.rs", "when something was recorded"),
    (
        "observe/trace.rs",
        "when a request was posted, done and seen",
    ),
];

/// The crates that need no operating system.
const BARE: [&str; 4] = ["wire", "types", "transport", "cm"];

/// Files of theirs that a feature adds for programs that have one.
const BEHIND_A_FEATURE: [(&str, &str); 1] = [("types", "error.rs")];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of all crates, with the name of each.
fn crates() -> Vec<(String, PathBuf)> {
    let root = repository();
    let mut folders = vec![root.join("bench"), root.join("interop")];
    let entries = fs::read_dir(root.join("crates")).expect("the folder `crates`");
    folders.extend(entries.map(|entry| entry.expect("an entry").path()));
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    let named = folders.into_iter().map(|folder| {
        let name = folder.file_name().expect("a name").to_string_lossy();
        (name.into_owned(), folder)
    });
    named.collect()
}

#[test]
fn no_circle_of_imports_crosses_a_folder() {
    let mut found: Vec<(String, String, Circle<String>)> = Vec::new();
    let mut crates = BTreeMap::new();
    for (name, folder) in self::crates() {
        let source = Crate::read(&folder);
        let files = of_files(&source);
        let in_circles = circles::circles(&files);
        let sizes: Vec<usize> = in_circles.iter().map(Circle::len).collect();
        println!("{name}: {} files, circles of {sizes:?} files", files.len());
        for circle in in_circles {
            println!("    {circle:?}");
        }
        for (parent, circle) in across_folders(&source) {
            found.push((name.clone(), parent.join("/"), circle));
        }
        crates.insert(name, source);
    }
    let known = |of: &str, folder: &str, circle: &Circle<String>| {
        KNOWN.iter().any(|(name, parent, members)| {
            let members: Circle<String> = members.iter().map(|m| (*m).to_owned()).collect();
            (*name, *parent) == (of, folder) && members == *circle
        })
    };
    let mut complaints = Vec::new();
    for (name, folder, circle) in &found {
        if !known(name, folder, circle) {
            complaints.push(format!(
                "a new circle, or a known one that changed: ({name:?}, {folder:?}, &{circle:?})\n{}",
                arrows(&crates[name], folder, circle)
            ));
        }
    }
    for (name, folder, members) in KNOWN {
        let members: Circle<String> = members.iter().map(|m| (*m).to_owned()).collect();
        let is_there = found.contains(&((*name).to_owned(), (*folder).to_owned(), members));
        if !is_there {
            complaints.push(format!(
                "no such circle any more, so take it off the list: {name} {folder}"
            ));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The imports that make up a circle, a line for each.
fn arrows(source: &Crate, folder: &str, circle: &Circle<String>) -> String {
    let depth = folder.split('/').filter(|word| !word.is_empty()).count();
    let inside = |name: &source::Name| {
        let is_below = name
            .iter()
            .take(depth)
            .map(String::as_str)
            .eq(folder.split('/').filter(|word| !word.is_empty()));
        let member = name.get(depth).filter(|_| is_below)?;
        circle.contains(member).then(|| member.clone())
    };
    let mut lines = BTreeSet::new();
    for name in source.modules.keys() {
        let Some(from) = inside(name) else { continue };
        for to in source.named_by(name) {
            if inside(to).is_some_and(|to| to != from) {
                lines.insert(format!("    {} -> {}", name.join("::"), to.join("::")));
            }
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[test]
fn a_crate_uses_lower_floors_alone() {
    let floor = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    for (name, folder) in crates() {
        let Some(own) = floor(&name) else { continue };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let used = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
        for used in used.filter(|used| used.starts_with("rnic")) {
            let used = used.strip_prefix("rnic-").unwrap_or(used);
            let below = floor(used).unwrap_or_else(|| panic!("{name} uses {used}, of no floor"));
            assert!(below < own, "{name} uses {used}, which is not below it");
        }
    }
}

/// The files of a crate, its tests apart, whose text has one of these words.
fn files_with(folder: &Path, words: &[&str]) -> BTreeSet<String> {
    let source = folder.join("src");
    let mut folders = vec![source.clone()];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).expect("a file");
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
                if words.iter().any(|word| text.contains(word)) {
                    let name = path.strip_prefix(&source).expect("below it");
                    found.insert(name.to_string_lossy().into_owned());
                }
            }
        }
    }
    found
}

fn files_of_the_device_with(words: &[&str]) -> BTreeSet<String> {
    files_with(&repository().join("crates/nic"), words)
}

/// libc's `syscall` changes errno, and each call by number is unsafe: one file makes them.
#[test]
fn system_calls_by_number_are_made_in_one_file() {
    for (name, folder) in crates() {
        let found = files_with(&folder, &["::syscall("]);
        match name.as_str() {
            "sys" => assert_eq!(found, ["raw.rs".to_owned()].into()),
            _ => assert!(
                found.is_empty(),
                "{name} makes them in {found:?}: see `sys`"
            ),
        }
    }
}

#[test]
fn few_files_of_the_device_know_of_ip_addresses() {
    let known = NAMES_IP_ADDRESSES.iter().map(|name| (*name).to_owned());
    assert_eq!(files_of_the_device_with(&["IpAddr"]), known.collect());
}

#[test]
fn the_device_has_its_clock_from_its_host() {
    let words = [
        "Instant::now",
        "rnic_sys::now_ns",
        "rnic_sys::now_realtime_ns",
        "rnic_sys::ticks_or_ns()",
    ];
    let known = READS_THE_SYSTEMS_CLOCK
        .iter()
        .map(|(name, _)| (*name).to_owned());
    assert_eq!(files_of_the_device_with(&words), known.collect());
}

/// The compiler does the rest: without the standard library there are no clocks, files or sockets.
#[test]
fn what_needs_no_operating_system_says_so() {
    for name in BARE {
        let folder = repository().join("crates").join(name);
        let text = fs::read_to_string(folder.join("src/lib.rs")).expect("a crate");
        for line in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(text.lines().any(|is| is == line), "{name} has no {line}");
        }
        let source = Crate::read(&folder);
        let mut files = source.foreign("std");
        files.retain(|file| {
            !BEHIND_A_FEATURE
                .iter()
                .any(|(of, known)| *of == name && file.ends_with(known))
        });
        assert!(files.is_empty(), "{name} names std in {files:?}");
    }
}

/// Nothing but `./test full` builds the fuzz targets, and that does not change their lock file.
#[test]
fn the_lock_file_of_the_fuzz_targets_knows_what_crates_use() {
    let packages = |file: &str| -> BTreeMap<String, Vec<String>> {
        let text = fs::read_to_string(repository().join(file)).expect("a lock file");
        let packages = text.split("[[package]]").skip(1).map(|package| {
            let mut quoted = package.split('"').skip(1).step_by(2).map(str::to_owned);
            let name = quoted.next().expect("a name");
            let used = package
                .split_once("dependencies = [")
                .map_or("", |(_, used)| used);
            let used = used.split('"').skip(1).step_by(2);
            (name, used.map(str::to_owned).collect())
        });
        packages
            .filter(|(name, _)| name.starts_with("rnic-"))
            .collect()
    };
    let (all, fuzzed) = (
        packages("Cargo.lock"),
        packages("crates/fuzz/fuzz/Cargo.lock"),
    );
    assert!(fuzzed.len() > 5, "{fuzzed:?}");
    for (name, used) in &fuzzed {
        let Some(known) = all.get(name) else { continue };
        // What only tests use is not in it.
        for used in used {
            assert!(known.contains(used), "{name} does not use {used} any more");
        }
        let manifest = format!("crates/{}/Cargo.toml", name.trim_start_matches("rnic-"));
        let Ok(manifest) = fs::read_to_string(repository().join(manifest)) else {
            continue;
        };
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        for line in lines.filter(|line| !line.contains("optional = true")) {
            let Some(uses) = line
                .split(['.', ' ', '='])
                .next()
                .filter(|it| !it.is_empty())
            else {
                continue;
            };
            assert!(
                uses.starts_with('#') || used.iter().any(|used| used == uses),
                "{name} uses {uses}: cargo metadata --manifest-path crates/fuzz/fuzz/Cargo.toml"
            );
        }
    }
}

#[test]
fn circles_are_found() {
    let arrow = |from: &str, to: &[&str]| {
        let to = to.iter().map(|to| (*to).to_owned()).collect();
        (from.to_owned(), to)
    };
    let graph: Graph<String> = [
        arrow("a", &["b", "d"]),
        arrow("b", &["c"]),
        arrow("c", &["a"]),
        arrow("d", &["e"]),
        arrow("e", &[]),
    ]
    .into();
    let found = circles::circles(&graph);
    let abc: Circle<String> = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(found, [abc]);
}

/// Promise: a program of the workspace whose output nobody reads any more (`| head`) does not panic.
/// `rnic` prints by functions of its own, and writes to processes whose end it tells.
#[test]
fn programs_that_print_end_with_their_pipe() {
    let mut panicking = Vec::new();
    for (_, folder) in crates().into_iter().filter(|(name, _)| name != "cli") {
        let bins = fs::read_dir(folder.join("src/bin")).into_iter().flatten();
        let bins = bins.map(|entry| entry.expect("an entry").path());
        for path in bins.chain([folder.join("src/main.rs")]) {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            if !text.contains("signal::end_on_broken_pipe();") {
                panicking.push(path);
            }
        }
    }
    assert!(panicking.is_empty(), "no end with the pipe: {panicking:?}");
}

/// Tests of a crate are one program, whose `main.rs` names each file: one that it forgets would
/// never run.
#[test]
fn no_file_of_tests_is_forgotten() {
    let mut forgotten = Vec::new();
    for (_, folder) in crates() {
        let tests = folder.join("tests");
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else {
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        for entry in fs::read_dir(&tests).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = path.file_stem().expect("a name").to_string_lossy();
            let is_module = main.lines().any(|line| line == format!("mod {name};"));
            let is_program = manifest.contains(&format!("path = \"tests/{name}.rs\""));
            if !is_module && !is_program {
                forgotten.push(path);
            }
        }
    }
    assert!(forgotten.is_empty(), "no program has {forgotten:?}");
}
