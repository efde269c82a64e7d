//! One page that needs nothing else: charts first, then the tables.

use std::fmt::Write;

use super::chart::{self, Form};
use super::report::{Latency, Report};
use crate::charts::page::{self, escaped, row};
use crate::platform::failure::Result;
use crate::text::{gigabytes, micros, rate, size};

fn cells(latency: &Latency) -> Vec<String> {
    let mut cells = vec![
        latency.operation.to_owned(),
        size::show(latency.size),
        latency.samples.to_string(),
    ];
    cells.extend(latency.quantiles().map(micros));
    cells
}

/// The picture in the colours of the page, and with words for those who do not see it.
fn picture(svg: &str, title: &str) -> String {
    let mut svg = svg.to_owned();
    for (drawn, variable) in chart::variables() {
        svg = svg.replace(&drawn, &variable);
    }
    let label = format!("<svg role=\"img\" aria-label=\"{}\" ", escaped(title));
    svg.replacen("<svg ", &label, 1)
}

fn charts(page: &mut String, report: &Report) -> Result<()> {
    let (wide, narrow) = (
        chart::each(report, Form::Wide)?,
        chart::each(report, Form::Narrow)?,
    );
    if wide.is_empty() {
        return Ok(());
    }
    let mut operations: Vec<&str> = Vec::new();
    let latency = report.latency.iter().map(|row| row.operation);
    for operation in latency.chain(report.bandwidth.iter().map(|row| row.operation)) {
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    page.push_str("<h2>Charts</h2>\n<ul class=\"legend\">");
    for operation in operations {
        let _ = write!(page, "<li><i class=\"i-{operation}\"></i>{operation}</li>");
    }
    page.push_str(
        "</ul>\n<p class=\"soft\">Charts by size have the same sizes below them; histograms have the same times and shares. \
         Send and write are one way, read and atomic there and back.</p>\n",
    );
    for (wide, narrow) in wide.iter().zip(&narrow) {
        let _ = writeln!(
            page,
            "<figure><figcaption>{}</figcaption>\n<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div></figure>",
            escaped(&wide.title),
            picture(&wide.svg, &wide.title),
            picture(&narrow.svg, &narrow.title)
        );
    }
    Ok(())
}

pub fn page(report: &Report) -> Result<String> {
    let mut page = page::start("rnic bench", &report.machine.host, "");
    if let Some(warning) = report.warning() {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    page::circumstances(
        &mut page,
        &report.machine,
        &report.path,
        (report.processors, report.load_average),
        &[("rnic", report.rnic.to_owned())],
    );
    charts(&mut page, report)?;
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
    let mut heading = words(&[
        "", "size", "samples", "least", "50%", "90%", "99%", "99.9%", "most",
    ]);
    if !report.latency.is_empty() {
        page.push_str(
            "<h2>Latency</h2>\n<p>Microseconds; send and write one way, read and atomic there and back.</p>\n\
             <div class=\"table\"><table>\n",
        );
        row(&mut page, "th", &heading);
        for latency in &report.latency {
            row(&mut page, "td", &cells(latency));
        }
        page.push_str("</table></div>\n");
    }
    if let Some(first) = report.beside.first() {
        let _ = writeln!(
            page,
            "<p>The same beside RDMA WRITEs of {} over another queue pair:</p>\n<div class=\"table\"><table>",
            size::show(first.bulk_size)
        );
        heading.push("bytes meanwhile".to_owned());
        row(&mut page, "th", &heading);
        for beside in &report.beside {
            let mut cells = cells(&beside.latency);
            cells.push(gigabytes(beside.bulk_bytes_per_second));
            row(&mut page, "td", &cells);
        }
        page.push_str("</table></div>\n");
    }
    if !report.bandwidth.is_empty() {
        page.push_str("<h2>Bandwidth</h2>\n<div class=\"table\"><table>\n");
        row(
            &mut page,
            "th",
            &words(&["", "size", "at once", "bytes", "operations"]),
        );
        for bandwidth in &report.bandwidth {
            let cells = [
                bandwidth.operation.to_owned(),
                size::show(bandwidth.size),
                bandwidth.depth.to_string(),
                gigabytes(bandwidth.bytes_per_second),
                rate(bandwidth.operations_per_second),
            ];
            row(&mut page, "td", &cells);
        }
        page.push_str("</table></div>\n");
    }
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::report::tests::sample;

    /// What the machine is called cannot become markup.
    #[test]
    fn text_stays_text() {
        let mut report = sample();
        let attack = "</title><img src=x onerror=pwned()>\"'";
        report.machine.host = attack.to_owned();
        report.machine.cpu = attack.to_owned();
        report.machine.kernel = attack.to_owned();
        let page = page(&report).unwrap();
        assert!(!page.contains("<img") && !page.contains("</title><"));
        assert_eq!(page.matches("&lt;img src=x").count(), 4);
    }

    /// The charts come before the tables, and what the figures depend on before both.
    #[test]
    fn charts_come_first() {
        let page = page(&sample()).unwrap();
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
        assert!(at("<dt>date") < at("<dt>host") && at("<dt>host") < at("<dt>CPU"));
        assert!(at("<dt>CPU") < at("<svg"));
        assert!(at("<svg") < at("<table"));
        assert!(page.rfind("<svg").unwrap() < at("<table"));
    }

    /// A page in the dark has no colour of paper in its charts.
    #[test]
    fn charts_have_the_colours_of_the_page() {
        let page = page(&sample()).unwrap();
        let charts = &page[page.find("<svg").unwrap()..page.find("<table").unwrap()];
        for drawn in ["\"#", "white", "black"] {
            assert!(!charts.contains(drawn), "{drawn}");
        }
        for name in ["send", "read", "ink", "grid"] {
            let variable = format!("var(--{name})");
            assert!(charts.contains(&variable), "{variable}");
            assert_eq!(
                page::STYLE.matches(&format!("--{name}: ")).count(),
                2,
                "{name}"
            );
        }
    }

    /// Labels of the axis by size, as the charts have them: the same in both.
    #[test]
    fn charts_by_size_have_one_axis() {
        let report = sample();
        let labels = |svg: &str| -> Vec<String> {
            // The positions of the labels below the chart, which are those at its end.
            let texts = svg.split("<text ").skip(1);
            texts
                .filter(|text| text.contains(" B") || text.contains("KiB") || text.contains("MiB"))
                .map(|text| text.split("</text>").next().unwrap().to_owned())
                .collect()
        };
        let drawn = chart::each(&report, Form::Wide).unwrap();
        let [latency, bandwidth, histograms @ ..] = &drawn[..] else {
            panic!("two charts by size");
        };
        assert!(!labels(&latency.svg).is_empty());
        assert_eq!(labels(&latency.svg), labels(&bandwidth.svg));
        // Of the histograms all labels are the same: they have both axes in common.
        let all = |svg: &str| -> Vec<String> {
            let texts = svg.split("<text ").skip(1);
            texts
                .map(|text| text.split("</text>").next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(histograms.len(), 2);
        assert_eq!(all(&histograms[0].svg), all(&histograms[1].svg));
    }
}
