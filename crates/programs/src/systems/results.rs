//! What was measured last, in `crates/programs/systems/results.json`.

use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::{fs, io};

/// What became of one system.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ran, over both.
    Ran(Measured),
    /// It was not there: why.
    Skipped(String),
}

/// MB/s, one value for each repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Over rnic.
    pub rdma: Vec<f64>,
    /// Over TCP, each right after the one over rnic.
    pub tcp: Vec<f64>,
    /// What the device moved in one run, in words.
    pub moved: String,
    /// When, where and what: in words.
    pub when: String,
}

impl Measured {
    /// The median of the ratios of neighbours.
    pub fn ratio(&self) -> f64 {
        median(self.rdma.iter().zip(&self.tcp).map(|(a, b)| a / b))
    }
}

/// The middle one of some values; the mean of both where there are two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Of systems, by their keys.
#[derive(Clone, Debug, Default)]
pub struct Results(Map<String, Value>);

fn path() -> PathBuf {
    super::folder().join("results.json")
}

impl Results {
    /// Those of earlier runs; none where there was no run.
    ///
    /// # Errors
    /// When the file is not what this wrote.
    pub fn read() -> io::Result<Results> {
        let text = match fs::read_to_string(path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Results::default()),
            text => text?,
        };
        Ok(Results(serde_json::from_str(&text)?))
    }

    /// Writes them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        fs::write(path(), text + "\n")
    }

    /// Of one system.
    pub fn of(&self, key: &str) -> Option<Outcome> {
        let found = self.0.get(key)?;
        if let Some(why) = found.get("skipped") {
            return Some(Outcome::Skipped(why.as_str()?.into()));
        }
        let values = |name: &str| -> Option<Vec<f64>> {
            let list = found.get(name)?.as_array()?;
            list.iter().map(Value::as_f64).collect()
        };
        let words = |name: &str| Some(found.get(name)?.as_str()?.to_owned());
        Some(Outcome::Ran(Measured {
            rdma: values("rdma")?,
            tcp: values("tcp")?,
            moved: words("moved")?,
            when: words("when")?,
        }))
    }

    /// Takes the place of what was there. What ran once is not forgotten because it is missing
    /// now.
    pub fn set(&mut self, key: &str, outcome: &Outcome) {
        let value = match outcome {
            Outcome::Skipped(_) if matches!(self.of(key), Some(Outcome::Ran(_))) => return,
            Outcome::Skipped(why) => json!({ "skipped": why }),
            Outcome::Ran(measured) => json!({
                "rdma": rounded(&measured.rdma),
                "tcp": rounded(&measured.tcp),
                "moved": measured.moved,
                "when": measured.when,
            }),
        };
        self.0.insert(key.into(), value);
    }
}

fn rounded(values: &[f64]) -> Vec<f64> {
    let round = |value: &f64| (value * 10.0).round() / 10.0;
    values.iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    //! Guards that what was measured survives being written, and is not lost to a machine that
    //! lacks the system.

    use super::*;

    #[test]
    fn what_ran_is_kept() {
        let ran = Outcome::Ran(Measured {
            rdma: vec![200.0, 300.0, 100.0],
            tcp: vec![100.0, 100.0, 100.0],
            moved: "1 MB".into(),
            when: "today".into(),
        });
        let mut results = Results::default();
        results.set("a", &Outcome::Skipped("gone".into()));
        assert_eq!(results.of("a"), Some(Outcome::Skipped("gone".into())));
        results.set("a", &ran);
        results.set("a", &Outcome::Skipped("gone".into()));
        assert_eq!(results.of("a"), Some(ran.clone()));
        let Outcome::Ran(measured) = ran else {
            unreachable!()
        };
        assert!((measured.ratio() - 2.0).abs() < 1e-9);
    }
}
