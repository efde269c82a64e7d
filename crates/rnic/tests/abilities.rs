//! `docs/rust-api.md`: what the API can do, and for each thing the tests that show it. A test that is
//! renamed or gone fails this one. `RNIC_WRITE_ABILITIES=1` writes the document anew.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// What it can do, and what shows it: files of this crate, each with names of tests or with the mark
/// of an example that must not compile.
type Row = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("runs without a device, privileges or kernel modules", &[
        ("tests/loopback.rs", &["sends_of_every_size_arrive_whole"]),
        ("tests/two_processes.rs", &["example_ping_pong"])]),
    ("runs on devices of the system: the same tests pass on both back ends, and on Linux's Soft-RoCE by `interop/run --api`", &[
        ("tests/libibverbs.rs", &["the_same_tests_pass_on_a_device_of_a_library", "devices_do_not_mix"])]),
    ("finds libibverbs at run time, and says what is wrong with it", &[
        ("tests/libibverbs.rs", &["both_kinds_of_devices_are_listed", "a_machine_without_the_library_says_so",
            "a_library_without_a_function_is_told_which", "a_device_that_goes_away_gives_errors_that_name_it"])]),
    ("is built without C tools", &[
        ("tests/abilities.rs", &["nothing_of_c_is_needed_to_build"])]),
    ("is built by the oldest Rust that Cargo.toml names (`tools/check-crates msrv`)", &[
        ("tests/abilities.rs", &["the_oldest_rust_is_said"])]),
    ("is MIT or Apache-2.0", &[
        ("tests/abilities.rs", &["the_licences_are_there"])]),
    ("RC, UC, UD and XRC as types", &[
        ("tests/loopback.rs", &["writes_land_where_they_should_and_nowhere_else"]),
        ("tests/datagrams.rs", &["an_unreliable_connection_sends_and_writes", "an_answer_goes_back_the_way_the_question_came"]),
        ("tests/xrc.rs", &["each_message_lands_in_the_queue_that_it_names"])]),
    ("posting is safe: the buffer belongs to the queue while it is posted", &[
        ("src/raw/memory.rs", &["compile_fail,E0382"]),
        ("tests/loopback.rs", &["buffers_of_a_dropped_queue_pair_are_freed_and_the_queue_goes_on"]),
        ("tests/libibverbs.rs", &["what_is_refused_vaguely_counts_as_posted"])]),
    ("requests of several buffers", &[
        ("tests/lists.rs", &["a_message_is_gathered_and_scattered", "a_write_gathers_and_a_read_scatters"])]),
    ("several requests at once, checked by the borrow checker", &[
        ("tests/lists.rs", &["a_batch_is_posted_when_it_is_committed"]),
        ("src/batch.rs", &["compile_fail,E0382", "compile_fail,E0505"])]),
    ("inline, fence, solicited, signaled per request", &[
        ("tests/loopback.rs", &["inline_immediate_and_empty_messages", "unsignaled_buffers_come_back_with_the_next_completion"]),
        ("tests/devices.rs", &["a_fenced_request_sees_what_was_read_before_it", "a_solicited_message_wakes_who_waits_for_those_alone"])]),
    ("a full queue gives the request back", &[
        ("tests/loopback.rs", &["a_full_queue_gives_the_request_back"])]),
    ("registers the memory of the program: vectors, mappings, huge pages, files, dmabufs", &[
        ("tests/lists.rs", &["memory_of_the_program_is_used_where_it_lies", "memory_of_any_kind_can_be_adopted"]),
        ("tests/memory.rs", &["an_anonymous_mapping_is_a_buffer_and_a_region",
            "huge_pages_are_used_or_the_error_says_how_to_have_them", "a_memfd_is_shared_between_regions",
            "files_that_may_shrink_are_not_mapped_by_safe_code", "a_borrowed_range_is_registered_by_contract",
            "what_is_no_dmabuf_is_refused"])]),
    ("peers name memory by an address of the program's choice", &[
        ("tests/memory.rs", &["memory_goes_by_an_address_of_the_programs_choice", "a_region_counts_from_zero"])]),
    ("three kinds of region: for the program alone, for peers to read, for peers to write", &[
        ("tests/loopback.rs", &["reads_and_reclaimed_memory", "refused_rights_fail_the_request_and_not_the_next_queue_pair"]),
        ("src/raw/words.rs", &["every_part_of_every_range_is_copied_exactly"])]),
    ("memory windows", &[
        ("tests/loopback.rs", &["a_window_opens_its_range_until_it_is_invalidated"])]),
    ("multicast", &[
        ("tests/datagrams.rs", &["a_group_reaches_its_members"]),
        ("tests/cm.rs", &["a_group_is_joined_with_its_key_only"])]),
    ("FLUSH, on the software NIC", &[
        ("tests/loopback.rs", &["a_flush_ends_after_the_writes_before_it"])]),
    ("shared receive queues, their limit, and an orderly end", &[
        ("tests/loopback.rs", &["a_shared_receive_queue_serves_whoever_has_a_message"]),
        ("tests/shared_receives.rs", &["a_drained_queue_pair_leaves_no_receive_behind"])]),
    ("completions with the device's timestamps, and its clock", &[
        ("tests/waiting.rs", &["completions_say_when_they_arose", "failures_come_through_a_queue_with_stamps"])]),
    ("manual modify and query of a queue pair, with the state table in front", &[
        ("tests/manual.rs", &["the_table_of_rc_is_in_front_of_the_device", "the_table_of_uc_is_in_front_of_the_device",
            "the_table_of_ud_is_in_front_of_the_device", "the_tables_of_xrc_are_in_front_of_the_device",
            "attributes_are_told_as_they_were_set"])]),
    ("rdma_cm, by calls that wait and in an event loop", &[
        ("tests/cm.rs", &["a_reliable_connection_carries_messages_and_ends_for_both"]),
        ("tests/cm_events.rs", &["one_thread_runs_both_ends_of_many_connections"])]),
    ("descriptors for any loop", &[
        ("tests/loopback.rs", &["a_thread_sleeps_on_the_channel_until_a_message_comes", "a_wait_for_the_channel_or_others_ends_with_either"])]),
    ("several completion queues on one channel, and no wake-up is lost", &[
        ("tests/devices.rs", &["a_channel_tells_which_queue_has_something"]),
        ("tests/waiting.rs", &["no_wake_up_of_several_queues_is_lost", "what_an_earlier_poll_took_is_not_slept_over"])]),
    ("futures of requests, messages and connections, on any runtime", &[
        ("tests/futures.rs", &["a_message_each_way", "one_sided_operations", "an_error_reaches_every_future", "a_full_send_queue_waits"]),
        ("src/aio/arming.rs", &["no_interleaving_loses_a_wake_up"]),
        ("src/aio/request.rs", &["one_that_finds_room_in_the_last_look_is_woken_at_its_end"])]),
    ("streams of connections, and of events of devices", &[
        ("tests/futures_connect.rs", &["many_clients_of_a_listener", "the_end_of_a_connection_ends_recv", "events_of_the_device_are_a_stream"])]),
    ("futures that may be dropped at any time", &[
        ("tests/futures_dropped.rs", &["futures_dropped_at_random", "aborted_tasks_leave_room_for_others"])]),
    ("futures of queue pairs that share receives", &[
        ("tests/futures_shared.rs", &["messages_of_many_peers_by_a_few_receives", "a_queue_pair_that_goes_gives_its_receives_back",
            "the_limit_is_told"])]),
    ("a reactor that takes packets in while futures sleep, and runtimes that wait themselves", &[
        ("src/aio/driving.rs", &["the_reactor_drives_while_futures_sleep", "the_device_closes_at_once"]),
        ("src/aio/reactor.rs", &["a_thread_that_cannot_wait_tells_all_futures"]),
        ("tests/futures_tokio.rs", &["on_tokio_with_its_own_reactor"])]),
    ("byte streams with AsyncRead and AsyncWrite", &[
        ("tests/futures_stream.rs", &["bytes_arrive_once_and_in_order", "without_a_copy", "dropping_a_stream_loses_nothing", "a_peer_that_vanishes_is_an_error"])]),
    ("asynchronous events of devices", &[
        ("tests/loopback.rs", &["failures_of_a_responder_are_told_as_events"]),
        ("tests/shared_receives.rs", &["the_last_receive_is_an_event"])]),
    ("errors say the usual cause", &[
        ("tests/loopback.rs", &["mistakes_are_explained", "nobody_receives_and_nobody_is_there"])]),
    ("an endpoint as bytes, and with serde", &[
        ("src/endpoint/tests.rs", &["endpoint_round_trips", "serde_round_trips"])]),
    ("a page for those who come from C or another crate, and an example per task", &[
        ("tests/examples.rs", &["messages_are_echoed", "values_are_got_by_one_sided_reads", "datagrams_are_asked_and_answered",
            "a_group_hears_one_sender", "workers_share_a_connection", "a_device_of_the_system_is_tried"])]),
];

fn document() -> PathBuf {
    Path::new(CRATE).join("../../docs/rust-api.md")
}

/// Marks of examples begin so.
const MARK: &str = "compile_fail";

fn page() -> String {
    let mut page = String::from(
        "\
# What the Rust API can do, and what shows it

The tests of `crates/rnic` wrote this page, and fail if a test that it names is gone.
`RNIC_WRITE_ABILITIES=1 cargo nextest run -p rnic abilities::` writes it anew. `cargo nextest run -p
rnic` runs them all, on the software NIC and on a device of a libibverbs. Examples that must not
compile are tests, too: `cargo test -p rnic --doc`.

| it can | shown by |
| --- | --- |
",
    );
    for (what, proofs) in ROWS {
        let shown = proofs.iter().map(|(file, names)| {
            let names = names.iter().map(|name| match name.starts_with(MARK) {
                true => "what must not compile".to_owned(),
                false => format!("`{name}`"),
            });
            let mut names: Vec<String> = names.collect();
            names.dedup();
            format!("`crates/rnic/{file}`: {}", names.join(", "))
        });
        let shown: Vec<String> = shown.collect();
        writeln!(page, "| {what} | {} |", shown.join("<br>")).expect("a string");
    }
    page
}

#[test]
fn every_ability_is_shown_by_a_test() {
    for (what, proofs) in ROWS {
        assert!(!proofs.is_empty(), "{what}");
        for (file, names) in *proofs {
            let text = fs::read_to_string(Path::new(CRATE).join(file)).expect(file);
            for name in *names {
                let there = match name.starts_with(MARK) {
                    true => text.contains(&format!("```{name}")),
                    false => {
                        let declared = text.split(&format!("\nfn {name}()")).collect::<Vec<_>>();
                        let declared = match declared.len() {
                            2 => declared,
                            _ => text.split(&format!("\n    fn {name}()")).collect(),
                        };
                        let before = declared[0].trim_end();
                        declared.len() == 2
                            && before
                                .rsplit("\n\n")
                                .next()
                                .is_some_and(|own| own.contains("#[test]"))
                    }
                };
                assert!(there, "{what}: {file} has no test {name}");
            }
        }
    }
}

#[test]
fn the_page_says_what_the_tests_show() {
    if std::env::var_os("RNIC_WRITE_ABILITIES").is_some() {
        fs::write(document(), page()).expect("written");
    }
    let there = fs::read_to_string(document()).expect("the page");
    assert!(
        there == page(),
        "docs/rust-api.md is old: RNIC_WRITE_ABILITIES=1 writes it anew"
    );
}

/// No crate that rnic is built of runs a compiler or generator of C.
#[test]
fn nothing_of_c_is_needed_to_build() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--offline", "--package", "rnic", "--prefix", "none"]);
    command.args(["--edges", "normal,build", "--all-features"]);
    let output = command.current_dir(CRATE).output().expect("cargo runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let tree = String::from_utf8(output.stdout).expect("text");
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&"rnic-nic"), "{names:?}");
    let tools = [
        "cc",
        "cmake",
        "bindgen",
        "pkg-config",
        "autotools",
        "clang-sys",
    ];
    let found: Vec<_> = names.iter().filter(|name| tools.contains(name)).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// The guide names the version that `tools/check-crates` builds with.
#[test]
fn the_oldest_rust_is_said() {
    let oldest = env!("CARGO_PKG_RUST_VERSION", "Cargo.toml names one");
    let guide = Path::new(CRATE).join("../../docs/book/rust.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    assert!(guide.contains(&format!("Rust {oldest}")), "{oldest}");
    let check = Path::new(CRATE).join("../../tools/check-crates");
    let check = fs::read_to_string(check).expect("the script");
    assert!(check.contains("rust-version") && check.contains("\nmsrv() {"));
}

/// The examples of the guide are those of the crate's documentation, which run.
#[test]
fn the_examples_of_the_guide_run() {
    let read = |path: &str| fs::read_to_string(Path::new(CRATE).join(path)).expect("a file");
    let documented = ["src/lib.rs", "src/aio/mod.rs"].map(read).join("\n");
    let code = |line: &str| {
        let line = line.trim_start_matches("//!").trim();
        line.trim_start_matches("# ").trim().to_owned()
    };
    let known: Vec<String> = documented.lines().map(code).collect();
    let guide = read("../../docs/book/rust.md");
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        for line in block.split("```").next().expect("a block").lines() {
            let line = line.trim().to_owned();
            assert!(known.contains(&line), "no example that runs has: {line}");
        }
    }
}

#[test]
fn the_licences_are_there() {
    let licence = env!("CARGO_PKG_LICENSE", "cargo says which");
    assert_eq!(licence, "MIT OR Apache-2.0");
    for (file, begins) in [
        ("LICENSE-MIT", "MIT License"),
        ("LICENSE-APACHE", "Apache License"),
    ] {
        let text = fs::read_to_string(Path::new(CRATE).join(file)).expect(file);
        assert!(text.contains(begins), "{file}");
    }
}
