//! Promises about the words: all are there, each is whole, each is found, and none hides a topic.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::*;
use crate::topics::catalogue;
use crate::topics::topic::Kind;

/// What a reader of texts about RDMA asks for.
const WANTED: &str = "QP CQ WQ WR WQE CQE MR MW PD SRQ XRC AH lkey rkey PSN QPN GID LID GRH P_Key \
    Q_Key inline signaled solicited fence immediate RNR MTU RC UC UD SEND WRITE READ atomic \
    one-sided two-sided ACK NAK retry_cnt timeout min_rnr_timer RoCE RoCEv2 ICRC DSCP ECN PFC CNP \
    doorbell completion_channel rdma_cm rsockets HCA RNIC verbs registration pinning ODP SGE BTH \
    RETH AETH DETH polling context port state";

#[test]
fn every_word_that_is_wanted_is_there() {
    for wanted in WANTED.split_whitespace() {
        assert!(find(wanted).is_some(), "{wanted}");
    }
    for (spelling, name) in [
        ("queue pair", "QP"),
        ("Queue-Pair", "QP"),
        ("qp", "QP"),
        ("IBV_SEND_INLINE", "inline"),
        ("remote key", "rkey"),
        ("Receiver Not Ready", "RNR"),
        ("path_mtu", "MTU"),
        // As a newcomer says it: another number, a past, and the words of sockets.
        ("access flag", "access flags"),
        ("lkeys", "lkey"),
        ("inlined", "inline"),
        ("registered", "registration"),
        ("queue", "WQ"),
        ("epoll", "completion channel"),
        ("listen", "rdma_cm"),
        ("socket", "rsockets"),
        ("client", "peer"),
        ("card", "HCA"),
    ] {
        assert_eq!(
            find(spelling).map(|word| word.name),
            Some(name),
            "{spelling}"
        );
    }
    // An entry that cannot be read would be missing without a word.
    let entries = FILES.iter().flat_map(|file| file.lines());
    let entries = entries.filter(|line| line.starts_with("what "));
    assert_eq!(entries.count(), all().len());
}

#[test]
fn each_word_has_its_five_lines() {
    for word in all() {
        for line in [word.what, word.why, word.c, word.rust, word.source] {
            let columns = line.chars().count();
            assert!(columns > 0, "{} lacks a line", word.name);
            // With the label in front, 100 columns.
            assert!(columns <= 90, "{}: {columns} columns: {line}", word.name);
        }
        assert!(
            word.what.ends_with('.') && word.why.ends_with('.'),
            "{}",
            word.name
        );
        assert_ne!(word.here, Here::Nowhere(""), "{}", word.name);
        assert!(!word.see.is_empty(), "{}", word.name);
        for other in &word.see {
            let found = all().iter().find(|word| word.name == *other);
            assert!(found.is_some(), "{} refers to {other}", word.name);
            assert_ne!(word.name, *other);
        }
    }
}

/// No spelling leads to two words, and none is a number or a kind of number ("wc 12").
#[test]
fn each_spelling_leads_to_one_word() {
    let mut clashes = Vec::new();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for word in all() {
        for spelling in word.spellings() {
            assert!(std::ptr::eq(find(spelling).unwrap(), word), "{spelling}");
            if let Some(other) = owners.insert(plain(spelling), word.name) {
                assert_eq!(other, word.name, "{spelling}");
            }
            assert!(spelling.parse::<i64>().is_err(), "{spelling}");
            // A request of C's verbs and its operation are the same thing; `explain` has both.
            let topics = catalogue::all().filter(|topic| topic.kind != Kind::Request);
            let same = topics.filter(|topic| plain(topic.name) == plain(spelling));
            clashes.extend(same.map(|topic| (word.name, topic.name)));
        }
    }
    assert!(clashes.is_empty(), "{clashes:?}");
}

/// Where a word says that `rnic explain` shows it, that knows what is asked.
#[test]
fn what_is_shown_here_is_named_well() {
    for word in all() {
        if let Here::Explain(asked) = word.here {
            let last = asked.rsplit(' ').next().unwrap();
            let known = catalogue::all()
                .any(|topic| topic.number.to_string() == last || topic.name.ends_with(last));
            assert!(known, "{}: {asked}", word.name);
        }
    }
}

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/glossary.md");

const HEAD: &str = "\
# Glossary

The words of RDMA, as `rnic explain WORD` has them. That command also shows a line of this machine's
own output in which the word appears. IBTA is the InfiniBand Architecture Specification.

This page is made of `crates/cli/src/topics/words`: the test
`the_glossary_is_what_the_words_say` compares it, and `RNIC_WRITE_GLOSSARY=1` writes it anew.

";

fn anchor(name: &str) -> String {
    let kept = name.to_lowercase().replace(' ', "-");
    kept.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

/// Lines of no more than 100 columns, where words allow.
fn fill(text: &str, out: &mut String) {
    let rest = if text.starts_with('*') { "  " } else { "" };
    *out += &crate::platform::out::paragraph(100, "", rest, text);
    *out += "\n";
}

/// As code, if it has signs that a page would take for its own.
fn code(text: &str) -> String {
    match text.contains(['<', '*', '_', '(', '`']) {
        true => format!("`{}`", text.replace('`', "")),
        false => text.to_owned(),
    }
}

fn glossary() -> String {
    let mut words: Vec<&Word> = all().iter().collect();
    words.sort_by_key(|word| word.name.to_lowercase());
    let mut page = HEAD.to_owned();
    for word in words {
        let _ = writeln!(page, "## {}\n", word.name);
        let _ = writeln!(page, "**{}**\n", word.long);
        fill(&format!("{} {}", word.what, word.why), &mut page);
        page += "\n";
        // In a list, so that each has a line of its own.
        fill(&format!("* C: {}", code(word.c)), &mut page);
        fill(&format!("* Rust: {}", code(word.rust)), &mut page);
        fill(&format!("* Source: {}", word.source), &mut page);
        let see: Vec<String> = word
            .see
            .iter()
            .map(|name| format!("[{name}](#{})", anchor(name)))
            .collect();
        fill(&format!("* See: {}", see.join(", ")), &mut page);
        page += "\n";
    }
    page += "Words that only rnic uses are in [design/words.md](../design/words.md).\n";
    page
}

#[test]
fn the_glossary_is_what_the_words_say() {
    let made = glossary();
    let path = Path::new(DOCUMENT);
    if std::env::var_os("RNIC_WRITE_GLOSSARY").is_some() {
        std::fs::write(path, &made).expect("written");
    }
    let there = std::fs::read_to_string(path).expect("docs/book/glossary.md");
    assert!(
        there == made,
        "docs/book/glossary.md differs from the words: \
         RNIC_WRITE_GLOSSARY=1 cargo test -p rnic-cli the_glossary writes it"
    );
}
