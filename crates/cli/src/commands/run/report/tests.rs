use std::os::unix::process::ExitStatusExt;

use super::*;

/// A report of lines as the NIC writes them; the two processes are there.
fn report(lines: &[&str]) -> Report {
    let mut report = Report::default();
    for line in [
        r#"{"record":"process","process":1,"pid":11,"program":"client"}"#,
        r#"{"record":"opened","process":1,"ns":1}"#,
        r#"{"record":"process","process":2,"pid":22,"program":"server"}"#,
        r#"{"record":"opened","process":2,"ns":1}"#,
        r#"{"record":"of the future","process":2,"ns":1,"what":[1]}"#,
    ]
    .iter()
    .chain(lines)
    {
        report.add(serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")));
    }
    report.finish();
    report
}

fn failure(status: u32, ns: u64, more: &str) -> String {
    format!(
        r#"{{"record":"failure","process":1,"ns":{ns},"qpn":16,"local":"10.0.0.1","peer":"10.0.0.2","peer_qpn":32,
        "qp_type":"RC","queue":"send","first":true,"wr_id":7,"operation":"RDMA WRITE","status":{status},"vendor_err":1
        {more}}}"#
    )
}

fn refusal(why: &str, ns: u64, more: &str) -> String {
    format!(
        r#"{{"record":"refusal","process":2,"ns":{ns},"qpn":32,"local":"10.0.0.2","peer":"10.0.0.1","peer_qpn":16,
        "first":true,"operation":"RDMA WRITE","psn":5,"why":"{why}"{more}}}"#
    )
}

fn request(tries: u32, heard: u64, heard_ever: u64) -> String {
    format!(
        r#","request":{{"length":64,"psn":9,"sent":true,"tries":{tries},"heard":{heard},"heard_ever":{heard_ever},
        "answered":{},"start_psn":5,"waited_ns":4300000000,"remote_addr":4096,"rkey":255}}"#,
        heard_ever > heard
    )
}

/// The peer's queue pair, or that of this side.
fn connected(process: u32, ns: u64, more: &str) -> String {
    let ends = match process {
        1 => r#""qpn":16,"local":"10.0.0.1","peer":"10.0.0.2","peer_qpn":32"#,
        _ => r#""qpn":32,"local":"10.0.0.2","peer":"10.0.0.1","peer_qpn":16"#,
    };
    format!(r#"{{"record":"connected","process":{process},"ns":{ns},{ends},"qp_type":"RC"{more}}}"#)
}

fn told(report: &Report) -> String {
    why::tell(report, "client", ExitStatus::from_raw(0x100), false)
        .map(|story| story.to_string())
        .unwrap_or_default()
}

#[track_caller]
fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// It says which memory was where, and what programs refused.
#[test]
fn the_report_is_for_nobody_else() {
    use std::os::unix::fs::MetadataExt;
    let runtime = std::env::temp_dir().join(format!("rnic-report-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&runtime);
    std::fs::create_dir(&runtime).unwrap();
    let collector = Collector::new(&runtime).unwrap();
    let mode = std::fs::metadata(&collector.file).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(collector);
    std::fs::remove_dir_all(&runtime).unwrap();
}

/// A queue pair whose peer is itself expects what it was told as `rq_psn`, which the peer's side chose.
#[test]
fn a_loop_is_told_before_psns_that_differ() {
    let more = request(8, 3, 3).replace(
        r#""start_psn":5"#,
        r#""start_psn":999,"peer_expects_psn":100"#,
    );
    let line = failure(12, 8, &format!(r#"{more},"peer_process":"alive""#));
    let line = line.replace(r#""peer":"10.0.0.2""#, r#""peer":"10.0.0.1""#);
    let line = line.replace(r#""peer_qpn":32"#, r#""peer_qpn":16"#);
    let text = told(&report(&[&line]));
    expect(
        &text,
        &[
            "connected with itself, as its dest_qp_num is its own number",
            "give the number of the peer's queue pair as dest_qp_num",
        ],
    );
    assert!(!text.contains("rq_psn there"), "{text}");
}

/// Nothing was lost: one side counts from another PSN. Its own side of the run or the peer's says so.
#[test]
fn start_psns_that_differ_are_named() {
    let here = request(8, 3, 3).replace(
        r#""start_psn":5"#,
        r#""start_psn":999,"peer_expects_psn":100"#,
    );
    let dropped = r#"{"record":"dropped","process":2,"ns":9,"qpn":32,"local":"10.0.0.2","peer":"10.0.0.1","peer_qpn":16,
        "cause":"start psn","count":12,"psn":999,"expected_psn":100}"#;
    let there = request(8, 3, 3).replace(r#""start_psn":5"#, r#""start_psn":999"#);
    for (more, lines) in [(here, &[][..]), (there, &[dropped][..])] {
        let line = failure(12, 8, &format!(r#"{more},"peer_process":"alive""#));
        let text = told(&report(&[&[&*line][..], lines].concat()));
        expect(
            &text,
            &[
                "no request of this connection was ever acknowledged",
                "the peer expects PSN 0x64, this side began at 0x3e7",
                "rq_psn there must be sq_psn here",
            ],
        );
        assert!(
            !text.contains("lost on the way") && !text.contains("earlier"),
            "{text}"
        );
        if !lines.is_empty() {
            expect(
                &text,
                &["server (pid 22): QP 0x20 took no request at all: 12 requests came"],
            );
        }
    }
}

/// What a service may drop is said, with the numbers that do not fit, once for each cause.
#[test]
fn silent_drops_are_told_by_cause() {
    let line = |qpn: u32, count: u64, cause: &str| {
        format!(
            r#"{{"record":"dropped","process":2,"ns":9,"qpn":{qpn},"cause":"{cause}","count":{count},"qkey":34,"own_qkey":17,
            "src_qpn":16,"room":10,"length":1,"path_mtu":1024}}"#
        )
    };
    for (cause, words) in [
        (
            "wrong q_key",
            "Q_Key 0x22 of QP 0x10 is not the queue pair's, 0x11",
        ),
        ("no receive", "no receive was posted"),
        (
            "too long",
            "room for 10 bytes, the message is longer: 1 byte or more",
        ),
        ("access", "do not allow the RDMA WRITE"),
        ("incomplete", "lost or overtaken"),
        ("packet length", "and path_mtu here is 1024"),
        ("malformed", "opcode or length"),
    ] {
        // The second line of a queue pair has the whole number.
        let lines = [line(32, 1, cause), line(32, 4, cause), line(33, 1, cause)];
        let report = report(&lines.each_ref().map(|line| &**line));
        let sentences = drops::sentences(&report);
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        expect(
            &sentences[0],
            &["server (pid 22): 2 queue pairs", "dropped 5 ", words],
        );
        // It is what there is to say of a program that failed without a failed work request.
        let text = told(&report);
        expect(&text, &["no work request had failed", words]);
        assert!(!text.contains("saw no refused call"), "{text}");
    }
    let one = drops::sentences(&report(&[&line(32, 1, "no receive")]));
    expect(&one[0], &["QP 0x20 dropped 1 message without a word"]);
}

/// A datagram above the MTU is the sender's own mistake: no receive is involved.
#[test]
fn a_datagram_above_the_mtu_is_told_by_the_mtu() {
    let more = r#","request":{"length":4097,"longest":4096,"psn":0,"sent":false,"tries":0,"heard":0,"heard_ever":0,
        "waited_ns":0}"#;
    let line = failure(1, 8, more).replace(
        r#""vendor_err":1"#,
        &format!(
            r#""vendor_err":{}"#,
            rnic_nic::vendor_err::DATAGRAM_TOO_LONG
        ),
    );
    let text = told(&report(&[&line]));
    expect(
        &text,
        &["one packet, of 4096 bytes at most", "this one has 4097"],
    );
    assert!(!text.contains("receive buffer"), "{text}");
}

#[test]
fn silence_has_several_causes() {
    for (peer, heard, ever, cause) in [
        ("gone", 0, 0, "maybe: a wrong QPN"),
        ("gone", 0, 9, "cause: the peer process has ended"),
        ("alive", 0, 0, "maybe: its queue pair is not in RTR yet"),
        (
            "alive",
            0,
            9,
            "maybe: its queue pair was destroyed, reset, or is in ERR",
        ),
        ("own, not connected", 0, 9, "of this very process"),
        ("elsewhere", 0, 0, "or a firewall drops UDP port 4791"),
        ("elsewhere", 0, 9, "its queue pair is destroyed"),
        ("elsewhere", 3, 9, "maybe: packets are lost on the way"),
    ] {
        let more = format!(r#"{},"peer_process":"{peer}""#, request(8, heard, ever));
        let text = told(&report(&[&failure(12, 5, &more)]));
        expect(
            &text,
            &[
                "client (pid 11): 10.0.0.1 QP 0x10 -> 10.0.0.2 QP 0x20: work request 7 (RDMA WRITE)",
                "status 12 (transport retry counter exceeded)",
                "PSN 0x000009 was sent 8 times in 4.3 s",
                cause,
                "rnic explain 12",
            ],
        );
        // What is not known is no cause.
        assert_eq!(
            text.contains("cause:"),
            !cause.starts_with("maybe:") && !text.contains("maybe:"),
            "{text}"
        );
    }
}

/// What a router said is told, but is no proof.
#[test]
fn what_icmp_said_of_the_way_is_told() {
    let silence = request(8, 0, 0);
    let said = format!(r#"{silence},"peer_process":"elsewhere","path_bytes":1400"#);
    let text = told(&report(&[&failure(12, 5, &said)]));
    expect(
        &text,
        &[
            "takes IP packets of 1400 bytes",
            "give the interface that MTU",
        ],
    );
    let quiet = format!(r#"{silence},"peer_process":"elsewhere""#);
    let text = told(&report(&[&failure(12, 5, &quiet)]));
    assert!(!text.contains("ICMP"), "{text}");
}

#[test]
fn a_stopped_peer_is_named() {
    let peer = r#","peer_process":"stopped","peer_pid":4711,"peer_program":"server""#;
    let more = format!("{}{peer}", request(8, 0, 9));
    expect(
        &told(&report(&[&failure(12, 5, &more)])),
        &[
            "the peer, server (pid 4711), is stopped (SIGSTOP, a debugger's breakpoint, Ctrl-Z)",
            "kill -CONT 4711",
        ],
    );
    let silence =
        request(8, 0, 9).replace("\"waited_ns\"", "\"stopped_ns\":2500000000,\"waited_ns\"");
    let more = format!(r#"{silence},"peer_process":"gone""#);
    expect(
        &told(&report(&[&failure(12, 5, &more)])),
        &["the peer process has ended after it was stopped for 2.5 s"],
    );
    let elsewhere = format!(r#"{},"peer_process":"elsewhere""#, request(8, 0, 9));
    expect(
        &told(&report(&[&failure(12, 5, &elsewhere)])),
        &["has ended or is stopped"],
    );
}

/// Whoever ends a program that waits wants to know for whom; one that went on is not the reason.
#[test]
fn who_waits_for_a_stopped_peer_is_told_so_when_it_is_ended() {
    let stopped = r#"{"record":"stopped","process":1,"ns":5,"qpn":16,"waited_ns":1500000000,"peer_pid":1,"peer_program":"server"}"#;
    let mut report = report(&[stopped]);
    let tell = |report: &Report| {
        why::tell(report, "client", ExitStatus::from_raw(libc::SIGINT), false)
            .map(|story| story.to_string())
    };
    assert!(!report.stopped[0].still, "process 1 runs");
    assert_eq!(tell(&report), None);
    report.stopped[0].still = true;
    expect(
        &tell(&report).expect("told"),
        &[
            "client (pid 11): QP 0x10 had waited for a process that is stopped",
            "no answer for 1.5 s and longer",
            "the peer, server (pid 1), is stopped",
            "kill -CONT 1",
        ],
    );
    assert!(why::tell(&report, "client", ExitStatus::from_raw(0), false).is_none());
}

#[test]
fn a_peer_that_failed_itself_is_the_cause() {
    let text = told(&report(&[
        &failure(12, 50, &request(8, 0, 9)),
        &refusal("malformed", 40, "").replace("\"ns\":40", "\"ns\":60"),
    ]));
    assert!(!text.contains("failed itself"), "it refused later:\n{text}");
    let mut lines = [failure(12, 50, &request(8, 0, 9)), failure(4, 40, "")];
    lines[1] = lines[1]
        .replace("\"process\":1", "\"process\":2")
        .replace("\"qpn\":16", "\"qpn\":32")
        .replace("\"peer_qpn\":32", "\"peer_qpn\":16");
    let report = report(&[&lines[0], &lines[1]]);
    // The first failure is the peer's; what is told of the other one points there.
    expect(
        &told(&report),
        &["server (pid 22)", "status 4", "in all, 2"],
    );
}

#[test]
fn a_refusal_is_told_by_the_responder() {
    let memory = r#","memory":{"key":255,"addr":4096,"length":64,"fault":"out of range","right":"IBV_ACCESS_REMOTE_WRITE",
        "region":{"addr":4000,"length":100,"access":"LOCAL_WRITE","same_pd":true}}"#;
    let failed = failure(10, 50, &request(0, 1, 1));
    let both = report(&[&failed, &refusal("access", 40, memory)]);
    expect(
        &told(&both),
        &[
            "client (pid 11)",
            "status 10",
            "server (pid 22), refused it",
            "ends 60 bytes past the region of rkey 0xff",
            "rkey 0xff",
        ],
    );
    expect(
        &told(&report(&[&failed])),
        &[
            "a NAK does not say why",
            "maybe: wrong rkey",
            "run the peer under `rnic run`",
        ],
    );
    expect(
        &told(&report(&[&refusal("access", 40, memory)])),
        &[
            "server (pid 22)",
            "refused a request",
            "completes with status 10",
        ],
    );
    for (why, more, cause) in [
        (
            "too long",
            r#","room":1024,"length":4096"#,
            "room for 1024 bytes",
        ),
        ("not allowed", "", "qp_access_flags"),
        ("too many reads", r#","limit":1"#, "max_dest_rd_atomic of 1"),
        ("unaligned", "", "multiple of 8"),
        ("malformed", "", "out of sequence"),
        (
            "packet length",
            r#","length":1024,"path_mtu":4096"#,
            "a packet of 1024 bytes of payload came (RDMA WRITE, PSN 0x000005), and path_mtu of the responder is 4096",
        ),
    ] {
        expect(
            &told(&report(&[&failure(9, 50, ""), &refusal(why, 40, more)])),
            &["status 9", cause],
        );
    }
}

/// Whoever's record has the peer's path MTU: its own queue pairs, what the peer refused, or what
/// `--lint` knows.
#[test]
fn two_path_mtus_are_the_cause() {
    let cause = "path_mtu differs between the sides: 4096 bytes here, 1024 bytes at the peer";
    let own = r#","path_mtu":4096"#;
    let refused = refusal("packet length", 40, r#","length":4096,"path_mtu":1024"#);
    let text = told(&report(&[&failure(9, 50, own), &refused]));
    expect(
        &text,
        &["server (pid 22), refused it", cause, "set the smaller"],
    );

    let of_read = request(0, 1, 1).replace(r#""waited_ns""#, r#""response":1024,"waited_ns""#);
    let here = format!(r#"{own},"peer_path_mtu":1024{of_read}"#);
    let text = told(&report(&[&failure(7, 50, &here)]));
    expect(&text, &["status 7", "a packet brought 1024", cause]);
    let known = connected(2, 40, r#","path_mtu":1024"#);
    let text = told(&report(&[
        &failure(7, 50, &format!("{own}{of_read}")),
        &known,
    ]));
    expect(&text, &[cause]);
    let text = told(&report(&[&failure(7, 50, &format!("{own}{of_read}"))]));
    expect(
        &text,
        &[
            "path_mtu is 4096 bytes here",
            "maybe: the peer has another path_mtu",
        ],
    );

    // Another reason is told although they differ, and none is made of one that is alike.
    let other = refusal("unaligned", 40, r#","path_mtu":1024"#);
    let text = told(&report(&[&failure(9, 50, own), &other]));
    expect(&text, &["multiple of 8"]);
    let alike = format!(r#"{own},"peer_path_mtu":4096{of_read}"#);
    let text = told(&report(&[&failure(7, 50, &alike)]));
    assert!(!text.contains("differs"), "{text}");
}

#[test]
fn local_memory_in_words() {
    let text = |memory: &str| {
        told(&report(&[&failure(
            4,
            5,
            &format!(r#","memory":{memory}"#),
        )]))
    };
    let base = r#""key":3,"addr":100,"length":50,"write":true"#;
    for (memory, cause) in [
        (
            format!(
                r#"{{{base},"fault":"no right","region":{{"addr":0,"length":500,"access":"","same_pd":true}}}}"#
            ),
            "lacks IBV_ACCESS_LOCAL_WRITE",
        ),
        (
            format!(
                r#"{{{base},"fault":"out of range","region":{{"addr":500,"length":5,"access":"","same_pd":true}}}}"#
            ),
            "lies outside",
        ),
        (
            format!(
                r#"{{{base},"fault":"out of range","region":{{"addr":120,"length":500,"access":"","same_pd":true}}}}"#
            ),
            "begins 20 bytes before",
        ),
        (
            format!(
                r#"{{{base},"fault":"other pd","region":{{"addr":0,"length":500,"access":"","same_pd":false}}}}"#
            ),
            "another protection domain",
        ),
        (
            format!(
                r#"{{{base},"fault":"unknown key","deregistered":{{"addr":0,"length":500,"ago_ns":2000000}}}}"#
            ),
            "was deregistered 2 ms before",
        ),
        (
            format!(r#"{{{base},"fault":"unknown key"}}"#),
            "no region of that process",
        ),
    ] {
        expect(&text(&memory), &[cause, "rnic explain 4"]);
    }
}

#[test]
fn without_a_failed_request() {
    let verb = r#"{"record":"verb","process":1,"ns":5,"verb":"ibv_modify_qp","errno":22,"reason":"is_global is 0"}"#;
    let probe =
        r#"{"record":"verb","process":1,"ns":9,"verb":"ibv_create_flow","errno":95,"reason":"no"}"#;
    expect(
        &told(&report(&[verb, probe])),
        &[
            "ended with exit status 1",
            "ibv_modify_qp with errno 22 EINVAL",
            "is_global is 0",
        ],
    );
    let flushed = r#"{"record":"flushed","process":1,"ns":5,"qpn":16,"wr_id":3}"#;
    expect(&told(&report(&[flushed])), &["the program itself moved"]);
    let nothing = told(&report(&[]));
    expect(
        &nothing,
        &["rnic saw no refused call; see the program's own messages"],
    );
    assert!(!nothing.contains("cause:"), "{nothing}");

    let waiting =
        r#"{"record":"waiting","process":1,"ns":5,"qpn":16,"naks":9,"waited_ns":1000000000}"#;
    expect(
        &told(&report(&[waiting])),
        &["9 RNR NAKs in 1.0 s", "rnr_retry 7"],
    );

    let tell = |status, lines: &[&str]| {
        why::tell(
            &report(lines),
            "client",
            ExitStatus::from_raw(status),
            false,
        )
        .is_some()
    };
    assert!(!tell(0, &[verb, flushed]), "success");
    assert!(!tell(libc::SIGINT, &[verb]), "the user has ended it");
    assert!(tell(libc::SIGSEGV, &[verb]));
    assert!(tell(libc::SIGINT, &[waiting]), "it hung");
    assert!(!tell(0, &[waiting]), "it did not hang for ever");
    assert!(tell(0, &[&failure(12, 5, "")]), "a failure is told even so");
    assert!(why::tell(&Report::default(), "x", ExitStatus::from_raw(0x100), false).is_none());
}

fn qp(process: u64, qpn: u32, peer_qpn: u32, end: bool, written: u64) -> String {
    let none = r#"{"messages":0,"bytes":0}"#;
    let by = |write: u64| {
        format!(
            r#"{{"send":{none},"write":{{"messages":1,"bytes":{write}}},"read":{none},"atomic":{none}}}"#
        )
    };
    let (requested, served) = if process == 1 {
        (written, 0)
    } else {
        (0, written)
    };
    format!(
        r#"{{"record":"qp","process":{process},"ns":9,"qpn":{qpn},"local":"a","peer":"b","peer_qpn":{peer_qpn},"qp_type":"RC",
        "state":"RTS","end":{end},"max_rd_atomic":{},"max_dest_rd_atomic":4,
        "counters":{{"requested":{},"served":{},"packets_sent":3}}}}"#,
        3 + process,
        by(requested),
        by(served)
    )
}

#[test]
fn the_last_news_of_each_queue_pair_count() {
    let report = report(&[
        &qp(1, 16, 32, false, 100),
        &qp(1, 16, 32, true, 1000),
        &qp(2, 32, 16, true, 1000),
        &qp(1, 16, 99, false, 500),
    ]);
    assert_eq!(
        report.qps.len(),
        3,
        "a number used again is another queue pair"
    );
    let json = stats::to_json(&report);
    assert_eq!(json["total"]["queue_pairs"], 3);
    assert_eq!(json["total"]["bytes_moved"], 1500, "each byte once");
    assert_eq!(json["total"]["counters"]["packets_sent"], 9);
    assert_eq!(
        json["processes"][0]["queue_pairs"][0]["counters"]["requested"]["write"]["bytes"],
        1000
    );
}

#[test]
fn reads_of_both_ends_are_compared() {
    let report = report(&[&qp(1, 16, 32, true, 1), &qp(2, 32, 16, true, 1)]);
    // 4 against 4, and 5 against 4.
    let objects: Vec<_> = report
        .lints
        .iter()
        .map(|l| (l.object, l.value, l.limit))
        .collect();
    assert_eq!(objects, [(32, 5, 4)]);
}

#[test]
fn path_mtus_of_both_ends_are_compared() {
    let with = |process, qpn, peer, mtu: u64| {
        qp(process, qpn, peer, true, 1)
            .replace(r#""max_rd_atomic":5"#, r#""max_rd_atomic":4"#)
            .replace(r#""state""#, &format!(r#""path_mtu":{mtu},"state""#))
    };
    let report = report(&[
        &with(1, 16, 32, 1024),
        &with(2, 32, 16, 4096),
        &with(1, 17, 33, 2048),
        &with(2, 33, 17, 2048),
    ]);
    let found = report.lints.iter();
    let found: Vec<_> = found
        .map(|l| (&l.kind[..], l.object, l.value, l.limit))
        .collect();
    assert_eq!(found, [("path mtu", 32, 4096, 1024)]);
}

/// What one side dropped for its P_Key the other one never hears of.
#[test]
fn two_partitions_are_named() {
    let partition = |process, qpn, peer, own, theirs| {
        format!(
            r#"{{"record":"partition","process":{process},"ns":5,"qpn":{qpn},"peer_qpn":{peer},
            "pkey":{own},"peer_pkey":{theirs}}}"#
        )
    };
    let failure = failure(12, 9, &request(3, 0, 0));
    let at_the_peer = partition(2, 32, 16, 0x8001, 0xffff);
    expect(
        &told(&report(&[&failure, &at_the_peer])),
        &[
            "the peer, server (pid 22), drops the packets",
            "0xffff of this side and 0x8001 of the peer are of two partitions",
            "RNIC_PKEYS",
        ],
    );
    let here = partition(1, 16, 32, 1, 1);
    expect(
        &told(&report(&[&failure, &here])),
        &[
            "the peer's packets are dropped here",
            "are both of limited members",
        ],
    );
    // Another queue pair's are no cause, but told: nobody else hears of them.
    let others = partition(2, 33, 17, 0x8001, 0xffff);
    let said = told(&report(&[&failure, &others]));
    assert!(!said.contains("cause:"), "{said}");
    let dropped = "server (pid 22): QP 0x21 dropped what came without a word to the sender: the P_Keys 0x8001";
    assert!(said.contains(dropped), "{said}");
}

/// Nor does who asks for a connection.
#[test]
fn a_request_in_another_partition_is_named() {
    let service = r#","service":"TCP 7471","from":"10.0.0.1","address":"10.0.0.2""#;
    let asked = format!(
        r#"{{"record":"connection","process":2,"ns":5,"what":"partition","asked_pkey":32769,
        "pkeys":"0xffff,0x0002"{service}}}"#
    );
    let attempt = |what: &str, more: &str| {
        format!(
            r#"{{"record":"connection","process":1,"ns":9,"what":"{what}","service":"TCP 7471",
            "local":"10.0.0.1:4000","peer":"10.0.0.2:7471"{more}}}"#
        )
    };
    let silence = attempt("unreachable", r#","tries":16,"waited_ns":60000000000"#);
    let refused = attempt("rejected", r#","reason":12"#);
    for (lines, what) in [
        (
            vec![&asked[..], &silence],
            "server (pid 22), which dropped it",
        ),
        (vec![&asked[..], &refused], "reason 12"),
        (vec![&asked[..]], "was dropped for its P_Key"),
    ] {
        let said = told(&report(&lines));
        expect(&said, &[what, "0x8001", "0xffff,0x0002", "RNIC_PKEYS"]);
    }
}

#[test]
fn bytes_in_words() {
    for (n, text) in [
        (0, "0 B"),
        (999, "999 B"),
        (1_200, "1.2 kB"),
        (1_200_000_000, "1.20 GB"),
    ] {
        assert_eq!(stats::bytes(n), text);
    }
}

/// Promise: what is kept of runs that have ended is bounded in time, bytes and number.
#[test]
fn files_of_runs_that_ended_are_removed() {
    let runtime = std::env::temp_dir().join(format!("rnic-reports-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&runtime);
    std::fs::create_dir(&runtime).unwrap();
    let make = |name: String, age: u64| {
        let path = runtime.join(name);
        let file = File::create(&path).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        file.set_modified(then).unwrap();
        path
    };
    // Nobody has locked them.
    let old = make("report-old".to_owned(), 3600);
    let fresh: Vec<_> = (0..100)
        .map(|n| make(format!("report-{n}"), 100 + n))
        .collect();
    let other = make("others-file".to_owned(), 3600);
    let held = Collector::new(&runtime).unwrap();
    assert!(!old.exists() && other.exists());
    let kept = fresh.iter().filter(|path| path.exists()).count();
    assert_eq!(kept, 64);
    assert!(fresh[0].exists() && !fresh[99].exists(), "the newest stay");
    let again = Collector::new(&runtime).unwrap();
    assert!(held.file.exists(), "it lives");
    let file = again.file.clone();
    drop(again);
    assert!(!file.exists(), "it has nothing to tell");
    std::fs::remove_dir_all(&runtime).unwrap();
}

/// Promise: where no folder can be written to, the program's failures are explained all the same.
#[test]
fn a_report_in_memory_is_read_like_any_other() {
    let collector = Collector::in_memory().unwrap();
    for process in [7, 8] {
        let mut file = OpenOptions::new()
            .append(true)
            .open(&collector.file)
            .unwrap();
        let line = format!(
            "{{\"record\":\"process\",\"process\":{process},\"pid\":1,\"program\":\"p\"}}\n"
        );
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
    let processes = collector.read().processes;
    assert_eq!(processes.iter().map(|p| p.id).collect::<Vec<_>>(), [7, 8]);
}

/// Containers that share the folder know each other's processes by no number, and have the same
/// ones.
#[test]
fn the_file_of_another_run_is_left_alone() {
    let runtime = std::env::temp_dir().join(format!("rnic-runs-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&runtime);
    std::fs::create_dir(&runtime).unwrap();
    let files = || std::fs::read_dir(&runtime).unwrap().count();
    let collectors = [(); 3].map(|()| Collector::new(&runtime).unwrap());
    assert_eq!(files(), 3, "{collectors:?}");
    drop(collectors);
    assert_eq!(files(), 0);
    std::fs::remove_dir(&runtime).unwrap();
}

/// A line of the connection manager's, of the client (process 1) or of the server (2).
fn attempt(process: u32, ns: u64, what: &str, more: &str) -> String {
    let ends = match process {
        1 => r#""local":"10.0.0.1:40000","peer":"10.0.0.2:7471""#,
        _ => r#""from":"10.0.0.1","address":"10.0.0.2""#,
    };
    format!(
        r#"{{"record":"connection","process":{process},"ns":{ns},"what":"{what}","service":"RDMA_PS_TCP port 7471",{ends}{more}}}"#
    )
}

/// The side that was asked has sent nothing, so it is not told of silence.
#[test]
fn who_was_asked_is_told_of_one_who_left() {
    let left = |accepted| told(&report(&[&attempt(1, 9, "asker left", accepted)]));
    let text = left(r#","accepted":false"#);
    expect(
        &text,
        &[
            "no connection with 10.0.0.2:7471, which had asked for one: it went away before this program answered",
            "answer each request by rdma_accept or rdma_reject",
        ],
    );
    assert!(
        !text.contains("sent") && !text.contains("UNREACHABLE"),
        "{text}"
    );
    expect(
        &left(r#","accepted":true"#),
        &["before the answer of rdma_accept reached it"],
    );
}

#[test]
fn a_connection_that_was_not_made_is_told() {
    const HEAD: &str =
        "client (pid 11): no connection 10.0.0.1:40000 -> 10.0.0.2:7471 (RDMA_PS_TCP)";
    let rejected = |reason: u32, more: &str| {
        attempt(1, 9, "rejected", &format!(r#","reason":{reason}{more}"#))
    };
    // What the server did with the client's request.
    let asked = |what: &str| {
        let line = attempt(2, 8, what, "");
        line.replace(
            r#""from":"10.0.0.1","address":"10.0.0.2""#,
            r#""local":"10.0.0.2:7471","peer":"10.0.0.1:40000""#,
        )
    };
    for (lines, parts) in [
        (
            vec![
                attempt(2, 8, "nobody listens", ""),
                rejected(
                    8,
                    r#","listeners":"RDMA_PS_TCP port 7472 at any address, server (pid 22)""#,
                ),
            ],
            &[
                HEAD,
                "reason 8 (invalid service ID)",
                "reached server (pid 22)",
                "listening now: RDMA_PS_TCP port 7472",
                "nobody listens on RDMA_PS_TCP port 7471 at 10.0.0.2",
                "rnic explain rej 8",
            ][..],
        ),
        (
            vec![rejected(8, r#","listeners":"""#)],
            &[HEAD, "nobody listens on any port"],
        ),
        (
            vec![rejected(28, r#","private_data":"wrong version""#)],
            &[
                HEAD,
                "says \"wrong version\"",
                "called rdma_reject",
                "server's output",
            ],
        ),
        (
            vec![
                attempt(2, 8, "other service", r#","asked":"UC","listener":"RC""#),
                rejected(28, ""),
            ],
            &[
                HEAD,
                "without private data",
                "for queue pairs of type RC, the request was for UC",
            ],
        ),
        (
            vec![asked("request destroyed"), rejected(28, "")],
            &[
                HEAD,
                "server (pid 22), called rdma_destroy_id for the request",
            ],
        ),
        (
            vec![asked("request ended"), rejected(28, "")],
            &[
                HEAD,
                "server (pid 22), ended, without rdma_accept or rdma_reject",
            ],
        ),
        (
            vec![rejected(12, "")],
            &[HEAD, "10.0.0.2 is not one of its GIDs", "another subnet"],
        ),
        (vec![rejected(31, "")], &[HEAD, "different versions"]),
        (
            vec![rejected(10, "")],
            &[HEAD, "stale connection", "rnic explain rej 10"],
        ),
        (
            vec![attempt(
                1,
                9,
                "unreachable",
                r#","tries":16,"waited_ns":102000000000"#,
            )],
            &[
                HEAD,
                "sent 16 times in 102.0 s",
                "firewall",
                "ping 10.0.0.2;",
            ],
        ),
        (
            vec![attempt(
                1,
                9,
                "no answer yet",
                r#","tries":2,"waited_ns":6400000000,"peer_here":true"#,
            )],
            &[
                HEAD,
                "still waiting",
                "sent at least 2 times in 6.4 s",
                "is an address of this host",
            ],
        ),
        (
            vec![
                attempt(
                    1,
                    9,
                    "no answer yet",
                    r#","tries":1,"waited_ns":1000000000"#,
                ),
                attempt(1, 19, "answered", ""),
                attempt(2, 8, "backlog full", ""),
            ],
            &["backlog is full"],
        ),
        (
            vec![attempt(1, 9, "datagrams refused", r#","status":1"#)],
            &[
                HEAD,
                "status 1 (service ID not supported)",
                "rnic explain sidr 1",
            ],
        ),
        (
            vec![attempt(1, 9, "address error", r#","errno":19"#)],
            &[
                HEAD,
                "status -19 (ENODEV)",
                "no RDMA device",
                "ip route get 10.0.0.2",
            ],
        ),
        (
            vec![
                attempt(2, 8, "nobody listens", ""),
                attempt(2, 9, "nobody listens", ""),
            ],
            &[
                "server (pid 22): a request from 10.0.0.1",
                "2 such requests",
            ],
        ),
        (
            vec![attempt(2, 8, "backlog full", "")],
            &["was dropped", "backlog is full"],
        ),
        (
            vec![attempt(
                2,
                8,
                "path mtu",
                r#","asked_mtu":4096,"most_mtu":1024"#,
            )],
            &[
                "was refused",
                "path MTU of 4096 bytes; the interface here takes 1024",
                "rnic explain rej 26",
            ],
        ),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        expect(&told(&report(&lines)), parts);
    }
    // What is to be told is not what the program got over.
    let later = attempt(1, 10, "answered", "");
    let got_over = told(&report(&[&rejected(8, ""), &later]));
    assert!(!got_over.contains("no connection"), "{got_over}");
    let again = attempt(1, 11, "rejected", r#","reason":28"#);
    let last = told(&report(&[&rejected(8, ""), &later, &again]));
    assert!(last.contains("reason 28"), "{last}");
    // A program that got over it has nothing to explain.
    let report = report(&[&rejected(8, "")]);
    let success = ExitStatus::from_raw(0);
    assert!(why::tell(&report, "client", success, false).is_none());
}
