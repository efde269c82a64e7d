//! `rnic study` as its users run it: what it prints and writes, and how it ends. How fast anything
//! is, no test says.

use crate::browser;
use crate::common::{Scratch, rnic, stderr, stdout};
use crate::markup;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

/// Short, whatever it says then.
fn study(args: &[&str]) -> Output {
    let mut command = rnic();
    command.arg("study").args(args);
    command.output().expect("rnic starts")
}

#[track_caller]
fn json(file: &Path) -> Value {
    let text = std::fs::read(file).expect("written");
    serde_json::from_slice(&text).expect("JSON")
}

/// One round of everything: each setup of each question can be measured between two processes, and
/// each form of the result has all of it.
#[test]
fn every_question_in_every_form() {
    let scratch = Scratch::new("study-all");
    let file = |name: &str| scratch.0.join(name).to_str().expect("text").to_owned();
    let output = study(&[
        "--rounds",
        "1",
        "--seconds",
        "0.2",
        "--html",
        &file("a.html"),
        "--svg",
        &file("charts"),
        "--json",
        &file("a.json"),
        "--csv",
        &file("a.csv"),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "progress is for terminals");
    let listed = stdout(&study(&["--list"]));
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), 13, "{listed}");

    let document = json(&scratch.0.join("a.json"));
    assert_eq!(document["backend"], "software");
    let answers = document["questions"].as_array().expect("a list");
    let answered: Vec<&str> = answers
        .iter()
        .filter_map(|a| a["question"].as_str())
        .collect();
    assert_eq!(answered, names);
    let mut charts = BTreeSet::new();
    let mut points = 0;
    for answer in answers {
        let name = answer["question"].as_str().expect("a name");
        let all = answer["charts"].as_array().expect("charts");
        for (number, chart) in (1..).zip(all) {
            charts.insert(match all.len() {
                1 => format!("{name}.svg"),
                _ => format!("{name}-{number}.svg"),
            });
            for line in chart["series"].as_array().expect("lines") {
                for point in line["points"].as_array().expect("points") {
                    points += 1;
                    let value = |name: &str| point[name].as_f64().expect("a number");
                    let order = [value("low"), value("median"), value("high")];
                    assert!(order[0] >= 0.0 && order.is_sorted(), "{point}");
                    // Processor time is counted by the kernel, maybe not in so short a time.
                    assert!(order[0] > 0.0 || chart["metric"] == "processor", "{point}");
                    assert_eq!(point["rounds"].as_array().map(Vec::len), Some(1));
                }
            }
        }
    }
    let entries = std::fs::read_dir(scratch.0.join("charts")).expect("a folder");
    let written: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("a file")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    assert_eq!(written, charts);
    for name in &written {
        let svg = std::fs::read_to_string(scratch.0.join("charts").join(name)).expect("text");
        markup::is_well_formed(&format!("<!DOCTYPE html>{svg}"));
        assert!(svg.starts_with("<svg xmlns="), "{name}");
    }
    let csv = std::fs::read_to_string(scratch.0.join("a.csv")).expect("written");
    assert_eq!(csv.lines().count(), 1 + points);
    let html = std::fs::read_to_string(scratch.0.join("a.html")).expect("written");
    markup::is_well_formed(&html);
    assert_eq!(html.matches("<svg").count(), 2 * charts.len());
    for outside in ["src=", "href=\"http", "@import", "<script"] {
        assert!(
            !html.contains(outside),
            "{outside}: the page needs nothing else"
        );
    }
    let text = stdout(&output);
    for name in names {
        assert!(text.contains(&format!("\n{name}: ")), "{name}");
        assert!(html.contains(&format!("<section id=\"{name}\">")), "{name}");
    }
}

/// What is asked is answered in the usual order, once, and rounds are as many as were asked for.
#[test]
fn some_questions() {
    let scratch = Scratch::new("study-some");
    let file = scratch.0.join("a.json");
    let name = file.to_str().expect("text");
    let asked = ["qps", "inline", "qps", "--rounds", "6", "--seconds", "0.2"];
    let output = study(&[&asked[..], &["--json", name]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&file);
    let answers = document["questions"].as_array().expect("a list");
    let names: Vec<&str> = answers
        .iter()
        .filter_map(|a| a["question"].as_str())
        .collect();
    assert_eq!(names, ["inline", "qps"]);
    assert_eq!(document["rounds"], 6);
    assert_eq!(document["confidence"], 0.96875);
    let point = &answers[0]["charts"][0]["series"][0]["points"][0];
    assert_eq!(point["rounds"].as_array().map(Vec::len), Some(6));
    assert_eq!(point["texts"], 1.41);
    // Six rounds are enough to say something, or that there is nothing to say.
    let seen = answers[0]["seen"].as_str().expect("a sentence");
    assert!(!seen.contains("too few rounds"), "{seen}");

    let unknown = study(&["inlin"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains("there are inline, operation"),
        "{}",
        stderr(&unknown)
    );
}

/// The card that is printed can be read again, changed; one that is wrong is refused before
/// anything is measured, with its line.
#[test]
fn a_card_of_ones_own() {
    let scratch = Scratch::new("study-card");
    let printed = stdout(&study(&["--print-card"]));
    let file = scratch.0.join("card.txt");
    let name = file.to_str().expect("text");
    let result = scratch.0.join("a.json");
    let with = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let asked = [
            "inline",
            "--rounds",
            "1",
            "--seconds",
            "0.1",
            "--card",
            name,
        ];
        study(&[&asked[..], &["--json", result.to_str().expect("text")]].concat())
    };
    let mine = printed
        .replace("ConnectX-3\n", "mine\n")
        .replace("= 1.315 us", "= 10 us");
    assert_ne!(mine, printed);
    let output = with(&mine);
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&result);
    assert_eq!(document["card"]["name"], "mine");
    let model = &document["questions"][0]["charts"][0]["series"][0]["points"][0]["model"];
    assert!(model.as_f64().is_some_and(|us| us > 10.0), "{model}");

    let output = with(&printed.replace("= 1.315 us", "= fast"));
    assert_eq!(output.status.code(), Some(2));
    let line = printed
        .lines()
        .position(|line| line.starts_with("write_us"))
        .expect("a line")
        + 1;
    let expected = format!("card.txt, line {line}: `write_us` is a number of us");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

/// Where it cannot be written, nothing is measured first.
#[test]
fn files_are_tried_before_measuring() {
    for option in ["--html", "--json", "--csv", "--svg"] {
        let output = study(&["inline", option, "/proc/nowhere/a"]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(
            stderr(&output).contains("cannot write /proc/nowhere/a"),
            "{}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
    }
}

/// Pixels, or a word about why there are none.
#[test]
fn png() {
    let scratch = Scratch::new("study-png");
    let folder = scratch.0.join("charts");
    let name = folder.to_str().expect("text");
    let output = study(&["inline", "--rounds", "1", "--seconds", "0.1", "--png", name]);
    if !cfg!(feature = "png") {
        assert!(
            stderr(&output).contains("without PNG"),
            "{}",
            stderr(&output)
        );
        return assert_eq!(output.status.code(), Some(1));
    }
    if stderr(&output).contains("needs a font") {
        return rnic_skip::skipped("png", "no font is installed");
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = std::fs::read(folder.join("inline.png")).expect("written");
    assert!(bytes.starts_with(b"\x89PNG\r\n") && bytes.ends_with(b"IEND\xae\x42\x60\x82"));
    assert!(
        bytes.len() > 10_000,
        "{} bytes: letters are missing",
        bytes.len()
    );
}

#[test]
fn a_server_and_a_client() {
    let mut server = rnic()
        .args(["study", "--server", "127.0.0.1:0", "--addr", "127.0.0.1"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("rnic starts");
    let mut lines = BufReader::new(server.stderr.take().expect("asked for")).lines();
    let line = lines.next().expect("a line").expect("text");
    let addr = line.rsplit(' ').next().expect("an address").to_owned();
    assert!(line.contains("rnic study --connect"), "{line}");
    // One question of each kind of measurement: there and back, one by one, many at once.
    let asked = [
        "operation",
        "batch",
        "service",
        "--rounds",
        "1",
        "--seconds",
        "0.2",
    ];
    let output = study(&[&["--connect", &addr, "--addr", "127.0.0.1"][..], &asked].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(server.wait().expect("it ends").success());
    assert!(stdout(&output).contains("\noperation: "));
}

/// At the two widths that it is made for, light and dark: nothing sticks out, and of each chart one
/// form is shown.
#[test]
fn the_page_fits_any_screen() {
    let name = "the_page_fits_any_screen";
    if !browser::is_here() {
        return rnic_skip::skipped(name, "chromium is not installed");
    }
    let scratch = Scratch::new("study-screens");
    let file = scratch.0.join("study.html");
    let asked = ["polling", "atomics", "--rounds", "1", "--seconds", "0.1"];
    let output = study(&[&["--html", file.to_str().expect("text")][..], &asked].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for (width, height) in [(400, 800), (1280, 800)] {
        for dark in [false, true] {
            let mut browser = browser::Browser::start(&scratch.0.join("profile"));
            browser.open_on(Some((width, height, dark)), &file);
            let seen: Value = serde_json::from_str(&browser.run(
                "(async () => { \
                   const shown = [...document.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0); \
                   const paper = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number); \
                   const out = shown.map((svg) => { \
                     const frame = svg.getBoundingClientRect(); \
                     const boxes = [...svg.querySelectorAll('text')].map((text) => text.getBoundingClientRect()); \
                     return boxes.filter((box) => box.left < frame.left - 1 || box.right > frame.right + 1 \
                       || box.top < frame.top - 1 || box.bottom > frame.bottom + 1).length; }); \
                   return JSON.stringify({ \
                     width: document.documentElement.scrollWidth, \
                     shown: shown.length, \
                     all: document.querySelectorAll('svg').length, \
                     letters: Math.min(...shown.flatMap((svg) => [...svg.querySelectorAll('text')] \
                       .map((text) => text.getBoundingClientRect().height))), \
                     out: out.reduce((a, b) => a + b), \
                     dark: paper[0] < 60, \
                   }); })()",
            ))
            .expect("JSON");
            let number = |name: &str| seen[name].as_f64().expect("a number");
            assert!(number("width") <= f64::from(width), "{seen}");
            assert_eq!(number("shown") * 2.0, number("all"), "{seen}");
            assert_eq!(number("out"), 0.0, "letters outside a chart: {seen}");
            assert!(number("letters") >= 11.0, "too small to read: {seen}");
            assert_eq!(seen["dark"], dark, "{seen}");
        }
    }
}
