//! A chart of lines with intervals, as SVG. Values of the horizontal axis are on a logarithmic
//! scale, and each that was measured has its tick.

use std::fmt::Write;

use super::page::escaped;
use super::palette::{self, Colour, GRID, INK, PAPER, SOFT};
use super::scale::{Scale, number};

/// For what a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A file of its own, as large as a slide: title and caption are in it.
    File,
    /// In a page on a desktop.
    Wide,
    /// In a page on a phone, which has a legend: no names beside the lines.
    Narrow,
}

pub struct Plot {
    pub title: String,
    /// Above the vertical axis, with its unit.
    pub y_title: String,
    pub x_title: String,
    /// The vertical axis is logarithmic.
    pub log: bool,
    /// Places on the horizontal axis, and what they are called.
    pub ticks: Vec<(f64, String)>,
    pub curves: Vec<Curve>,
    pub marks: Vec<Mark>,
    /// What the signs mean: lines.
    pub caption: Vec<String>,
}

pub struct Curve {
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    /// A model, and nothing that was measured.
    pub dashed: bool,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
}

/// A figure from elsewhere.
pub struct Mark {
    pub colour: usize,
    pub x: f64,
    pub y: f64,
    pub label: String,
}

/// Sizes, in the units of the picture.
struct Layout {
    width: f64,
    height: f64,
    font: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// How wide a text is at most, in heights of its font: in the widest of the fonts that a chart
/// names, and bold.
fn width_of(text: &str) -> f64 {
    let letter = |letter: char| match letter {
        ' ' | '.' | ',' | 'i' | 'l' => 0.4,
        '-' | 't' | 'r' | 'f' | 'j' => 0.5,
        'm' | 'w' | 'A'..='Z' => 0.82,
        _ => 0.69,
    };
    text.chars().map(letter).sum()
}

/// Letters of a line of a name beside a curve.
const NAME: usize = 17;
/// From one line of text to the next, in heights of the font.
const LEADING: f64 = 1.18;

impl Layout {
    fn of(plot: &Plot, form: Form, labels: &[String]) -> Layout {
        let (width, height, font): (f64, f64, f64) = match form {
            Form::File => (1280.0, 720.0, 24.0),
            Form::Wide => (960.0, 430.0, 17.0),
            Form::Narrow => (400.0, 310.0, 14.0),
        };
        let widest = |texts: &[String]| texts.iter().map(|text| width_of(text)).fold(0.0, f64::max);
        let left = widest(labels) * font + font;
        let names: Vec<String> = plot.curves.iter().flat_map(|c| wrapped(&c.name)).collect();
        let right = match form {
            Form::Narrow => font,
            _ => widest(&names) * font + font,
        };
        let (top, bottom) = match form {
            Form::File => (4.6 * font, 5.6 * font),
            _ => (2.0 * font, 3.4 * font),
        };
        Layout {
            width,
            height,
            font,
            left: left.max(2.0 * font),
            right,
            top,
            bottom,
        }
    }

    fn x(&self, place: f64) -> f64 {
        self.left + place * (self.width - self.left - self.right)
    }

    fn y(&self, place: f64) -> f64 {
        self.height - self.bottom - place * (self.height - self.top - self.bottom)
    }
}

/// What is drawn with.
struct Pen {
    out: String,
    form: Form,
}

impl Pen {
    /// In a page it is a variable, so that the chart is light or dark with it.
    fn colour(&self, (name, (r, g, b)): Colour) -> String {
        match self.form {
            Form::File => format!("#{r:02x}{g:02x}{b:02x}"),
            Form::Wide | Form::Narrow => format!("var(--{name})"),
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Colour, width: f64) {
        let colour = self.colour(colour);
        let _ = writeln!(
            self.out,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// `anchor`: start, middle or end. Behind the letters is some paper.
    fn text(&mut self, at: (f64, f64), text: &str, look: Look) {
        let (colour, paper) = (self.colour(look.colour), self.colour(PAPER));
        let weight = if look.bold {
            " font-weight=\"600\""
        } else {
            ""
        };
        let _ = writeln!(
            self.out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{:.1}\" text-anchor=\"{}\" fill=\"{colour}\"{weight} \
             stroke=\"{paper}\" stroke-width=\"{:.1}\" paint-order=\"stroke\">{}</text>",
            at.0,
            at.1,
            look.size,
            look.anchor,
            look.size * 0.25,
            escaped(text)
        );
    }
}

#[derive(Clone, Copy)]
struct Look {
    size: f64,
    anchor: &'static str,
    colour: Colour,
    bold: bool,
}

impl Plot {
    pub fn svg(&self, form: Form) -> String {
        let measured = self.curves.iter().flat_map(|curve| &curve.points);
        let values = measured.flat_map(|point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            [low, point.y, high]
        });
        let values = values.chain(self.marks.iter().map(|mark| mark.y));
        let y = match self.log {
            true => Scale::logarithmic(values, 1.15),
            false => Scale::linear(values),
        };
        let x = Scale::logarithmic(self.ticks.iter().map(|(x, _)| *x), 1.0);
        // A little away from the axis.
        let at_x = |value: f64| 0.03 + 0.94 * x.place(value);
        let ticks = y.ticks(if form == Form::Narrow { 4 } else { 6 });
        let labels: Vec<String> = ticks.iter().map(|tick| number(*tick)).collect();
        let layout = Layout::of(self, form, &labels);
        let mut pen = Pen {
            out: String::new(),
            form,
        };
        let _ = writeln!(
            pen.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" \
             font-family=\"DejaVu Sans, Liberation Sans, Arial, sans-serif\" role=\"img\" aria-label=\"{2}\">",
            layout.width,
            layout.height,
            escaped(&self.title)
        );
        if form == Form::File {
            let paper = pen.colour(PAPER);
            let _ = writeln!(
                pen.out,
                "<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>"
            );
        }
        self.words(&mut pen, &layout, form);
        self.grid(&mut pen, &layout, &ticks, &labels, &y, &at_x);
        for curve in self.curves.iter().filter(|curve| curve.dashed) {
            draw(&mut pen, &layout, curve, &y, &at_x);
        }
        for curve in self.curves.iter().filter(|curve| !curve.dashed) {
            draw(&mut pen, &layout, curve, &y, &at_x);
        }
        self.figures(&mut pen, &layout, &y, &at_x);
        if form != Form::Narrow {
            self.names(&mut pen, &layout, &y);
        }
        pen.out.push_str("</svg>");
        pen.out
    }

    /// Titles and the caption.
    fn words(&self, pen: &mut Pen, layout: &Layout, form: Form) {
        let font = layout.font;
        let look = Look {
            size: font,
            anchor: "start",
            colour: SOFT,
            bold: false,
        };
        if form == Form::File {
            let title = Look {
                size: font * 1.3,
                colour: INK,
                bold: true,
                ..look
            };
            pen.text((font, 1.8 * font), &self.title, title);
            let caption = Look {
                size: font * 0.75,
                ..look
            };
            let first = layout.height - 0.7 * font - (self.caption.len() as f64 - 1.0) * font;
            for (n, line) in (0..).zip(&self.caption) {
                pen.text((font, first + f64::from(n) * font), line, caption);
            }
        }
        pen.text((font * 0.5, layout.top - 0.8 * font), &self.y_title, look);
        let x_title = Look {
            anchor: "middle",
            ..look
        };
        let below = layout.height - layout.bottom + 2.7 * font;
        pen.text((layout.x(0.5), below), &self.x_title, x_title);
    }

    fn grid(
        &self,
        pen: &mut Pen,
        layout: &Layout,
        ticks: &[f64],
        labels: &[String],
        y: &Scale,
        at_x: &dyn Fn(f64) -> f64,
    ) {
        let font = layout.font;
        let look = Look {
            size: font,
            anchor: "end",
            colour: INK,
            bold: false,
        };
        for (tick, label) in ticks.iter().zip(labels) {
            let at = layout.y(y.place(*tick));
            pen.line((layout.x(0.0), at), (layout.x(1.0), at), GRID, 1.0);
            pen.text((layout.x(0.0) - 0.4 * font, at + 0.35 * font), label, look);
        }
        let floor = layout.y(0.0);
        pen.line((layout.x(0.0), floor), (layout.x(1.0), floor), SOFT, 1.5);
        let middle = Look {
            anchor: "middle",
            ..look
        };
        let places: Vec<f64> = self.ticks.iter().map(|(x, _)| layout.x(at_x(*x))).collect();
        let widths = self
            .ticks
            .iter()
            .map(|(_, label)| 0.9 * width_of(label) * font);
        let fits = fitting(&places, &widths.collect::<Vec<_>>(), 0.5 * font);
        for ((place, (_, label)), fits) in places.into_iter().zip(&self.ticks).zip(fits) {
            pen.line((place, floor), (place, floor + 0.3 * font), SOFT, 1.5);
            if fits {
                pen.text((place, floor + 1.4 * font), label, middle);
            }
        }
    }

    /// Each beside the end of its curve, none over another.
    fn names(&self, pen: &mut Pen, layout: &Layout, y: &Scale) {
        let line = layout.font * LEADING;
        let mut names: Vec<(f64, f64, &Curve, Vec<String>)> = Vec::new();
        for curve in &self.curves {
            let Some(last) = curve.points.last() else {
                continue;
            };
            let lines = wrapped(&curve.name);
            let height = lines.len() as f64 * line;
            names.push((
                layout.y(y.place(last.y)) - height / 2.0,
                height,
                curve,
                lines,
            ));
        }
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut boxes: Vec<(f64, f64)> = names.iter().map(|name| (name.0, name.1)).collect();
        spread(
            &mut boxes,
            layout.top - line,
            layout.height - layout.bottom + line,
        );
        for ((top, _), (_, _, curve, lines)) in boxes.into_iter().zip(names) {
            for (n, text) in (0..).zip(lines) {
                let at = (
                    layout.x(1.0) + 0.6 * layout.font,
                    top + line * (f64::from(n) + 0.8),
                );
                let look = Look {
                    size: layout.font,
                    anchor: "start",
                    colour: palette::line(curve.colour),
                    bold: !curve.dashed,
                };
                pen.text(at, &text, look);
            }
        }
    }

    /// Figures from elsewhere, each with its number beside it.
    fn figures(&self, pen: &mut Pen, layout: &Layout, y: &Scale, at_x: &dyn Fn(f64) -> f64) {
        let place = |mark: &Mark| (layout.x(at_x(mark.x)), layout.y(y.place(mark.y)));
        let mut marks: Vec<&Mark> = self.marks.iter().collect();
        marks.sort_by(|a, b| place(a).1.total_cmp(&place(b).1));
        for mark in &marks {
            diamond(pen, layout, mark.colour, place(mark));
        }
        let mut xs: Vec<f64> = marks.iter().map(|mark| mark.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let size = layout.font * 0.9;
        for x in xs {
            let here = || marks.iter().filter(|mark| mark.x == x);
            let mut boxes: Vec<(f64, f64)> = here()
                .map(|mark| (place(mark).1 - 1.15 * size, size))
                .collect();
            spread(&mut boxes, layout.top - size, layout.height - layout.bottom);
            for (mark, (top, _)) in here().zip(boxes) {
                let x = place(mark).0;
                // To the left, where there is no room at the right.
                let at_end = x > layout.width - layout.right - 4.0 * layout.font;
                let (dx, anchor) = if at_end {
                    (-0.8, "end")
                } else {
                    (0.8, "start")
                };
                let look = Look {
                    size,
                    anchor,
                    colour: palette::line(mark.colour),
                    bold: false,
                };
                pen.text((x + dx * layout.font, top + 0.85 * size), &mark.label, look);
            }
        }
    }
}

/// Which labels can be written without touching another: the first and the last in any case.
fn fitting(places: &[f64], widths: &[f64], gap: f64) -> Vec<bool> {
    let mut fits = vec![false; places.len()];
    let Some(last) = places.len().checked_sub(1) else {
        return fits;
    };
    let left_of = |n: usize| places[n] - widths[n] / 2.0;
    let right_of = |n: usize| places[n] + widths[n] / 2.0;
    let mut end = f64::NEG_INFINITY;
    for (n, fits) in fits.iter_mut().enumerate().take(last) {
        *fits = n == 0 || (left_of(n) >= end + gap && right_of(n) + gap <= left_of(last));
        if *fits {
            end = right_of(n);
        }
    }
    fits[last] = true;
    fits
}

/// Moves boxes (top, height), which are in order, so that none is over another, within limits if
/// they have room for all.
fn spread(boxes: &mut [(f64, f64)], top: f64, bottom: f64) {
    let mut end = top;
    for (place, height) in boxes.iter_mut() {
        *place = place.max(end);
        end = *place + *height;
    }
    let mut start = bottom.max(top + boxes.iter().map(|(_, height)| height).sum::<f64>());
    for (place, height) in boxes.iter_mut().rev() {
        *place = place.min(start - *height);
        start = *place;
    }
}

/// A name in lines.
fn wrapped(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= NAME => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw(pen: &mut Pen, layout: &Layout, curve: &Curve, y: &Scale, at_x: &dyn Fn(f64) -> f64) {
    let colour = palette::line(curve.colour);
    let ink = pen.colour(colour);
    let at = |x: f64, value: f64| (layout.x(at_x(x)), layout.y(y.place(value)));
    let places: Vec<(f64, f64)> = curve.points.iter().map(|p| at(p.x, p.y)).collect();
    let list: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let (width, dashes) = match curve.dashed {
        true => (
            layout.font * 0.13,
            " stroke-dasharray=\"9 6\" stroke-opacity=\"0.85\"",
        ),
        false => (layout.font * 0.17, ""),
    };
    let _ = writeln!(
        pen.out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"{width:.1}\"{dashes}/>",
        list.join(" ")
    );
    if curve.dashed {
        return;
    }
    for (point, (cx, cy)) in curve.points.iter().zip(&places) {
        if let Some((low, high)) = point.interval {
            let (low, high) = (at(point.x, low), at(point.x, high));
            let cap = layout.font * 0.3;
            pen.line(low, high, colour, layout.font * 0.11);
            for end in [low, high] {
                pen.line(
                    (end.0 - cap, end.1),
                    (end.0 + cap, end.1),
                    colour,
                    layout.font * 0.11,
                );
            }
        }
        let r = layout.font * 0.28;
        // Another shape for each colour.
        let _ = match curve.colour % 3 {
            0 => writeln!(
                pen.out,
                "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{r:.1}\" fill=\"{ink}\"/>"
            ),
            1 => writeln!(
                pen.out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{2:.1}\" height=\"{2:.1}\" fill=\"{ink}\"/>",
                cx - r,
                cy - r,
                2.0 * r
            ),
            _ => writeln!(
                pen.out,
                "<path d=\"M{cx:.1},{:.1} L{:.1},{3:.1} L{:.1},{3:.1} Z\" fill=\"{ink}\"/>",
                cy - 1.2 * r,
                cx + 1.1 * r,
                cx - 1.1 * r,
                cy + 0.9 * r
            ),
        };
    }
}

fn diamond(pen: &mut Pen, layout: &Layout, colour: usize, (x, y): (f64, f64)) {
    let (ink, paper) = (pen.colour(palette::line(colour)), pen.colour(PAPER));
    let r = layout.font * 0.5;
    let _ = writeln!(
        pen.out,
        "<path d=\"M{x:.1},{:.1} L{:.1},{y:.1} L{x:.1},{:.1} L{:.1},{y:.1} Z\" fill=\"{paper}\" \
         stroke=\"{ink}\" stroke-width=\"{:.1}\"/>",
        y - r,
        x + r,
        y + r,
        x - r,
        layout.font * 0.15
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_touch() {
        let mut boxes = [(10.0, 20.0), (12.0, 20.0), (13.0, 40.0), (95.0, 20.0)];
        spread(&mut boxes, 0.0, 110.0);
        assert!(
            boxes
                .windows(2)
                .all(|two| two[0].0 + two[0].1 <= two[1].0 + 1e-9),
            "{boxes:?}"
        );
        assert!(
            boxes[0].0 >= 0.0 && boxes[3].0 + boxes[3].1 <= 110.0,
            "{boxes:?}"
        );
        // Too many: over the end, but not over each other.
        let mut many = [(0.0, 30.0); 5];
        spread(&mut many, 0.0, 100.0);
        assert!(
            many.windows(2)
                .all(|two| two[0].0 + two[0].1 <= two[1].0 + 1e-9),
            "{many:?}"
        );
    }

    #[test]
    fn labels_do_not_touch() {
        let places = [0.0, 10.0, 20.0, 30.0, 40.0];
        assert_eq!(fitting(&places, &[8.0; 5], 2.0), [true; 5]);
        assert_eq!(
            fitting(&places, &[15.0; 5], 2.0),
            [true, false, true, false, true]
        );
        assert_eq!(
            fitting(&places, &[90.0; 5], 2.0),
            [true, false, false, false, true]
        );
        assert!(fitting(&[], &[], 1.0).is_empty());
    }

    #[test]
    fn long_names_have_lines() {
        assert_eq!(wrapped("inline"), ["inline"]);
        assert_eq!(
            wrapped("registered for each message"),
            ["registered for", "each message"]
        );
    }

    /// An empty chart is one all the same.
    #[test]
    fn nothing_can_be_drawn() {
        let plot = Plot {
            title: "a < b & \"c\"".to_owned(),
            y_title: String::new(),
            x_title: String::new(),
            log: true,
            ticks: Vec::new(),
            curves: Vec::new(),
            marks: Vec::new(),
            caption: Vec::new(),
        };
        let svg = plot.svg(Form::File);
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
