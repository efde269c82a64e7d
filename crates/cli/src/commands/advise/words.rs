//! The opinion, for people and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::attempt::Attempt;
use super::evidence::Evidence;
use super::gain::{Gain, Leaving};
use super::judge::{Advice, Judgement};
use crate::platform::out::{WIDTH, paragraph};
use crate::text::{gigabytes, micros, printable, rate};

/// An advice with its gains.
pub struct Advised {
    pub advice: Advice,
    pub card: Option<Gain>,
    pub here: Option<Gain>,
}

impl Advised {
    /// Of two changes the one that gains more comes first, on rnic where that was measured; those
    /// that nobody put a number to stay as they are, behind.
    pub fn order(&self, other: &Advised) -> std::cmp::Ordering {
        let gain = |advised: &Advised| {
            let gain = advised.here.or(advised.card);
            gain.map_or(0.0, |gain| gain.factor)
        };
        gain(other).total_cmp(&gain(self))
    }
}

/// All that there is to say.
pub struct Opinion {
    /// The card whose model was asked.
    pub card: String,
    pub evidence: Evidence,
    pub judgement: Judgement,
    pub advised: Vec<Advised>,
    pub leaving: Leaving,
    pub attempts: Vec<Attempt>,
    /// Load average of the last minute, and the processors that this process may use.
    pub load: (f64, usize),
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "us" => format!("{} us", micros(value)),
        "B/s" => gigabytes(value),
        _ => rate(value),
    }
}

fn gain(gain: &Gain) -> String {
    format!(
        "{} -> {}, {:.2} times",
        figure(gain.before, gain.unit),
        figure(gain.after, gain.unit),
        gain.factor
    )
}

/// Predicted gains, each with where it is from.
fn gains(here: Option<&Gain>, card: Option<&Gain>, name: &str) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(here) = here {
        all.push(format!(
            "predicted on rnic, from figures of this machine: {}",
            gain(here)
        ));
    }
    if let Some(card) = card {
        all.push(format!(
            "predicted on a {name}, by its cost model: {}",
            gain(card)
        ));
    }
    all
}

pub fn text(opinion: &Opinion) -> String {
    let Opinion {
        evidence,
        judgement,
        ..
    } = opinion;
    let mut lines = vec![format!(
        "rnic advise: {}: {}",
        printable(&evidence.program),
        judgement.verdict.words()
    )];
    let mut row = |name: &str, words: &str| {
        let first = format!("  {name:<10} ");
        lines.push(paragraph(WIDTH, &first, &" ".repeat(first.len()), words));
    };
    row("because", &judgement.why);
    let rule = judgement.rule;
    row(
        "rule",
        &format!(
            "{}: {} ({}; {})",
            rule.id, rule.says, rule.number, rule.source
        ),
    );
    for words in gains(
        opinion.leaving.here.as_ref(),
        opinion.leaving.card.as_ref(),
        &opinion.card,
    ) {
        row("gain", &words);
    }
    let (load, processors) = opinion.load;
    if load > processors as f64 {
        let words = format!(
            "the load average is {load:.1} on {processors} processors, so figures of this machine \
             are those of others, too"
        );
        row("note", &words);
    }
    for attempt in &opinion.attempts {
        row("tried", &tried(attempt));
    }
    let (changes, values): (Vec<&Advised>, Vec<&Advised>) = opinion
        .advised
        .iter()
        .partition(|advised| advised.advice.is_change);
    for (heading, all) in [("change", changes), ("begin with", values)] {
        for advised in all {
            let advice = &advised.advice;
            row(heading, &format!("{}: {}", advice.parameter, advice.then));
            let rule = advice.rule;
            row(
                "",
                &format!(
                    "{}; rule {} ({}; {})",
                    advice.counts, rule.id, rule.number, rule.source
                ),
            );
            for words in gains(advised.here.as_ref(), advised.card.as_ref(), &opinion.card) {
                row("", &words);
            }
        }
    }
    lines.join("\n")
}

fn tried(attempt: &Attempt) -> String {
    let mut words = format!("{}: ", attempt.change);
    let _ = match (
        attempt.before,
        attempt.after,
        attempt.factor,
        &attempt.why_not,
    ) {
        (Some(before), Some(after), Some(factor), _) => write!(
            words,
            "{before:.3} -> {after:.3} {}, {factor:.2} times (measured)",
            attempt.of
        ),
        (.., why) => write!(
            words,
            "{}",
            why.as_deref().unwrap_or("nothing was measured")
        ),
    };
    words
}

pub fn json(opinion: &Opinion) -> Value {
    let advice: Vec<Value> = (opinion.advised.iter())
        .map(|advised| {
            let advice = &advised.advice;
            json!({
                "parameter": advice.parameter,
                "advice": advice.then,
                "is_change": advice.is_change,
                "counts": advice.counts,
                "rule": advice.rule,
                "predicted_on_rnic": advised.here,
                "predicted_on_card": advised.card,
            })
        })
        .collect();
    json!({
        "version": 1,
        "program": opinion.evidence.program,
        "verdict": opinion.judgement.verdict,
        "because": opinion.judgement.why,
        "rule": opinion.judgement.rule,
        "card": opinion.card,
        "load_average": opinion.load.0,
        "processors": opinion.load.1,
        "predicted_on_rnic": opinion.leaving.here,
        "predicted_on_card": opinion.leaving.card,
        "advice": advice,
        "tried": opinion.attempts,
        "evidence": opinion.evidence,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::advise::evidence::Verbs;
    use crate::commands::advise::judge::{Verdict, judge};

    /// An opinion with everything that there can be.
    fn opinion() -> Opinion {
        let gain = Gain {
            before: 2.0,
            after: 1.0,
            unit: "us",
            factor: 2.0,
        };
        let evidence = Evidence {
            program: "prog".to_owned(),
            verbs: Some(Verbs::default()),
            ..Evidence::default()
        };
        let mut judgement = judge(&evidence, 25.0);
        judgement.verdict = Verdict::TwoSided;
        Opinion {
            card: "ConnectX-3".to_owned(),
            advised: vec![Advised {
                advice: Advice {
                    parameter: "inline limit",
                    then: "inline what fits".to_owned(),
                    rule: judgement.rule,
                    counts: "9 of 10".to_owned(),
                    change: None,
                    by_itself: None,
                    is_change: true,
                },
                card: Some(gain),
                here: Some(gain),
            }],
            evidence,
            judgement,
            leaving: Leaving {
                here: Some(gain),
                card: Some(gain),
            },
            attempts: vec![Attempt {
                change: "rsockets instead of TCP".to_owned(),
                of: "requests per second",
                before: Some(1.0),
                after: Some(2.0),
                factor: Some(2.0),
                why_not: None,
            }],
            load: (3.5, 2),
        }
    }

    fn names(value: &Value) -> BTreeSet<String> {
        match value {
            Value::Object(fields) => {
                let inner = fields.values().flat_map(names);
                fields.keys().cloned().chain(inner).collect()
            }
            Value::Array(list) => list.iter().flat_map(names).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Promise: docs/json.md has every field.
    #[test]
    fn fields_are_documented() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let document = std::fs::read_to_string(file).expect("docs/json.md");
        let (_, section) = document
            .split_once("## `rnic advise --json`")
            .expect("a section");
        let section = section.split("\n## ").next().expect("its text");
        for name in names(&json(&opinion())) {
            assert!(section.contains(&format!("`{name}`")), "no {name}");
        }
    }

    /// Promise: people read the verdict first, and each figure says where it is from.
    #[test]
    fn people_read_the_verdict_first() {
        let text = text(&opinion());
        assert!(text.starts_with("rnic advise: prog: two-sided\n"), "{text}");
        for part in [
            "because",
            "inline limit: inline what fits",
            "9 of 10; rule thin (200 messages;",
            "2.00 us -> 1.00 us, 2.00 times",
            "on a ConnectX-3, by its cost",
            "2.00 times (measured)",
            "load average is 3.5 on 2",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }
}
