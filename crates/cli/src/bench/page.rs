//! One page that needs nothing else: tables, charts, histograms.

use std::fmt::Write;

use super::chart;
use super::report::{Latency, Report, gigabytes, micros, rate};
use crate::failure::Result;
use crate::size;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328;\
background:#fff}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.15rem .8rem;text-align:right;\
border-bottom:1px solid #e3e6ea}td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto;\
display:block;margin:1rem 0}.warning{background:#fff3cd;padding:.5rem 1rem}";

/// What stands for itself in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn row(page: &mut String, tag: &str, cells: &[String]) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{}</{tag}>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

fn cells(latency: &Latency) -> Vec<String> {
    let mut cells = vec![
        latency.operation.to_owned(),
        size::show(latency.size),
        latency.samples.to_string(),
    ];
    cells.extend(latency.quantiles().map(micros));
    cells
}

pub fn page(report: &Report) -> Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>rnic bench</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>rnic bench</h1>\n<p>rnic {}: {}</p>\n",
        escaped(report.rnic),
        escaped(&report.circumstances())
    );
    if let Some(warning) = report.warning() {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(warning));
    }
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
    let mut heading = words(&[
        "", "size", "samples", "least", "50%", "90%", "99%", "99.9%", "most",
    ]);
    if !report.latency.is_empty() {
        page.push_str("<h2>Latency</h2>\n<p>Microseconds; send and write one way, read and atomic there and back.</p>\n<table>\n");
        row(&mut page, "th", &heading);
        for latency in &report.latency {
            row(&mut page, "td", &cells(latency));
        }
        page.push_str("</table>\n");
    }
    if let Some(first) = report.beside.first() {
        let _ = writeln!(
            page,
            "<p>The same beside RDMA WRITEs of {} over another queue pair:</p>\n<table>",
            size::show(first.bulk_size)
        );
        heading.push("bytes meanwhile".to_owned());
        row(&mut page, "th", &heading);
        for beside in &report.beside {
            let mut cells = cells(&beside.latency);
            cells.push(gigabytes(beside.bulk_bytes_per_second));
            row(&mut page, "td", &cells);
        }
        page.push_str("</table>\n");
    }
    if !report.bandwidth.is_empty() {
        page.push_str("<h2>Bandwidth</h2>\n<table>\n");
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
        page.push_str("</table>\n");
    }
    page.push_str("<h2>Charts</h2>\n");
    for picture in chart::each(report)? {
        page.push_str(&picture);
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escaped("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }
}
