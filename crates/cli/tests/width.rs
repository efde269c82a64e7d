//! What is for people fits their terminal.

use std::io::Read;

use crate::common::{rnic, run, stdout, terminal};

/// What a terminal of so many columns shows of a command.
fn on_a_terminal(columns: u16, args: &[&str]) -> String {
    let (mut ours, theirs) = terminal(columns, 24);
    let mut command = rnic();
    command
        .args(args)
        .env_remove("COLUMNS")
        .env("NO_COLOR", "1");
    command.stdout(theirs);
    let mut child = command.spawn().expect("rnic starts");
    // The last copy of the other end is the child's.
    drop(command);
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    // An error is the end: nobody has the other end any more.
    while let Ok(n @ 1..) = ours.read(&mut piece) {
        shown.extend_from_slice(&piece[..n]);
    }
    assert!(child.wait().expect("its end").success());
    String::from_utf8(shown).expect("text").replace('\r', "")
}

/// Lines that are longer, though there was a place to break them.
fn too_long(text: &str, columns: usize) -> Vec<&str> {
    let lines = text.lines().filter(|line| {
        // Usage is shown as it is, and a word stays one.
        line.chars().count() > columns && line.trim().contains(' ') && !line.contains("Usage:")
    });
    lines.collect()
}

const COMMANDS: [&str; 8] = [
    "run", "explain", "dissect", "devices", "demo", "bench", "verify", "course",
];

#[test]
fn help_fits_the_terminal() {
    for columns in [60, 80, 200] {
        // On a wide one it is as on the usual one: long lines are hard to read.
        let most = usize::from(columns).min(100);
        let text = on_a_terminal(columns, &["--help"]);
        assert!(text.contains("Environment of"), "{text}");
        assert_eq!(too_long(&text, most), [""; 0]);
        for command in COMMANDS {
            for option in ["-h", "--help"] {
                let text = on_a_terminal(columns, &[command, option]);
                assert_eq!(too_long(&text, most), [""; 0], "{command} {option}");
            }
        }
    }
}

/// Lines that end early, though the first word of the next one would have had room: the text was
/// broken for one width, and again for another.
fn broken_twice(text: &str, columns: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let early = |pair: &&[&str]| {
        let (line, next) = (pair[0], pair[1]);
        let prose = |line: &str| line.starts_with(|c: char| c.is_alphabetic());
        // Of a column, whatever its indentation.
        let indent = |line: &str| line.len() - line.trim_start().len();
        let column = indent(line) > 20 && indent(line) == indent(next);
        let first = next.split_whitespace().next().unwrap_or_default();
        (prose(line) && prose(next) && !line.ends_with(':') || column)
            && line.chars().count() + 1 + first.chars().count() <= columns
    };
    lines.windows(2).filter(early).map(|pair| pair[0]).collect()
}

#[test]
fn no_help_is_broken_twice() {
    for columns in [60, 80, 100] {
        let text = on_a_terminal(columns, &["--help"]);
        // What follows the list of commands.
        let (_, after) = text.split_once("First steps:").expect("first steps");
        assert_eq!(broken_twice(after, columns.into()), [""; 0], "{columns}");
        for command in COMMANDS {
            let text = on_a_terminal(columns, &[command, "--help"]);
            let (_, after) = text.split_once("Options:").expect("options");
            assert_eq!(
                broken_twice(after, columns.into()),
                [""; 0],
                "{command} {columns}"
            );
        }
    }
}

#[test]
fn explain_fits_the_terminal() {
    for columns in [40, 60] {
        for args in [
            &["explain", "12"][..],
            &["explain"],
            &["explain", "nak", "0x60"],
            &["explain", "client read/write"],
        ] {
            let text = on_a_terminal(columns, args);
            assert!(text.lines().count() > 10, "{text}");
            assert_eq!(too_long(&text, columns.into()), [""; 0]);
        }
    }
    // Elsewhere it is the same wherever it is.
    let piped = stdout(&run(&["explain", "wc", "12"]));
    assert_eq!(piped, on_a_terminal(200, &["explain", "wc", "12"]));
    assert!(piped.lines().any(|line| line.len() > 80), "{piped}");
    assert_eq!(too_long(&piped, 100), [""; 0]);
}
