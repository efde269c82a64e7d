//! Reports of captures that are made here, or that Linux Soft-RoCE was recorded in.

#[allow(dead_code, reason = "the tests of rnic-dissect use all of it")]
#[path = "../../../../dissect/tests/support/made.rs"]
mod made;

use std::fs;
use std::path::PathBuf;

use clap::Parser;
use made::*;
use serde_json::Value;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn recorded(name: &str) -> PathBuf {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    captures.join(name).with_extension("pcap")
}

/// A file of its own, which removes itself.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let name = format!("rnic-dissect-unit-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What is printed, and whether it is a success.
fn run_on(path: &Path, args: &[&str]) -> (String, Result<()>) {
    let line = ["dissect", path.to_str().unwrap()];
    let line = Line::parse_from(line.iter().chain(args));
    let mut out = Vec::new();
    let result = run(&line.args, &mut out);
    (String::from_utf8(out).unwrap(), result)
}

#[track_caller]
fn text(path: &Path, args: &[&str]) -> String {
    let (text, result) = run_on(path, args);
    result.unwrap();
    text
}

#[track_caller]
fn json(path: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&text(path, &[&["--json"], args].concat())).unwrap()
}

/// The data of the page.
#[track_caller]
fn page(path: &Path, args: &[&str]) -> Value {
    let out = path.file_name().unwrap().to_str().unwrap();
    let out = Temporary::new(&format!("{out}-page"), b"");
    text(path, &[&["--html", out.0.to_str().unwrap()], args].concat());
    let page = fs::read_to_string(&out.0).unwrap();
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap();
    list.iter().map(|value| value.as_str().unwrap()).collect()
}

fn numbers(list: &Value, field: &str) -> Vec<u64> {
    let list = list.as_array().unwrap();
    let of = |value: &Value| value[field].as_u64().unwrap();
    list.iter().map(of).collect()
}

#[test]
fn a_connection_without_data_is_in_the_page() {
    for (name, result, severity) in [
        ("cm_rej_nolisten_v4", "rejected", "failed"),
        ("cm_req_retries_v4", "no answer", "failed"),
        ("cm_sidr_nolisten_v4", "refused", "failed"),
    ] {
        let data = page(&recorded(name), &[]);
        assert_eq!(data["conversations"].as_array().unwrap().len(), 0);
        let [one] = &data["connections"].as_array().unwrap()[..] else {
            panic!("{name}")
        };
        let title = one["title"].as_str().unwrap();
        assert!(title.contains(result), "{title}");
        let about = strings(&one["about"]);
        assert!(
            about.iter().any(|line| line.contains("packet 1")),
            "{about:?}"
        );
        assert_eq!(one["findings"][0]["severity"], severity);
        // All of its packets are there, with their names.
        let id = one["id"].as_i64();
        for packet in data["packets"].as_array().unwrap() {
            assert_eq!(packet[2].as_i64(), id, "{packet}");
            assert!(!packet[12].as_str().unwrap().is_empty(), "{packet}");
        }
        // The same in the other forms.
        let value = json(&recorded(name), &[]);
        assert_eq!(value["connections"][0]["findings"][0]["severity"], severity);
        assert!(text(&recorded(name), &[]).contains("\n   ! packet"));
    }
}

#[test]
fn the_page_says_what_the_capture_lacks() {
    let whole = fs::read(recorded("probe_ud")).unwrap();
    let cut = Temporary::new("cut", &whole[..whole.len() - 3]);
    let out = Temporary::new("cut-page", b"");
    let (text, result) = run_on(&cut.0, &["--html", out.0.to_str().unwrap()]);
    // What was read is there all the same.
    assert!(text.contains("It was not read to its end") && text.contains("1. UD"));
    let failure = result.expect_err("a file without its end");
    assert_eq!(failure.status, 1);
    assert!(failure.to_string().contains("ends within a record"));
    let page = fs::read_to_string(&out.0).unwrap();
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let about = strings(&data["about"]).join("\n");
    for words in ["not read to its end", "ICRC: wrong in", "left out"] {
        assert_eq!(about.contains(words), text.contains(words), "{about}");
    }
    assert!(about.contains("not read to its end") && about.contains("ICRC: wrong in"));
    assert!(data["more_findings"].is_u64() && data["conversations"][0]["more_findings"].is_u64());
}

/// Steps of the connection manager are part of their conversation's entry, the REQ too, which came
/// before it.
#[test]
fn the_page_has_the_steps_of_a_connection() {
    let data = page(&recorded("cm_rping_v4"), &[]);
    let about = strings(&data["conversations"][0]["about"]);
    assert!(
        about.iter().any(|line| line.contains("REQ      packet 1")),
        "{about:?}"
    );
    let alone = data["packets"].as_array().unwrap().iter();
    assert_eq!(alone.filter(|packet| packet[2] == -1).count(), 0);
    assert_eq!(data["packets"][0][12], "CM REQ");
}

/// Packets of the connection manager are called by its messages, and the page tells what each of
/// these is and said.
#[test]
fn the_page_names_the_connection_managers_messages() {
    let data = page(&recorded("cm_rping_v4"), &[]);
    let names = strings(&data["opcodes"]);
    for name in ["CM REQ", "CM REP", "CM RTU", "CM DREQ", "CM DREP"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for packet in data["packets"].as_array().unwrap() {
        let name = names[packet[4].as_u64().unwrap() as usize];
        let place = packet[12].as_str().unwrap();
        assert_eq!(name.starts_with("CM "), place.starts_with("CM "), "{name}");
        if let Some(message) = name.strip_prefix("CM ") {
            assert_eq!(packet[14]["cm"], message);
            let known = data["messages"].as_array().unwrap();
            assert!(known.iter().any(|known| known["key"] == message));
        }
    }
    let said = &data["conversations"][0]["cm"];
    let req = strings(&said["REQ"]).join(" ");
    assert!(req.contains("path MTU 1024"), "{req}");
    let rejected = page(&recorded("cm_rej_nolisten_v4"), &[]);
    let said = strings(&rejected["connections"][0]["cm"]["REJ"]).join(" ");
    assert!(said.contains("reason 8"), "{said}");
    let lines = text(&recorded("cm_rping_v4"), &["--packets"]);
    for name in ["CM REQ", "CM REP", "CM RTU", "CM DREQ", "CM DREP"] {
        assert_eq!(
            lines.matches(&format!("  UD {name} ")).count(),
            1,
            "{lines}"
        );
    }
}

/// Two conversations, whose packets alternate; the answers of the second come at its end.
fn two() -> Vec<Owned> {
    let mut made = Made::default();
    for psn in 0..4 {
        made.a(SEND_ONLY, psn, &[], 8);
        made.b(ACKNOWLEDGE, psn, &aeth(ACK), 0);
    }
    let mut other = made.frames.clone();
    for frame in &mut other {
        // The last byte of the QPN, of source and destination address: 0x11 and 0x22 become 0x19
        // and 0x2a.
        frame.bytes[14 + 20 + 8 + 7] += 8;
        frame.bytes[14 + 15] += 8;
        frame.bytes[14 + 19] += 8;
        frame.time_ns += 1000;
    }
    let (requests, answers): (Vec<_>, Vec<_>) =
        other.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let late = answers.into_iter().map(|(_, mut frame)| {
        frame.time_ns += 1_000_000;
        frame
    });
    let mut all = made.frames;
    all.extend(requests.into_iter().map(|(_, frame)| frame));
    all.extend(late);
    all.sort_by_key(|frame| frame.time_ns);
    all
}

/// A request names its receiver alone: which queue pair sent it, its answer shows.
#[test]
fn packets_of_a_queue_pair_are_those_of_both_directions() {
    let capture = Temporary::new("two", &pcap(&two()));
    let all = json(&capture.0, &["--packets"]);
    for qp in ["0x11", "0x22", "0x19", "0x2a"] {
        let id = 1 + u64::from(["0x19", "0x2a"].contains(&qp));
        let of = |packet: &&Value| packet["conversation"].as_u64() == Some(id);
        let list = all["packet_list"].as_array().unwrap().iter();
        let expected: Vec<_> = list.filter(of).cloned().collect();
        assert_eq!(expected.len(), 8);
        let value = json(&capture.0, &["--packets", "--qp", qp]);
        assert_eq!(value["packet_list"], Value::Array(expected.clone()), "{qp}");
        assert_eq!(numbers(&value["conversations"], "id"), [id]);
        let data = page(&capture.0, &["--qp", qp]);
        assert_eq!(data["packets"].as_array().unwrap().len(), 8);
        let lines = text(&capture.0, &["--packets", "--qp", qp]);
        let lines = lines.lines().take_while(|line| !line.is_empty());
        let shown: Vec<_> = lines
            .map(|line| {
                line.split_whitespace()
                    .next()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            })
            .collect();
        let named: Vec<_> = expected
            .iter()
            .map(|packet| packet["number"].as_u64().unwrap())
            .collect();
        assert_eq!(shown, named, "{qp}");
    }
    let none = json(&capture.0, &["--packets", "--qp", "0x33"]);
    assert_eq!(none["packet_list"], serde_json::json!([]));
}

/// Connections are those of the conversations, and such that never had one but name the queue pair.
#[test]
fn connections_of_a_queue_pair() {
    let value = json(&recorded("cm_rping_v4"), &[]);
    let qpn = value["conversations"][0]["ends"][1]["qpn"].to_string();
    let shown = json(&recorded("cm_rping_v4"), &["--qp", &qpn]);
    assert_eq!(shown["connections"], value["connections"]);
    let none = json(&recorded("cm_rping_v4"), &["--qp", "1"]);
    assert_eq!(none["connections"], serde_json::json!([]));
    let rejected = json(&recorded("cm_rej_nolisten_v4"), &[]);
    let words = rejected["connections"][0]["parameters"][0]
        .as_str()
        .unwrap();
    let qpn = words
        .strip_prefix("REQ: QP ")
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    let report = text(&recorded("cm_rej_nolisten_v4"), &["--qp", qpn]);
    assert!(report.contains("B rejected the request"), "{report}");
    assert!(!report.contains("no conversation of QP"), "{report}");
}

/// Packets of other queue pairs take no room from those that are asked for.
#[test]
fn the_limit_of_packets_counts_those_that_are_shown() {
    let mut made = Made::default();
    for psn in 0..KEPT_PACKETS as u32 + 10 {
        made.a(SEND_ONLY, psn, &[], 8);
    }
    let mut all = made.frames;
    let answered = two();
    let later = all.last().unwrap().time_ns;
    all.extend(
        answered
            .into_iter()
            .filter(|frame| frame.bytes[14 + 19] > 8)
            .map(|mut frame| {
                frame.time_ns += later;
                frame
            }),
    );
    let capture = Temporary::new("limit", &pcap(&all));
    let value = json(&capture.0, &["--packets", "--qp", "0x2a"]);
    assert_eq!(value["more_packets"], 0);
    assert_eq!(value["packet_list"].as_array().unwrap().len(), 8);
    // The page has the messages that begin with its packets, and says so.
    let data = page(&capture.0, &["--qp", "0x22"]);
    assert_eq!(data["more_packets"], 10);
    assert_eq!(data["packets"].as_array().unwrap().len(), KEPT_PACKETS);
    let data = page(&capture.0, &[]);
    assert_eq!(data["more_packets"], 18);
    let behind = &data["conversations"][1];
    assert_eq!(behind["messages"], serde_json::json!([]));
    let about = strings(&behind["about"]);
    assert!(
        about
            .iter()
            .any(|line| line.starts_with("0 messages are in this page")),
        "{about:?}"
    );
}

#[test]
fn a_read_that_is_answered_in_part_says_how_far() {
    let mut made = Made::default();
    made.a(READ, 0, &reth(1 << 20), 0);
    made.b(RESPONSE_FIRST, 0, &aeth(ACK), 1024);
    (1..700).for_each(|psn| made.b(RESPONSE_MIDDLE, psn, &[], 1024));
    let capture = Temporary::new("part", &pcap(&made.frames));
    let report = text(&capture.0, &[]);
    let said = "answered up to response 700 of 1024, the last one is packet 701";
    assert_eq!(report.matches(said).count(), 2, "{report}");
    assert!(!report.contains("no answer"), "{report}");
    let value = json(&capture.0, &[]);
    let message = &value["conversations"][0]["sides"][0]["messages"][0];
    assert_eq!(message["answered"], 700);
    assert_eq!(message["answered_bytes"], 700 * 1024);
}

#[test]
fn an_empty_file_is_said_to_be_one() {
    let empty = Temporary::new("empty", b"");
    let (text, result) = run_on(&empty.0, &[]);
    let failure = result.expect_err("no capture").to_string();
    assert!(
        text.is_empty() && failure.contains(" is empty"),
        "{failure}"
    );
    assert!(failure.contains("never opened rnic0"), "{failure}");
    // A capture in which nothing was sent is one.
    let nothing = Temporary::new("nothing", &pcap(&[]));
    assert!(self::text(&nothing.0, &[]).contains("0 packets of RoCEv2"));
}

#[test]
fn the_format_for_machines_is_regular() {
    let nothing = Temporary::new("regular", &pcap(&[]));
    let value = json(&nothing.0, &["--packets"]);
    assert_eq!(value["version"], 1);
    assert_eq!(value["packet_list"], serde_json::json!([]));
    assert_eq!(value["more_packets"], 0);
    let out = Temporary::new("regular-page", b"");
    let value = json(
        &recorded("rc_send_v4"),
        &["--html", out.0.to_str().unwrap()],
    );
    assert!(value.get("packet_list").is_none() && value.get("more_packets").is_none());
    // All numbers count from 1.
    let value = json(&recorded("cm_rping_v4"), &[]);
    assert_eq!(value["conversations"][0]["connection"], 1);
    assert_eq!(value["connections"][0]["id"], 1);
    assert_eq!(value["connections"][0]["conversation"], 1);
    for (name, kind) in [
        ("drop_send_mid_v4", "nak"),
        ("drop_send_last_v4", "timeout"),
        ("rc_rnr_v4", "rnr"),
    ] {
        let value = json(&recorded(name), &[]);
        let side = &value["conversations"][0]["sides"][0];
        assert_eq!(side["retransmissions"][0]["cause_kind"], kind);
    }
}

/// Nobody knows whether a message that has no answer when the capture ends was repaired: it has a
/// mark of its own, in all forms.
#[test]
fn what_the_capture_leaves_open_has_a_mark_of_its_own() {
    let mut made = Made::default();
    made.a(SEND_ONLY, 0, &[], 8);
    made.b(ACKNOWLEDGE, 0, &aeth(ACK), 0);
    made.a(SEND_ONLY, 1, &[], 8);
    let capture = Temporary::new("open", &pcap(&made.frames));
    let report = text(&capture.0, &[]);
    let said = "\n   ? packet 3: A's message 2 (SEND, 8 B) has no answer when the capture ends, 0 ns later\n";
    assert!(report.contains(said), "{report}");
    let finding = &json(&capture.0, &[])["conversations"][0]["findings"][0];
    assert_eq!(finding["severity"], "open");
    let page = page(&capture.0, &[]);
    assert_eq!(page["conversations"][0]["findings"][0]["severity"], "open");
}

/// The same in the help, in the document, and in the page.
#[test]
fn all_marks_are_explained() {
    let mut line = <Line as clap::CommandFactory>::command();
    let help = line.render_long_help().to_string();
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dissect.md");
    let document = fs::read_to_string(document).unwrap();
    let capture = Temporary::new("marks", &pcap(&[]));
    let page = page(&capture.0, &[]);
    for severity in rnic_dissect::Severity::ALL {
        let words::Degree {
            mark,
            name,
            meaning,
        } = words::degree(severity);
        assert!(help.contains(&format!("\n  {mark}  {meaning}\n")), "{help}");
        assert!(document.contains(&format!("\n| `{mark}` | {meaning} |\n")));
        assert!(document.contains(&format!("`{name}`")), "{name}");
        let degrees = page["degrees"].as_array().unwrap();
        let legend = serde_json::json!([name, mark, meaning]);
        assert!(degrees.contains(&legend), "{degrees:?}");
    }
}

/// What is not shown is counted, also what was never kept.
#[test]
fn messages_that_were_not_kept_are_said() {
    let mut made = Made::default();
    let kept = Limits::default().messages;
    for psn in 0..kept as u32 + 7 {
        made.a(SEND_ONLY, psn, &[], 8);
    }
    let capture = Temporary::new("many", &pcap(&made.frames));
    let report = |n: &str| text(&capture.0, &["--messages", n]);
    let line = |report: String| {
        report
            .lines()
            .find(|line| line.contains(" more ("))
            .unwrap()
            .trim()
            .to_owned()
    };
    let expected =
        "... and 99995 more (--messages N shows N, --json the first 100000, which are kept)";
    assert_eq!(line(report("12")), expected);
    assert_eq!(
        line(report("100000")),
        "... and 7 more (the first 100000 are kept)"
    );
    assert_eq!(
        line(report("200000")),
        "... and 7 more (the first 100000 are kept)"
    );
}

#[test]
fn one_is_not_many() {
    for (shared, words) in [
        (2, "with 1 other"),
        (12, "with 11 others"),
        (22, "with 21 others"),
    ] {
        let mut made = Made::default();
        (0..shared).for_each(|psn| made.a(SEND_ONLY, psn, &[], 8));
        made.b(ACKNOWLEDGE, shared - 1, &aeth(ACK), 0);
        let capture = Temporary::new(&format!("shared-{shared}"), &pcap(&made.frames));
        let report = text(&capture.0, &["--messages", "1"]);
        assert!(report.contains(&format!(", {words}\n")), "{report}");
    }
    let report = text(&recorded("cm_mckey_v4"), &[]);
    assert!(report.contains("ICRC: right in 1 packet\n"), "{report}");
    let mut dissector = Dissector::new(Limits::default());
    source::read(&recorded("rc_send_v4"), |what| {
        if let Read::Frame(frame) = what {
            dissector.frame(frame, |_, _| {});
        }
        Ok(())
    })
    .unwrap();
    let mut capture = dissector.finish().capture;
    for (n, words) in [
        (1, "1 other queue pair waited"),
        (2, "2 other queue pairs waited"),
    ] {
        let conversation = &mut capture.conversations[0];
        if let rnic_dissect::Pairing::Inferred { others, .. } = &mut conversation.pairing {
            *others = n;
        }
        let said = phrases::pairing(conversation);
        assert!(said.contains(words), "{said}");
    }
}

/// Whoever forgets the page's name names the capture in its place.
#[test]
fn a_page_replaces_nothing_but_a_page() {
    let capture = fs::read(recorded("rc_read_v4")).unwrap();
    let file = Temporary::new("kept", &capture);
    let page_to = |out: &Path| run_on(&file.0, &["--html", out.to_str().unwrap()]).1;
    for old in [&capture[..], b"<p>", b"# notes"] {
        let out = Temporary::new("out", old);
        assert_eq!(page_to(&out.0).unwrap_err().status, 2);
        assert_eq!(fs::read(&out.0).unwrap(), old, "as it was");
    }
    assert!(page_to(&file.0).is_err());
    assert_eq!(fs::read(&file.0).unwrap(), capture);
    for old in [&b""[..], b"<!doctype HTML><p>old"] {
        let out = Temporary::new("out", old);
        page_to(&out.0).unwrap();
        let page = fs::read(&out.0).unwrap();
        assert!(page.starts_with(html::START.as_bytes()));
    }
    assert!(page_to(Path::new("-")).is_err());
}
