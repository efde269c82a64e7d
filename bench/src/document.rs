//! The results as text: for the terminal, and for the pages in bench/results.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::charts;
use crate::machine::State;
use crate::results::{Results, RowResult, Series, Verdict};
use crate::rows::Role;

/// The lines around what `bench/run` writes.
pub const ROWS: (&str, &str) = ("<!-- bench/run writes from here -->", "<!-- to here -->");
/// The lines around what `bench/run --parts` writes.
pub const PARTS: (&str, &str) = (
    "<!-- bench/run --parts writes from here -->",
    "<!-- to here: parts -->",
);

/// Replaces what lies between the markers.
pub fn update(path: &Path, markers: (&str, &str), generated: &str) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let new = replaced(&text, markers, generated).ok_or_else(|| {
        let (begin, end) = markers;
        format!("{} has no `{begin}` and `{end}`", path.display())
    })?;
    Ok(fs::write(path, new)?)
}

fn replaced(text: &str, (begin, end): (&str, &str), generated: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{generated}{end}{after}"))
}

/// What the run was like.
fn conditions(results: &Results) -> String {
    let machine = &results.machine;
    let (others, stolen) = results.others();
    let load = |summary: Option<crate::stats::Summary>| match summary {
        Some(s) => format!("{:.2} (most {:.2})", s.median, s.max),
        None => "unknown".into(),
    };
    let mut text = format!(
        "{} x {}, Linux {}; commit {}, {}; {} repetitions, {}.\n\
         Processors {}. Other work took {} processors while a figure was measured, the hypervisor {}; load average before the \
         run {:.1}.\n",
        machine.cpus,
        machine.model,
        machine.kernel,
        results.commit,
        results.date,
        results.repetitions,
        if machine.root {
            "as root"
        } else {
            "not as root"
        },
        results.state(),
        load(others),
        load(stolen),
        machine.load_average,
    );
    if let Some(costs) = machine.costs {
        let _ = writeln!(
            text,
            "Before the run an empty system call took {:.0} ns, a load from 4 MiB of memory {:.0} ns, from 64 MiB {:.0} ns.",
            costs.system_call, costs.load_4m, costs.load_64m,
        );
    }
    for note in &results.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// "0.31 us (0.30 .. 0.35)", and both states where both were seen.
fn figure(series: &Series) -> String {
    let unit = series.unit;
    let Some(summary) = series.summary else {
        return match &series.missing {
            Some(why) => format!("missing: {why}"),
            None => "missing".into(),
        };
    };
    let mut text = format!(
        "{} ({} .. {})",
        unit.show(summary.median),
        unit.show(summary.min),
        unit.show(summary.max)
    );
    let states = [State::Near, State::Far].map(|state| Some((state, series.within(state)?)));
    if let [Some((_, near)), Some((_, far))] = states {
        let _ = write!(
            text,
            "; NEAR {}, FAR {}",
            unit.show(near.median),
            unit.show(far.median)
        );
    }
    if let Some(why) = &series.missing {
        let _ = write!(text, "; in part: {why}");
    }
    text
}

fn name(series: &Series) -> String {
    match series.figure.as_str() {
        "" => series.contender.clone(),
        figure => format!("{}, {figure}", series.contender),
    }
}

/// For bench/results/rows.md, with charts of these names in this folder.
pub fn markdown(results: &Results, charts: &[&str], folder: &str) -> String {
    let mut text = format!("{}\n", conditions(results));
    for chart in charts {
        let title = chart.trim_end_matches(".svg");
        let _ = writeln!(text, "![{title}]({folder}/{chart})\n");
    }
    text.push_str("| work | aim | found | |\n| --- | --- | --- | --- |\n");
    for row in &results.rows {
        for (n, verdict) in row.verdicts.iter().enumerate() {
            let title = if n == 0 { &row.title } else { "" };
            let end = match verdict.reached {
                true => "reached".into(),
                false => format!("**missed by {:.0}%**", verdict.short),
            };
            let _ = writeln!(
                text,
                "| {title} | {} | {} | {end} |",
                verdict.aim, verdict.found
            );
        }
        if row.verdicts.is_empty() {
            let _ = writeln!(text, "| {} | | not measured | |", row.title);
        }
    }
    text.push_str(
        "\nA ratio is the median of those of the repetitions, in each of which rnic and the other one ran one after the other.\n\n\
         | work | who | median (least .. most) |\n| --- | --- | --- |\n",
    );
    for row in &results.rows {
        for (n, series) in row.series.iter().enumerate() {
            let title = if n == 0 { &row.title } else { "" };
            let mut who = name(series);
            if series.role == Role::Rnic {
                who = format!("**{who}**");
            }
            let _ = writeln!(text, "| {title} | {who} | {} |", figure(series));
        }
    }
    text
}

/// For bench/results/asleep.md: a table for each kind of work, with a column for each figure.
pub fn asleep(results: &Results) -> String {
    let mut text = format!("{}\n", conditions(results));
    for (chart, title) in charts::ASLEEP {
        let _ = writeln!(text, "![{title}](../charts/{chart})\n");
    }
    text.push_str("Medians of the repetitions. Processor time is that of all processes together. **Bold**: rnic is no worse.\n");
    let mut columns: Vec<&str> = Vec::new();
    for row in &results.rows {
        let own: Vec<&str> = figures(row);
        if own.is_empty() {
            // Nothing of it was measured.
        } else if own != columns {
            columns = own;
            text.push_str("\n| work | by |");
            for column in &columns {
                let unit = row.series.iter().find(|s| s.figure == *column);
                let unit = unit.map_or("", |series| series.unit.name());
                let _ = match *column {
                    "" => write!(text, " {unit} |"),
                    column => write!(text, " {column} |"),
                };
            }
            let _ = writeln!(text, "\n| --- | --- |{}", " ---: |".repeat(columns.len()));
        }
        let mut title = row.title.as_str();
        for main in row.contenders() {
            let mut who = main.contender.clone();
            let good =
                |verdict: &Verdict| verdict.reached && verdict.aim.starts_with(&format!("{who}: "));
            if row.verdicts.iter().any(good) {
                who = format!("**{who}**");
            }
            let _ = write!(text, "| {title} | {who} |");
            title = "";
            for column in &columns {
                let mut series = row.series.iter();
                let series = series.find(|s| s.contender == main.contender && s.figure == *column);
                let _ = match series.map(|series| (series.summary, &series.missing, series.unit)) {
                    Some((Some(summary), _, unit)) => {
                        write!(text, " {} |", unit.show(summary.median))
                    }
                    Some((None, Some(why), _)) => write!(text, " missing: {why} |"),
                    _ => write!(text, " |"),
                };
            }
            text.push('\n');
        }
    }
    text
}

/// The names of a row's figures that were measured.
fn figures(row: &RowResult) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in row.series.iter().filter(|s| s.summary.is_some()) {
        if !names.contains(&series.figure.as_str()) {
            names.push(&series.figure);
        }
    }
    names
}

/// For people at a terminal.
pub fn plain(results: &Results) -> String {
    let mut text = conditions(results);
    for row in &results.rows {
        let _ = write!(text, "\n{}", plain_row(row));
    }
    text
}

fn plain_row(row: &RowResult) -> String {
    let mut text = format!("{}  [{}]\n", row.title, row.name);
    for series in &row.series {
        let role = match series.role {
            Role::Rnic => "rnic ",
            Role::Floor => "floor",
            Role::Peer => "peer ",
        };
        let _ = writeln!(text, "  {role}  {:<58} {}", name(series), figure(series));
    }
    for verdict in &row.verdicts {
        let end = match verdict.reached {
            true => "reached".into(),
            false => format!("MISSED by {:.0}%", verdict.short),
        };
        let _ = writeln!(text, "         {}: {}: {end}", verdict.aim, verdict.found);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_around_the_markers_stays() {
        let (begin, end) = PARTS;
        let around = format!("before\n{}\nrows\n{}\n", ROWS.0, ROWS.1);
        let text = format!("{around}{begin}\nold\n{end}\nafter\n");
        let new = replaced(&text, PARTS, "new\n").unwrap();
        assert_eq!(new, format!("{around}{begin}\nnew\n{end}\nafter\n"));
        assert_eq!(replaced(&new, PARTS, "new\n").as_ref(), Some(&new));
        assert_eq!(replaced("no markers", ROWS, "x"), None);
    }
}
