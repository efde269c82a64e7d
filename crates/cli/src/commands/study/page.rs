//! The answers as one page, for a projector and for a phone.

use std::fmt::Write;

use super::draw::{plot, signs};
use super::questions::{self, Metric};
use super::report::{Answer, Chart, Report, place, shown};
use crate::charts::page::{self, escaped, row};
use crate::charts::palette;
use crate::charts::plot::Form;
use crate::text::gigabytes;

const STYLE: &str = include_str!("study.css");

pub fn page(report: &Report) -> String {
    let mut page = page::start("rnic study", &report.machine.host, STYLE);
    if let Some(warning) = report.warning() {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    for question in &report.left_out {
        let _ = writeln!(
            page,
            "<p class=\"warning\">Left out: {}</p>",
            escaped(question)
        );
    }
    let back_end = format!("{} ({})", report.backend, report.device);
    page::circumstances(
        &mut page,
        &report.machine,
        &report.path,
        (report.processors, report.load_average),
        &[
            ("back end", back_end),
            ("measured", report.manner()),
            ("rnic", report.rnic.to_owned()),
        ],
    );
    if report.questions.len() > 1 {
        page.push_str("<nav>");
        for answer in &report.questions {
            let id = escaped(&answer.question);
            let _ = write!(page, "<a href=\"#{id}\">{id}</a> ");
        }
        page.push_str("</nav>\n");
    }
    for answer in &report.questions {
        question(&mut page, report, answer);
    }
    card(&mut page, report);
    page.push_str("</body>\n</html>\n");
    page
}

fn question(page: &mut String, report: &Report, answer: &Answer) {
    let _ = writeln!(
        page,
        "<section id=\"{}\">\n<h2>{}</h2>",
        escaped(&answer.question),
        escaped(&answer.title)
    );
    let _ = writeln!(page, "<p class=\"seen\">{}</p>", escaped(&answer.seen));
    for chart in &answer.charts {
        figure(page, report, chart);
    }
    let _ = writeln!(page, "<p><b>Why.</b> {}</p>", escaped(&answer.why));
    if report.is_of_software() {
        let _ = writeln!(
            page,
            "<p class=\"note\"><b>On a card.</b> {}</p>",
            escaped(&answer.note)
        );
    }
    let _ = writeln!(
        page,
        "<div class=\"code\"><div><h3>C</h3><pre>{}</pre></div>\
         <div><h3>Rust</h3><pre>{}</pre></div></div>",
        escaped(&answer.code.c),
        escaped(&answer.code.rust)
    );
    page.push_str("<details><summary>Figures</summary>\n");
    for chart in &answer.charts {
        table(page, chart);
    }
    page.push_str("</details>\n</section>\n");
}

fn figure(page: &mut String, report: &Report, chart: &Chart) {
    let plot = plot(report, &chart.title, chart);
    let _ = writeln!(
        page,
        "<figure><figcaption>{}</figcaption>",
        escaped(&chart.title)
    );
    page.push_str("<ul class=\"legend\">");
    for (n, line) in chart.series.iter().enumerate() {
        let (colour, _) = palette::line(n);
        let _ = write!(
            page,
            "<li><i class=\"i-{colour}\"></i>{}</li>",
            escaped(&line.name)
        );
    }
    page.push_str("</ul>\n");
    let _ = writeln!(
        page,
        "<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>",
        plot.svg(Form::Wide),
        plot.svg(Form::Narrow)
    );
    let signs = signs(report, chart).join("; ");
    let _ = writeln!(page, "<p class=\"soft\">{}</p></figure>", escaped(&signs));
}

fn table(page: &mut String, chart: &Chart) {
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
    let _ = writeln!(
        page,
        "<p>{}, {}</p>\n<div class=\"table\"><table>",
        escaped(&chart.title),
        questions::name(chart.metric)
    );
    let mut heading = words(&["", &chart.x_title, "median", "interval from", "to"]);
    let tails = chart.metric == Metric::Latency;
    if tails {
        heading.extend(words(&["90%", "99%"]));
    }
    heading.extend(words(&["model", "texts", "lost"]));
    row(page, "th", &heading);
    let show = |value| shown(chart.metric, value);
    let maybe = |value: Option<f64>| value.map(show).unwrap_or_default();
    for line in &chart.series {
        for point in &line.points {
            let mut cells = vec![
                line.name.clone(),
                place(chart.varied, point.x),
                show(point.value.median),
                show(point.value.low),
                show(point.value.high),
            ];
            if tails {
                cells.extend([maybe(point.p90), maybe(point.p99)]);
            }
            cells.extend([
                maybe(point.model),
                maybe(point.texts),
                point.lost.to_string(),
            ]);
            row(page, "td", &cells);
        }
    }
    page.push_str("</table></div>\n");
}

/// The parameters of the model: nobody has to believe it unseen.
fn card(page: &mut String, report: &Report) {
    let card = &report.card;
    let link = card.get("link_rate") * 1e9 / 8.0;
    let _ = writeln!(
        page,
        "<section id=\"card\">\n<h2>The cost model of a card: {}</h2>\n<p>Dashed lines are computed from \
         these parameters, and nothing of them was measured here. The link carries {}. \
         docs/study.md has the formula; <code>rnic study --card FILE</code> takes other parameters.</p>\n\
         <div class=\"table\"><table>",
        escaped(&card.name),
        gigabytes(link)
    );
    let heading = ["parameter", "value", "unit", "source"].map(str::to_owned);
    row(page, "th", &heading);
    for parameter in &card.parameters {
        let cells = [
            parameter.name.to_owned(),
            parameter.value.to_string(),
            parameter.unit.to_owned(),
            parameter.source.clone(),
        ];
        row(page, "td", &cells);
    }
    page.push_str("</table></div>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    /// What the machine or a card is called cannot become markup.
    #[test]
    fn text_stays_text() {
        let mut report = sample();
        let attack = "</title><img src=x onerror=pwned()>\"'";
        report.machine.host = attack.to_owned();
        report.device = attack.to_owned();
        report.card.name = attack.to_owned();
        report.card.parameters[0].source = attack.to_owned();
        let page = page(&report);
        assert!(!page.contains("<img") && !page.contains("</title><"));
    }

    /// Each question has its chart for a desktop and a phone, sentence, reason, note and code.
    #[test]
    fn each_question_has_everything() {
        let report = sample();
        let page = page(&report);
        let charts: usize = report
            .questions
            .iter()
            .map(|answer| answer.charts.len())
            .sum();
        assert_eq!(page.matches("<svg").count(), 2 * charts);
        for answer in &report.questions {
            let start = format!("<section id=\"{}\">", answer.question);
            let section = page.split_once(&start).expect("a section").1;
            let section = section.split("</section>").next().expect("an end");
            for part in [
                &answer.seen,
                &answer.why,
                &answer.note,
                &answer.code.c,
                &answer.code.rust,
            ] {
                assert!(section.contains(&escaped(part)), "{part}");
            }
        }
        for parameter in &report.card.parameters {
            assert!(page.contains(&escaped(&parameter.source)));
        }
        // Light and dark.
        for (name, _) in palette::LINES.iter().chain([&palette::INK, &palette::GRID]) {
            assert_eq!(
                page::STYLE.matches(&format!("--{name}: ")).count(),
                2,
                "{name}"
            );
        }
    }
}
