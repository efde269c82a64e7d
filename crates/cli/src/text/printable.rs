//! Names that other processes choose, on a terminal.

/// Names come from other processes: what steers a terminal is left out.
pub fn printable(text: &str) -> String {
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if steers(c) { '?' } else { c })
        .collect()
}
