//! The parameters of a card's cost model, from a file.

use std::path::Path;

use serde::Serialize;

use crate::platform::failure::{Failure, Result};

/// The card that is built in.
pub const BUILT_IN: &str = include_str!("card.txt");

/// Names and units of all parameters.
const PARAMETERS: [(&str, &str); 18] = [
    ("write_us", "us"),
    ("send_extra_us", "us"),
    ("fetch_us", "us"),
    ("read_us", "us"),
    ("byte_ns", "ns"),
    ("event_us", "us"),
    ("inline_bytes", "B"),
    ("post_ns", "ns"),
    ("doorbell_ns", "ns"),
    ("completion_ns", "ns"),
    ("message_rate", "M/s"),
    ("link_rate", "Gb/s"),
    ("packet_bytes", "B"),
    ("cached_qps", "QPs"),
    ("miss_cost", "x"),
    ("register_us", "us"),
    ("register_page_us", "us"),
    ("atomic_rate", "M/s"),
];

/// These are divided by.
const NOT_ZERO: [&str; 3] = ["message_rate", "link_rate", "atomic_rate"];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// Where the value is from.
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    pub name: String,
    pub parameters: Vec<Parameter>,
}

impl Card {
    /// Of a file; without one, the card that is built in.
    pub fn read(file: Option<&Path>) -> Result<Card> {
        let Some(file) = file else {
            return Card::parse(BUILT_IN)
                .map_err(|(line, why)| bad("the card that is built in", line, &why));
        };
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::from(error).during(&format!("reading {shown}")))?;
        Card::parse(&text).map_err(|(line, why)| bad(&shown, line, &why))
    }

    /// Errors have the number of their line, from 1 on.
    fn parse(text: &str) -> std::result::Result<Card, (usize, String)> {
        let mut name = None;
        let mut found: Vec<Parameter> = Vec::new();
        let mut last = 1;
        for (line, content) in (1..).zip(text.lines()) {
            last = line;
            let fail = |why: String| Err((line, why));
            let (setting, source) = match content.split_once('#') {
                Some((setting, source)) => (setting.trim(), source.trim()),
                None => (content.trim(), ""),
            };
            if setting.is_empty() {
                continue;
            }
            let Some((key, value)) = setting.split_once('=') else {
                return fail("no `=`: NAME = VALUE UNIT # SOURCE".to_owned());
            };
            let (key, value) = (key.trim(), value.trim());
            if key == "card" {
                if name.is_some() || value.is_empty() {
                    return fail("the card has one name: card = NAME".to_owned());
                }
                name = Some(value.to_owned());
                continue;
            }
            let Some((key, unit)) = PARAMETERS.into_iter().find(|(known, _)| *known == key) else {
                return fail(format!("`{key}` is no parameter of a card"));
            };
            if found.iter().any(|parameter| parameter.name == key) {
                return fail(format!("`{key}` is there twice"));
            }
            let number = match value.split_once(char::is_whitespace) {
                Some((number, its)) if its.trim() == unit => number,
                _ => return fail(format!("`{key}` is a number of {unit}: {key} = 1 {unit}")),
            };
            let value = match number.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => value,
                _ => return fail(format!("`{number}` is no number from 0 on")),
            };
            if value == 0.0 && NOT_ZERO.contains(&key) {
                return fail(format!("`{key}` cannot be 0"));
            }
            if source.is_empty() {
                return fail(format!(
                    "`{key}` has no source: write where it is from behind #"
                ));
            }
            found.push(Parameter {
                name: key,
                value,
                unit,
                source: source.to_owned(),
            });
        }
        let missing = PARAMETERS.iter().find(|(name, _)| {
            let mut names = found.iter().map(|parameter| parameter.name);
            names.all(|there| there != *name)
        });
        if let Some((name, unit)) = missing {
            return Err((
                last,
                format!("`{name}` is missing: {name} = 1 {unit} # SOURCE"),
            ));
        }
        let name = name.ok_or((last, "the name is missing: card = NAME".to_owned()))?;
        Ok(Card {
            name,
            parameters: found,
        })
    }

    /// The value of a parameter, which is there.
    pub fn get(&self, name: &str) -> f64 {
        let found = self.parameters.iter().find(|p| p.name == name);
        found.map_or(f64::NAN, |parameter| parameter.value)
    }
}

fn bad(file: &str, line: usize, why: &str) -> Failure {
    Failure::new(format!("{file}, line {line}: {why}"))
        .next("`rnic study --print-card` prints the card that is built in, to start from")
        .status(2)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn built_in() -> Card {
        Card::parse(BUILT_IN).expect("the card that is built in")
    }

    /// A parameter has a name, a unit, a value and a source.
    #[test]
    fn the_card_that_is_built_in_is_whole() {
        let card = built_in();
        assert_eq!(card.parameters.len(), PARAMETERS.len());
        assert!(
            card.parameters
                .iter()
                .all(|p| !p.source.is_empty() && p.value > 0.0)
        );
        assert_eq!(card.get("fetch_us"), 0.5);
        assert_eq!(card.name, "ConnectX-3");
    }

    /// What is wrong with a file is said, with its line.
    #[test]
    fn a_bad_file_is_refused_with_line_and_reason() {
        let line_of = |name: &str| {
            let at = BUILT_IN.lines().position(|line| line.starts_with(name));
            at.expect("a line") + 1
        };
        let read = line_of("read_us");
        let end = BUILT_IN.lines().count();
        let changed = |from: &str, to: &str| {
            let line = BUILT_IN.lines().nth(line_of(from) - 1).expect("a line");
            BUILT_IN.replace(line, to)
        };
        for (text, line, reason) in [
            (changed("read_us", "read_us 2 us # x"), read, "no `=`"),
            (
                changed("read_us", "raed_us = 2 us # x"),
                read,
                "`raed_us` is no parameter",
            ),
            (
                changed("read_us", "read_us = two us # x"),
                read,
                "`two` is no number",
            ),
            (
                changed("read_us", "read_us = -2 us # x"),
                read,
                "`-2` is no number",
            ),
            (
                changed("read_us", "read_us = inf us # x"),
                read,
                "`inf` is no number",
            ),
            (
                changed("read_us", "read_us = 2 ns # x"),
                read,
                "a number of us",
            ),
            (
                changed("read_us", "read_us = 2 # x"),
                read,
                "a number of us",
            ),
            (changed("read_us", "read_us = 2 us"), read, "no source"),
            (changed("read_us", "write_us = 2 us # x"), read, "twice"),
            (changed("read_us", ""), end, "`read_us` is missing"),
            (changed("card", ""), end, "the name is missing"),
            (changed("card", "card ="), line_of("card"), "one name"),
            (
                changed("link_rate", "link_rate = 0 Gb/s # x"),
                line_of("link_rate"),
                "cannot be 0",
            ),
            (String::new(), 1, "is missing"),
        ] {
            let (at, why) = Card::parse(&text).expect_err(reason);
            assert_eq!(at, line, "{why}");
            assert!(why.contains(reason), "{why}: {reason}");
        }
        let file = Path::new("/nonexistent/card.txt");
        let said = Card::read(Some(file)).expect_err("no file").to_string();
        assert!(said.contains("reading /nonexistent/card.txt"), "{said}");
    }
}
