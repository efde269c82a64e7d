//! `rnic bench` as its users run it: what it prints and writes, and how it ends.

use crate::browser;
use crate::common;
use crate::markup;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{rnic, stderr};

/// Short, whatever it says then.
fn bench(args: &[&str]) -> Output {
    let mut command = rnic();
    command.args(["bench", "--milliseconds", "5"]).args(args);
    command.output().expect("rnic starts")
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}\n{}",
        output.status,
        stderr(output)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn number(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// Operation and size of each row.
fn cells(rows: &Value) -> Vec<(String, u64)> {
    let rows = rows.as_array().expect("rows").iter();
    rows.map(|row| {
        let operation = row["operation"].as_str().expect("a name").to_owned();
        (operation, row["size"].as_u64().expect("a size"))
    })
    .collect()
}

#[test]
fn every_operation_between_two_processes() {
    let value = json(&bench(&["--json", "--size", "8,4K"]));
    let expected: Vec<(String, u64)> = [
        ("send", 8),
        ("send", 4096),
        ("write", 8),
        ("write", 4096),
        ("read", 8),
        ("read", 4096),
        ("atomic", 8),
    ]
    .map(|(operation, size)| (operation.to_owned(), size))
    .into();
    assert_eq!(cells(&value["latency"]), expected);
    assert_eq!(cells(&value["bandwidth"]), expected);
    for row in value["latency"].as_array().unwrap() {
        let order = ["min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"];
        let quantiles = order.map(|name| number(row, name));
        assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{row}");
        let steps = row["histogram"].as_array().expect("steps").iter();
        let count: f64 = steps.map(|step| number(step, "count")).sum();
        assert_eq!(
            count,
            number(row, "samples"),
            "every sample is in the histogram"
        );
        let returns = ["read", "atomic"].contains(&row["operation"].as_str().unwrap());
        assert_eq!(row["round_trip"].as_bool(), Some(returns));
    }
    for row in value["bandwidth"].as_array().unwrap() {
        let (bytes, operations) = (
            number(row, "bytes_per_second"),
            number(row, "operations_per_second"),
        );
        assert!(
            bytes > 0.0 && (bytes / number(row, "size") / operations - 1.0).abs() < 1e-6,
            "{row}"
        );
    }
}

#[test]
fn tables_charts_and_a_page() {
    let folder = std::env::temp_dir().join(format!("rnic-bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let [html, svg] = ["a.html", "a.svg"].map(|name| folder.join(name));
    let output = bench(&[
        "--op",
        "send,read",
        "--size",
        "1",
        "--html",
        html.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "Latency",
        "99.9%",
        "Bandwidth",
        "how often",
        "at once",
        "path MTU",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(stderr(&output), "", "progress is for terminals");
    let [html, svg] = [html, svg].map(|file| std::fs::read_to_string(file).expect("written"));
    let _ = std::fs::remove_dir_all(folder);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    // Latency, bandwidth, a histogram for each operation; each for a desktop and for a phone.
    assert_eq!(html.matches("<svg").count(), 2 * 4);
    markup::is_well_formed(&html);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for part in [host.trim(), "<dt>CPU</dt>", "<dt>date</dt>", " UTC"] {
        assert!(html.contains(part), "no {part}");
    }
    for outside in ["src=", "href=", "@import", "<script"] {
        assert!(
            !html.contains(outside),
            "{outside}: the page needs nothing else"
        );
    }
}

/// On a phone and on a desktop, light and dark: nothing sticks out, a chart is as wide as it can
/// be, and comes before tables.
#[test]
fn the_page_fits_any_screen() {
    let name = "the_page_fits_any_screen";
    if !browser::is_here() {
        return rnic_skip::skipped(name, "chromium is not installed");
    }
    let scratch = common::Scratch::new("bench-screens");
    let file = scratch.0.join("bench.html");
    let output = bench(&["--size", "8,4K", "--html", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    for (width, height) in [(390, 844), (1280, 800)] {
        for dark in [false, true] {
            let mut browser = browser::Browser::start(&scratch.0.join("profile"));
            browser.open_on(Some((width, height, dark)), &file);
            let seen: Value = serde_json::from_str(&browser.run(
                "(async () => { \
                   const charts = [...document.querySelectorAll('svg')].map((svg) => svg.getBoundingClientRect()); \
                   const shown = charts.filter((box) => box.width > 0); \
                   const paper = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number); \
                   return JSON.stringify({ \
                     width: document.documentElement.scrollWidth, \
                     shown: shown.length, all: charts.length, \
                     least: Math.min(...shown.map((box) => box.width)), \
                     right: Math.max(...shown.map((box) => box.right)), \
                     last: Math.max(...shown.map((box) => box.bottom)), \
                     table: document.querySelector('table').getBoundingClientRect().top, \
                     dark: paper[0] < 60, \
                   }); })()",
            ))
            .expect("JSON");
            let number = |name: &str| number(&seen, name);
            let width = f64::from(width);
            assert!(number("width") <= width, "{seen}");
            assert_eq!(number("shown") * 2.0, number("all"), "{seen}");
            assert!(number("least") > 0.85 * width.min(960.0), "{seen}");
            assert!(number("right") <= width, "{seen}");
            assert!(number("last") <= number("table"), "{seen}");
            assert_eq!(seen["dark"], dark, "{seen}");
        }
    }
}

#[test]
fn a_latency_beside_a_bulk_transfer() {
    let args = [
        "--what",
        "latency",
        "--op",
        "send,write,read",
        "--size",
        "8",
        "--beside",
        "64K",
    ];
    let value = json(&bench(&[&args[..], &["--json"]].concat()));
    let rows = value["latency_beside_bulk"].as_array().expect("rows");
    assert_eq!(
        cells(&value["latency_beside_bulk"]),
        cells(&value["latency"])
    );
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["bulk_size"].as_u64(), Some(64 << 10));
        let moved = number(row, "bulk_bytes_per_sample") * number(row, "samples");
        assert!(
            moved > 0.0 && number(row, "bulk_bytes_per_second") > 0.0,
            "{row}"
        );
    }
    let output = bench(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("beside RDMA WRITEs of 64 KiB") && text.contains("meanwhile"),
        "{text}"
    );
    assert!(!bench(&["--beside", "65M"]).status.success());
}

#[test]
fn a_server_and_a_client() {
    let mut server = rnic()
        .args(["bench", "--server", "127.0.0.1:0", "--addr", "127.0.0.1"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("rnic starts");
    let mut lines = BufReader::new(server.stderr.take().expect("asked for")).lines();
    let line = lines.next().expect("a line").expect("text");
    let addr = line.rsplit(' ').next().expect("an address");
    let value = json(&bench(&[
        "--connect",
        addr,
        "--json",
        "--op",
        "write",
        "--size",
        "100",
    ]));
    assert_eq!(cells(&value["latency"]), [("write".to_owned(), 100)]);
    assert_eq!(value["path"]["remote"], "127.0.0.1");
    assert!(server.wait().expect("a child").success(), "{line}");
}

/// As `rnic verify` has them.
#[test]
fn either_spelling_of_options() {
    let mut command = rnic();
    command.args([
        "bench", "--json", "--ops", "send", "--size", "8", "--what", "latency",
    ]);
    let value = json(
        &command
            .args(["--seconds", "0.005"])
            .output()
            .expect("rnic starts"),
    );
    assert_eq!(cells(&value["latency"]), [("send".to_owned(), 8)]);
    let output = bench(&["--client", "no such host"]);
    assert!(stderr(&output).contains("HOST:PORT"), "{}", stderr(&output));
}

#[test]
fn a_second_process_that_is_killed_is_not_taken_for_a_silent_one() {
    let mut command = rnic();
    let args = ["bench", "--op", "write", "--what", "latency", "--size", "8"];
    command.args(args).args(["--milliseconds", "20000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let first = command.spawn().expect("rnic starts");
    let children = format!("/proc/{0}/task/{0}/children", first.id());
    let second = loop {
        let text = std::fs::read_to_string(&children).expect("it runs");
        match text.split_whitespace().next() {
            Some(pid) => break pid.to_owned(),
            None => std::thread::yield_now(),
        }
    };
    let kill = Command::new("kill").args(["-KILL", &second]).status();
    assert!(kill.expect("kill(1)").success());
    let output = first.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("the second process was killed (signal: 9"),
        "{said}"
    );
}

#[test]
fn nonsense_is_said_to_be_nonsense() {
    let refused = |args: &[&str], status, words: &str| {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(
            stderr(&output).contains(words),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(output.stdout.is_empty());
    };
    refused(&["--size", "7x"], 2, "is no size");
    refused(&["--size", "0"], 2, "1 byte");
    refused(&["--size", "100M"], 2, "64 MiB");
    refused(&["--op", "swap"], 2, "atomic");
    refused(&["--depth", "1000"], 2, "128");
    refused(&["--seconds", "1"], 2, "--milliseconds");
    refused(&["--server", "--connect", "x"], 2, "--connect");
    // The server would have nothing to write there.
    refused(&["--server", "--json"], 2, "--json");
    refused(&["--connect", "no such host"], 1, "HOST:PORT");
    refused(&["--addr", "203.0.113.77"], 1, "203.0.113.77");
}

#[test]
fn nobody_listens_there() {
    // A port that was free a moment ago, where nobody else looks for one.
    let listener = std::net::TcpListener::bind("127.0.77.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let output = bench(&["--connect", &addr]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("rnic bench --server")
            && stderr(&output).contains(&format!("waiting for a server at {addr}")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn help_has_examples() {
    let output = bench(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "Examples:",
        "--connect hostA",
        "--html bench.html",
        "Exit status",
    ] {
        assert!(text.contains(part), "no {part}");
    }
}
