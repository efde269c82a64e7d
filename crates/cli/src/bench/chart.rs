//! The figures as SVG: by size, and histograms.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{Latency, Report};
use crate::failure::{Failure, Result};
use crate::size;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 380;
/// Of one histogram.
const SMALL: u32 = 200;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Distinct for the colour-blind too.
fn colour(operation: &str) -> RGBColor {
    match operation {
        "send" => RGBColor(0xe6, 0x6f, 0x00),
        "write" => RGBColor(0x3b, 0x7d, 0xd8),
        "read" => RGBColor(0x1b, 0x9e, 0x77),
        _ => RGBColor(0x75, 0x3b, 0xbd),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("drawing a chart: {error}"))
}

/// Everything as one picture.
pub fn all(report: &Report) -> Result<String> {
    let pictures = pictures(report);
    let height = pictures.iter().map(|(height, _)| height).sum::<u32>();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height.max(1))).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let mut rest = area.clone();
        for (height, picture) in pictures {
            let (part, below) = rest.split_vertically(height);
            draw(&part, report, picture)?;
            rest = below;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// Each as a picture of its own, for a page.
pub fn each(report: &Report) -> Result<Vec<String>> {
    let each = pictures(report).into_iter().map(|(height, picture)| {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
            area.fill(&WHITE).map_err(failed)?;
            draw(&area, report, picture)?;
            area.present().map_err(failed)?;
        }
        Ok(text)
    });
    each.collect()
}

#[derive(Clone, Copy)]
enum Picture<'a> {
    Latency,
    Bandwidth,
    Histogram(&'a Latency),
}

fn pictures(report: &Report) -> Vec<(u32, Picture<'_>)> {
    let mut pictures = Vec::new();
    if !report.latency.is_empty() {
        pictures.push((HEIGHT, Picture::Latency));
    }
    if !report.bandwidth.is_empty() {
        pictures.push((HEIGHT, Picture::Bandwidth));
    }
    pictures.extend(report.shown().map(|row| (SMALL, Picture::Histogram(row))));
    pictures
}

fn draw(area: &Area<'_>, report: &Report, picture: Picture<'_>) -> Result<()> {
    match picture {
        Picture::Latency => {
            let row = |row: &'_ Latency| (row.operation, row.size, row.p50_us);
            let rows: Vec<_> = report.latency.iter().map(row).collect();
            let tails: Vec<_> = (report.latency.iter())
                .map(|row| (row.operation, row.size, row.p99_us))
                .collect();
            lines(
                area,
                "Latency in us by size: 50%, and 99% thin",
                &rows,
                &tails,
            )
        }
        Picture::Bandwidth => {
            let rows: Vec<_> = (report.bandwidth.iter())
                .map(|row| (row.operation, row.size, row.bytes_per_second / 1e9))
                .collect();
            lines(area, "Bandwidth in GB/s by size", &rows, &[])
        }
        Picture::Histogram(row) => histogram(area, row),
    }
}

/// Operation, size, value.
type Point = (&'static str, usize, f64);

/// The least and the most, with some room, so that one value has a range too.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::INFINITY, 0.0), |(a, b), v| (v.min(a), v.max(b)));
    let least = least.clamp(1e-9, 1e12);
    (least / 1.3, most.max(least) * 1.3)
}

/// Powers of ten come with the dust of their logarithms.
fn label(value: f64) -> String {
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Both scales logarithmic.
fn lines(area: &Area<'_>, title: &str, rows: &[Point], thin: &[Point]) -> Result<()> {
    let all = || rows.iter().chain(thin);
    let sizes = range(all().map(|(_, size, _)| *size as f64));
    let values = range(all().map(|(_, _, value)| *value));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(14)
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (sizes.0..sizes.1).log_scale().base(2.0),
            (values.0..values.1).log_scale(),
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(0xf2, 0xf2, 0xf2))
        .x_label_formatter(&|size| size::show(size.round() as usize))
        .y_label_formatter(&|value| label(*value))
        .draw()
        .map_err(failed)?;
    let mut names: Vec<&'static str> = rows.iter().map(|(operation, ..)| *operation).collect();
    names.dedup();
    for name in names {
        let of = |points: &[Point]| -> Vec<(f64, f64)> {
            let mine = points.iter().filter(|(operation, ..)| *operation == name);
            mine.map(|(_, size, value)| (*size as f64, *value))
                .collect()
        };
        let ink = colour(name);
        let points = of(rows);
        chart
            .draw_series(LineSeries::new(of(thin), ink.mix(0.35)))
            .map_err(failed)?;
        chart
            .draw_series(points.iter().map(|at| Circle::new(*at, 4, ink.filled())))
            .map_err(failed)?;
        chart
            .draw_series(LineSeries::new(points, ink.stroke_width(2)))
            .map_err(failed)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], ink.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(failed)
}

/// Shares over a logarithmic scale of times.
fn histogram(area: &Area<'_>, row: &Latency) -> Result<()> {
    let share = |count: u64| 100.0 * count as f64 / row.samples.max(1) as f64;
    let most = row.histogram.iter().map(|step| share(step.count));
    let most = most.fold(1.0, f64::max);
    let (from, to) = range(
        row.histogram
            .iter()
            .flat_map(|step| [step.from_us, step.to_us]),
    );
    let title = format!(
        "{}, {}: share of operations in % by time in us",
        row.operation,
        size::show(row.size)
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14))
        .margin(10)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d((from..to).log_scale(), 0.0..most * 1.1)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(0xf2, 0xf2, 0xf2))
        .y_labels(4)
        .x_label_formatter(&|value| label(*value))
        .draw()
        .map_err(failed)?;
    let ink = colour(row.operation);
    let steps = row.histogram.iter().map(|step| {
        Rectangle::new(
            [(step.from_us, 0.0), (step.to_us, share(step.count))],
            ink.mix(0.8).filled(),
        )
    });
    chart.draw_series(steps).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        assert_eq!(
            [label(0.000_099_999_999_999), label(100.0), label(0.5)],
            ["0.0001", "100", "0.5"]
        );
    }

    #[test]
    fn one_value_has_a_range() {
        let (from, to) = range([5.0].into_iter());
        assert!(from < 5.0 && 5.0 < to);
        let (from, to) = range([].into_iter());
        assert!(from < to, "{from} {to}");
    }
}
