//! docs/json.md has every field of what `rnic run --json` prints, and no other. Of the names of
//! counters, which the NIC chooses, `tests/json.rs` sees to that.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use super::record::*;
use super::*;

#[path = "../../../../tests/common/fields.rs"]
mod fields;

fn ends() -> Ends {
    Ends {
        qpn: 1,
        local: None,
        peer: None,
        peer_qpn: Some(2),
    }
}

fn memory() -> Memory {
    Memory {
        key: 1,
        addr: 2,
        length: 3,
        fault: String::new(),
        write: true,
        right: None,
        lack: None,
        swapped: false,
        region: Some(Region {
            addr: 1,
            length: 2,
            access: String::new(),
            same_pd: true,
            window: false,
        }),
        deregistered: Some(Grave {
            addr: 1,
            length: 2,
            ago_ns: 3,
        }),
    }
}

fn failure() -> Failure {
    Failure {
        process: 1,
        ns: 2,
        ends: ends(),
        qp_type: "RC".into(),
        queue: "send".into(),
        first: true,
        wr_id: 3,
        operation: "SEND".into(),
        status: 10,
        vendor_err: 4,
        memory: Some(memory()),
        room: None,
        length: None,
        request: Some(Request {
            length: 1,
            longest: 2,
            psn: 2,
            sent: true,
            tries: 3,
            heard: 4,
            heard_ever: 5,
            answered: true,
            start_psn: 1,
            peer_expects_psn: None,
            waited_ns: 6,
            stopped_ns: 7,
            response: None,
            remote_addr: None,
            rkey: None,
        }),
        path_mtu: None,
        peer_path_mtu: None,
        peer_process: None,
        peer_pid: None,
        peer_program: None,
        path_bytes: None,
        interface_bytes: None,
        way_errno: None,
        since_ns: 1,
    }
}

fn partition() -> Partition {
    Partition {
        process: 1,
        ns: 2,
        ends: ends(),
        pkey: 0xffff,
        peer_pkey: 0x8001,
    }
}

fn refusal() -> Refusal {
    Refusal {
        process: 1,
        ns: 2,
        ends: ends(),
        first: true,
        operation: String::new(),
        psn: 3,
        why: "access".into(),
        room: None,
        length: None,
        limit: None,
        path_mtu: None,
        peer_path_mtu: None,
        memory: Some(memory()),
        peer_pid: None,
        peer_program: None,
    }
}

fn attempt() -> Attempt {
    Attempt {
        process: 1,
        ns: 2,
        what: String::new(),
        service: String::new(),
        local: None,
        peer: None,
        from: None,
        address: None,
        reason: None,
        status: None,
        errno: None,
        reason_text: None,
        private_data: None,
        listeners: None,
        tries: None,
        waited_ns: None,
        peer_here: None,
        accepted: None,
        way_errno: None,
        peer_pid: None,
        peer_program: None,
        asked: None,
        listener: None,
        asked_mtu: None,
        most_mtu: None,
        asked_pkey: None,
        pkeys: None,
    }
}

fn qp() -> Qp {
    Qp {
        process: 1,
        ns: 2,
        ends: ends(),
        qp_type: "RC".into(),
        state: "RTS".into(),
        end: true,
        max_rd_atomic: None,
        max_dest_rd_atomic: None,
        path_mtu: None,
        counters: Counters::default(),
    }
}

fn lint() -> Lint {
    Lint {
        process: 1,
        ns: 2,
        kind: "cq".into(),
        object: 3,
        value: 4,
        limit: 5,
        count: 6,
        more: String::new(),
    }
}

fn wait() -> Wait {
    Wait {
        process: 1,
        ns: 2,
        since: 1,
        wait: 3,
        futures: 0,
        future_qpn: None,
        verb: "ibv_get_cq_event".into(),
        wanted: "cq event".into(),
        thread: None,
        over: None,
        async_events: false,
        others: false,
        channels: 1,
        untaken: 0,
        cm_channels: 0,
        cqs: vec![Queue {
            cq: 1,
            armed: "next".into(),
            waiting: 0,
            completions: 0,
            overrun: false,
            moderated: false,
        }],
        all_cqs: 1,
        queue_pairs: vec![Poster {
            ends: ends(),
            qp_type: "RC".into(),
            state: "RTS".into(),
            sends_here: true,
            receives_here: true,
            sends: 0,
            signaled: 0,
            unsignaled: 0,
            receives: 1,
            srq: None,
            received: 0,
            peer_process: None,
        }],
        all_queue_pairs: 1,
        xrc_srqs: 0,
        ids: vec![Id {
            standing: "listening".into(),
            service: None,
            local: None,
            peer: None,
        }],
        all_ids: 1,
        object: None,
        taken: 0,
        acknowledged: 0,
        events: None,
        remedy: None,
    }
}

fn device() -> Device {
    Device {
        process: 1,
        ns: 2,
        link: BTreeMap::new(),
        drops: BTreeMap::new(),
        faults: BTreeMap::from([("packets".to_owned(), 1)]),
    }
}

/// Each kind of record, with every field: one that is new does not compile here.
fn everything() -> Report {
    Report {
        processes: vec![Process {
            id: 1,
            pid: 11,
            program: "client".into(),
            opened: true,
        }],
        failures: vec![failure()],
        partitions: vec![partition()],
        refusals: vec![refusal()],
        flushed: Vec::new(),
        verbs: vec![Verb {
            process: 1,
            ns: 2,
            verb: "ibv_reg_mr".into(),
            errno: 12,
            reason: String::new(),
            survived: false,
        }],
        survived: Vec::new(),
        waiting: vec![Waiting {
            process: 1,
            ns: 2,
            ends: ends(),
            naks: 3,
            waited_ns: 4,
        }],
        stopped: vec![Stopped {
            process: 1,
            ns: 2,
            ends: ends(),
            waited_ns: 3,
            peer_pid: 4,
            peer_program: "server".into(),
            still: true,
        }],
        dropped: vec![Dropped {
            process: 1,
            ns: 2,
            ends: ends(),
            cause: "wrong q_key".into(),
            count: 3,
            ..Dropped::default()
        }],
        overruns: vec![Overrun {
            process: 1,
            ns: 2,
            ends: ends(),
            cq: 3,
            capacity: 4,
        }],
        waits: vec![wait()],
        read_at: 9,
        interrupted: true,
        attempts: vec![attempt()],
        qps: vec![qp()],
        live: HashMap::new(),
        devices: HashMap::from([(1, device())]),
        lints: vec![lint()],
        connected: Vec::new(),
        left: Vec::new(),
        unheard: Vec::new(),
        others: None,
        ended: HashSet::new(),
        of_a_part: false,
    }
}

#[test]
fn every_field_is_documented() {
    let wishes = Wishes {
        quiet: false,
        stats: true,
        lint: true,
        json: true,
    };
    let (report, status) = (everything(), ExitStatus::from_raw(0x100));
    let failure = why::tell(&report, "client", status, false).map(|story| story.to_json());
    assert!(failure.is_some());
    let document = document(&report, "client", Some(status), failure, wishes);
    assert_eq!(document["version"], 1);
    assert_eq!(
        fields::of(&document),
        fields::documented("`rnic run --json`")
    );
}

#[test]
fn a_program_that_was_not_started_has_the_same_fields() {
    let wishes = Wishes {
        json: true,
        ..Wishes::default()
    };
    let failure = crate::platform::failure::Failure::new("it was not found").next("install it");
    let line = not_started("nosuch", &failure, wishes);
    let document: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(document["started"], false);
    assert_eq!(document["program"], "nosuch");
    assert!(document["exit_status"].is_null() && document["stats"].is_null());
    assert_eq!(document["failure"]["what"], "it was not found");
    assert_eq!(document["failure"]["next"][0], "install it");
    let started = super::document(
        &Report::default(),
        "x",
        Some(ExitStatus::from_raw(0)),
        None,
        wishes,
    );
    let names = |document: &Value| -> Vec<String> {
        let object = document.as_object().expect("an object");
        object.keys().cloned().collect()
    };
    assert_eq!(names(&document), names(&started));
}
