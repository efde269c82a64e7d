//! Charts of the answers.

use crate::charts::plot::{Curve, Mark, Plot, Point};
use crate::charts::scale::number;
use crate::text;

use super::questions::Metric;
use super::report::{Chart, Line, Report, place};

/// What the values of a chart are divided by, and the unit then.
fn unit(chart: &Chart) -> (f64, &'static str) {
    let points = chart.series.iter().flat_map(|line| &line.points);
    let most = points.map(|point| point.value.median).fold(0.0, f64::max);
    match (chart.metric, most) {
        (Metric::Latency | Metric::Processor, _) => (1.0, "us"),
        (Metric::Messages, 1e6..) => (1e6, "million per second"),
        (Metric::Messages, _) => (1e3, "thousand per second"),
        (Metric::Bytes, 1e9..) => (1e9, "GB/s"),
        (Metric::Bytes, _) => (1e6, "MB/s"),
    }
}

fn y_title(metric: Metric) -> &'static str {
    match metric {
        Metric::Latency => "time",
        Metric::Processor => "processor time for a message",
        Metric::Messages => "rate",
        Metric::Bytes => "payload",
    }
}

fn curve(line: &Line, colour: usize, scale: f64) -> Curve {
    let points = line.points.iter().map(|point| Point {
        x: point.x as f64,
        y: point.value.median / scale,
        interval: Some((point.value.low / scale, point.value.high / scale)),
    });
    Curve {
        name: line.name.clone(),
        colour,
        dashed: false,
        points: points.collect(),
    }
}

/// What the model of a card says of the same; `None`: nothing.
fn model(line: &Line, colour: usize, scale: f64) -> Option<Curve> {
    let points: Vec<Point> = (line.points.iter())
        .filter_map(|point| {
            Some(Point {
                x: point.x as f64,
                y: point.model? / scale,
                interval: None,
            })
        })
        .collect();
    (!points.is_empty()).then(|| Curve {
        name: "model".to_owned(),
        colour,
        dashed: true,
        points,
    })
}

/// What the signs of a chart mean.
pub fn signs(report: &Report, chart: &Chart) -> Vec<String> {
    let points = || chart.series.iter().flat_map(|line| &line.points);
    let mut signs = vec![format!(
        "points: medians of {} with intervals of {:.0}%",
        text::count(report.rounds as u64, "round"),
        100.0 * report.confidence
    )];
    if points().any(|point| point.model.is_some()) {
        signs.push(format!(
            "dashed: cost model of a card ({})",
            report.card.name
        ));
    }
    if points().any(|point| point.texts.is_some()) {
        signs.push("diamonds: the teaching texts' figures, ConnectX-3".to_owned());
    }
    signs
}

/// Two lines: what was measured, and what was not.
fn caption(signs: Vec<String>) -> Vec<String> {
    let mut signs = signs.into_iter();
    let first = signs.next().into_iter();
    let rest: Vec<String> = signs.collect();
    first
        .chain((!rest.is_empty()).then(|| rest.join("; ")))
        .collect()
}

/// What is a hundredth of the greatest value is on the floor of a linear scale.
fn is_wide(curves: &[Curve]) -> bool {
    const WIDE: f64 = 30.0;
    let values = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.y);
    let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    least > 0.0 && most > WIDE * least
}

pub fn plot(report: &Report, title: &str, chart: &Chart) -> Plot {
    let (scale, unit) = unit(chart);
    let lines = || chart.series.iter().enumerate();
    let mut curves: Vec<Curve> = lines().map(|(n, line)| curve(line, n, scale)).collect();
    curves.extend(lines().filter_map(|(n, line)| model(line, n, scale)));
    let marks = lines().flat_map(|(colour, line)| {
        let points = line.points.iter();
        points.filter_map(move |point| {
            let value = point.texts?;
            Some(Mark {
                colour,
                x: point.x as f64,
                y: value / scale,
                label: number(value),
            })
        })
    });
    let mut xs: Vec<u64> = (chart.series.iter())
        .flat_map(|line| line.points.iter().map(|point| point.x))
        .collect();
    xs.sort_unstable();
    xs.dedup();
    Plot {
        title: title.to_owned(),
        y_title: format!("{} in {unit}", y_title(chart.metric)),
        x_title: chart.x_title.clone(),
        log: chart.log || is_wide(&curves),
        ticks: (xs.iter().map(|x| (*x as f64, place(chart.varied, *x)))).collect(),
        curves,
        marks: marks.collect(),
        caption: caption(signs(report, chart)),
    }
}

#[cfg(test)]
#[path = "../../../tests/common/markup.rs"]
mod markup;

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;
    use crate::charts::plot::Form;

    /// Each chart in each form is well-formed XML, with all points, no number that is none, and
    /// within its picture.
    #[test]
    fn charts_are_whole() {
        let report = sample();
        for answer in &report.questions {
            for chart in &answer.charts {
                for form in [Form::File, Form::Wide, Form::Narrow] {
                    let svg = plot(&report, &answer.title, chart).svg(form);
                    markup::is_well_formed(&format!("<!DOCTYPE html>{svg}"));
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                    let points: usize = chart.series.iter().map(|line| line.points.len()).sum();
                    let shapes = ["<circle ", "<rect x", "<path "];
                    let drawn: usize = shapes.iter().map(|shape| svg.matches(shape).count()).sum();
                    let marks = chart.series.iter().flat_map(|line| &line.points);
                    let marks = marks.filter(|point| point.texts.is_some()).count();
                    assert_eq!(drawn, points + marks, "{} {form:?}", answer.question);
                    assert_eq!(svg.contains("var(--"), form != Form::File);
                    inside(&svg);
                }
            }
        }
    }

    /// Letters begin and end within the picture.
    fn inside(svg: &str) {
        let number = |text: &str, name: &str| {
            let rest = text
                .split_once(&format!("{name}=\""))
                .expect("an attribute")
                .1;
            rest.split(['"', ' '])
                .next()
                .expect("a number")
                .parse::<f64>()
                .expect("a number")
        };
        let width = number(svg, "width");
        let height = number(svg, "height");
        for text in svg.split("<text ").skip(1) {
            let (x, y, size) = (
                number(text, "x"),
                number(text, "y"),
                number(text, "font-size"),
            );
            let content = text.split_once('>').expect("an end").1;
            let letters = content.split('<').next().expect("text").chars().count() as f64;
            let long = letters * size * 0.56;
            let start = match text.split_once("text-anchor=\"").expect("an anchor").1 {
                rest if rest.starts_with("start") => x,
                rest if rest.starts_with("end") => x - long,
                _ => x - long / 2.0,
            };
            assert!(
                start >= -1.0 && start + long <= width + 1.0,
                "{content:.60}: {start} {long}"
            );
            assert!(
                y - size >= -1.0 && y <= height,
                "{content:.60}: {y} of {height}"
            );
        }
    }

    /// A dashed line is called a model, and is of the questions that have one.
    #[test]
    fn models_are_called_models() {
        let report = sample();
        let of = |id: &str| {
            let answer = report.questions.iter().find(|answer| answer.question == id);
            let answer = answer.expect("a question");
            let plot = plot(&report, &answer.title, &answer.charts[0]);
            (plot.svg(Form::File), plot.caption.join("; "))
        };
        let (svg, caption) = of("inline");
        assert!(svg.contains("stroke-dasharray") && svg.contains(">model</text>"));
        assert!(
            caption.contains("dashed: cost model of a card (ConnectX-3)"),
            "{caption}"
        );
        assert!(caption.contains("diamonds"), "{caption}");
        assert!(svg.contains(">1.41</text>") && svg.contains(">1.91</text>"));
        let (svg, caption) = of("srq");
        assert!(
            !svg.contains("stroke-dasharray") && !caption.contains("dashed"),
            "{caption}"
        );
    }
}
