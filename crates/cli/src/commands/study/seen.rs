//! What is seen, in words: computed from the points.

use super::questions::{Look, Metric, Varied};
use super::report::{Chart, place, shown};
use super::statistics::{Estimate, confidence};

/// One sentence for each look.
pub fn sentences(looks: &[Look], charts: &[Chart]) -> String {
    let sentences = looks.iter().filter_map(|look| sentence(look, charts));
    sentences.collect::<Vec<_>>().join(" ")
}

fn sentence(look: &Look, charts: &[Chart]) -> Option<String> {
    let of = |panel: usize, name: &str, x: u64| {
        let chart = charts.get(panel)?;
        let line = chart.series.iter().find(|line| line.name == name)?;
        Some((chart, line.at(x)?))
    };
    match *look {
        Look::Between {
            panel,
            first,
            second,
            x,
        } => {
            let (chart, a) = of(panel, first, x)?;
            let (_, b) = of(panel, second, x)?;
            let show = |value| shown(chart.metric, value);
            let verb = match chart.metric {
                Metric::Latency => "takes",
                Metric::Processor => "takes, in processor time,",
                Metric::Messages | Metric::Bytes => "gives",
            };
            let start = match chart.varied {
                Varied::Count => format!("With {}", counted(x, &chart.x_title)),
                _ => format!("At {}", place(chart.varied, x)),
            };
            Some(format!(
                "{start}, {first} {verb} {} and {second} {}: {}.",
                show(a.value.median),
                show(b.value.median),
                difference(&a.rounds, &b.rounds)
            ))
        }
        Look::Along {
            panel,
            series,
            from,
            to,
        } => {
            let (chart, start) = of(panel, series, from)?;
            let (_, end) = of(panel, series, to)?;
            let show = |value| shown(chart.metric, value);
            let (near, far) = (place(chart.varied, from), place(chart.varied, to));
            let way = match chart.varied {
                Varied::Size => format!("From {near} to {far}"),
                Varied::PathMtu => format!("From a path MTU of {near} to {far}"),
                Varied::Count => format!("From {near} to {}", counted(to, &chart.x_title)),
            };
            Some(format!(
                "{way}, {series} goes from {} to {}: {}.",
                show(start.value.median),
                show(end.value.median),
                difference(&end.rounds, &start.rounds)
            ))
        }
    }
}

/// A count, and what is counted, as the axis says it: "queue pairs".
fn counted(count: u64, what: &str) -> String {
    match what.strip_suffix('s') {
        Some(one) if count == 1 => format!("1 {one}"),
        _ => format!("{count} {what}"),
    }
}

/// How `a` differs from `b`, or that nothing can be said. Rounds are compared in pairs.
fn difference(a: &[f64], b: &[f64]) -> String {
    /// Less is not worth a word, however sure it is.
    const SMALL: f64 = 0.01;
    let Some(ratio) = Estimate::of_ratio(a, b) else {
        return "nothing was measured".to_owned();
    };
    if confidence(a.len().min(b.len())) < 0.95 {
        return "too few rounds to tell them apart".to_owned();
    }
    if ratio.holds(1.0) || (ratio.median - 1.0).abs() < SMALL {
        return "no difference beyond the intervals".to_owned();
    }
    let percent = |ratio: f64| (100.0 * (ratio - 1.0).abs()).round();
    match ratio.median {
        median if median >= 2.0 || median <= 0.5 => format!(
            "a factor of {} (interval {} to {})",
            times(median),
            times(ratio.low),
            times(ratio.high)
        ),
        median if median < 1.0 => format!(
            "{:.0}% less (interval {:.0} to {:.0}%)",
            percent(median),
            percent(ratio.high),
            percent(ratio.low)
        ),
        median => format!(
            "{:.0}% more (interval {:.0} to {:.0}%)",
            percent(median),
            percent(ratio.low),
            percent(ratio.high)
        ),
    }
}

fn times(ratio: f64) -> String {
    match ratio {
        0.0..1.0 => format!("{ratio:.2}"),
        1.0..20.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    fn around(value: f64, spread: f64) -> Vec<f64> {
        (-4..=4).map(|n| value + spread * f64::from(n)).collect()
    }

    /// Each way in which two series can differ, or not.
    #[test]
    fn differences() {
        let b = around(10.0, 0.0);
        let of = |a: &[f64]| difference(a, &b);
        assert_eq!(of(&around(8.0, 0.1)), "20% less (interval 17 to 23%)");
        assert_eq!(of(&around(15.0, 0.1)), "50% more (interval 47 to 53%)");
        assert_eq!(
            of(&around(45.0, 0.5)),
            "a factor of 4.5 (interval 4.3 to 4.7)"
        );
        assert_eq!(
            of(&around(2.0, 0.1)),
            "a factor of 0.20 (interval 0.17 to 0.23)"
        );
        assert_eq!(
            of(&around(1000.0, 10.0)),
            "a factor of 100 (interval 97 to 103)"
        );
        // It may be, or not.
        assert_eq!(of(&around(10.5, 1.0)), "no difference beyond the intervals");
        assert_eq!(of(&b), "no difference beyond the intervals");
        // Sure, and too small for anybody.
        assert_eq!(
            of(&around(10.05, 0.001)),
            "no difference beyond the intervals"
        );
        assert_eq!(
            difference(&[8.0; 5], &[10.0; 5]),
            "too few rounds to tell them apart"
        );
        assert_eq!(difference(&[], &[]), "nothing was measured");
    }

    /// Sentences have the figures of the chart, and say where.
    #[test]
    fn sentences_are_computed() {
        let report = sample();
        let of = |id: &str| {
            let answer = report.questions.iter().find(|answer| answer.question == id);
            answer.expect("a question").seen.clone()
        };
        let inline = of("inline");
        let expected = "At 10 B, inline takes 2.04 us and not inline 4.04 us: 50% less (interval";
        assert!(inline.starts_with(expected), "{inline}");
        let signaled = of("signaled");
        assert!(
            signaled.starts_with(
                "From 1 to 64 requests for each signaled one, WRITE of 32 B goes from 204.0 k/s to \
                 804.0 k/s: a factor of 3.9"
            ),
            "{signaled}"
        );
        let polling = of("polling");
        let expected = "At 10 B, event takes, in processor time, 6.04 us and busy 2.04 us: ";
        assert!(polling.contains(expected), "{polling}");
        let srq = of("srq");
        assert!(
            srq.starts_with("With 1 queue pair, one shared receive queue gives "),
            "{srq}"
        );
        for answer in &report.questions {
            assert!(
                !answer.seen.is_empty() && answer.seen.ends_with('.'),
                "{}",
                answer.question
            );
        }
    }
}
