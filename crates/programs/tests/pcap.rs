//! What `--pcap` writes: tshark decodes all of it, and an ICRC check that shares no code with rnic
//! agrees.

use rnic_programs::perftest::expect_report;
use rnic_programs::place::RunOptions;
use rnic_programs::process::{Finished, Process};
use rnic_programs::{Pair, Place, Trial, User, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);

/// `tools/icrc_check.py FILE`.
fn icrc_check(file: &Path) -> Finished {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/icrc_check.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(file);
    Process::spawn(command).wait(TIME)
}

/// How many RoCEv2 packets the script counted, and how many with a wrong ICRC.
fn counts(finished: &Finished) -> (u64, u64) {
    let line = finished.stdout.lines().last().unwrap_or_default();
    let before = |word: &str| -> Option<u64> {
        let head = &line[..line.find(word)?];
        head.rsplit([',', ':']).next()?.trim().parse().ok()
    };
    let counts = before(" RoCEv2").zip(before(" wrong ICRC"));
    counts.unwrap_or_else(|| panic!("no counts\n{}", finished.describe()))
}

/// The heuristics by which tshark guesses what a payload is. perftest's is random bytes, which now
/// and then look like the start of something that is then malformed: two bytes and two of padding
/// like an EtherType and its reserved field.
const PAYLOAD_HEURISTICS: [&str; 7] = [
    "eth_over_ib",
    "fc_infiniband",
    "iser_infiniband",
    "mellanox_eoib",
    "rpcrdma_infiniband",
    "sdp_infiniband",
    "smb_direct_infiniband",
];

/// `tshark -r FILE -Y FILTER`, which decodes all that RoCEv2 defines, and guesses at no payload.
fn decoding(file: &Path, filter: &str) -> Command {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-Y", filter]);
    for name in PAYLOAD_HEURISTICS {
        command.args(["--disable-heuristic", name]);
    }
    command
}

/// The lines that `tshark -r FILE -Y FILTER` prints.
fn tshark(file: &Path, filter: &str) -> Vec<String> {
    let command = decoding(file, filter);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    assert!(
        !finished.stderr.contains("No such protocol"),
        "{}",
        finished.describe()
    );
    finished.stdout.lines().map(str::to_owned).collect()
}

/// Some fields of the packets that a filter lets pass, a line for each.
fn fields(file: &Path, filter: &str, names: &[&str]) -> Vec<String> {
    let mut command = decoding(file, filter);
    command.args(["-T", "fields"]);
    for name in names {
        command.args(["-e", name]);
    }
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    finished.stdout.lines().map(str::to_owned).collect()
}

fn can_check(trial: &Trial, programs: &[&str]) -> bool {
    if !Path::new("/usr/bin/python3").exists() {
        skip::skipped(trial.name(), "python3 is not installed");
        return false;
    }
    skip::have_programs(trial.name(), &["tshark"]) && skip::have_programs(trial.name(), programs)
}

/// Every packet decodes as InfiniBand, none is malformed, every ICRC is right; gives how many there
/// are.
fn expect_clean(file: &Path) -> u64 {
    let checked = icrc_check(file);
    checked.expect_success();
    let (packets, _) = counts(&checked);
    let malformed = tshark(file, "_ws.malformed || _ws.expert.severity == error");
    assert!(
        malformed.is_empty(),
        "{}:\n{}",
        file.display(),
        malformed.join("\n")
    );
    let decoded = tshark(file, "infiniband.bth").len() as u64;
    assert_eq!(
        decoded,
        packets,
        "tshark and the ICRC check see a different number of packets in {}",
        file.display()
    );
    packets
}

/// A pair that captures on both sides, and the two files.
fn capturing(
    trial: &Trial,
    place: &Place,
    address: &str,
    faults: Option<&str>,
) -> (Pair, [PathBuf; 2]) {
    let folder = trial.new_folder("pcap", place.user(), 0o755);
    let files = [folder.join("server.pcap"), folder.join("client.pcap")];
    let mut pair = Pair::at(place).gid_x(address, address).within(TIME);
    let options = |file: &PathBuf| RunOptions {
        faults: faults.map(str::to_owned),
        pcap: Some(file.clone()),
    };
    pair.server_options = options(&files[0]);
    pair.client_options = options(&files[1]);
    (pair, files)
}

fn clean_runs(trial: &Trial, user: User, address: &str, faults: Option<&str>) {
    let programs = [
        "ib_send_lat",
        "ib_send_bw",
        "ib_write_bw",
        "ib_read_bw",
        "ib_atomic_lat",
    ];
    if !can_check(trial, &programs) {
        return;
    }
    let Some(place) = trial.loopback(user) else {
        return;
    };
    for program in programs {
        let (pair, files) = capturing(trial, &place, address, faults);
        let (size, args): (u64, &[&str]) = match program {
            "ib_send_lat" => (2, &["-n", "100"]),
            "ib_atomic_lat" => (8, &["-n", "100"]),
            "ib_send_bw" => (1025, &["-s", "1025", "-n", "100", "-b"]),
            _ => (65536, &["-n", "20", "-q", "2"]),
        };
        let args: Vec<&str> = ["-F"].into_iter().chain(args.iter().copied()).collect();
        expect_report(program, &pair.run(program, &args), &[size]);
        for file in &files {
            let packets = expect_clean(file);
            assert!(
                packets >= 40,
                "only {packets} packets of {program} in {}",
                file.display()
            );
        }
    }
}

#[test]
fn every_packet_is_right_ipv4() {
    let trial = Trial::start_beside_others("every_packet_is_right_ipv4");
    clean_runs(&trial, User::Current, "127.0.0.1", None);
}

#[test]
#[ignore = "./test full"]
fn every_packet_is_right_ipv6_as_nobody() {
    let trial = Trial::start_beside_others("every_packet_is_right_ipv6_as_nobody");
    clean_runs(&trial, User::Nobody, "::1", None);
}

/// Loss, doubling and reordering change which packets there are, not what is in them.
#[test]
fn every_packet_is_right_with_faults() {
    let trial = Trial::start_beside_others("every_packet_is_right_with_faults");
    clean_runs(
        &trial,
        User::Current,
        "127.0.0.1",
        Some("drop=5%,reorder=5%,dup=1%"),
    );
}

/// The operations of a run can be read off its capture.
#[test]
fn operations_are_in_the_capture() {
    let trial = Trial::start_beside_others("operations_are_in_the_capture");
    if !can_check(&trial, &["ib_write_bw", "ib_read_bw", "ib_atomic_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    // Opcodes: WRITE FIRST and LAST, READ request and response FIRST, FETCH ADD and its answer.
    for (program, size, opcodes) in [
        ("ib_write_bw", 65536, [6, 8]),
        ("ib_read_bw", 65536, [12, 13]),
        ("ib_atomic_bw", 8, [20, 18]),
    ] {
        let (pair, files) = capturing(&trial, &place, "127.0.0.1", None);
        expect_report(program, &pair.run(program, &["-F", "-n", "20"]), &[size]);
        for opcode in opcodes {
            let found = tshark(&files[1], &format!("infiniband.bth.opcode == {opcode}")).len();
            assert!(
                found >= 20,
                "{found} packets with opcode {opcode} of {program}"
            );
        }
    }
}

/// Faults are injected between the NIC and the network, so the check has something to find.
#[test]
fn corruption_shows() {
    let trial = Trial::start_beside_others("corruption_shows");
    if !can_check(&trial, &["ib_write_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let (pair, files) = capturing(&trial, &place, "127.0.0.1", Some("corrupt=10%,seed=1"));
    expect_report(
        "ib_write_bw",
        &pair.run("ib_write_bw", &["-F", "-n", "50"]),
        &[65536],
    );
    let wrong: u64 = files.iter().map(|file| counts(&icrc_check(file)).1).sum();
    let all: u64 = files.iter().map(|file| counts(&icrc_check(file)).0).sum();
    assert!(
        wrong > 0 && wrong * 2 < all,
        "{wrong} of {all} packets with a wrong ICRC"
    );
}

/// `rnic dissect` of a lossy run's capture names what was lost and why packets came again: by NAKs
/// that tshark finds too.
#[test]
fn a_lossy_run_is_explained() {
    let trial = Trial::start_beside_others("a_lossy_run_is_explained");
    if !can_check(&trial, &["ib_write_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let (mut pair, files) = capturing(&trial, &place, "127.0.0.1", None);
    // What the server sees: after the loss.
    pair.client_options.faults = Some("drop=3%,seed=11".to_owned());
    let outcome = pair.run("ib_write_bw", &["-F", "-n", "100"]);
    expect_report("ib_write_bw", &outcome, &[65536]);
    let file = files[0].to_string_lossy();
    let dissect = |args: &[&str]| {
        let finished = place.finish(place.rnic(), [&["dissect", &file], args].concat());
        finished.expect_success();
        finished.stdout
    };
    let report: serde_json::Value =
        serde_json::from_str(&dissect(&["--json"])).expect("a JSON document");

    let naks = fields(
        &files[0],
        "infiniband.aeth.syndrome == 0x60",
        &["frame.number"],
    );
    let conversations = report["conversations"].as_array().expect("a list");
    let sides = || {
        let sides = |conversation: &serde_json::Value| conversation["sides"].clone();
        conversations
            .iter()
            .map(sides)
            .flat_map(|sides| [sides[0].clone(), sides[1].clone()])
    };
    let sum = |name: &str| -> u64 { sides().filter_map(|side| side[name].as_u64()).sum() };
    assert!(sum("repeated_packets") > 0, "{report}");
    let causes: Vec<String> = sides()
        .flat_map(|side| {
            side["retransmissions"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
        .filter_map(|again| again["cause"].as_str().map(str::to_owned))
        .collect();
    // Each begins with the packet that a NAK asked for, unless that was lost again.
    let asked: Vec<_> = causes
        .iter()
        .filter_map(|cause| cause.strip_prefix("NAK in packet "))
        .collect();
    assert!(
        !asked.is_empty() && 2 * asked.len() >= naks.len(),
        "{causes:?} {naks:?}"
    );
    for number in asked {
        assert!(naks.iter().any(|nak| nak == number), "{number} in {naks:?}");
    }
    let text = dissect(&[]);
    for words in [
        "is missing (NAK, PSN sequence error)",
        "NAK 0x60",
        "retransmission",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

/// Hop limit, DSCP and ECN are in the capture as they were on the wire, at both ends; and in the GRH
/// of a datagram's receive.
#[test]
fn marks_are_those_of_the_wire() {
    let name = "marks_are_those_of_the_wire";
    let trial = Trial::start_beside_others(name);
    let Some(program) = rnic_programs::compile::c_program(&trial, "hop") else {
        return;
    };
    if !skip::have_programs(name, &["tshark"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    for (address, ttl, class) in [
        ("127.0.0.1", "ip.ttl", "ip.dsfield"),
        ("::1", "ipv6.hlim", "ipv6.tclass"),
    ] {
        let gid = place.gid(address).index.to_string();
        let file = trial.folder().join(format!("{ttl}.pcap"));
        let mut command = place.command(place.rnic());
        command.arg("run").arg("--pcap").arg(&file);
        // 0x6b: DSCP 26, and ECN "congestion experienced".
        command.args(["--", program, &gid, "9", "107"]);
        let finished = Process::spawn(command).wait(TIME);
        finished.expect_success();
        assert_eq!(finished.stdout, "grh 9 107\n", "{address}");
        let marks = fields(&file, "infiniband", &[ttl, class]);
        // A datagram, a WRITE and its ACK, each sent and received.
        assert_eq!(marks.len(), 6, "{address}: {marks:?}");
        for line in &marks {
            assert!(
                matches!(&**line, "9\t0x6b" | "9\t0x0000006b" | "9\t107"),
                "{address}: {marks:?}"
            );
        }
        let mut command = place.command(place.rnic());
        command.arg("dissect").arg(&file);
        let finished = Process::spawn(command).wait(TIME);
        assert!(
            finished
                .stdout
                .contains("marked \"congestion experienced\""),
            "{}",
            finished.stdout
        );
    }
}
