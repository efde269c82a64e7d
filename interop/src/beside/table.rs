//! Medians and ratios.

use super::Contestant;
use super::plan::{Measure, Unit};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Measures everything: in each round each contestant in turn, so that what else the machine does
/// meets all of them. The first contestant is the one that the others are compared with. `measure`
/// gives a number, or says why there is none; a number that is none is asked for again.
///
/// # Panics
/// When the results cannot be written.
pub fn fill(
    job: &Path,
    title: &str,
    contestants: &[Contestant],
    measures: &[Measure],
    rounds: usize,
    mut measure: impl FnMut(&Contestant, &Measure) -> Result<f64, String>,
) -> ExitCode {
    let folder = job.join("out");
    fs::create_dir_all(&folder).expect("the job's folder is writable");
    let mut machine = File::create(folder.join("side-by-side.jsonl")).expect("writable");
    let began = Instant::now();
    let mut table = format!("| {title} | unit |");
    for (number, contestant) in contestants.iter().enumerate() {
        table.push_str(&format!(" {} |", contestant.name));
        if number > 0 {
            table.push_str(" times as fast |");
        }
    }
    table.push_str("\n| --- | --- |");
    table.push_str(&" ---: |".repeat(2 * contestants.len() - 1));
    table.push('\n');
    let mut failed = 0;
    for wanted in measures {
        let mut found = vec![Vec::new(); contestants.len()];
        for _ in 0..rounds {
            for (contestant, found) in contestants.iter().zip(&mut found) {
                let mut result = measure(contestant, wanted);
                for _ in 0..RETRIES {
                    if result.as_ref().is_ok_and(|&value| !is_number(value)) {
                        result = measure(contestant, wanted);
                    }
                }
                let result = result.and_then(|value| {
                    let none = || "no number: the machine is too busy".to_owned();
                    is_number(value).then_some(value).ok_or_else(none)
                });
                if let Err(why) = &result {
                    failed += 1;
                    println!("FAILED {}, {}\n{why}", wanted.name, contestant.name);
                }
                let line = json!({
                    "measure": wanted.name,
                    "command": wanted.line(),
                    "contestant": contestant.name,
                    "unit": wanted.unit.name(),
                    "value": result.as_ref().ok(),
                });
                writeln!(machine, "{line}").expect("writable");
                found.extend(result.ok());
            }
        }
        let row = row(wanted, &mut found);
        println!("{row}");
        table.push_str(&row);
        table.push('\n');
    }
    fs::write(folder.join("side-by-side.md"), &table).expect("writable");
    println!("in {:.0} s", began.elapsed().as_secs_f64());
    ExitCode::from(u8::from(failed > 0))
}

/// How often a number is asked for again.
const RETRIES: usize = 5;

fn is_number(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn row(measure: &Measure, found: &mut [Vec<f64>]) -> String {
    let medians: Vec<Option<f64>> = found.iter_mut().map(|all| median(all)).collect();
    let mut row = format!("| {} | {} |", measure.name, measure.unit.name());
    for (number, &value) in medians.iter().enumerate() {
        match value {
            Some(value) => row.push_str(&format!(" {} |", digits(value))),
            None => row.push_str(" failed |"),
        }
        if number > 0 {
            row.push_str(&ratio(measure.unit, value, medians[0]));
        }
    }
    row
}

/// Bold where rnic is slower.
fn ratio(unit: Unit, new: Option<f64>, old: Option<f64>) -> String {
    match (new, old) {
        (Some(new), Some(old)) => {
            let ratio = unit.ratio(new, old);
            if ratio < 0.995 {
                format!(" **{ratio:.2}** |")
            } else {
                format!(" {ratio:.2} |")
            }
        }
        _ => " |".to_owned(),
    }
}

fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn what_is_slower_is_bold() {
        assert_eq!(
            ratio(Unit::Microseconds, Some(20.0), Some(10.0)),
            " **0.50** |"
        );
        assert_eq!(ratio(Unit::Megabytes, Some(20.0), Some(10.0)), " 2.00 |");
        assert_eq!(ratio(Unit::Megabytes, None, Some(10.0)), " |");
    }
}
