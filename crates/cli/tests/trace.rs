//! `rnic run --trace`: the way of each work request.

use std::path::Path;

use serde_json::Value;

use crate::common::{Scratch, expect_success, run_here, stderr};

/// The data of a page.
fn data(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).expect("a page");
    let data = text.split("const data = ").nth(1).expect("its data");
    let (data, _) = data.split_once(";\n").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

/// Promise: each send work request is there, on both sides, with stages that follow each other.
/// Both processes of the demo are traced, since both are of this run.
#[test]
fn each_stage_of_a_request_is_known() {
    let scratch = Scratch::new("trace");
    let page = scratch.0.join("trace.html");
    let mut command = run_here(&scratch);
    command.arg("--trace").arg(&page);
    command.args(["--", env!("CARGO_BIN_EXE_rnic"), "demo", "--no-bench"]);
    let output = command.output().expect("rnic starts");
    expect_success(&output);
    assert!(
        stderr(&output).contains("has the way of"),
        "{}",
        stderr(&output)
    );
    let data = data(&page);
    let requests = data["requests"].as_array().expect("a list");
    let operations = requests
        .iter()
        .map(|it| it["operation"].as_str().expect("text"));
    let operations: Vec<&str> = operations.collect();
    for operation in ["SEND", "RDMA WRITE", "RDMA READ", "fetch-and-add"] {
        assert!(operations.contains(&operation), "{operations:?}");
    }
    for request in requests {
        assert_eq!(request["status"], 0, "{request}");
        let stages = [
            "posted",
            "first_sent",
            "first_arrived",
            "last_arrived",
            "answer_sent",
            "answer_arrived",
            "completed",
            "polled",
        ];
        let times = stages.map(|stage| {
            let time = request[stage].as_u64();
            time.unwrap_or_else(|| panic!("no {stage}: {request}"))
        });
        // Either side notes a packet when it has written or read a batch, so the two ends of one
        // way may be noted in the other order. What one side notes is in order.
        let [
            posted,
            sent,
            arrived,
            last,
            answered,
            came,
            completed,
            polled,
        ] = times;
        for (earlier, later) in [
            (posted, sent),
            (arrived, last),
            (last, answered),
            (sent, came),
            (came, completed),
            (completed, polled),
        ] {
            assert!(earlier <= later, "{request}");
        }
        let takes_receive = request["operation"]
            .as_str()
            .is_some_and(|it| it.starts_with("SEND") || it == "RDMA WRITE with immediate");
        assert_eq!(
            request["receive_completed"].is_u64(),
            takes_receive,
            "{request}"
        );
    }
}

/// Promise: a file that is no page of --trace is left alone, and a program that uses no NIC has a
/// page that says so.
#[test]
fn what_is_no_page_is_left_alone() {
    let scratch = Scratch::new("trace-other");
    let page = scratch.0.join("notes.txt");
    std::fs::write(&page, "mine").expect("a file");
    let run = || {
        let mut command = run_here(&scratch);
        command.arg("--trace").arg(&page).args(["--", "true"]);
        command.output().expect("rnic starts")
    };
    let refused = run();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert_eq!(std::fs::read(&page).expect("it"), b"mine");
    std::fs::remove_file(&page).expect("it was there");
    for _ in 0..2 {
        let output = run();
        expect_success(&output);
        assert_eq!(data(&page)["requests"], serde_json::json!([]));
    }
}
