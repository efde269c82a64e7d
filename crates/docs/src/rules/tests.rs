//! For each rule a document that breaks it is told, and one that keeps to it is not.

use super::*;

fn parse(path: &str, text: &str) -> Document {
    Document::parse(path, text)
}

fn lines(complaints: impl IntoIterator<Item = Complaint>) -> Vec<usize> {
    complaints.into_iter().map(|c| c.line).collect()
}

fn repository() -> Repository {
    Repository::of(&[
        ("README.md", "# rnic\n## Try it\n"),
        ("docs/running.md", "# Running\n"),
        ("crates/nic/src/engine/mod.rs", ""),
        ("crates/nic/src/objects/cq.rs", ""),
        ("bench/run", ""),
    ])
}

/// Each document with a limit is told when it is longer, by one.
#[test]
fn size_limits() {
    for (path, limit) in [
        ("README.md", 200),
        ("BENCHMARKS.md", 300),
        ("ROADMAP.md", 60),
        ("CHANGELOG.md", 120),
    ] {
        assert!(
            size(&parse(path, &"line\n".repeat(limit))).is_none(),
            "{path}"
        );
        assert!(
            size(&parse(path, &"line\n".repeat(limit + 1))).is_some(),
            "{path}"
        );
    }
    assert!(size(&parse("ARCHITECTURE.md", &"a".repeat(15_000))).is_none());
    assert!(size(&parse("ARCHITECTURE.md", &"a".repeat(15_001))).is_some());
    assert!(size(&parse("docs/running.md", &"line\n".repeat(1000))).is_none());
}

/// A long line is told; a table, code between fences, and a link that has no space in it are not.
#[test]
fn long_lines() {
    let words = "words and ".repeat(11);
    assert_eq!(
        lines(columns(&parse("x.md", &format!("ok\n{words}\n")))),
        [2]
    );
    assert_eq!(lines(columns(&parse("x.md", &format!("* {words}\n")))), [1]);
    let link = format!("* [x](https://example.org/{})\n", "a".repeat(100));
    assert!(columns(&parse("x.md", &link)).is_empty());
    let code = format!("`{words}`\n");
    assert!(columns(&parse("x.md", &code)).is_empty());
    let table = format!("| a | b |\n| - | - |\n| {words} | c |\n");
    assert!(columns(&parse("x.md", &table)).is_empty());
    let fenced = format!("```text\n{words}\n```\n");
    assert!(columns(&parse("x.md", &fenced)).is_empty());
    assert_eq!(
        lines(columns(&parse("x.md", &format!("{fenced}\n{words}\n")))),
        [5]
    );
}

/// A sentence of 36 words is told wherever it stands; two of 35 are not.
#[test]
fn long_sentences() {
    let sentence = |words: usize| format!("{}end.", "word ".repeat(words - 1));
    let good = format!("{} {}\n", sentence(35), sentence(35));
    assert!(sentences(&parse("x.md", &good)).is_empty());
    let bad = sentence(36);
    assert_eq!(
        lines(sentences(&parse("x.md", &format!("Short.\n\n{bad}\n")))),
        [3]
    );
    assert_eq!(
        lines(sentences(&parse("x.md", &format!("* item\n* {bad}\n")))),
        [2]
    );
    let table = format!("| a | b |\n| - | - |\n| c | {bad} |\n");
    assert_eq!(lines(sentences(&parse("x.md", &table))), [3]);
    // Code is a word; a full stop in a number or a name ends nothing.
    assert!(sentences(&parse("x.md", "Rust 1.91, see a.b `a b c d`.\n")).is_empty());
    let halves = format!("{}(IBTA vol. 1) {}", "word ".repeat(18), sentence(18));
    assert_eq!(lines(sentences(&parse("x.md", &halves))), [1]);
}

/// Each word that is not plain English is told, in any case and across lines, but not in code.
#[test]
fn forbidden_words() {
    for (wrong, _) in INSTEAD {
        let text = format!("It goes\n{} that.\n", wrong.to_uppercase());
        assert_eq!(words(&parse("x.md", &text)).len(), 1, "{wrong}");
        assert!(
            words(&parse("x.md", &format!("`{wrong}`\n"))).is_empty(),
            "{wrong}"
        );
    }
    assert!(!words(&parse("x.md", "a path by\nmemory\n")).is_empty());
    assert!(words(&parse("x.md", "This changes the path over UDP.\n")).is_empty());
}

/// "who" for a process is told; for people, in questions and in headings it is not.
#[test]
fn who_is_for_people() {
    assert_eq!(
        lines(who(&parse("x.md", "A process who waits sleeps.\n"))),
        [1]
    );
    assert_eq!(
        lines(who(&parse("x.md", "Fine.\n\nWho waits there is asleep.\n"))),
        [3]
    );
    for good in [
        "Users who wait sleep.\n",
        "Who waits?\n",
        "# Who can do what\n",
        "Nobody knows who sent it.\n",
        "[Who can do what](x.md)\n",
    ] {
        assert!(who(&parse("x.md", good)).is_empty(), "{good}");
    }
}

/// What looks like the hash of a commit is told, in code as well; numbers and words are not.
#[test]
fn commit_hashes() {
    assert_eq!(
        lines(hashes(&parse("x.md", "Since ba03081 it works.\n"))),
        [1]
    );
    assert_eq!(lines(hashes(&parse("x.md", "Since `192e69f`.\n"))), [1]);
    for good in [
        "1234567 packets\n",
        "defaced\n",
        "`0xfdf25cd8`\n",
        "QP 0x71a000\n",
        "4096b\n",
    ] {
        assert!(hashes(&parse("x.md", good)).is_empty(), "{good}");
    }
}

/// A day is told; a version and a range are not.
#[test]
fn days() {
    assert_eq!(
        lines(dates(&parse("x.md", "Until 2026-11-28 it took\nlonger.\n"))),
        [1]
    );
    assert!(dates(&parse("x.md", "Ports 18515-18517, rdma-core 65-1.\n")).is_empty());
}

/// A link to what is not there is told: a file, a heading of this document, one of another.
#[test]
fn broken_links() {
    let there = repository();
    let check = |path, text| links(&parse(path, text), &there);
    for good in [
        "[x](docs/running.md)\n",
        "[x](docs/running.md#running)\n",
        "[x](docs)\n",
        "[x](https://example.org/nothing)\n",
    ] {
        assert!(check("README.md", good).is_empty(), "{good}");
    }
    assert!(
        check(
            "docs/running.md",
            "# A b\n[x](../README.md#try-it) [y](#a-b)\n"
        )
        .is_empty()
    );
    for bad in [
        "[x](docs/gone.md)\n",
        "![x](docs/gone.svg)\n",
        "[x](docs/running.md#gone)\n",
        "[x](#gone)\n",
        "[x](../outside.md)\n",
    ] {
        assert_eq!(lines(check("README.md", bad)), [1], "{bad}");
    }
}

/// A name of a file that is not there is told; shortened paths, braces and patterns are understood,
/// and other programs' files are left alone.
#[test]
fn files_that_are_gone() {
    let there = repository();
    let check = |text: &str| paths(&parse("x.md", text), &there);
    for good in [
        "`crates/nic/src/objects/cq.rs`",
        "`nic/src/engine`",
        "`engine/mod.rs`",
        "`nic/src/{objects/cq,engine/mod}.rs`",
        "`bench/run`",
        "`nic/src/engine/*.rs`",
        "`/tmp/rnic-1000/a.rs`",
        "`target/release/gone`",
        "`run.pcap`",
        "`rsocket.c`",
        "`cq.rs::a_test`",
        "`and/or`",
    ] {
        assert!(check(good).is_empty(), "{good}");
    }
    for bad in [
        "`crates/nic/src/gone.rs`",
        "`gone.rs`",
        "`nic/src/{objects/cq,gone}.rs`",
        "`bench/gone`",
        "`docs/gone.md`",
        "`gone.rs::a_test`",
        "`nic/gone/*.rs`",
    ] {
        assert_eq!(lines(check(bad)), [1], "{bad}");
    }
}

/// Pages that programs write, and notes beside tests, are judged by their links alone.
#[test]
fn what_is_looked_up() {
    let long = format!("{}[x](gone.md)\n", "by UDP ".repeat(40));
    for path in [
        "bench/results/rows.md",
        "docs/interop-table.md",
        "crates/cm/tests/scripts/README.md",
    ] {
        assert_eq!(all(&parse(path, &long), &repository()).len(), 1, "{path}");
    }
    assert!(all(&parse("docs/x.md", &long), &repository()).len() > 2);
}
