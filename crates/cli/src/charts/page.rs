//! What pages with charts have in common: one file that needs nothing else, light or dark as the
//! reader has it.

use std::fmt::Write;

use crate::peer::between::Between;
use crate::platform::machine::Machine;

/// The style sheet, with the colours as variables.
pub const STYLE: &str = include_str!("page.css");

/// What stands for itself in HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Up to the heading. `style` is for this page alone.
pub fn start(heading: &str, host: &str, style: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{heading}: {}</title>\n\
         <style>\n{STYLE}{style}</style>\n</head>\n<body>\n<h1>{heading}</h1>\n",
        escaped(host)
    )
}

/// When, where and between whom. `load`: processors of this side, and the load average before.
pub fn circumstances(
    page: &mut String,
    machine: &Machine,
    path: &Between,
    load: (usize, f64),
    more: &[(&str, String)],
) {
    let processors = format!(
        "{}; {} for this side, load average {} before",
        machine.cpu, load.0, load.1
    );
    let mut facts = vec![
        ("date", machine.date.replace('T', " ").replace('Z', " UTC")),
        ("host", machine.host.clone()),
        ("CPU", processors),
        ("kernel", machine.kernel.clone()),
        (
            "between",
            format!("{} and {} ({})", path.local, path.remote, path.peer),
        ),
        (
            "by",
            format!("{}, path MTU {} bytes", path.interface, path.path_mtu),
        ),
    ];
    facts.extend_from_slice(more);
    self::facts(page, &facts);
}

/// Names and values.
fn facts(page: &mut String, facts: &[(&str, String)]) {
    page.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    }
    page.push_str("</dl>\n");
}

/// A row of a table, of `th` or `td`.
pub fn row(page: &mut String, tag: &str, cells: &[String]) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{}</{tag}>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text cannot become markup.
    #[test]
    fn text_stays_text() {
        assert_eq!(
            escaped("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
        assert!(start("rnic", "</title><img>", "").contains("&lt;/title&gt;&lt;img&gt;"));
    }
}
