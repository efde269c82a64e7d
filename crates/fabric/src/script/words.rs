//! One line, word by word.

use std::fmt::Display;
use std::str::SplitWhitespace;

use super::{Table, UNITS, meaning};

/// What is left of a line.
pub(super) struct Words<'a> {
    rest: SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    /// Of a line, without its comment.
    pub(super) fn of(line: &'a str) -> Words<'a> {
        let (line, _comment) = line.split_once('#').unwrap_or((line, ""));
        Words {
            rest: line.split_whitespace(),
        }
    }

    /// The next one, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    /// The next one, which has to be there.
    pub(super) fn need(&mut self, what: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    /// The next one, if it may be that.
    pub(super) fn next_if<T>(&mut self, is: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        let mut rest = self.rest.clone();
        let found = is(rest.next()?)?;
        self.rest = rest;
        Some(found)
    }

    /// What the next one means.
    pub(super) fn one_of<T: Copy>(&mut self, what: &str, table: Table<T>) -> Result<T, String> {
        let word = self.need(what)?;
        meaning(table, word).ok_or_else(|| {
            let words: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
            format!("{what} is {word:?}, not one of {}", words.join(", "))
        })
    }

    /// A number within limits, both included.
    pub(super) fn number(&mut self, what: &str, range: (u64, u64)) -> Result<u64, String> {
        let word = self.need(what)?;
        let number = number(word).ok_or_else(|| format!("{what} is {word:?}, not a number"))?;
        within(what, number, range)
    }

    /// A time, ns.
    pub(super) fn time(&mut self, what: &str) -> Result<u64, String> {
        let word = self.need(what)?;
        time(word).ok_or_else(|| no_time(what, word))
    }

    /// There is no more.
    pub(super) fn end(mut self) -> Result<(), String> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is one word too many")),
        }
    }
}

/// Within limits, both included.
pub(super) fn within(what: &str, number: u64, (from, to): (u64, u64)) -> Result<u64, String> {
    match (from..=to).contains(&number) {
        true => Ok(number),
        false => Err(format!("{what} is {number}, not from {from} to {to}")),
    }
}

pub(super) fn no_time(what: impl Display, word: &str) -> String {
    format!("{what} is {word:?}, not a time of at most 600s, such as 10us")
}

/// Decimal, or hexadecimal with `0x`.
pub(super) fn number(word: &str) -> Option<u64> {
    let (digits, radix) = match word.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (word, 10),
    };
    let is_number = digits.starts_with(|first: char| first.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// A number and its unit, ns: at most what a scenario may take.
pub(super) fn time(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let mut units = UNITS.iter();
    let (_, length) = units.find(|(unit, _)| *unit == &word[digits.len()..])?;
    let ns = number(digits)?.checked_mul(*length)?;
    (ns <= 600_000_000_000).then_some(ns)
}

/// A chance, of which a percent sign makes a hundredth.
pub(super) fn chance(word: &str) -> Option<f64> {
    let digits = word.strip_suffix('%')?;
    let plain = |letter: char| letter.is_ascii_digit() || letter == '.';
    if digits.is_empty() || !digits.chars().all(plain) {
        return None;
    }
    // Not by a division, which rounds once more.
    let chance: f64 = format!("{digits}e-2").parse().ok()?;
    (chance <= 1.0).then_some(chance)
}
