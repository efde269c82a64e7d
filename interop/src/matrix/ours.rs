//! Small C programs of our own, which check every byte: what no program of the distribution does.

use super::{Case, DIAGONAL, DOUBLING, EVERY_WAY, LOSSY, OTHER_DIAGONAL, REORDERING};
use crate::lab::{End, Family, Lab, Way};
use crate::pair::{LONG, Pair, Select, VERY_LONG, finish};
use rnic_programs::pair::Outcome;
use rnic_programs::process::Process;
use std::time::Instant;

/// A program of ours, and options of `rnic run`.
fn ours<'a>(path: &'a str, options: &'a [&'a str]) -> Pair<'a> {
    Pair {
        program: path,
        args: Vec::new(),
        select: Select::Ours,
        options,
    }
}

fn program(lab: &Lab, way: Way, name: &str) -> String {
    let outcome = ours(&lab.path(name), &[]).run(lab, way);
    outcome.expect_success();
    outcome.client.stdout + &outcome.server.stdout
}

/// The network, as one end or both see it.
#[derive(Clone, Copy)]
enum Network {
    Good,
    /// tc-netem(8) for what either end sends.
    Netem(&'static [&'static str]),
    /// rnic's `--faults` for what it sends.
    Faults(&'static str),
    /// rnic's packets pass its kernel's network stack, by a card without checksum offload.
    PastTheStack,
}

/// rnic's packets did pass the stack; over IPv4 its rows left in one piece, by the kernel if that
/// does it for such a card.
fn past_the_stack(outcome: &Outcome, way: Way) {
    let rnic = match way.client {
        End::Rnic => &outcome.client,
        End::Linux => &outcome.server,
    };
    let said = &rnic.stderr;
    assert!(
        said.contains("went past the kernel's network stack"),
        "{said}"
    );
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut version = release.split('.').map(|part| part.parse().unwrap_or(0));
    let version = (version.next().unwrap_or(0), version.next().unwrap_or(0));
    let is_old: bool = version < (6, 11);
    let is_round = said.contains("left in rows by an interface of rnic's");
    assert_eq!(is_round, is_old && way.family == Family::V4, "{said}");
}

/// A megabyte or more is written and read back, in `rounds` rounds.
fn stream(lab: &Lab, way: Way, rounds: u32, options: &[&str]) -> Outcome {
    let began = Instant::now();
    let path = lab.path("stream");
    let (server, mut client) = ours(&path, options).start(lab, way);
    if rounds > 1 {
        let line = format!("round {rounds}");
        client.wait_for(&line, LONG, |text| text.contains(&line).then_some(()));
    }
    client.close_stdin();
    let outcome = finish(server, client, began, LONG);
    outcome.expect_success();
    assert!(
        outcome.client.stdout.contains("verified") && outcome.server.stdout.contains("verified"),
        "{}",
        outcome.describe()
    );
    outcome
}

fn stream_case(name: &str, rounds: u32, network: Network) -> Case {
    Case::new(format!("every byte: {name}"), move |lab, way| {
        let faults;
        let options = match network {
            Network::Good => &[][..],
            Network::Netem(words) => {
                lab.disturb(&End::BOTH, words);
                &[]
            }
            Network::Faults(words) => {
                faults = ["--faults", words];
                &faults
            }
            Network::PastTheStack => {
                lab.strip();
                &["--stats", "--xdp", End::Rnic.interface()]
            }
        };
        let outcome = stream(lab, way, rounds, options);
        if let Network::PastTheStack = network {
            past_the_stack(&outcome, way);
        }
    })
}

/// What the ends of a refused request have to see. docs/interop.md says why Linux differs.
struct Refusal {
    name: &'static str,
    /// The status of the client's completion.
    client: u32,
    /// That of the server's receive, where it has part in it.
    server: Option<u32>,
    /// Both, where Linux refuses and it is something else.
    linux: Option<(u32, Option<u32>)>,
}

const fn refusal(name: &'static str, client: u32) -> Refusal {
    Refusal {
        name,
        client,
        server: None,
        linux: None,
    }
}

const REFUSALS: [Refusal; 25] = [
    refusal("write", 0),
    refusal("write-key", 10),
    refusal("write-beyond", 10),
    refusal("write-mr-right", 10),
    refusal("write-qp-right", 9),
    refusal("read-key", 10),
    refusal("read-beyond", 10),
    refusal("read-mr-right", 10),
    refusal("read-qp-right", 9),
    refusal("atomic", 0),
    refusal("atomic-key", 10),
    refusal("atomic-beyond", 10),
    refusal("atomic-mr-right", 10),
    refusal("atomic-qp-right", 9),
    refusal("atomic-misaligned", 9),
    Refusal {
        server: Some(0),
        ..refusal("send", 0)
    },
    Refusal {
        server: Some(1),
        linux: Some((11, Some(2))),
        ..refusal("send-too-long", 9)
    },
    refusal("send-no-receive", 13),
    refusal("write-imm-no-receive", 13),
    Refusal {
        server: Some(9),
        linux: Some((0, Some(9))),
        ..refusal("send-inv-unknown", 10)
    },
    refusal("write-other-pd", 10),
    refusal("read-deregistered", 10),
    refusal("read-none-agreed", 9),
    Refusal {
        server: Some(4),
        linux: Some((11, Some(2))),
        ..refusal("send-receive-key", 11)
    },
    refusal("write-deaf", 12),
];

fn refusals(lab: &Lab, way: Way) {
    let printed = program(lab, way, "refusals");
    let mut wrong = Vec::new();
    for refusal in REFUSALS {
        let name = refusal.name;
        let (client, server) = match (way.server(), refusal.linux) {
            (End::Linux, Some(linux)) => linux,
            _ => (refusal.client, refusal.server),
        };
        let client = match (way.client, name) {
            // Linux's own driver does not let it out.
            (End::Linux, "atomic-misaligned") => "not posted".to_owned(),
            _ => format!("client {client}"),
        };
        let server = server.map_or("none".to_owned(), |status| status.to_string());
        for line in [
            format!("{name} {client}"),
            format!("{name} server {server}"),
        ] {
            if !printed.lines().any(|found| found == line) {
                wrong.push(line);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "expected:\n{}\nprinted:\n{printed}",
        wrong.join("\n")
    );
}

/// The receive that a SEND with invalidate ended is told which key it closed.
fn windows(lab: &Lab, way: Way) {
    let printed = program(lab, way, "windows");
    let flags = match way.server() {
        End::Rnic => 8,
        // The kernel's flag, handed to programs, to which this bit means something else.
        End::Linux => 5,
    };
    let wanted = format!("closed by the peer, wc_flags {flags}\n");
    assert!(printed.contains(&wanted), "expected {wanted:?}:\n{printed}");
}

/// A READ, and behind it a SEND that closes its window. Linux answers the READ to its end first.
fn overtaking(lab: &Lab, way: Way) {
    let printed = program(lab, way, "overtaking");
    let unfenced: &[&str] = match way.server() {
        End::Linux => &["unfenced 0 0"],
        End::Rnic => &["unfenced 0 0", "unfenced 10 5"],
    };
    assert!(
        printed.lines().any(|line| line == "fenced 0 0")
            && printed.lines().any(|line| unfenced.contains(&line)),
        "expected \"fenced 0 0\" and one of {unfenced:?}:\n{printed}"
    );
}

/// The server dies in the middle; the client is told, and the next pair works.
fn killed(lab: &Lab, way: Way, who: &str) {
    let path = lab.path("stream");
    let (mut server, mut client) = ours(&path, &[]).start(lab, way);
    client.wait_for("round 8", LONG, |text| {
        text.contains("round 8").then_some(())
    });
    let survivor: Process = if who == "server" {
        server.kill();
        client
    } else {
        client.kill();
        server
    };
    let finished = survivor.wait(LONG);
    let expected = if who == "server" {
        "status 12 "
    } else {
        "the client is gone"
    };
    assert!(
        !finished.ok()
            && (finished.stdout.contains(expected) || finished.stderr.contains(expected)),
        "expected {expected:?}\n{}",
        finished.describe()
    );
    stream(lab, way, 1, &[]);
}

pub fn add(cases: &mut Vec<Case>) {
    cases.push(stream_case("good network", 8, Network::Good).core(&DIAGONAL));
    let lossy = Network::Netem(LOSSY);
    cases.push(stream_case("netem, 1% lost, 1 MiB", 1, lossy).core(&OTHER_DIAGONAL));
    cases.push(stream_case("netem, 1% lost, 8 MiB", 8, lossy));
    let reordering = Network::Netem(REORDERING);
    cases.push(stream_case("netem, a quarter reordered", 1, reordering));
    let doubling = Network::Netem(DOUBLING);
    cases.push(stream_case("netem, 5% doubled", 8, doubling));
    let faults = Network::Faults("drop=1%,reorder=2%,dup=1%,corrupt=1%,seed=7");
    cases.push(stream_case("faults of rnic's own", 1, faults));
    cases.push(
        stream_case(
            "past the network stack, a card without checksum offload",
            8,
            Network::PastTheStack,
        )
        .core(&EVERY_WAY),
    );
    cases.push(
        Case::new("receives posted late", |lab, way| {
            program(lab, way, "late_receives");
        })
        .core(&DIAGONAL),
    );
    cases.push(Case::new("windows, send with invalidate", windows).core(&OTHER_DIAGONAL));
    cases.push(Case::new("refusals", refusals).core(&DIAGONAL));
    cases.push(Case::new(
        "SEND with invalidate behind a READ of its key, with a fence and without",
        overtaking,
    ));
    cases.push(Case::new("the server is killed", |lab, way| {
        killed(lab, way, "server")
    }));
    cases.push(Case::new("the client is killed", |lab, way| {
        killed(lab, way, "client")
    }));
    cases.push(Case::new("1 GiB in one message", |lab, way| {
        let giant = lab.path("giant");
        let outcome = ours(&giant, &[]).run_within(VERY_LONG, lab, way);
        outcome.expect_success();
    }));
}
