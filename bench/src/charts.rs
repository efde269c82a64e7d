//! The figures as bars, one SVG per kind: rnic between its floor and its peers.

mod ratios;

use std::fs;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;
use crate::asleep::PROCESSOR;
use crate::results::{Results, RowResult, Series};
use crate::rows::Role;

/// A chart: file name, title, names of its rows.
const CHARTS: [(&str, &str, &[&str]); 3] = [
    (
        "latency.svg",
        "Latency, median (shorter is better)",
        &[
            "send-lat",
            "write-lat",
            "read-lat",
            "events",
            "udp-lat-lo",
            "udp-lat-veth",
            "xdp-lat-veth",
            "events-udp",
        ],
    ),
    (
        "bandwidth.svg",
        "Bandwidth (longer is better)",
        &["write-bw", "udp-bw-1024", "udp-bw-4096"],
    ),
    (
        "rate.svg",
        "Messages a second (longer is better)",
        &["rate-8", "rate-64", "udp-rate-8", "udp-rate-64"],
    ),
];

/// How wide a chart is, and where its bars begin and end.
#[derive(Clone, Copy)]
struct Frame {
    width: i32,
    left: i32,
    right: i32,
}

const WIDE: Frame = Frame {
    width: 960,
    left: 400,
    right: 860,
};
/// For short names, and phones.
const NARROW: Frame = Frame {
    width: 560,
    left: 150,
    right: 470,
};
const LINE: i32 = 24;
const BAR: i32 = 16;
const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x6a, 0x73, 0x7d);
const AIM: RGBColor = RGBColor(0xb0, 0x2a, 0x37);

/// Distinct for the colour-blind too.
fn colour(role: Role) -> RGBColor {
    match role {
        Role::Rnic => RGBColor(0xe6, 0x6f, 0x00),
        Role::Floor => RGBColor(0x9a, 0xa5, 0xb1),
        Role::Peer => RGBColor(0x3b, 0x7d, 0xd8),
    }
}

/// Of programs that sleep: file name, and title.
pub const ASLEEP: [(&str, &str); 4] = [
    (
        "asleep-latency.svg",
        "Programs that sleep: 64 B there and back, median",
    ),
    (
        "asleep-processor.svg",
        "Processor time of a million messages of 64 B",
    ),
    (
        "asleep-programs.svg",
        "Whole programs over rnic: times as fast as over TCP",
    ),
    (
        "asleep-programs-processor.svg",
        "Whole programs over rnic: processor time for the same work, as times that over TCP",
    ),
];

/// Those of [`ASLEEP`].
pub fn write_asleep(results: &Results, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let is_small = |row: &&RowResult| row.name.starts_with("asleep-");
    let small: Vec<&RowResult> = results.rows.iter().filter(is_small).collect();
    let whole = |row: &&RowResult| {
        !["asleep", "idle", "mixed"].contains(&row.name.split('-').next().unwrap_or_default())
    };
    let whole: Vec<&RowResult> = results.rows.iter().filter(whole).collect();
    let short = format!(
        "Medians of {} runs. Shorter is better; each group has a scale of its own.",
        results.repetitions
    );
    let dots = format!("Medians of {} runs.", results.repetitions);
    let drawn = [
        draw(NARROW, ASLEEP[0].1, &short, &small, "")?,
        draw(NARROW, ASLEEP[1].1, &short, &small, PROCESSOR)?,
        ratios::draw(ASLEEP[2].1, &dots, &whole, "")?,
        ratios::draw(ASLEEP[3].1, &dots, &whole, PROCESSOR)?,
    ];
    for ((file, _), text) in ASLEEP.into_iter().zip(drawn) {
        fs::write(folder.join(file), text)?;
    }
    Ok(())
}

fn note(results: &Results) -> String {
    format!(
        "Medians of {} runs; processors {}. Each group has a scale of its own.",
        results.repetitions,
        results.state()
    )
}

/// Writes all charts of which there is a row; gives their names.
pub fn write(results: &Results, folder: &Path) -> Result<Vec<&'static str>> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for (file, title, names) in CHARTS {
        let rows = names.iter().filter_map(|name| {
            let row = results.rows.iter().find(|row| row.name == *name)?;
            bars(row, "").next().is_some().then_some(row)
        });
        let rows: Vec<&RowResult> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let text = draw(WIDE, title, &note(results), &rows, "")?;
        fs::write(folder.join(file), text)?;
        written.push(file);
    }
    Ok(written)
}

/// Each contender's figure of this name.
fn bars<'a>(row: &'a RowResult, figure: &str) -> impl Iterator<Item = (&'a Series, f64)> {
    row.series.iter().filter_map(move |series| {
        let median = series.summary?.median;
        (series.figure == figure).then_some((series, median))
    })
}

/// The strictest aim, in the unit of the row.
fn mark(row: &RowResult) -> Option<f64> {
    let less = row.own("")?.unit.less_is_better();
    let marks = row.verdicts.iter().filter_map(|verdict| verdict.mark);
    marks.reduce(if less { f64::min } else { f64::max })
}

fn draw(
    frame: Frame,
    title: &str,
    note: &str,
    rows: &[&RowResult],
    figure: &str,
) -> Result<String> {
    let lines: i32 = rows
        .iter()
        .map(|row| bars(row, figure).count() as i32)
        .sum();
    let height = 96 + lines * LINE + rows.len() as i32 * 2 * LINE;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (frame.width as u32, height as u32))
            .into_drawing_area();
        area.fill(&WHITE)?;
        let write = |words: &str, at: (i32, i32), size: i32, ink: RGBColor, side: HPos| {
            let style = ("sans-serif", size)
                .into_font()
                .color(&ink)
                .pos(Pos::new(side, VPos::Center));
            area.draw(&Text::new(words.to_owned(), at, style))
        };
        write(title, (20, 28), 20, INK, HPos::Left)?;
        write(note, (20, 52), 12, FAINT, HPos::Left)?;
        let mut x = 20;
        for (role, name, width) in [
            (Role::Rnic, "rnic", 60),
            (Role::Floor, "floor: the machine, no protocol", 220),
            (Role::Peer, "others", 70),
        ] {
            area.draw(&Rectangle::new(
                [(x, 66), (x + 12, 78)],
                colour(role).filled(),
            ))?;
            write(name, (x + 18, 72), 12, INK, HPos::Left)?;
            x += width;
        }
        area.draw(&Rectangle::new([(x, 64), (x + 2, 80)], AIM.filled()))?;
        write("aim", (x + 10, 72), 12, INK, HPos::Left)?;
        let mut y = 96;
        for row in rows {
            y += LINE / 2;
            write(&row.title, (20, y + LINE / 2), 14, INK, HPos::Left)?;
            y += LINE + 4;
            let mark = mark(row);
            let longest = bars(row, figure).map(|(_, median)| median);
            let longest = longest.chain(mark).fold(f64::MIN_POSITIVE, f64::max);
            let x = |value: f64| {
                frame.left + (value / longest * f64::from(frame.right - frame.left)) as i32
            };
            for (series, median) in bars(row, figure) {
                let middle = y + LINE / 2;
                write(
                    &series.contender,
                    (frame.left - 8, middle),
                    12,
                    INK,
                    HPos::Right,
                )?;
                let (top, bottom) = (middle - BAR / 2, middle + BAR / 2);
                area.draw(&Rectangle::new(
                    [(frame.left, top), (x(median).max(frame.left + 1), bottom)],
                    colour(series.role).filled(),
                ))?;
                let mut end = x(median);
                if let Some(mark) = mark.filter(|_| series.role == Role::Rnic) {
                    area.draw(&Rectangle::new(
                        [(x(mark) - 1, top - 3), (x(mark) + 1, bottom + 3)],
                        AIM.filled(),
                    ))?;
                    // Not over the figure.
                    if (end..end + 70).contains(&x(mark)) {
                        end = x(mark);
                    }
                }
                let value = series.unit.show(median);
                write(&value, (end + 6, middle), 12, INK, HPos::Left)?;
                y += LINE;
            }
            y += LINE / 2 - 4;
        }
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;
    use std::collections::HashSet;

    #[test]
    fn charts_show_rows_that_exist() {
        let known: HashSet<String> = rows::all().into_iter().map(|row| row.name).collect();
        for (_, _, names) in CHARTS {
            for name in names {
                assert!(known.contains(*name), "{name}");
            }
        }
    }
}
