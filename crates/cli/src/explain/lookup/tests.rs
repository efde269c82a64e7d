use super::*;

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
        ["EINVAL"]
    );
    assert_eq!(names("ibv_reg_mr: Cannot allocate memory"), ["ENOMEM"]);
}

/// The status of a librdmacm event is an errno, a reason of a reject message or of a resolution, as the event has it.
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
