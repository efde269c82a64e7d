//! What the parts cost: criterion's suites in `benches`, and their figures as a table.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::{Error, Result};

/// The suites, from below, and what they are about.
const SUITES: [(&str, &str); 3] = [
    ("wire", "packets"),
    ("transport", "RC transport"),
    ("nic", "device"),
];

/// Seconds for each figure: what it takes to be sure, as criterion says, is less for all of them.
const WARM_UP: &str = "0.5";
const MEASURE: &str = "2";

/// One figure as criterion leaves it: `benchmark.json`.
#[derive(Debug, Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    throughput: Option<Throughput>,
}

#[derive(Debug, Deserialize)]
enum Throughput {
    Bytes(u64),
    Elements(u64),
    #[serde(other)]
    Other,
}

/// And `estimates.json`, in nanoseconds.
#[derive(Debug, Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Debug, Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Debug, Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Runs the suites, and makes a table of what they leave in this folder, which is emptied before.
pub fn measure(checkout: &Path, folder: &Path) -> Result<String> {
    let mut text = String::from(
        "| part | what | median (confidence 95%) | throughput |\n| --- | --- | --- | --- |\n",
    );
    for (suite, title) in SUITES {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let status = Command::new("cargo")
            .args(["bench", "--quiet", "-p", "rnic-bench", "--bench", suite])
            .args([
                "--",
                "--noplot",
                "--warm-up-time",
                WARM_UP,
                "--measurement-time",
                MEASURE,
            ])
            .current_dir(checkout)
            .env("CRITERION_HOME", folder)
            // The table goes to standard output.
            .stdout(std::io::stderr())
            .status()?;
        if !status.success() {
            return Err(format!("the suite `{suite}` ended with {status}").into());
        }
        let mut rows = Vec::new();
        collect(folder, &mut rows)?;
        if rows.is_empty() {
            return Err(format!("the suite `{suite}` left nothing").into());
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        for (n, (_, row)) in rows.iter().enumerate() {
            let title = if n == 0 { title } else { "" };
            let _ = writeln!(text, "| {title} {row}");
        }
    }
    Ok(text)
}

/// Rows of all figures below a folder, each with the name it is sorted by.
fn collect(folder: &Path, rows: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") {
            let read = |name| fs::read(path.join(name)).map_err(Error::from);
            let benchmark: Benchmark = serde_json::from_slice(&read("benchmark.json")?)?;
            let estimates: Estimates = serde_json::from_slice(&read("estimates.json")?)?;
            let name = name(&benchmark);
            rows.push((natural(&name), row(&name, &benchmark, &estimates.median)));
        } else {
            collect(&path, rows)?;
        }
    }
    Ok(())
}

fn name(benchmark: &Benchmark) -> String {
    match &benchmark.function_id {
        Some(function) => format!("{}: {function}", benchmark.group_id),
        None => benchmark.group_id.clone(),
    }
}

/// The name with its numbers filled up, so that 16 comes before 256.
fn natural(name: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for character in name.chars().chain([' ']) {
        if character.is_ascii_digit() {
            digits.push(character);
        } else {
            if !digits.is_empty() {
                let _ = write!(text, "{digits:0>12}");
                digits.clear();
            }
            text.push(character);
        }
    }
    text
}

fn row(name: &str, benchmark: &Benchmark, median: &Estimate) -> String {
    let Estimate {
        point_estimate: ns,
        confidence_interval: within,
    } = median;
    let throughput = match benchmark.throughput {
        Some(Throughput::Bytes(bytes)) => format!("{:.2} GB/s", bytes as f64 / ns),
        Some(Throughput::Elements(count)) => format!("{:.2} M/s", count as f64 / ns * 1e3),
        _ => String::new(),
    };
    format!(
        "| {name} | {} ({} .. {}) | {throughput} |",
        time(*ns),
        time(within.lower_bound),
        time(within.upper_bound),
    )
}

fn time(ns: f64) -> String {
    match ns {
        ..10.0 => format!("{ns:.2} ns"),
        ..1_000.0 => format!("{ns:.0} ns"),
        ..10_000.0 => format!("{:.2} us", ns / 1e3),
        _ => format!("{:.1} us", ns / 1e3),
    }
}

#[cfg(test)]
mod tests {
    //! What criterion leaves becomes a row.

    use super::*;

    #[test]
    fn a_figure_becomes_a_row() {
        let benchmark: Benchmark = serde_json::from_str(
            r#"{"group_id":"ICRC","function_id":"take, 1024 B","value_str":null,"throughput":{"Bytes":1024},
                "full_id":"ICRC/take, 1024 B","directory_name":"ICRC/take, 1024 B","title":"ICRC/take, 1024 B"}"#,
        )
        .unwrap();
        let estimates: Estimates = serde_json::from_str(
            r#"{"median":{"confidence_interval":{"confidence_level":0.95,"lower_bound":50.2,"upper_bound":52.0},
                "point_estimate":51.2,"standard_error":0.1}}"#,
        )
        .unwrap();
        assert_eq!(
            row(&name(&benchmark), &benchmark, &estimates.median),
            "| ICRC: take, 1024 B | 51 ns (50 ns .. 52 ns) | 20.00 GB/s |"
        );
    }

    #[test]
    fn units_fit_what_was_measured() {
        assert_eq!(time(1.234), "1.23 ns");
        assert_eq!(time(1_234.0), "1.23 us");
        assert_eq!(time(123_456.0), "123.5 us");
    }

    #[test]
    fn numbers_sort_as_numbers() {
        assert!(natural("take, 16 B") < natural("take, 256 B"));
        assert!(natural("take, 64 B") < natural("take, 256 B"));
    }
}
