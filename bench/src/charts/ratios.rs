//! Ratios as dots on a logarithmic axis, a row for each kind of work. Narrow, so that it can be
//! read on a phone.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FAINT, INK, colour};
use crate::Result;
use crate::results::{RowResult, Series};
use crate::rows::Role;

const WIDTH: i32 = 480;
const LEFT: i32 = 24;
const RIGHT: i32 = 430;
const TOP: i32 = 92;
const ROW: i32 = 36;
/// Where the axis is labelled; dots beyond its ends are drawn at them.
const MARKS: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

fn x(ratio: f64) -> i32 {
    let (least, most) = (MARKS[0].log2(), MARKS[MARKS.len() - 1].log2());
    let share = (ratio.log2() - least) / (most - least);
    LEFT + (share.clamp(0.0, 1.0) * f64::from(RIGHT - LEFT)) as i32
}

/// rnic's figure beside the first peer's, for each of rnic's ways; a rate or a time that counts as
/// how many times as fast.
fn ratios<'a>(row: &'a RowResult, figure: &str) -> Vec<(&'a Series, f64)> {
    let all = || row.series.iter().filter(|series| series.figure == figure);
    let Some(peer) = all().find(|series| series.role == Role::Peer) else {
        return Vec::new();
    };
    let ratio = |own: &'a Series| {
        let ratio = row.beside(own, peer)?;
        let is_time = figure.is_empty() && own.unit.less_is_better();
        Some((own, if is_time { 1.0 / ratio } else { ratio }))
    };
    let own = all().filter(|series| series.role == Role::Rnic);
    own.filter_map(ratio).collect()
}

pub fn draw(title: &str, note: &str, rows: &[&RowResult], figure: &str) -> Result<String> {
    let rows = rows
        .iter()
        .map(|row| (row.title.as_str(), ratios(row, figure)));
    let rows: Vec<(&str, Vec<(&Series, f64)>)> =
        rows.filter(|(_, dots)| !dots.is_empty()).collect();
    let bottom = TOP + rows.len() as i32 * ROW;
    let mut text = String::new();
    {
        let size = (WIDTH as u32, (bottom + 30) as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let write = |words: &str, at: (i32, i32), size: i32, ink: RGBColor, side: HPos| {
            let style = ("sans-serif", size).into_font().color(&ink);
            let style = style.pos(Pos::new(side, VPos::Center));
            area.draw(&Text::new(words.to_owned(), at, style))
        };
        // Two lines: a phone is narrow.
        let (first, second) = title.split_once(": ").unwrap_or((title, ""));
        write(first, (LEFT, 20), 16, INK, HPos::Left)?;
        write(second, (LEFT, 40), 14, INK, HPos::Left)?;
        write(note, (LEFT, 58), 10, FAINT, HPos::Left)?;
        let ink = colour(Role::Rnic);
        area.draw(&Circle::new((LEFT + 6, 76), 5, ink.filled()))?;
        write(
            "through shared memory",
            (LEFT + 16, 76),
            12,
            INK,
            HPos::Left,
        )?;
        area.draw(&Circle::new((LEFT + 186, 76), 5, ink.stroke_width(2)))?;
        write("over UDP", (LEFT + 196, 76), 12, INK, HPos::Left)?;
        for mark in MARKS {
            let line = if mark == 1.0 {
                INK
            } else {
                RGBColor(0xd8, 0xdc, 0xe0)
            };
            area.draw(&Rectangle::new(
                [(x(mark), TOP), (x(mark) + 1, bottom)],
                line.filled(),
            ))?;
            write(
                &format!("{mark} x"),
                (x(mark), bottom + 14),
                12,
                FAINT,
                HPos::Center,
            )?;
        }
        for (n, (title, dots)) in rows.iter().enumerate() {
            let y = TOP + n as i32 * ROW;
            write(title, (LEFT, y + 9), 12, INK, HPos::Left)?;
            for (series, ratio) in dots {
                let at = (x(*ratio), y + 25);
                let style = match series.contender.contains("UDP") {
                    true => ink.stroke_width(2),
                    false => ink.filled(),
                };
                area.draw(&Circle::new(at, 5, style))?;
            }
        }
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_lie_on_the_axis() {
        assert_eq!((x(MARKS[0]), x(MARKS[MARKS.len() - 1])), (LEFT, RIGHT));
        assert_eq!(x(1.0), (LEFT + RIGHT) / 2);
        assert_eq!((x(0.0), x(1e9)), (LEFT, RIGHT));
    }
}
