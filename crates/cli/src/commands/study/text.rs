//! The answers as tables for a terminal.

use std::fmt::Write;

use super::questions::Question;
use super::report::{Answer, Chart, Report, place, shown};

/// All of it.
pub fn tables(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}\n{}; back end {} ({})",
        report
            .path
            .circumstances(report.processors, report.load_average),
        report.manner(),
        report.backend,
        report.device
    );
    if let Some(warning) = report.warning() {
        let _ = writeln!(text, "{warning}");
    }
    for question in &report.left_out {
        let _ = writeln!(text, "Left out: {question}");
    }
    for answer in &report.questions {
        question(&mut text, report, answer);
    }
    text
}

fn question(text: &mut String, report: &Report, answer: &Answer) {
    let _ = writeln!(text, "\n{}: {}", answer.question, answer.title);
    for chart in &answer.charts {
        table(text, report, chart);
    }
    let _ = writeln!(text, "\n  Seen: {}", answer.seen);
    let _ = writeln!(text, "  Why: {}", answer.why);
    if report.is_of_software() {
        let _ = writeln!(text, "  On a card: {}", answer.note);
    }
}

fn table(text: &mut String, report: &Report, chart: &Chart) {
    let points = || chart.series.iter().flat_map(|line| &line.points);
    let names = chart.series.iter().map(|line| line.name.chars().count());
    let name = names.max().unwrap_or(0);
    let (has_tails, has_model, has_texts) = (
        points().any(|point| point.p99.is_some()),
        points().any(|point| point.model.is_some()),
        points().any(|point| point.texts.is_some()),
    );
    let _ = writeln!(text, "\n  {} by {}\n", chart.title, chart.x_title);
    let _ = write!(
        text,
        "  {:<name$}{:>11}{:>13}{:>26}",
        "", "", "median", "interval"
    );
    if has_tails {
        let _ = write!(text, "{:>12}{:>12}", "90%", "99%");
    }
    if has_model {
        let _ = write!(text, "{:>13}", "model");
    }
    if has_texts {
        let _ = write!(text, "{:>12}", "texts");
    }
    text.push('\n');
    let show = |value| shown(chart.metric, value);
    let maybe = |value: Option<f64>| value.map(show).unwrap_or_default();
    for line in &chart.series {
        for point in &line.points {
            let interval = format!("{} .. {}", show(point.value.low), show(point.value.high));
            let _ = write!(
                text,
                "  {:<name$}{:>11}{:>13}{interval:>26}",
                line.name,
                place(chart.varied, point.x),
                show(point.value.median)
            );
            if has_tails {
                let _ = write!(text, "{:>12}{:>12}", maybe(point.p90), maybe(point.p99));
            }
            if has_model {
                let _ = write!(text, "{:>13}", maybe(point.model));
            }
            if has_texts {
                let _ = write!(text, "{:>12}", maybe(point.texts));
            }
            let end = text.trim_end().len();
            text.truncate(end);
            if point.lost > 0 {
                let _ = write!(text, "  {} lost", point.lost);
            }
            text.push('\n');
        }
    }
    if has_model {
        let _ = writeln!(text, "  model: cost model of a card ({})", report.card.name);
    }
}

/// Names and titles of all questions.
pub fn list(questions: &[Question]) -> String {
    let mut text = String::new();
    for question in questions {
        let _ = writeln!(text, "{:<14}{}", question.id, question.title);
    }
    text
}

/// One line for each point, for spreadsheets.
pub fn csv(report: &Report) -> String {
    let mut text =
        "question,chart,metric,unit,series,x_title,x,median,low,high,p90,p99,model,texts,lost\n"
            .to_owned();
    for answer in &report.questions {
        for (number, chart) in (1..).zip(&answer.charts) {
            for line in &chart.series {
                for point in &line.points {
                    let value =
                        |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
                    let cells = [
                        quoted(&answer.question),
                        format!("{number}"),
                        quoted(super::questions::name(chart.metric)),
                        chart.unit.to_owned(),
                        quoted(&line.name),
                        quoted(&chart.x_title),
                        point.x.to_string(),
                        point.value.median.to_string(),
                        point.value.low.to_string(),
                        point.value.high.to_string(),
                        value(point.p90),
                        value(point.p99),
                        value(point.model),
                        value(point.texts),
                        point.lost.to_string(),
                    ];
                    let _ = writeln!(text, "{}", cells.join(","));
                }
            }
        }
    }
    text
}

/// As RFC 4180 has it, where it is needed.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::questions;
    use super::super::report::tests::sample;
    use super::*;

    /// Every point is in the table, with its figures.
    #[test]
    fn tables_have_all_points() {
        let report = sample();
        let text = tables(&report);
        for answer in &report.questions {
            assert!(text.contains(&format!("\n{}: ", answer.question)));
            assert!(text.contains(&answer.seen) && text.contains(&answer.note));
        }
        assert!(text.contains("back end software (rnic0)"));
        let line = text
            .lines()
            .find(|line| line.contains("not inline") && line.contains("10 B"));
        let cells: Vec<&str> = line.expect("a line").split_whitespace().collect();
        let expected = "not inline 10 B 4.04 us 4.01 us .. 4.07 us 8.08 us 12.1 us 1.91 us 1.91 us";
        assert_eq!(cells.join(" "), expected);
        let lines = text.lines().filter(|line| line.contains(" .. ")).count();
        let points = report.questions.iter().flat_map(|answer| &answer.charts);
        let points = points
            .flat_map(|chart| &chart.series)
            .map(|line| line.points.len());
        assert_eq!(lines, points.sum::<usize>());
    }

    /// Each line has as many cells as the first, and quotes where a name has a comma.
    #[test]
    fn csv_is_regular() {
        let text = csv(&sample());
        let cells = |line: &str| {
            let mut quoted = false;
            line.chars()
                .filter(|c| {
                    quoted ^= *c == '"';
                    *c == ',' && !quoted
                })
                .count()
        };
        let mut lines = text.lines();
        let first = cells(lines.next().expect("names"));
        assert!(lines.all(|line| cells(line) == first));
        assert!(text.contains("\"FETCH-AND-ADD, one word\""));
        assert!(text.contains("inline,1,latency,us,inline,message size,10,2.04,2.01,2.07,4.08,"));
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn a_list_has_all_questions() {
        let questions = questions::all();
        assert_eq!(list(&questions).lines().count(), questions.len());
    }
}
