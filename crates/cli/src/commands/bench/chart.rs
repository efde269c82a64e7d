//! The figures as SVG: by size, and histograms.
//!
//! Charts have their axes in common: both charts by size have the same sizes, and all histograms
//! the same times and shares, so that they can be read one below the other.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{Latency, Report};
use crate::charts::palette::LINES;
use crate::platform::failure::{Failure, Result};
use crate::text::size;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const GRID: RGBColor = RGBColor(0xf2, 0xf2, 0xf2);

fn colour(operation: &str) -> RGBColor {
    let found = LINES.iter().find(|(name, _)| *name == operation);
    found.map_or(BLACK, |(_, (r, g, b))| RGBColor(*r, *g, *b))
}

/// What a drawn colour is in a page that is dark or light: a variable of its style sheet.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    let hex = |RGBColor(r, g, b): RGBColor| format!("\"#{r:02X}{g:02X}{b:02X}\"");
    let series = LINES
        .iter()
        .map(move |(name, _)| (hex(colour(name)), format!("\"var(--{name})\"")));
    let rest = [(BLACK, "\"var(--ink)\""), (GRID, "\"var(--grid)\"")];
    series.chain(rest.map(|(colour, name)| (hex(colour), name.to_owned())))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("drawing a chart: {error}"))
}

/// For what a picture is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A file of its own: captions and a legend are in it.
    File,
    /// In a page on a desktop.
    Wide,
    /// In a page on a phone.
    Narrow,
}

impl Form {
    fn width(self) -> u32 {
        match self {
            Form::File | Form::Wide => 900,
            Form::Narrow => 380,
        }
    }

    fn height(self, picture: Picture<'_>) -> u32 {
        match (picture, self) {
            (Picture::Histogram(_), Form::File) => 200,
            (Picture::Histogram(_), Form::Wide) => 170,
            (Picture::Histogram(_), Form::Narrow) => 150,
            (_, Form::File) => 380,
            (_, Form::Wide) => 340,
            (_, Form::Narrow) => 280,
        }
    }

    /// Room for the labels of the vertical axis: the same everywhere, so that charts line up.
    fn left(self) -> u32 {
        match self {
            Form::File | Form::Wide => 64,
            Form::Narrow => 48,
        }
    }

    fn labels(self) -> usize {
        match self {
            Form::File | Form::Wide => 10,
            Form::Narrow => 5,
        }
    }
}

/// A picture of a page.
pub struct Drawn {
    pub title: String,
    pub svg: String,
}

/// Everything as one picture.
pub fn all(report: &Report) -> Result<String> {
    let form = Form::File;
    let axes = Axes::of(report);
    let pictures = pictures(report);
    let height: u32 = pictures.iter().map(|picture| form.height(*picture)).sum();
    let mut text = String::new();
    {
        let size = (form.width(), height.max(1));
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let mut rest = area.clone();
        for picture in pictures {
            let (part, below) = rest.split_vertically(form.height(picture));
            draw(&part, report, picture, &axes, form)?;
            rest = below;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// Each as a picture of its own, for a page, which has their titles and a legend.
pub fn each(report: &Report, form: Form) -> Result<Vec<Drawn>> {
    let axes = Axes::of(report);
    let each = pictures(report).into_iter().map(|picture| {
        let mut svg = String::new();
        {
            let size = (form.width(), form.height(picture));
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            draw(&area, report, picture, &axes, form)?;
            area.present().map_err(failed)?;
        }
        let title = picture.title();
        Ok(Drawn { title, svg })
    });
    each.collect()
}

#[derive(Clone, Copy)]
enum Picture<'a> {
    Latency,
    Bandwidth,
    Histogram(&'a Latency),
}

impl Picture<'_> {
    fn title(self) -> String {
        match self {
            Picture::Latency => "Latency in us by size: 50%, and 99% thin".to_owned(),
            Picture::Bandwidth => "Bandwidth in GB/s by size".to_owned(),
            Picture::Histogram(row) => format!(
                "{}, {}: share of operations in % by time in us",
                row.operation,
                size::show(row.size)
            ),
        }
    }
}

fn pictures(report: &Report) -> Vec<Picture<'_>> {
    let mut pictures = Vec::new();
    if !report.latency.is_empty() {
        pictures.push(Picture::Latency);
    }
    if !report.bandwidth.is_empty() {
        pictures.push(Picture::Bandwidth);
    }
    pictures.extend(report.shown().map(Picture::Histogram));
    pictures
}

/// What several charts have in common.
struct Axes {
    sizes: (f64, f64),
    /// Of the histograms, us.
    times: (f64, f64),
    /// The largest share in a histogram, %.
    share: f64,
}

impl Axes {
    fn of(report: &Report) -> Axes {
        let latency = report.latency.iter().map(|row| row.size as f64);
        let bandwidth = report.bandwidth.iter().map(|row| row.size as f64);
        let steps = || {
            let rows = report.shown();
            rows.flat_map(|row| row.histogram.iter().map(move |step| (row, step)))
        };
        Axes {
            sizes: range(latency.chain(bandwidth)),
            times: range(steps().flat_map(|(_, step)| [step.from_us, step.to_us])),
            share: steps()
                .map(|(row, step)| share(row, step.count))
                .fold(1.0, f64::max),
        }
    }
}

fn share(row: &Latency, count: u64) -> f64 {
    100.0 * count as f64 / row.samples.max(1) as f64
}

fn draw(
    area: &Area<'_>,
    report: &Report,
    picture: Picture<'_>,
    axes: &Axes,
    form: Form,
) -> Result<()> {
    let title = (form == Form::File).then(|| picture.title());
    match picture {
        Picture::Latency => {
            let row = |row: &'_ Latency| (row.operation, row.size, row.p50_us);
            let rows: Vec<_> = report.latency.iter().map(row).collect();
            let tails: Vec<_> = (report.latency.iter())
                .map(|row| (row.operation, row.size, row.p99_us))
                .collect();
            lines(area, title, &rows, &tails, axes, form)
        }
        Picture::Bandwidth => {
            let rows: Vec<_> = (report.bandwidth.iter())
                .map(|row| (row.operation, row.size, row.bytes_per_second / 1e9))
                .collect();
            lines(area, title, &rows, &[], axes, form)
        }
        Picture::Histogram(row) => histogram(area, title, row, axes, form),
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
fn lines(
    area: &Area<'_>,
    title: Option<String>,
    rows: &[Point],
    thin: &[Point],
    axes: &Axes,
    form: Form,
) -> Result<()> {
    let values = range(rows.iter().chain(thin).map(|(_, _, value)| *value));
    let mut builder = ChartBuilder::on(area);
    if let Some(title) = title {
        builder.caption(title, ("sans-serif", 16));
    }
    let mut chart = builder
        .margin(14)
        .x_label_area_size(32)
        .y_label_area_size(form.left())
        .build_cartesian_2d(
            (axes.sizes.0..axes.sizes.1).log_scale().base(2.0),
            (values.0..values.1).log_scale(),
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(GRID)
        .x_labels(form.labels())
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
            .draw_series(LineSeries::new(of(thin), ink.mix(0.5)))
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
    if form == Form::File {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()
            .map_err(failed)?;
    }
    Ok(())
}

/// Shares over a logarithmic scale of times.
fn histogram(
    area: &Area<'_>,
    title: Option<String>,
    row: &Latency,
    axes: &Axes,
    form: Form,
) -> Result<()> {
    let mut builder = ChartBuilder::on(area);
    if let Some(title) = title {
        builder.caption(title, ("sans-serif", 14));
    }
    let mut chart = builder
        .margin(10)
        .x_label_area_size(24)
        .y_label_area_size(form.left())
        .build_cartesian_2d(
            (axes.times.0..axes.times.1).log_scale(),
            0.0..axes.share * 1.1,
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(GRID)
        .x_labels(form.labels())
        .y_labels(4)
        .x_label_formatter(&|value| label(*value))
        .draw()
        .map_err(failed)?;
    let ink = colour(row.operation);
    let steps = row.histogram.iter().map(|step| {
        Rectangle::new(
            [(step.from_us, 0.0), (step.to_us, share(row, step.count))],
            ink.mix(0.8).filled(),
        )
    });
    chart.draw_series(steps).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of powers of ten have no digits that mean nothing.
    #[test]
    fn labels() {
        assert_eq!(
            [label(0.000_099_999_999_999), label(100.0), label(0.5)],
            ["0.0001", "100", "0.5"]
        );
    }

    /// A chart of one value, or of none, can be drawn.
    #[test]
    fn one_value_has_a_range() {
        let (from, to) = range([5.0].into_iter());
        assert!(from < 5.0 && 5.0 < to);
        let (from, to) = range([].into_iter());
        assert!(from < to, "{from} {to}");
    }
}
