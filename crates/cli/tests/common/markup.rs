//! Whether a page is well formed: each element is closed, in the right order, and attributes are
//! quoted.

/// Elements without an end.
const VOID: [&str; 4] = ["meta", "input", "br", "hr"];
/// What is in these is no markup.
const RAW: [&str; 2] = ["script", "style"];

/// Fails at the first element that is not closed where it should be.
#[track_caller]
pub fn is_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    let mut open: Vec<&str> = Vec::new();
    let mut seen = 0;
    while let Some((before, tag)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a bare > in {before:?}");
        let (tag, after) = split_tag(tag);
        rest = after;
        seen += 1;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
            continue;
        }
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next();
        let name = name.unwrap_or_default();
        let letters = |c: char| c.is_ascii_alphanumeric();
        assert!(!name.is_empty() && name.chars().all(letters), "<{tag}>");
        if tag.ends_with('/') || VOID.contains(&name) {
            continue;
        }
        open.push(name);
        if RAW.contains(&name) {
            let end = rest
                .find(&format!("</{name}"))
                .expect("the end of an element");
            rest = &rest[end..];
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    assert!(seen > 20, "{seen} elements");
}

/// A tag, and what follows it. In quotes > is no end.
#[track_caller]
fn split_tag(text: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'<' if !quoted => panic!("< within a tag: {:?}", &text[..at]),
            b'>' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    panic!("a tag without an end")
}
