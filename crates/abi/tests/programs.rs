//! C programs, compiled against the real headers and linked to the real libraries, run on ours.

use crate::common;

use std::path::Path;

use crate::common::{output, run_c as run, run_c_with as run_with};

macro_rules! programs {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            if common::headers_available() {
                run(stringify!($name), &["-libverbs"]);
            }
        }
    )*};
}

programs!(
    smoke, refusals, events, waiting, extended, forked, files, batch, states, newest
);
programs!(srq, srq_services, xrc, xrc_processes);

/// Runs a program where the system lets processes reach each other's memory, then where it refuses
/// that: gives what each has reported to `look`, and whether it was refused.
fn with_and_without_reach(name: &str, look: impl Fn(&str, bool)) {
    if !common::headers_available() {
        return;
    }
    let report = common::scratch(name).join("report");
    for refused in [false, true] {
        std::fs::write(&report, "").expect("an empty report");
        let path = report.to_str().expect("a path");
        let environment = [("RNIC_REPORT", path), ("RNIC_STATS", "1"), ("REFUSED", "1")];
        let environment = if refused {
            &environment[..]
        } else {
            &environment[..2]
        };
        run_with(name, &["-libverbs"], environment);
        look(
            &std::fs::read_to_string(&report).expect("the report"),
            refused,
        );
    }
}

/// Some process has reported a count that is not zero.
fn counted_any(told: &str, count: &str) -> bool {
    let all = told.matches(&format!("\"{count}\":")).count();
    all > told.matches(&format!("\"{count}\":0")).count()
}

/// Operations that need no time of the target, then the same where the system does not let the one
/// reach the other's memory.
#[test]
fn one_sided() {
    with_and_without_reach("one_sided", |told, refused| {
        let without = counted_any(told, "messages_without_packets");
        assert_eq!(without, !refused, "{told}");
        let out_of_reach = told.contains("\"out_of_reach\":1");
        assert_eq!(out_of_reach, refused, "{told}");
    });
}

/// Long messages that are copied once, then the same where the system does not let the receiver at
/// the sender's memory.
#[test]
fn by_reference() {
    with_and_without_reach("by_reference", |told, refused| {
        let rings = std::env::var_os("RNIC_HOST_PATH").is_none();
        let by_reference = counted_any(told, "rx_host_pointed");
        // Which of the two ways is cheaper is measured, and ThreadSanitizer makes one of them many
        // times dearer.
        let measured = common::sanitizer_is("thread");
        assert!(measured || by_reference == (!refused && rings), "{told}");
    });
}

// Datagrams and what is unreliable.
programs!(ud, receives, multicast, unaligned);

/// Messages of a window that packets behind it may overtake: while other processes of the host come
/// and go, steering is wrong for a moment, and what is handed over arrives later. UC loses what
/// comes late; so does a network that reorders.
const OVERTAKEN: u32 = 2 * 8;

/// On a network that loses, some messages are lost, most are not, and each that arrives is whole.
/// Without faults all arrive, as no more are under way than there are receives for, but for what is
/// overtaken.
#[test]
fn uc() {
    if !common::headers_available() {
        return;
    }
    let (all, _) = arrived("uc", "drop=0%");
    assert!(
        (400 - OVERTAKEN..=400).contains(&all),
        "{all}\n{}",
        counted("uc")
    );
    let (some, _) = arrived("uc", "drop=5%,dup=5%,corrupt=2%,reorder=2%,seed=1");
    assert!((200..380).contains(&some), "{some}");
}

/// As [`uc`]; nothing hides a datagram that comes twice.
#[test]
fn ud_faults() {
    if !common::headers_available() {
        return;
    }
    let (all, twice) = arrived("ud_faults", "drop=0%");
    assert!(
        (400 - OVERTAKEN..=400).contains(&all) && twice == 0,
        "{all}, {twice} twice\n{}",
        counted("ud_faults")
    );
    let (some, twice) = arrived(
        "ud_faults",
        "drop=5%,dup=5%,corrupt=5%,reorder=5%,delay=20us,seed=1",
    );
    assert!((300..400).contains(&some), "{some}");
    assert!((1..100).contains(&twice), "{twice}");
}

/// How many messages of a program arrived, and how many of them twice, if it says so.
fn arrived(name: &str, faults: &str) -> (u32, u32) {
    let report = common::scratch(name).join("report");
    let _ = std::fs::remove_file(&report);
    let report = report.to_str().expect("a path");
    let environment = [("RNIC_FAULTS", faults), ("RNIC_REPORT", report)];
    let text = run_with(name, &["-libverbs"], &environment);
    let line = text.lines().find(|l| l.contains("messages arrived"));
    let numbers: Vec<u32> = line.map_or(Vec::new(), |line| {
        let words = line.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    });
    match *numbers {
        [arrived, _] => (arrived, 0),
        [arrived, _, twice] => (arrived, twice),
        _ => panic!("counts: {text}"),
    }
}

/// What the last run of a program counted, to see where messages went.
fn counted(name: &str) -> String {
    std::fs::read_to_string(common::scratch(name).join("report")).unwrap_or_default()
}

// Order of destruction, asynchronous events, threads, forks.
programs!(order, async_events, forks, threads, thousand, sqe);

// Memory.
programs!(
    regions,
    rereg,
    window_type1,
    window_type2,
    device_memory,
    on_demand,
    null_region,
    huge,
    window_post,
    window_uc,
    domains,
    import,
    import_processes
);

/// No memory, descriptor or thread is left, of each of which a verb says so by its errno.
fn out_of_memory(case: &str) {
    if common::headers_available() {
        let link = ["-libverbs", "-lrdmacm", "-ldl", "-rdynamic"];
        run_with(
            "out_of_memory",
            &link,
            &[("CASE", case), ("RNIC_QUIET", "1")],
        );
    }
}

/// Opening fails at each allocation that it makes, and without threads or descriptors.
#[test]
fn out_of_memory_when_opening() {
    out_of_memory("opening");
}

/// The making of each kind of object fails at each allocation that it takes.
#[test]
fn out_of_memory_at_each_allocation() {
    out_of_memory("failing");
}

/// As many of each kind are made as address space allows.
#[test]
fn out_of_memory_at_a_limit() {
    out_of_memory("limit");
}

/// The data path takes no memory that it has not taken before, whichever way packets go.
#[test]
fn without_memory() {
    if common::headers_available() {
        for path in ["on", "rings", "off"] {
            let link = ["-libverbs", "-lrdmacm", "-ldl", "-rdynamic"];
            run_with("without_memory", &link, &[("RNIC_HOST_PATH", path)]);
        }
    }
}
programs!(too_large);

/// What hardware had pinned is here an error, whatever notices that it is gone.
#[test]
fn unmapped() {
    if common::headers_available() {
        // A sanitizer's own handler comes first, and its copies are the compiler's.
        let sanitized = std::env::var_os("RNIC_SANITIZER").is_some();
        let all = ["kernel", "handler"];
        for guarded in &all[..if sanitized { 1 } else { 2 }] {
            run_with(
                "unmapped",
                &["-libverbs"],
                &[("RNIC_GUARDED_MEMORY", guarded)],
            );
        }
    }
}

// Completion queues.
programs!(
    cq_resize,
    cq_overrun,
    cq_moderation,
    cq_ex,
    cq_shared,
    solicited
);

// What there is to ask, and what a software NIC answers to it.
programs!(queries, no_offloads);

/// In more partitions than one.
#[test]
fn queries_in_partitions() {
    if common::headers_available() {
        let pkeys = [("RNIC_PKEYS", "0xffff,0x8001,0x7ffe")];
        run_with("queries", &["-libverbs"], &pkeys);
    }
}

/// What takes no packets is not counted by the port that it reaches, so all take packets here.
#[test]
fn counters() {
    if common::headers_available() {
        for path in ["rings", "off"] {
            run_with("counters", &["-libverbs"], &[("RNIC_HOST_PATH", path)]);
        }
    }
}
programs!(atomic_write);

#[test]
fn flush() {
    if common::headers_available() {
        let text = run("flush", &["-libverbs"]);
        if text.contains("does not show what is written back") {
            rnic_skip::skipped("flush to a file", "the file system does not show it");
        }
    }
}

// Connections.
#[test]
fn addrinfo() {
    if common::headers_available() {
        run("addrinfo", &["-libverbs", "-lrdmacm"]);
    }
}

/// Where no rdma-core is installed, or not where `RNIC_LIBRDMACM` says, there are no rsockets: said
/// in one line.
#[test]
fn no_rsockets() {
    if !common::headers_available() {
        return;
    }
    let nowhere = ("RNIC_LIBRDMACM", "/nowhere/librdmacm.so.1");
    let link = ["-libverbs", "-lrdmacm"];
    let text = run_with("no_rsockets", &link, &[nowhere]);
    let explained: Vec<_> = text.lines().filter(|l| l.starts_with("rnic: ")).collect();
    assert_eq!(explained.len(), 1, "{text}");
    assert!(explained[0].contains("librdmacm1"), "what to do: {text}");
    assert!(explained[0].contains("/nowhere/"), "what was tried: {text}");
    let quiet = run_with("no_rsockets", &link, &[nowhere, ("RNIC_QUIET", "1")]);
    assert!(!quiet.contains("rnic: "), "{quiet}");
    // Our own library, under whatever name, is not what is meant.
    let own = common::library_dir("no_rsockets").join("librdmacm.so.1");
    let own = ("RNIC_LIBRDMACM", own.to_str().expect("a path"));
    let text = run_with("no_rsockets", &link, &[own]);
    assert!(text.contains("has no rsockets"), "{text}");
}

/// Programs of the connection manager.
macro_rules! cm_programs {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            if common::headers_available() {
                run(stringify!($name), &["-libverbs", "-lrdmacm"]);
            }
        }
    )*};
}

cm_programs!(
    cm_async,
    cm_sync,
    cm_own_qp,
    cm_srq,
    cm_ud,
    cm_multicast,
    cm_migrate,
    cm_path
);
cm_programs!(
    cm_reject, cm_ports, cm_errors, cm_acks, cm_fork, cm_many, cm_ep
);

#[test]
fn cm_user_events() {
    if common::headers_available() {
        run("cm_user_events", &["-libverbs", "-lrdmacm", "-ldl"]);
    }
}

#[test]
fn strings() {
    if common::headers_available() {
        run("strings", &["-libverbs", "-lrdmacm", "-ldl"]);
    }
}

#[test]
fn loader() {
    if common::headers_available() {
        run("loader", &["-ldl"]);
    }
}

#[test]
fn providers() {
    if !common::headers_available() {
        return;
    }
    let present = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .iter()
        .any(|triple| {
            Path::new("/usr/lib")
                .join(triple)
                .join("libibverbs")
                .is_dir()
        });
    let missing: &[&str] = if present { &[] } else { &["ibverbs-providers"] };
    if common::allowed_missing(missing, "RNIC_ALLOW_MISSING_HEADERS") {
        run("providers", &["-libverbs", "-ldl"]);
    }
}

#[test]
fn names() {
    if common::headers_available() {
        let text = run("names", &["-libverbs", "-lrdmacm", "-ldl"]);
        assert!(text.contains("names-"), "found in our folder: {text}");
    }
}

#[test]
fn a_failure_to_open_is_explained_in_one_line() {
    if common::headers_available() {
        let nowhere = ("RNIC_RUNTIME_DIR", "/proc/nowhere");
        let text = run_with("unopenable", &["-libverbs"], &[nowhere]);
        let explained: Vec<_> = text.lines().filter(|l| l.starts_with("rnic: ")).collect();
        assert_eq!(explained.len(), 1, "{text}");
        assert!(explained[0].contains("/proc/nowhere"), "what: {text}");
        assert!(
            explained[0].contains("set RNIC_RUNTIME_DIR"),
            "what next: {text}"
        );
        let quiet = run_with(
            "unopenable",
            &["-libverbs"],
            &[nowhere, ("RNIC_QUIET", "1")],
        );
        assert!(!quiet.contains("rnic: "), "{quiet}");
    }
}

/// What a program says with `RNIC_LOG=1`, and what it has reported.
fn told(name: &str, linked: &[&str]) -> (String, String) {
    let report = common::scratch(name).join("report");
    std::fs::write(&report, "").expect("an empty report");
    let path = report.to_str().expect("a path");
    let text = run_with(name, linked, &[("RNIC_LOG", "1"), ("RNIC_REPORT", path)]);
    (text, std::fs::read_to_string(&report).expect("the report"))
}

/// Each of the lines was said exactly once, and reported if `reported`.
#[track_caller]
fn said_once(text: &str, report: &str, lines: &[(&str, &str)], reported: bool) {
    for (verb, words) in lines {
        let count = text
            .lines()
            .filter(|line| line.starts_with(&format!("rnic: {verb}: ")) && line.contains(words))
            .count();
        assert_eq!(count, 1, "{verb}: {words} in\n{text}");
        let found = report
            .lines()
            .any(|line| line.contains(&format!(r#""verb":"{verb}""#)) && line.contains(words));
        assert_eq!(found, reported, "{verb}: {words} in\n{report}");
    }
}

/// What a program can do wrong is said in words, once, and `rnic run` learns of it. What is no
/// mistake, or follows from one, `rnic run` is not told.
#[test]
fn words() {
    if !common::headers_available() {
        return;
    }
    let (text, report) = told("words", &["-libverbs"]);
    let refused = [
        ("ibv_query_gid", "GID index 99: the table has 0"),
        ("ibv_query_gid", "see `rnic devices`"),
        ("ibv_query_gid_ex", "GID index 77: the table has 0"),
        ("ibv_query_gid_ex", "flags are 0x1"),
        ("ibv_query_gid_table", "max_entries is 0, the table has"),
        ("ibv_query_pkey", "P_Key index 7: the table has 0 alone"),
        ("ibv_get_pkey_index", "P_Key 0x1234 is not in the table"),
        ("ibv_query_port", "port 5 does not exist"),
        ("ibv_query_gid", "port 3 does not exist"),
        ("ibv_create_cq", "comp_vector is -1"),
        ("ibv_create_qp", "max_send_wr"),
        ("ibv_create_qp", "qp_type is 77"),
        ("ibv_create_qp_ex", "comp_mask names no protection domain"),
        ("ibv_modify_qp", "qp_state is 99, which is no state"),
        ("ibv_modify_qp", "path_mtu is 9"),
        ("ibv_modify_qp", "IBV_QP_PORT"),
    ];
    said_once(&text, &report, &refused, true);
    let passing = [
        ("ibv_query_gid_ex", "the GID table has no more rows"),
        ("ibv_query_pkey", "the P_Key table has no more rows"),
        ("ibv_dealloc_pd", "other objects of it are left"),
        ("ibv_modify_qp", "NULL in place of an object"),
    ];
    said_once(&text, &report, &passing, false);
    // A program that polls what is empty and asks for a table's empty rows does nothing wrong.
    for silent in [
        "ibv_poll_cq",
        "ibv_start_poll",
        "No data available",
        "ibv_read_sysfs_file",
    ] {
        assert!(!text.contains(silent), "{silent} in\n{text}");
    }
}

/// As [`words`], of connections.
#[test]
fn cm_words() {
    if !common::headers_available() {
        return;
    }
    let (text, report) = told("cm_words", &["-libverbs", "-lrdmacm"]);
    let refused = [
        ("rdma_create_qp", "the id is not on the device yet"),
        ("rdma_create_qp", "the id has a queue pair already"),
        ("rdma_disconnect", "the id is not on the device yet"),
        ("rdma_accept", "no queue pair, and no parameters"),
        ("rdma_establish", "the id has a queue pair: its connection"),
        ("rdma_connect", "initiator_depth is 250, the device has"),
        ("rdma_connect", "private data"),
        ("rdma_bind_addr", "family 1, neither AF_INET"),
        ("rdma_create_id", "port space 0x1 is none"),
        ("rdma_set_option", "the value has 3 bytes, the option 1"),
        ("rdma_get_request", "the id has an event channel"),
        ("rdma_leave_multicast", "the id has not joined 127.0.0.1"),
        ("rdma_notify", "event 3 is not IBV_EVENT_COMM_EST"),
    ];
    said_once(&text, &report, &refused, true);
    let passing = [
        (
            "rdma_destroy_id",
            "NULL or a destroyed one in place of an id",
        ),
        ("rdma_set_option", "there is no option 4711 of level 0"),
        ("rdma_connect", "the peer rejected it"),
    ];
    said_once(&text, &report, &passing, false);
    // What ends with the ids is not refused, and nobody asked for it by name.
    for silent in ["ibv_close_xrcd", "ibv_dealloc_pd", "ibv_destroy_cq"] {
        assert!(!text.contains(silent), "{silent} in\n{text}");
    }
}

/// Without `RNIC_LOG` nothing is said of refusals.
#[test]
fn no_words() {
    if common::headers_available() {
        for environment in [&[][..], &[("RNIC_LOG", "off")]] {
            let text = run_with("words", &["-libverbs"], environment);
            assert!(!text.contains("rnic: "), "{text}");
        }
    }
}

/// A program whose only trouble is an object that it cannot end has that reported.
#[test]
fn in_use() {
    if common::headers_available() {
        let (text, report) = told("in_use", &["-libverbs"]);
        let busy = ("ibv_destroy_cq", "queue pairs or shared receive queues");
        said_once(&text, &report, &[busy], true);
    }
}

/// The library is loaded into every child of a program: it must not be noticed.
#[test]
fn harmless_in_programs_that_know_nothing_of_it() {
    let dir = common::library_dir("harmless");
    let mut command = common::under_library(&dir, "/bin/sh");
    command.args([
        "-c",
        "echo $((6 * 7)); ls / >/dev/null && cat /proc/self/comm; ls -l /proc/self/fd | wc -l",
    ]);
    let with = output(command);
    let text = common::text(&with);
    assert!(with.status.success(), "{text}");
    assert!(text.starts_with("42\ncat\n"), "{text}");
}
