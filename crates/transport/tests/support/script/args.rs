//! `word key=value flag`: what follows a command.

use super::Outcome;

/// The words of a line, crossed off as they are asked for; what is left at the end is a mistake in
/// the script.
pub struct Args<'a> {
    words: Vec<&'a str>,
}

impl<'a> Args<'a> {
    pub fn parse(text: &'a str) -> Outcome<Args<'a>> {
        Ok(Args {
            words: text.split_whitespace().collect(),
        })
    }

    /// The next word, whatever it is.
    pub fn word(&mut self) -> Outcome<&'a str> {
        if self.words.is_empty() {
            return Err("a word is missing".into());
        }
        Ok(self.words.remove(0))
    }

    /// The value of `key=`.
    pub fn text(&mut self, key: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|word| {
            word.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('='))
        })?;
        Some(&self.words.remove(at)[key.len() + 1..])
    }

    pub fn number(&mut self, key: &str) -> Outcome<Option<u64>> {
        self.text(key).map(number).transpose()
    }

    pub fn need(&mut self, key: &str) -> Outcome<u64> {
        self.number(key)?
            .ok_or_else(|| format!("{key}= is missing"))
    }

    pub fn flag(&mut self, name: &str) -> bool {
        match self.words.iter().position(|word| *word == name) {
            Some(at) => {
                self.words.remove(at);
                true
            }
            None => false,
        }
    }

    pub fn finish(&self) -> Outcome {
        if self.words.is_empty() {
            Ok(())
        } else {
            Err(format!("not understood: {}", self.words.join(" ")))
        }
    }
}

/// Decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Outcome<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| format!("{text} is no number"))
}

/// A number with a unit, in nanoseconds.
pub fn duration(text: &str) -> Outcome<u64> {
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or("a duration needs a unit")?;
    let factor = match &text[at..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        unit => return Err(format!("no unit {unit}")),
    };
    Ok(number(&text[..at])? * factor)
}
