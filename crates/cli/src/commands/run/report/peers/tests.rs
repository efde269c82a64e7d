//! What a peer's own run tells of it, and files that nobody should believe.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::super::{drops, why};
use super::*;
use crate::commands::run::scratch::Scratch;

const CLIENT: &str = r#"{"record":"process","process":1,"pid":11,"program":"client"}"#;
const SERVER: &str = r#"{"record":"process","process":2,"pid":22,"program":"server"}"#;

fn failure(status: u32, more: &str) -> String {
    format!(
        r#"{{"record":"failure","process":1,"ns":1000,"qpn":16,"local":"10.0.0.1","peer":"10.0.0.2","peer_qpn":32,
        "qp_type":"RC","queue":"send","first":true,"wr_id":7,"operation":"RDMA WRITE","status":{status},"vendor_err":1,
        "since_ns":500,"path_mtu":1024{more}}}"#
    )
    .replace('\n', "")
}

/// Status 12 after four tries in 400 ns.
fn silence(peer: &str, heard_ever: u32) -> String {
    failure(
        12,
        &format!(
            r#","peer_process":"{peer}","request":{{"length":64,"psn":9,"sent":true,"tries":4,"heard":0,
            "heard_ever":{heard_ever},"answered":false,"start_psn":5,"waited_ns":400}}"#
        ),
    )
}

fn of_peer(record: &str, ns: u64, more: &str) -> String {
    format!(
        r#"{{"record":"{record}","process":2,"ns":{ns},"qpn":32,"local":"10.0.0.2","peer":"10.0.0.1","peer_qpn":16{more}}}"#
    )
}

fn refusal(ns: u64) -> String {
    let of = r#","first":true,"operation":"RDMA WRITE","psn":5,"why":"unaligned""#;
    of_peer("refusal", ns, of)
}

fn connected(ns: u64, more: &str) -> String {
    of_peer("connected", ns, &format!(r#","qp_type":"RC"{more}"#))
}

/// A folder with the files of other runs.
struct Runs(Scratch);

impl Runs {
    fn new(name: &str) -> Runs {
        Runs(Scratch::new(name))
    }

    fn add(&self, name: &str, lines: &[&str]) -> PathBuf {
        let path = self.0.0.join(format!("{PREFIX}{name}"));
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    /// What the run with this failure says.
    fn told(&self, failure: &str) -> String {
        let own = self.0.0.join("own");
        std::fs::write(&own, [CLIENT, failure, ""].join("\n")).unwrap();
        let mut report = Report::read(File::open(&own).unwrap(), 0);
        report.look_at_others(std::slice::from_ref(&self.0.0), Some(&own));
        let status = ExitStatus::from_raw(0x100);
        let story = why::tell(&report, "client", status, false).expect("a failure");
        story.to_string()
    }
}

/// Promise: a refusal in another terminal is told as in the same one, and only if it is of this
/// connection.
#[test]
fn a_refusal_of_another_run_is_the_cause() {
    let runs = Runs::new("refusal");
    let cause = "cause: the remote address of an atomic must be a multiple of 8";
    let named = "the peer, server (pid 22), refused it";
    let failed = failure(9, "");
    assert!(!runs.told(&failed).contains("cause:"), "nobody tells");
    runs.add("a", &[SERVER, &refusal(900)]);
    let text = runs.told(&failed);
    assert!(text.contains(cause) && text.contains(named), "{text}");
    for (name, line) in [
        ("before the connection", refusal(400)),
        ("after the failure", refusal(1001)),
        (
            "another queue pair",
            refusal(900).replace(r#""qpn":32"#, r#""qpn":33"#),
        ),
        (
            "another peer",
            refusal(900).replace(r#""peer_qpn":16"#, r#""peer_qpn":17"#),
        ),
        (
            "another address",
            refusal(900).replace("10.0.0.2", "10.0.0.3"),
        ),
        (
            "no address",
            refusal(900).replace(r#""local":"10.0.0.2","#, ""),
        ),
        (
            "another process",
            refusal(900).replace(r#""process":2"#, r#""process":3"#),
        ),
    ] {
        runs.add("a", &[SERVER, &line]);
        let text = runs.told(&failed);
        assert!(!text.contains("cause:"), "{name}: {text}");
        assert!(text.contains("maybe:"), "{name}: {text}");
    }
}

/// Promise: of two that claim to be the peer neither is believed, and none speaks for this run's own
/// processes.
#[test]
fn who_claims_too_much_is_not_believed() {
    let runs = Runs::new("claims");
    let failed = failure(9, "");
    runs.add("a", &[SERVER, &refusal(900)]);
    let third = SERVER.replace(r#""process":2"#, r#""process":3"#);
    let its = refusal(900).replace(r#""process":2"#, r#""process":3"#);
    let second = runs.add("b", &[&third, &its]);
    assert!(!runs.told(&failed).contains("cause:"));
    std::fs::remove_file(second).unwrap();
    assert!(runs.told(&failed).contains("cause:"));
    let as_client = refusal(900).replace(r#""process":2"#, r#""process":1"#);
    runs.add("a", &[CLIENT, &as_client]);
    assert!(!runs.told(&failed).contains("cause:"));
}

/// Promise: what became of the peer is told by what its own run noted.
#[test]
fn what_became_of_the_peer_is_named() {
    let runs = Runs::new("became");
    let left = |how: &str, ns| of_peer("left", ns, &format!(r#","how":"{how}""#));
    let unheard = |cause: &str, more: &str| {
        format!(
            r#"{{"record":"unheard","process":2,"ns":650,"qpn":32,"cause":"{cause}","from":"10.0.0.1","to":"10.0.0.2"{more}}}"#
        )
    };
    let elsewhere = connected(510, "").replace(r#""peer_qpn":16"#, r#""peer_qpn":17"#);
    let of_uc = connected(510, "").replace("RC", "UC");
    let fits = connected(510, "");
    let cases: [(&[&str], &str); 9] = [
        (
            &[&fits, &left("destroyed", 550)],
            "cause: the peer, server (pid 22), had destroyed its queue pair",
        ),
        (
            &[&fits, &left("ERR", 550)],
            "cause: the peer, server (pid 22), had moved its queue pair to ERR",
        ),
        // So late that the first tries met it.
        (
            &[&fits, &left("destroyed", 950)],
            "maybe: server (pid 22) took its queue pair down",
        ),
        (
            &[&elsewhere],
            "is connected with 10.0.0.1 QP 0x11 and not with this one",
        ),
        (
            &[&of_uc],
            "is of type UC (ibv_create_qp), and this one of type RC",
        ),
        (
            &[&unheard("not ready", r#","state":"INIT""#)],
            "was in INIT: it takes packets from RTR on",
        ),
        (
            &[&unheard("unknown qpn", "")],
            "had no queue pair of that number",
        ),
        (&[&fits, &refusal(700)], "had failed itself before"),
        (&[&fits], "maybe: packets are lost on the way"),
    ];
    for (lines, words) in cases {
        runs.add("a", &[&[SERVER], lines].concat());
        let text = runs.told(&silence("alive", 0));
        assert!(text.contains(words), "no {words:?} in {text}");
        assert_ne!(text.contains("cause:"), text.contains("maybe:"), "{text}");
    }
    runs.add("a", &[SERVER, &fits]);
    let text = runs.told(&silence("gone", 0));
    assert!(
        text.contains("the peer process, server (pid 22), has ended"),
        "{text}"
    );
    let text = runs.told(&silence("elsewhere", 0));
    assert!(
        text.contains("the peer process, server (pid 22), has ended"),
        "{text}"
    );
}

/// Promise: a sender of UD is told what the receiver dropped, and nobody else is; whom a queue pair of
/// RC did not answer is told to its own run, if the two were never connected with each other.
#[test]
fn what_a_receiver_knows_is_told_where_it_matters() {
    let told = |own: &[&str], theirs: &[&str]| {
        let runs = Runs::new("receiver");
        runs.add("a", theirs);
        let path = runs.0.0.join("own");
        std::fs::write(&path, own.join("\n") + "\n").unwrap();
        let mut report = Report::read(File::open(&path).unwrap(), 0);
        report.look_at_others(std::slice::from_ref(&runs.0.0), Some(&path));
        drops::sentences(&report).join("\n")
    };
    let dropped = r#"{"record":"dropped","process":2,"ns":900,"qpn":32,"cause":"no receive","count":1,"src_qpn":16,
        "src_pid":11,"src_program":"client"}"#
        .replace('\n', "");
    let sends = r#"{"record":"connected","process":1,"ns":500,"qpn":16,"qp_type":"UD"}"#;
    let text = told(&[CLIENT, sends], &[SERVER, &dropped]);
    assert!(
        text.starts_with("at the peer: server (pid 22): QP 0x20 dropped 1 message"),
        "{text}"
    );
    for other in [
        dropped.replace(r#""src_pid":11"#, r#""src_pid":12"#),
        dropped.replace(r#""src_program":"client""#, r#""src_program":"other""#),
        dropped
            .replace(r#","src_pid":11"#, "")
            .replace(r#""src_program":"client""#, r#""x":1"#),
    ] {
        assert_eq!(told(&[CLIENT, sends], &[SERVER, &other]), "", "{other}");
    }
    let another = sends.replace(r#""qpn":16"#, r#""qpn":17"#);
    assert_eq!(told(&[CLIENT, &another], &[SERVER, &dropped]), "");

    // The server's own run: the client failed, and took the server's queue pair for its peer.
    let failed = silence("alive", 0);
    let elsewhere = connected(510, "").replace(r#""peer_qpn":16"#, r#""peer_qpn":17"#);
    let text = told(&[SERVER, &elsewhere], &[CLIENT, &failed]);
    assert!(
        text.contains(
            "server (pid 22): QP 0x20 answered no request of client (pid 11), 10.0.0.1 QP 0x10"
        ) && text.contains("it is connected with 10.0.0.1 QP 0x11"),
        "{text}"
    );
    let left = of_peer("left", 600, r#","how":"RESET""#);
    for lines in [
        &[SERVER, &connected(510, "")][..],
        &[SERVER, &connected(505, ""), &elsewhere],
        &[SERVER, &elsewhere, &left],
        &[SERVER, &elsewhere.replace("RC", "UC")],
        &[SERVER],
    ] {
        let text = told(lines, &[CLIENT, &failed]);
        assert!(!text.contains("answered no request"), "{lines:?}: {text}");
    }
}

/// Promise: a run that lives is not told as one that has ended.
#[test]
fn a_run_that_lives_has_not_ended() {
    let runs = Runs::new("lives");
    let path = runs.add("a", &[SERVER, &connected(510, "")]);
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    let text = runs.told(&silence("elsewhere", 0));
    assert!(
        text.contains("maybe:") && !text.contains("has ended:"),
        "{text}"
    );
    assert!(!text.contains("cause:"), "{text}");
}

/// Promise: nothing that lies there makes a report hang, panic, lead elsewhere or steer a terminal.
#[test]
fn strange_files_are_passed_over() {
    let runs = Runs::new("strange");
    let folder = runs.0.0.clone();
    let failed = failure(9, "");
    let path = |name: &str| folder.join(format!("{PREFIX}{name}"));
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, mode, 0).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    symlink("/dev/zero", path("zero")).unwrap();
    let outside = folder.join("outside");
    std::fs::write(&outside, [SERVER, &refusal(900), ""].join("\n")).unwrap();
    symlink(&outside, path("link")).unwrap();
    let sparse = File::create(path("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::fs::write(path("noise"), b"\xff\0{\n[[[[\n{\"record\":\"refusal\"}\n").unwrap();
    std::fs::write(path("deep"), "[".repeat(1 << 20)).unwrap();
    let long = SERVER.replace("server", &"x".repeat(MOST_OF_LINE));
    runs.add("long", &[&long, &refusal(900)]);
    assert!(!runs.told(&failed).contains("cause:"));

    let steering = SERVER.replace("server", r"\u001b[31m\u202ered\n");
    runs.add("steering", &[&steering, &refusal(900)]);
    let text = runs.told(&failed);
    assert!(
        text.contains("the peer, ?[31m?red? (pid 22), refused it"),
        "{text}"
    );
}

/// Promise: the longest that a peer can write is read in part, and numbers may be any.
#[test]
fn extreme_records_are_told_without_a_panic() {
    let runs = Runs::new("extreme");
    for number in [
        "0",
        "18446744073709551615",
        "9223372036854775808",
        "-1",
        "1e300",
        "null",
    ] {
        let memory = format!(
            r#","why":"access","operation":"x","first":true,"psn":5,"memory":{{"key":1,"addr":{number},"length":{number},
            "fault":"out of range","region":{{"addr":{number},"length":4,"access":"","same_pd":true}},
            "deregistered":{{"addr":{number},"length":{number},"ago_ns":{number}}}}}"#
        )
        .replace('\n', "");
        for fault in [
            "out of range",
            "unknown key",
            "no right",
            "other pd",
            "unmapped",
            "\u{7}",
        ] {
            let line = of_peer("refusal", 900, &memory.replace("out of range", fault));
            runs.add("a", &[SERVER, &line]);
            let text = runs.told(&failure(10, ""));
            assert!(!text.contains('\u{7}'), "{text}");
        }
        let left = of_peer("left", 0, r#","how":"ERR""#)
            .replace(r#""ns":0"#, &format!(r#""ns":{number}"#));
        runs.add("a", &[SERVER, &connected(0, ""), &left]);
        runs.told(&silence("alive", 0));
    }
}

/// Promise: a receiver tells of packets in its peer's name from a port that is not its peer's, and a
/// responder of READs whose requester has another path MTU. It does not of the same without that.
#[test]
fn what_a_responder_could_not_help_is_told() {
    let told = |own: &[&str], theirs: &[&str]| {
        let runs = Runs::new("responder");
        runs.add("a", theirs);
        let path = runs.0.0.join("own");
        std::fs::write(&path, own.join("\n") + "\n").unwrap();
        let mut report = Report::read(File::open(&path).unwrap(), 0);
        report.look_at_others(std::slice::from_ref(&runs.0.0), Some(&path));
        drops::sentences(&report).join("\n")
    };
    let forged = of_peer(
        "unheard",
        900,
        r#","cause":"other process","from":"10.0.0.1","to":"10.0.0.2","request":true"#,
    );
    let text = told(&[SERVER, &connected(510, ""), &forged], &[]);
    assert_eq!(
        text,
        "server (pid 22): QP 0x20 took no request from 10.0.0.1: it is connected with QP 0x10 there, and they came \
         from a UDP port that is not of the process which has it"
    );
    let answer = forged.replace(r#""request":true"#, r#""request":false"#);
    assert_eq!(told(&[SERVER, &connected(510, ""), &answer], &[]), "");

    let bad_response = failure(7, "");
    let text = told(
        &[SERVER, &connected(510, r#","path_mtu":4096"#)],
        &[CLIENT, &bad_response],
    );
    assert_eq!(
        text,
        "server (pid 22): QP 0x20 answered an RDMA READ of client (pid 11), 10.0.0.1 QP 0x10, which could not use the \
         answer (status 7): path_mtu is 4096 bytes here, and 1024 there. Set the smaller one on both sides \
         (ibv_modify_qp to RTR)"
    );
    for (own, theirs) in [
        // The same path MTU; one that is not known; connected only later; another failure.
        (connected(510, r#","path_mtu":1024"#), bad_response.clone()),
        (connected(510, ""), bad_response.clone()),
        (connected(1010, r#","path_mtu":4096"#), bad_response),
        (connected(510, r#","path_mtu":4096"#), failure(9, "")),
    ] {
        assert_eq!(told(&[SERVER, &own], &[CLIENT, &theirs]), "");
    }
}
