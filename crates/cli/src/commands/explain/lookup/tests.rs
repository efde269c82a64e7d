mod lines;

use super::near::distance;
use super::*;
use crate::topics::program;

fn names(words: &str) -> Vec<&'static str> {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    find(&words).topics.iter().map(|t| t.name).collect()
}

#[test]
fn a_bare_number_is_a_status_first() {
    let found = find(&["12".to_owned()]);
    assert_eq!(found.topics[0].name, "IBV_WC_RETRY_EXC_ERR");
    let also: Vec<_> = found.also.iter().map(|t| t.name).collect();
    for name in ["ENOMEM", "IBV_EVENT_PKEY_CHANGE"] {
        assert!(also.contains(&name), "{also:?}");
    }
    assert_eq!(names("110"), ["ETIMEDOUT"], "no status has that number");
    assert_eq!(names("0x81"), ["rnic SEQUENCE_NAK", "Mellanox 0x81"]);
    assert_eq!(names("99999"), [""; 0]);
}

#[test]
fn the_kind_goes_before_the_number() {
    for (words, name) in [
        ("wc 12", "IBV_WC_RETRY_EXC_ERR"),
        ("errno 12", "ENOMEM"),
        ("event 3", "IBV_EVENT_QP_ACCESS_ERR"),
        ("state 6", "IBV_QPS_ERR"),
        ("state rtr", "IBV_QPS_RTR"),
        ("nak 0x61", "NAK invalid request"),
        ("nak 1", "NAK invalid request"),
        ("nak 0x2c", "RNR NAK"),
        ("cm 8", "RDMA_CM_EVENT_REJECTED"),
        ("cm event 8", "RDMA_CM_EVENT_REJECTED"),
        ("cm rejected", "RDMA_CM_EVENT_REJECTED"),
        ("rej 8", "IB_CM_REJ_INVALID_SERVICE_ID"),
        ("reject 28", "IB_CM_REJ_CONSUMER_DEFINED"),
        ("rej stale_conn", "IB_CM_REJ_STALE_CONN"),
        ("sidr 1", "IB_SIDR_UNSUPPORTED"),
        ("vendor 0x13", "rnic LOCAL out of range"),
        ("vendor_err=19", "rnic LOCAL out of range"),
    ] {
        assert_eq!(names(words), [name], "{words}");
    }
}

#[test]
fn names_need_no_prefix_and_no_capitals() {
    for word in [
        "IBV_WC_REM_ACCESS_ERR",
        "rem_access_err",
        "rem_access",
        "Remote Access Error",
    ] {
        assert!(names(word).contains(&"IBV_WC_REM_ACCESS_ERR"), "{word}");
    }
    assert_eq!(names("einval"), ["EINVAL"]);
    assert_eq!(names("Cannot allocate memory"), ["ENOMEM"]);
    assert_eq!(names("sqe"), ["IBV_QPS_SQE"]);
}

#[test]
fn lines_of_programs_are_understood() {
    let line = " Failed status 12: wr_id 0 syndrom 0x81";
    assert_eq!(
        names(line),
        ["IBV_WC_RETRY_EXC_ERR", "rnic SEQUENCE_NAK", "Mellanox 0x81"]
    );
    assert_eq!(
        names("[host:1] error: transport retry counter exceeded (wc)"),
        ["IBV_WC_RETRY_EXC_ERR"]
    );
    assert_eq!(
        names("Failed to modify QP to RTR: Invalid argument"),
        ["modify QP to RTR", "EINVAL"]
    );
    assert_eq!(names("ibv_reg_mr: Cannot allocate memory"), ["ENOMEM"]);
}

/// The status of a librdmacm event is an errno, a reason of a reject message or of a resolution, as
/// the event has it.
#[test]
fn the_status_of_a_cm_event_is_read_as_the_event_has_it() {
    for (line, topics) in [
        (
            "cma event RDMA_CM_EVENT_REJECTED, error 8",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_INVALID_SERVICE_ID"][..],
        ),
        (
            "cmatose: event: RDMA_CM_EVENT_REJECTED, error: 28",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_CONSUMER_DEFINED"],
        ),
        (
            "RDMA_CM_EVENT_REJECTED status 10",
            &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_STALE_CONN"],
        ),
        (
            "RDMA_CM_EVENT_ADDR_ERROR, error: -19",
            &["RDMA_CM_EVENT_ADDR_ERROR", "ENODEV"],
        ),
        (
            "cmatose: event: RDMA_CM_EVENT_UNREACHABLE, error: -110",
            &["RDMA_CM_EVENT_UNREACHABLE", "ETIMEDOUT"],
        ),
        (
            "udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1",
            &["RDMA_CM_EVENT_UNREACHABLE", "IB_SIDR_UNSUPPORTED"],
        ),
        ("Unexpected CM event bl blka 8", &["RDMA_CM_EVENT_REJECTED"]),
        ("unexpected CM event 1", &["RDMA_CM_EVENT_ADDR_ERROR"]),
        ("rdma_connect: Connection refused", &["ECONNREFUSED"]),
        (
            "rdma_bind_addr failed: Address already in use",
            &["EADDRINUSE"],
        ),
    ] {
        assert_eq!(names(line), topics, "{line}");
    }
}

/// Lines of perftest, ibverbs-utils and rdmacm-utils lead to what the program was at, with the
/// numbers, names and addresses that they carry. An errno of a verb comes after, other errnos not.
#[test]
fn lines_of_the_usual_programs_are_known() {
    let lines: &[(&str, &[&str])] = &[
        ("Failed to modify QP to INIT", &["modify QP to INIT"]),
        (
            "Failed to modify QP to INIT, ret=22",
            &["modify QP to INIT", "EINVAL"],
        ),
        ("Failed to modify QP to RTR", &["modify QP to RTR"]),
        (" Failed to modify QP 17 to RTR", &["modify QP to RTR"]),
        ("Failed to modify QP[3] to RTR", &["modify QP to RTR"]),
        ("Failed to modify recv QP[0] to RTR", &["modify QP to RTR"]),
        (
            "ibv_rc_pingpong: failed to modify QP to RTR.",
            &["modify QP to RTR"],
        ),
        ("Failed to modify QP to RTS", &["modify QP to RTS"]),
        ("Failed to modify send QP[1] to RTS", &["modify QP to RTS"]),
        ("Couldn't connect to remote QP", &["connect to remote QP"]),
        (
            " Unable to Connect the HCA's through the link",
            &["connect to remote QP"],
        ),
        ("Couldn't connect to 127.0.0.1:18515", &["connect over TCP"]),
        (
            "Couldn't connect to node-7.example.org:19000",
            &["connect over TCP"],
        ),
        ("Couldn't connect to ::1:18515", &["connect over TCP"]),
        (
            "Couldn\u{2019}t connect to 10.0.0.2:18515",
            &["connect over TCP"],
        ),
        (
            "Couldn't connect to 10.0.0.2:1: Connection refused",
            &["connect over TCP"],
        ),
        (
            " Unable to init the socket connection",
            &["connect over TCP"],
        ),
        ("Couldn't listen to port 18515", &["listen over TCP"]),
        (
            "client read/write: No such file or directory",
            &["exchange over TCP"],
        ),
        (
            "client read/write: Connection reset by peer",
            &["exchange over TCP"],
        ),
        ("server read: Success", &["exchange over TCP"]),
        ("0/52: Couldn't read remote address", &["exchange over TCP"]),
        (
            "ethernet_read_keys: Couldn't read remote address",
            &["exchange over TCP"],
        ),
        (
            " Failed to exchange data between server and clients",
            &["exchange over TCP"],
        ),
        (
            "Failed to get IB devices list: Function not implemented",
            &["list of devices"],
        ),
        ("Failed to get IB devices list", &["list of devices"]),
        (" Did not detect devices ", &["no device"]),
        ("No IB devices found", &["no device"]),
        ("No RDMA devices were detected", &["no device"]),
        (
            " Unable to find the Infiniband/RoCE device",
            &["device not found"],
        ),
        ("IB device mlx5_0 not found", &["device not found"]),
        ("IB device 'rnic7' wasn't found", &["device not found"]),
        ("can't read sgid of index 99", &["read sgid"]),
        (" Couldn't get context for the device", &["open device"]),
        ("Couldn't get context for rnic0", &["open device"]),
        ("Failed to open device", &["open device"]),
        ("parse WC failed 1", &["parse WC"]),
        ("parse WC failed", &["parse WC"]),
        ("Couldn't post send", &["post send"]),
        (
            "Couldn't post send: qp 0 scnt=128 || err=12 tx_depth=128",
            &["post send", "ENOMEM"],
        ),
        ("post send error 22", &["post send", "EINVAL"]),
        ("Couldn't post receive (1)", &["post receive"]),
        ("Couldn't post recv Qp=0 rcnt=512", &["post receive"]),
        ("ibv_post_recv failed: 12", &["post receive", "ENOMEM"]),
        ("poll CQ failed -22", &["poll CQ"]),
        ("Poll Receive CQ failed -1", &["poll CQ"]),
        ("cmatose: failed polling CQ: -1", &["poll CQ"]),
        ("Failed status", &["failed completion"]),
        ("Failed status 99: wr_id 0", &["failed completion"]),
        (
            "Failed status unknown (99) for wr_id 1",
            &["failed completion"],
        ),
        (" Completion with error at client", &["failed completion"]),
        ("Completion with error", &["failed completion"]),
        ("cq completion failed status 5", &["IBV_WC_WR_FLUSH_ERR"]),
        (
            "Poll send CQ error status=12 qp 0",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        (
            "Failed status transport retry counter exceeded (12) for wr_id 2",
            &["IBV_WC_RETRY_EXC_ERR"],
        ),
        ("Couldn't allocate MR", &["register memory"]),
        (
            "Couldn't allocate MR with error=12",
            &["register memory", "ENOMEM"],
        ),
        ("Couldn't register MR", &["register memory"]),
        ("rdma_buf reg_mr failed", &["register memory"]),
        ("Couldn't create QP", &["create QP"]),
        (
            "Couldn't create send QP[0] errno 12",
            &["create QP", "ENOMEM"],
        ),
        (" Unable to create QP.", &["create QP"]),
        ("Failed to create CQ", &["create CQ"]),
        ("Failed to create CQs", &["create CQ"]),
        (
            "Couldn't create CQ: Cannot allocate memory",
            &["create CQ", "ENOMEM"],
        ),
        ("rdma_resolve_addr", &["rdma_resolve_addr"]),
        (
            "rdma_resolve_addr: Network is unreachable",
            &["rdma_resolve_addr", "ENETUNREACH"],
        ),
        (
            "waiting for addr/route resolution state 1",
            &["rdma_resolve_addr"],
        ),
        ("rping: cma event ...", &["CM event"]),
        ("unexpected CM event", &["CM event"]),
        ("wait for CONNECTED state 4", &["rping connection"]),
        ("connect error -1", &["rping connection"]),
    ];
    let wrong: Vec<_> = lines
        .iter()
        .map(|(line, topics)| (line, topics, names(line)))
        .filter(|(_, topics, found)| found != *topics)
        .collect();
    assert!(wrong.is_empty(), "line, wanted, found: {wrong:#?}");
}

/// What only resembles such a line is not explained by it.
#[test]
fn other_lines_are_not_taken_for_those_of_programs() {
    for line in [
        "Failed to modify QP",
        "Failed to modify the file to RTR",
        "Failed to modify QP to reach RTR",
        "modified QP to RTR",
        "Couldn't connect to the database",
        "Couldn't connect to localhost",
        "Couldn't connect to 10.0.0.2:http",
        "Couldn't get context for the next request",
        "can't read sgid of index",
        "can't read the configuration",
        "Failed status page",
        "HTTP completion with error handling",
        "the server read 5 lines",
        "parse failed",
        "poll failed -1",
        "device not here",
        "Failed to create CQE",
        "couldn't create QPs[x]",
        "program 0",
        "program 3",
        "[]",
        "qp[",
        "Couldn't connect to :1",
    ] {
        assert_eq!(names(line), [""; 0], "{line}");
    }
    // The errno alone is one of a verb, as before.
    assert_eq!(names("No such file or directory"), ["ENOENT"]);
    assert_eq!(names("read: Function not implemented"), ["ENOSYS"]);
}

/// A line says what to look at, and the line that a topic shows leads to it.
#[test]
fn each_line_of_a_program_has_causes_checks_and_an_example() {
    for topic in all().filter(|topic| topic.kind == Kind::Program) {
        assert!(
            !topic.causes.is_empty() && !topic.check.is_empty(),
            "{}",
            topic.name
        );
        assert_eq!(names(topic.text), [topic.name], "{}", topic.text);
        let example = topic
            .text
            .replace("HOST:PORT", "host:1")
            .replace("PORT", "1");
        let example = example.replace(" N", " 1");
        let found = program::matches(&normal(&example));
        let found: Vec<_> = found.iter().map(|line| line.topic.name).collect();
        assert_eq!(found, [topic.name], "{example}");
    }
}

#[test]
fn what_is_unknown_gets_suggestions() {
    let suggested =
        |word: &str| -> Vec<_> { near(&[word.to_owned()]).iter().map(|t| t.name).collect() };
    assert_eq!(
        suggested("IBV_WC_REM_ACESS_ERR")[0],
        "IBV_WC_REM_ACCESS_ERR"
    );
    assert_eq!(suggested("EINVLA")[0], "EINVAL");
    assert!(suggested("firewall").contains(&"IBV_WC_RETRY_EXC_ERR"));
    assert!(suggested("xyzzyxyzzy").is_empty());
    // A name in a line that is nearly right, and no words that many topics have by chance.
    assert_eq!(
        suggested("qp 7: IBV_WC_REM_ACESS_ERR")[0],
        "IBV_WC_REM_ACCESS_ERR"
    );
    for far in [
        "the queue is full of errors",
        "prov_errno: -999",
        "qp 12",
        "a b c",
        "-300",
    ] {
        assert!(suggested(far).is_empty(), "{far}: {:?}", suggested(far));
    }
}

/// Every number that a verb can give is explained, in the words of the library.
#[test]
fn the_tables_are_complete() {
    let complete = |kind, numbers: std::ops::RangeInclusive<u32>| {
        for number in numbers {
            let topics: Vec<_> = numbered(kind, number).collect();
            assert_eq!(topics.len(), 1, "{kind:?} {number}");
        }
    };
    complete(Kind::Status, 0..=23);
    complete(Kind::Event, 0..=19);
    complete(Kind::State, 0..=6);
    complete(Kind::Nak, 0x60..=0x64);
    complete(Kind::Cm, 0..=15);
    complete(Kind::Reject, 1..=33);
    complete(Kind::Sidr, 1..=5);
    for topic in all() {
        assert!(!topic.meaning.is_empty(), "{}", topic.name);
        let failure =
            topic.kind == Kind::Status && !matches!(topic.number, 0 | 3 | 14 | 15 | 17 | 18 | 23);
        let answer = match topic.kind {
            Kind::Errno | Kind::Sidr => true,
            // Not those of reliable datagrams.
            Kind::Reject => !matches!(topic.number, 2 | 11),
            _ => false,
        };
        if failure || answer {
            assert!(
                !topic.causes.is_empty() && !topic.check.is_empty(),
                "{}",
                topic.name
            );
        }
        let names = [topic.name.to_owned()];
        assert!(
            find(&names).topics.iter().any(|t| std::ptr::eq(*t, topic)),
            "{} is not found by its name",
            topic.name
        );
    }
}

#[test]
fn nothing_is_explained_twice() {
    for topic in all() {
        let same =
            all().filter(|t| (t.kind, t.number, t.name) == (topic.kind, topic.number, topic.name));
        assert_eq!(same.count(), 1, "{}", topic.name);
    }
}

#[test]
fn distances() {
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("same", "same"), 0);
}
