//! `rnic dissect` on the captures of Linux Soft-RoCE, with itself and with rnic: what it prints,
//! word for word, for the telling ones, and that it copes with all. The expected texts are in
//! `tests/dissect`; with RNIC_UPDATE=1 they are written anew, to be read in the diff.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Those with Linux at both ends.
fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures")
}

/// Those with Linux and rnic.
fn interop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/captures")
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".pcap"))
        .collect();
    names.sort();
    names
}

fn dissect_in(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rnic"))
        .arg("dissect")
        .args(args)
        .current_dir(folder)
        .output()
        .expect("rnic starts")
}

fn dissect(args: &[&str]) -> Output {
    dissect_in(&captures(), args)
}

#[track_caller]
fn text(args: &[&str]) -> String {
    text_in(&captures(), args)
}

#[track_caller]
fn text_in(folder: &Path, args: &[&str]) -> String {
    let output = dissect_in(folder, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    assert!(error.is_empty(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    json_in(&captures(), args)
}

fn json_in(folder: &Path, args: &[&str]) -> Value {
    let text = text_in(folder, &[&["--json"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// A private folder that removes itself.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rnic-dissect-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a folder");
        Scratch(dir)
    }

    /// A capture without the frames of these numbers.
    fn without(&self, name: &str, numbers: &[usize]) -> String {
        let file = format!("{name}.pcap");
        let bytes = fs::read(captures().join(&file)).unwrap();
        let (header, mut rest) = bytes.split_at(24);
        let mut kept = header.to_vec();
        for number in 1.. {
            let Some(len) = rest.get(8..12) else { break };
            let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
            let (record, behind) = rest.split_at(16 + len);
            if !numbers.contains(&number) {
                kept.extend_from_slice(record);
            }
            rest = behind;
        }
        let path = self.0.join(file);
        fs::write(&path, kept).unwrap();
        path.to_str().unwrap().into()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const GOLDEN: &[&str] = &[
    // Losses and their repair.
    "drop_send_mid_v4",
    "drop_send_last_v4",
    "drop_write_ack_v4",
    "drop_read_resp_first_v4",
    "drop_read_resp_mid_v4",
    "drop_atomic_ack_v4",
    // Not ready, refused, silent.
    "rc_rnr_v4",
    "rc_rnr_exc_v6",
    "rc_badrkey_v4",
    "rc_len_err_v4",
    "rc_timeout_exc_v4",
    // Reads and atomics.
    "rc_read_v4",
    "rc_atomic_v4",
    // The connection manager.
    "cm_rping_v4",
    "cm_private_v4",
    "cm_reject_v4",
    "cm_lost_rep_v4",
    "cm_lost_dreq_v4",
    "cm_req_retries_v4",
    "cm_slow_accept_v4",
    "cm_sidr_nolisten_v4",
    "cm_udaddy_v6",
    "cm_mckey_v4",
    // Unreliable services.
    "uc_v4",
    "ud_v4",
    // Wrong ICRCs.
    "probe_gso",
    "probe_ud",
    // What Linux answers to rnic, and rnic to Linux.
    "refusals_linux_v4",
    "refusals_rnic_v4",
];

#[test]
fn reports_are_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dissect");
    let mut wrong = Vec::new();
    for name in GOLDEN {
        let file = format!("{name}.pcap");
        let of_interop = interop().join(&file).exists();
        let from = if of_interop { interop() } else { captures() };
        let found = text_in(&from, &[&file]);
        let expected = folder.join(format!("{name}.txt"));
        if std::env::var_os("RNIC_UPDATE").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        let known = fs::read_to_string(&expected).unwrap_or_default();
        if known != found {
            wrong.push(format!("--- {name}, expected\n{known}\n+++ found\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nRNIC_UPDATE=1 writes them anew",
        wrong.join("\n")
    );
}

#[test]
fn every_capture_in_every_form() {
    let of_linux = names(&captures()).into_iter();
    let of_linux: Vec<_> = of_linux.map(|name| (captures(), name)).collect();
    assert!(of_linux.len() > 60);
    let of_both = names(&interop()).into_iter().map(|name| (interop(), name));
    for (folder, name) in of_linux.into_iter().chain(of_both) {
        let report = text_in(&folder, &[&name]);
        assert!(report.starts_with(&name), "{report}");
        let value = json_in(&folder, &[&name, "--packets"]);
        let packets = value["packets"].as_u64().unwrap();
        assert_eq!(
            value["packet_list"].as_array().unwrap().len() as u64,
            packets,
            "{name}"
        );
        let lines = text_in(&folder, &[&name, "--packets"]);
        let lines = lines.lines().take_while(|line| !line.is_empty()).count() as u64;
        assert_eq!(lines, packets, "{name}");
        for conversation in value["conversations"].as_array().unwrap() {
            for side in conversation["sides"].as_array().unwrap() {
                let messages = side["messages"].as_array().unwrap();
                assert_eq!(side["message_count"].as_u64(), Some(messages.len() as u64));
            }
        }
    }
}

#[test]
fn one_queue_pair_alone() {
    let report = text(&["rc_badrkey_v4.pcap", "--qp", "0x23d"]);
    let heads: Vec<_> = report
        .lines()
        .filter(|line| line.contains("  <->  "))
        .collect();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with("3. RC"), "{heads:?}");
    assert_eq!(
        json(&["rc_badrkey_v4.pcap", "--qp", "573"])["conversations"][0]["id"],
        3
    );
    assert_eq!(
        dissect(&["rc_badrkey_v4.pcap", "--qp", "0x1000000"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn a_queue_pair_that_is_not_there_is_said() {
    let report = text(&["rc_badrkey_v4.pcap", "--qp", "0x99"]);
    let expected = "no conversation of QP 0x99; there are 0x3b, 0x3c,";
    assert!(report.contains(expected), "{report}");
    let report = text(&["cm_reject_v4.pcap", "--qp", "5"]);
    assert!(report.contains("QP 0x5; there are none"), "{report}");
}

/// What happened to the connection cannot be told from one packet that the capture lacks: what
/// follows counts, too.
#[test]
fn a_reply_that_the_capture_lacks_is_no_silence() {
    let scratch = Scratch::new("no-rep");
    let path = scratch.without("cm_rping_v4", &[2]);
    let report = text(&[&path]);
    assert!(report.contains(": made and closed"), "{report}");
    let expected = "\n   . packet 1: B's answer to A's REQ, a REP, is not in the capture";
    assert!(report.contains(expected), "{report}");
    assert!(!report.contains("did not answer"), "{report}");
    // Without all that follows it is one.
    let path = scratch.without("cm_rping_v4", &(2..=17).collect::<Vec<_>>());
    let report = text(&[&path]);
    assert!(
        report.contains("A sent REQ once, B did not answer"),
        "{report}"
    );
}

/// A DREQ without an answer: whether the peer is gone, or only its answer is missing, the capture
/// does not show.
#[test]
fn a_disconnect_without_an_answer_is_left_open() {
    let scratch = Scratch::new("no-drep");
    let path = scratch.without("cm_rping_v4", &[17]);
    let report = text(&[&path]);
    let expected = "\n   ? packet 16: A sent DREQ once, B did not answer\n";
    assert!(report.contains(expected), "{report}");
}

/// Linux answers one of them with a REP: what is no message of the connection manager for us may be
/// one for others.
#[test]
fn no_answer_is_not_claimed_where_one_came() {
    let report = text(&["probe_cm.pcap"]);
    assert!(!report.contains("does not answer it"), "{report}");
    assert!(report.contains("may not answer it"), "{report}");
}

#[test]
fn standard_input_and_gzip() {
    let name = "drop_send_mid_v4.pcap";
    let bytes = fs::read(captures().join(name)).unwrap();
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(&bytes).unwrap();
    let zipped = zipped.finish().unwrap();
    let expected = text(&[name]).replace(name, "standard input");
    let piped = |bytes: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rnic"))
            .args(["dissect", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(piped(&bytes), expected);
    assert_eq!(piped(&zipped), expected);
    // Half of it is read as far as it goes.
    let half = piped(&zipped[..zipped.len() / 2]);
    assert!(half.contains("It was not read to its end"), "{half}");
}

/// ^C goes to both ends of `tcpdump -w - | rnic dissect -`: tcpdump ends, and what it captured is
/// reported. Whoever waits for nothing more presses it twice.
#[test]
fn an_interrupt_ends_the_capture_not_the_report() {
    use std::os::unix::process::ExitStatusExt;
    let bytes = fs::read(captures().join("rc_send_v4.pcap")).unwrap();
    let interrupted = |times: usize| {
        // Also where this test runs in the background of a shell, which has it ignored.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_rnic")])
            .args(["dissect", "--packets", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes).unwrap();
        // It has read so far, and shows it at once.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        out.read_line(&mut text).unwrap();
        assert!(text.contains("SEND Only"), "{text}");
        let id = child.id();
        let catches = || {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 1 << (2 - 1) != 0
        };
        for _ in 0..times {
            let sent = Command::new("kill")
                .args(["-INT", &id.to_string()])
                .status();
            assert!(sent.unwrap().success());
            // Two at once would be one: the first one has been taken.
            let deadline = Instant::now() + Duration::from_secs(60);
            while catches() {
                assert!(Instant::now() < deadline, "the first SIGINT does nothing");
                std::thread::yield_now();
            }
        }
        if times < 2 {
            drop(stdin);
        }
        out.read_to_string(&mut text).unwrap();
        (text, child.wait().unwrap())
    };
    let (text, status) = interrupted(1);
    assert!(status.success(), "{status}");
    assert!(text.contains("1. RC"), "{text}");
    let (text, status) = interrupted(2);
    assert_eq!(status.signal(), Some(2), "{text}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let scratch = Scratch::new("unreadable");
    let text = scratch.0.join("text.pcap");
    fs::write(&text, "this is no capture").unwrap();
    for (path, words) in [
        (text.to_str().unwrap(), "neither a pcap nor a pcapng file"),
        ("/no/such/file.pcap", "No such file"),
    ] {
        let output = dissect(&[path]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(words) && error.contains("next:"), "{error}");
    }
}

/// Opcodes and PSNs are what tshark reads in the same file.
#[test]
fn tshark_reads_the_same() {
    if Command::new("tshark").arg("-v").output().is_err() {
        rnic_skip::skipped("tshark_reads_the_same", "tshark is not installed");
        return;
    }
    for name in [
        "drop_read_resp_mid_v4.pcap",
        "rc_rnr_v4.pcap",
        "cm_rping_v4.pcap",
        "uc_v4.pcap",
        "ud_v4.pcap",
        "probe_rc.pcap",
    ] {
        let output = Command::new("tshark")
            .args(["-n", "-r", name, "-Y", "infiniband.bth", "-T", "fields"])
            .args(["-e", "frame.number", "-e", "infiniband.bth.opcode"])
            .args(["-e", "infiniband.bth.psn", "-e", "infiniband.bth.destqp"])
            .current_dir(captures())
            .output()
            .unwrap();
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        };
        let theirs: Vec<Vec<u64>> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.split('\t').map(number).collect())
            .collect();
        let value = json(&[name, "--packets"]);
        let ours: Vec<Vec<u64>> = value["packet_list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|packet| {
                let field = |name: &str| packet[name].as_u64().unwrap();
                ["number", "opcode", "psn", "dest_qp"].map(field).to_vec()
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
    }
}
