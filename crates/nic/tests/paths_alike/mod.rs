//! Two queue pairs that do not quite fit each other fare the same whatever the path between them:
//! in one process or two, through shared memory with or without packets, or over UDP. And they fare
//! as the InfiniBand specification says.
//!
//! `table` has the cells: service, operation, length, and what does not fit. `model` derives from
//! rules of the specification what becomes of each. `sides` does it and looks. The path of a
//! process is chosen by its environment, so each runs in processes of its own.

mod model;
mod sides;
mod table;

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use self::model::{Bytes, expected};
use self::sides::Wire;
use self::table::Cell;

const ROLE: &str = "RNIC_TEST_PATHS_ROLE";
const SOCKET: &str = "RNIC_TEST_PATHS_SOCKET";

/// All cells; those beside each other take about as long.
fn cells() -> Vec<Cell> {
    let mut cells = table::all();
    cells.sort_by_key(model::haste);
    cells
}

/// A process of the table.
#[test]
#[ignore = "started by the other tests"]
fn side() {
    let role = std::env::var(ROLE).expect("a role");
    let socket = std::env::var_os(SOCKET).expect("a socket");
    let cells = cells();
    let outcomes = match role.as_str() {
        "both" => {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            std::thread::scope(|scope| {
                scope.spawn(|| sides::respond(&cells, Wire::new(theirs)));
                sides::initiate(&cells, Wire::new(ours))
            })
        }
        "responder" => {
            let listener = UnixListener::bind(socket).expect("a socket");
            println!("\nready");
            let (stream, _) = listener.accept().expect("the initiator");
            return sides::respond(&cells, Wire::new(stream));
        }
        _ => {
            let stream = UnixStream::connect(socket).expect("the responder");
            sides::initiate(&cells, Wire::new(stream))
        }
    };
    let (link, _) = rnic_nic::stats().expect("a device");
    println!(
        "\nways: {} by memory, {} bytes without packets",
        link.tx_host_packets, link.tx_reached_bytes
    );
    let mut out = std::io::stdout().lock();
    for outcome in outcomes {
        writeln!(out, "{OUTCOME}{outcome:?}").expect("said");
    }
}

/// What a line begins with that tells of a cell.
const OUTCOME: &str = "= ";

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(role: &str, path: &str, dir: &Path) -> Process {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program)
            .args(["--exact", "paths_alike::side", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, dir.join("wire"))
            .env("RNIC_HOST_PATH", path)
            .env("RNIC_SHARDS", "1")
            .env("RNIC_PKEYS", table::PKEYS)
            .stdout(Stdio::piped())
            .spawn();
        Process(child.expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came of all cells, as text; what the specification leaves open is left out.
fn run(path: &str, processes: usize) -> Vec<String> {
    let dir = std::env::temp_dir().join(format!(
        "rnic-paths-{}-{path}-{processes}",
        std::process::id()
    ));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .expect("a folder");
    let responder = (processes == 2).then(|| {
        let mut process = Process::start("responder", path, &dir);
        wait_for(&mut process, "ready");
        process
    });
    let role = if processes == 2 { "initiator" } else { "both" };
    let mut initiator = Process::start(role, path, &dir);
    let mut text = String::new();
    let mut out = initiator.0.stdout.take().expect("its output");
    std::io::Read::read_to_string(&mut out, &mut text).expect("it speaks");
    let ended = initiator.0.wait().expect("it ends");
    drop(responder);
    let _ = std::fs::remove_dir_all(&dir);
    assert!(
        ended.success(),
        "{path}, {processes} processes: {ended}\n{text}"
    );
    check_ways(&text, path, processes);
    let lines = text.lines().filter_map(|line| line.strip_prefix(OUTCOME));
    lines.map(str::to_owned).collect()
}

/// The cells took the ways that they are about.
fn check_ways(text: &str, path: &str, processes: usize) {
    let line = text.lines().find(|line| line.starts_with("ways: "));
    let words: Vec<&str> = line.expect("ways").split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (packets, reached) = (number(1), number(4));
    assert_eq!(packets > 0, path != "off", "{path}: {line:?}");
    // Between processes it is the kernel's to permit.
    if processes == 1 {
        assert_eq!(reached > 0, path == "on", "{path}: {line:?}");
    }
}

fn wait_for(process: &mut Process, word: &str) {
    use std::io::{BufRead, BufReader};
    let out = process.0.stdout.as_mut().expect("its output");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == word), "it ended");
}

/// One at a time of each kind: each has two threads that poll.
static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// The bytes that were seen, if they are whole packets at the beginning.
fn begun(cell: &Cell, seen: &str) -> Bytes {
    let count = seen.split_once("bytes: Begun(").and_then(|(_, rest)| {
        let (count, _) = rest.split_once(')')?;
        count.parse().ok()
    });
    let mtu = cell.mtu[1].bytes() as u32;
    match count {
        Some(count) if u32::is_multiple_of(count, mtu) => Bytes::Begun(count),
        _ => Bytes::Untouched,
    }
}

fn compare(path: &str, processes: usize) {
    let turn = &TURNS[processes - 1];
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let cells = cells();
    let seen = run(path, processes);
    assert_eq!(seen.len(), cells.len());
    let mut wrong = Vec::new();
    for (cell, seen) in cells.iter().zip(seen) {
        let mut wanted = expected(cell);
        if wanted.bytes == Bytes::BegunSomewhere {
            wanted.bytes = begun(cell, &seen);
        }
        if seen != format!("{wanted:?}") {
            wrong.push(format!("{cell:?}\n  is     {seen}\n  wanted {wanted:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "RNIC_HOST_PATH={path}, {processes} processes: {} of {} cells:\n{}",
        wrong.len(),
        cells.len(),
        wrong.join("\n")
    );
}

#[test]
fn in_one_process_by_memory() {
    compare("on", 1);
}

#[test]
fn in_one_process_by_rings_alone() {
    compare("rings", 1);
}

#[test]
fn in_one_process_over_udp() {
    compare("off", 1);
}

#[test]
fn between_two_processes_by_memory() {
    compare("on", 2);
}

#[test]
fn between_two_processes_by_rings_alone() {
    compare("rings", 2);
}

#[test]
fn between_two_processes_over_udp() {
    compare("off", 2);
}
