//! The file that processes report to is open to all of the user's processes: whatever stands in it,
//! `rnic run` passes on what its program ended with, and what is right in there is told.

use crate::common;
use crate::common::{Scratch, run_here, stderr};

/// A line of each kind, as the device writes them.
const LINES: &str = include_str!("report_lines.jsonl");

/// Runs a program that leaves `report` there and fails; what `rnic run` said.
fn told(scratch: &Scratch, report: &[u8], options: &[&str]) -> String {
    let file = scratch.0.join("lines");
    std::fs::write(&file, report).expect("written");
    let output = run_here(scratch)
        .args(options)
        .args(["--", "sh", "-c", "cat \"$0\" >> \"$RNIC_REPORT\"; exit 3"])
        .arg(&file)
        .output()
        .expect("rnic starts");
    let said = stderr(&output);
    assert_eq!(
        output.status.code(),
        Some(3),
        "{said}\nof {}",
        String::from_utf8_lossy(report)
    );
    said
}

const WAYS: [&[&str]; 2] = [&["--stats", "--lint"], &["--stats", "--lint", "--json"]];

#[test]
fn a_line_that_is_no_text_is_passed_over() {
    let scratch = Scratch::new("no-text");
    let whole = told(&scratch, LINES.as_bytes(), WAYS[1]);
    assert!(whole.contains("ibv_create_cq") && whole.contains("never ready"));
    for wrong in [
        &b"\xff\xfe\n"[..],
        b"\0\n",
        b"{\n",
        b"[]\n",
        b"\n",
        b"{\"record\":7}\n",
    ] {
        let report = [wrong, LINES.as_bytes()].concat();
        assert_eq!(told(&scratch, &report, WAYS[1]), whole, "{wrong:?}");
    }
}

/// Numbers become extreme, and bytes any others.
fn changed(rng: &mut fastrand::Rng) -> Vec<u8> {
    const EXTREMES: [&str; 8] = [
        "0",
        "1",
        "4294967295",
        "9223372036854775808",
        "18446744073709551615",
        "-1",
        "1e300",
        "null",
    ];
    let mut report = Vec::new();
    for line in LINES.lines() {
        let extreme = rng.u8(..) % 4;
        let mut number = false;
        for piece in line.split_inclusive([':', ',', '}']) {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            if number && digits > 0 && extreme > rng.u8(..) % 8 {
                let text = EXTREMES[rng.usize(..EXTREMES.len())];
                report.extend_from_slice(text.as_bytes());
                report.extend_from_slice(&piece.as_bytes()[digits..]);
            } else {
                report.extend_from_slice(piece.as_bytes());
            }
            number = piece.ends_with(':');
        }
        report.push(b'\n');
    }
    for _ in 0..rng.usize(..4) {
        let at = rng.usize(..report.len());
        report[at] = rng.u8(..);
    }
    report
}

#[test]
fn whatever_is_reported_the_program_ends_as_it_did() {
    let scratch = Scratch::new("reported");
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..200 {
        let report = changed(&mut rng);
        told(&scratch, &report, WAYS[round % 2]);
    }
}

/// Promise: so it does whatever lies in the file of another run, which may be about its peers.
#[test]
fn whatever_another_run_reported_the_program_ends_as_it_did() {
    let scratch = Scratch::new("of-another");
    told(&scratch, LINES.as_bytes(), WAYS[1]);
    let runtime = scratch.0.join("runtime");
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..30 {
        for other in ["report-1", "report-2"] {
            let report = String::from_utf8_lossy(&changed(&mut rng)).into_owned();
            let report = report.replace(r#""process":1"#, r#""process":2"#);
            std::fs::write(runtime.join(other), report).expect("written");
        }
        told(&scratch, LINES.as_bytes(), &[]);
    }
}

/// Guards: of a report, `rnic explain --report` tells of what came from a byte on, and nothing of
/// what came before.
#[test]
fn a_report_is_told_from_a_byte_on() {
    let scratch = Scratch::new("from");
    let file = scratch.0.join("report");
    std::fs::write(&file, LINES).expect("written");
    let explain = |from: usize| {
        let mut command = common::rnic();
        command.args(["explain", "--name", "test_it", "--report"]);
        command.arg(&file).arg(format!("--from={from}"));
        let output = command.output().expect("rnic starts");
        common::expect_success(&output);
        common::stdout(&output)
    };
    let all = explain(0);
    assert!(all.starts_with("rnic: ") && all.contains("cause:"), "{all}");
    assert_eq!(explain(LINES.len()), "", "nothing came after it");
    // A verb that was refused, after all else.
    let verb =
        r#"{"record":"verb","process":1,"ns":9,"verb":"ibv_reg_mr","errno":22,"reason":"why"}"#;
    std::fs::write(&file, format!("{LINES}{verb}\n")).expect("written");
    let told = explain(LINES.len());
    assert!(
        told.starts_with("rnic: test_it failed; no work request had failed")
            && told.contains("words (pid 3875)")
            && told.contains("cause: why"),
        "the process was introduced before that byte: {told}"
    );
}
