//! docs/programs.md is what the table of systems and the last results say, and can be typed.

use rnic_programs::systems::results::Results;
use rnic_programs::systems::table::TABLE;
use rnic_programs::systems::{document, folder, page};
use std::collections::HashSet;
use std::fs;

/// Whoever changes a line of the table changes what readers are told.
#[test]
fn the_page_is_what_the_table_says() {
    let results = Results::read().expect("results.json is what the runner wrote");
    let written = fs::read_to_string(document()).expect("docs/programs.md");
    assert!(
        written == page::page(TABLE, &results),
        "docs/programs.md is not what the table says; type:  ./test systems, or target/debug/systems --page"
    );
}

/// The page promises three lines for each system, and files that are there.
#[test]
fn a_system_starts_with_three_lines() {
    let mut keys = HashSet::new();
    for system in TABLE {
        assert!(keys.insert(system.key()), "{} is there twice", system.name);
        for (lines, is_rdma) in [(system.rdma, true), (system.tcp, false)] {
            assert!(
                lines.len() <= 3,
                "{} has more than three lines",
                system.name
            );
            let has_rnic = lines.iter().any(|line| line.text().contains("rnic run "));
            assert_eq!(has_rnic, is_rdma, "{}: rnic run", system.name);
        }
        for file in system.files {
            assert!(folder().join(file).is_file(), "{}: {file}", system.name);
        }
        let fetch = fs::read_to_string(folder().join("fetch")).expect("systems/fetch");
        let bench = fs::read_to_string(folder().join("../../../bench/programs"));
        let both = fetch + &bench.expect("bench/programs");
        let get = format!("\nget {} ", system.fetched_as);
        let indented = format!("    get {} ", system.fetched_as);
        assert!(
            both.contains(&get) || both.contains(&indented),
            "{}: nothing fetches {}",
            system.name,
            system.fetched_as
        );
    }
}
