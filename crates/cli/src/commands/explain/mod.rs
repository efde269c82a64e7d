//! `rnic explain`: what a number, name or message of the verbs means, why it comes, and what to do.

mod glossary;
mod here;
mod lookup;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::commands::run::report;
use crate::platform::failure::{Failure, Result};
use crate::platform::{out, signals};
use crate::topics::catalogue;
use crate::topics::topic::{Kind, Topic};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic explain 12                        a work completion status (and what 12 is elsewhere)
  rnic explain errno 12                  also: wc, event, state, nak, vendor, wr, cm, rej, sidr, fi, ucs
  rnic explain IBV_WC_REM_ACCESS_ERR     or rem_access, or \"remote access error\"
  rnic explain nak 0x61
  rnic explain RDMA_CM_EVENT_REJECTED, error 8
  rnic explain Failed status 12: wr_id 0 syndrom 0x81
  rnic explain Failed to modify QP to RTR
  rnic explain queue pair                a word of the field, with a line of this machine's output
  rnic explain words                     lists these words
  rnic explain --report /tmp/report      why programs failed, see rnic run --print-env")]
pub struct Args {
    /// A number, name or message [default: list all that is known]
    #[arg(value_name = "WORD", allow_negative_numbers = true)]
    words: Vec<String>,
    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Say why a program failed, by what its NIC recorded in FILE (`rnic run --print-env --report
    /// FILE`). Prints nothing if the NIC saw nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["words", "json"])]
    report: Option<PathBuf>,
    /// With --report: leave out what was recorded before this byte of FILE
    #[arg(long, value_name = "BYTE", default_value_t = 0, requires = "report")]
    from: u64,
    /// With --report: what failed
    #[arg(
        long,
        value_name = "NAME",
        default_value = "the program",
        requires = "report"
    )]
    name: String,
}

/// Of the format that docs/json.md describes. Fields may be added to it.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Answer<'a> {
    version: u32,
    words: Vec<glossary::Entry>,
    topics: &'a [&'static Topic],
    also: &'a [&'static Topic],
}

fn number(topic: &Topic) -> String {
    match topic.kind {
        Kind::Nak | Kind::Vendor => format!("{:#04x}", topic.number),
        Kind::Program => String::new(),
        Kind::Fabric | Kind::Ucx => format!("-{}", topic.number),
        _ => topic.number.to_string(),
    }
}

fn print(topic: &Topic, width: usize) {
    let say = |first: &str, rest: &str, text: &str| {
        crate::say!("{}", out::paragraph(width, first, rest, text));
    };
    let text = match topic.text {
        "" => String::new(),
        text => format!(" \"{text}\""),
    };
    let title = format!("{} {}", topic.kind.title(), number(topic));
    let title = format!("{}: {}{text}", title.trim_end(), topic.name);
    say("", "  ", &title);
    say("  ", "  ", topic.meaning);
    let line = |label: &str, text: &str| {
        if !text.is_empty() {
            say(&format!("  {label:<9}"), &" ".repeat(11), text);
        }
    };
    line("side:", topic.side);
    let list = |label: &str, entries: &[&str]| {
        if !entries.is_empty() {
            crate::say!("  {label}");
            for entry in entries {
                say("    - ", "      ", entry);
            }
        }
    };
    // A line of a program does not tell which of its causes it has.
    let causes = match topic.kind {
        Kind::Program => "possible causes:",
        _ => "causes, the usual first:",
    };
    list(causes, topic.causes);
    list("check:", topic.check);
    line("follows:", topic.follows);
}

fn short(topic: &Topic) -> String {
    let text = if topic.text.is_empty() {
        topic.meaning
    } else {
        topic.text
    };
    let mut text = text.to_owned();
    if text.len() > 60 {
        let cut = (0..=57)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(cut);
        text.push_str("...");
    }
    format!(
        "{:<7} {:>5}  {:<34} {text}",
        topic.kind.word(),
        number(topic),
        topic.name
    )
    .trim_end()
    .to_owned()
}

/// A row of a list: in columns, unless the terminal is too narrow for them.
fn row(topic: &Topic, terminal: Option<usize>) {
    let text = short(topic);
    match terminal {
        Some(width) if 2 + text.len() > width => {
            let words: Vec<&str> = text.split_whitespace().collect();
            crate::say!(
                "{}",
                out::paragraph(width, "  ", "      ", &words.join(" "))
            );
        }
        _ => crate::say!("  {text}"),
    }
}

fn list_all(terminal: Option<usize>, width: usize) {
    let say = |text: &str| crate::say!("{}", out::paragraph(width, "", "  ", text));
    say("What `rnic explain` knows. Ask by number, name or message: rnic explain 12");
    say("`rnic explain words` lists the words of the field: QP, rkey, PSN ...");
    for kind in Kind::ALL {
        crate::say!();
        say(&format!(
            "{} (rnic explain {} ...):",
            kind.title(),
            kind.word()
        ));
        for topic in catalogue::all().filter(|topic| topic.kind == kind) {
            row(topic, terminal);
        }
    }
}

/// `--report`.
fn explain_report(file: &Path, args: &Args) -> Result<()> {
    let opened = File::open(file).map_err(|error| {
        Failure::new(format!("cannot read the report file {}", file.display()))
            .cause(error.to_string())
            .next("`rnic run --print-env --report FILE` makes one, and prints what programs need to write to it")
    })?;
    let faults = rnic_settings::FAULTS.text().is_some();
    let words = report::words(opened, args.from, &args.name, faults);
    if !words.is_empty() {
        crate::say!("{}", words.trim_end());
    }
    Ok(())
}

pub fn main(args: Args) -> Result<()> {
    signals::end_on_broken_pipe();
    if let Some(file) = &args.report {
        return explain_report(file, &args);
    }
    if let Some(asked) = glossary::asked(&args.words) {
        return glossary::answer(&asked, args.json);
    }
    let found = match args.words.is_empty() {
        true => lookup::Found {
            topics: catalogue::all().collect(),
            also: Vec::new(),
        },
        false => lookup::find(&args.words),
    };
    if found.topics.is_empty() {
        // Misspelt, and only one word is meant.
        if !args.json
            && let [word] = lookup::near_words(&args.words)[..]
            && lookup::near(&args.words).is_empty()
        {
            let asked = args.words.join(" ");
            crate::say!(
                "`{asked}` is not known; the nearest word is `{}`.\n",
                word.name
            );
            return glossary::answer(&glossary::Asked::One(word, Vec::new()), false);
        }
        return Err(unknown(&args.words));
    }
    if args.json {
        let answer = Answer {
            version: VERSION,
            words: Vec::new(),
            topics: &found.topics,
            also: &found.also,
        };
        let text =
            serde_json::to_string_pretty(&answer).map_err(|e| Failure::new(e.to_string()))?;
        crate::say!("{text}");
        return Ok(());
    }
    let terminal = out::columns();
    let width = terminal.map_or(out::WIDTH, |columns| columns.min(out::WIDTH));
    if args.words.is_empty() {
        list_all(terminal, width);
        return Ok(());
    }
    for (i, topic) in found.topics.iter().enumerate() {
        if i > 0 {
            crate::say!();
        }
        print(topic, width);
    }
    if !found.also.is_empty() {
        crate::say!("\nThe same number elsewhere:");
        for topic in &found.also {
            row(topic, terminal);
        }
    }
    Ok(())
}

fn unknown(words: &[String]) -> Failure {
    let failure = Failure::new(format!("nothing is known of `{}`", words.join(" ")));
    let near: Vec<String> = lookup::near_words(words)
        .into_iter()
        .map(glossary::row)
        .chain(lookup::near(words).into_iter().map(short))
        .collect();
    let failure = match near.is_empty() {
        true => failure.cause(
            "it holds no status, errno, event or code of the verbs, and is no line of a program that is listed",
        ),
        false => failure.cause(format!(
            "did you mean one of these?{}",
            near.iter()
                .map(|row| format!("\n    {row}"))
                .collect::<String>()
        )),
    };
    failure.next(
        "`rnic explain` lists everything. The lines before this one may name the failure; and `rnic run -- PROGRAM` \
         says what failed first",
    )
}
