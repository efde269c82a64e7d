//! The page of `rnic demo --html`: it shows what has just happened, each operation with its packets,
//! and its words lead to their explanations.

use std::fs;

use serde_json::Value;

use crate::browser::{self, Browser};
use crate::common::{Scratch, expect_success, rnic, stderr, stdout};
use crate::markup;

const OPEN: &str = "<script type=\"application/json\" id=\"data\">";

fn made(scratch: &Scratch) -> String {
    let page = scratch.0.join("demo.html");
    let output = rnic()
        .args(["demo", "--html"])
        .arg(&page)
        .output()
        .expect("rnic starts");
    expect_success(&output);
    assert!(stdout(&output).contains("The page: "));
    fs::read_to_string(page).expect("the page")
}

#[test]
fn every_operation_has_its_requests_and_packets() {
    let scratch = Scratch::new("demo-page");
    let page = made(&scratch);
    markup::is_well_formed(&page);
    assert!(!page.contains("@@"), "a mark is left");
    assert!(!page.contains("http://") || page.contains("www.w3.org/2000/svg"));
    let (_, rest) = page.split_once(OPEN).expect("data");
    let (data, _) = rest.split_once("</script>").expect("its end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let operations = data["lesson"]["operations"].as_array().expect("a list");
    let requests: Vec<u64> = operations
        .iter()
        .map(|operation| operation["requests"].as_u64().expect("a number"))
        .collect();
    // SEND, WRITE, WRITE with immediate, READ, two COMPARE-AND-SWAPs, FETCH-AND-ADD.
    assert_eq!(requests, [1, 1, 1, 1, 2, 1]);
    let all = data["conversations"][0]["messages"]
        .as_array()
        .expect("a list");
    let kinds: Vec<&str> = all.iter().map(|m| m[2].as_str().expect("a name")).collect();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    for (kind, message) in ["SEND", "RDMA WRITE", "RDMA WRITE", "RDMA READ"]
        .iter()
        .zip(&kinds)
    {
        assert!(message.starts_with(kind), "{kinds:?}");
    }
    assert!(data["packets"].as_array().expect("a list").len() >= 70);
    for operation in operations {
        let result = operation["result"].as_str().expect("words");
        assert!(result.starts_with("verified; "), "{result}");
    }
}

#[test]
fn nothing_else_is_overwritten() {
    let scratch = Scratch::new("demo-kept");
    let file = scratch.0.join("mine.c");
    fs::write(&file, "int main(void) { return 0; }\n").expect("own folder");
    let output = rnic()
        .args(["demo", "--html"])
        .arg(&file)
        .output()
        .expect("rnic starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("left alone"),
        "{}",
        stderr(&output)
    );
    assert!(
        fs::read_to_string(&file)
            .expect("kept")
            .starts_with("int main")
    );
}

/// Promise: a page that cannot be written is said before the demo, and with what to do.
#[test]
fn a_page_that_cannot_be_written_is_said_first() {
    let output = rnic()
        .args(["demo", "--html", "/proc/nowhere/demo.html"])
        .output()
        .expect("rnic starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "", "the demo was done");
    let said = stderr(&output);
    assert!(
        said.contains("cannot write") && said.contains("next:"),
        "{said}"
    );
}

/// In a browser, wide and narrow: six diagrams with arrows, links that lead to words, nothing that
/// sticks out, and the diagram of all packets in the end.
#[test]
fn a_browser_shows_the_lesson() {
    if !browser::is_here() {
        rnic_skip::skipped("a_browser_shows_the_lesson", "chromium is not installed");
        return;
    }
    let scratch = Scratch::new("demo-browser");
    made(&scratch);
    for (n, screen) in [(1280, 900, false), (400, 800, true)]
        .into_iter()
        .enumerate()
    {
        let mut browser = Browser::start(&scratch.0.join(format!("profile{n}")));
        browser.open_on(Some(screen), &scratch.0.join("demo.html"));
        let said = browser.run(include_str!("demo_page/lesson.js"));
        let wrong = said.lines().any(|line| !line.starts_with("ok "));
        assert!(!wrong && said.lines().count() >= 6, "{screen:?}: {said}");
    }
}
