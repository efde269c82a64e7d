//! The page: a list of requests, and the way of one of them.

use std::path::Path;

use super::timeline::Request;
use crate::text::count;

const PAGE: &str = include_str!("page.html");
/// Where the data goes.
const DATA: &str = "/*DATA*/null";
/// A page of this kind has it near its beginning.
const MARK: &str = "<title>rnic run --trace";

/// Is it a page of `--trace`?
pub fn is_one(head: &[u8]) -> bool {
    head.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// The whole page.
pub fn of(program: &str, requests: &[Request]) -> String {
    let data = serde_json::json!({ "program": program, "requests": requests });
    // A program may be called anything, also what would end the script.
    let data = data.to_string().replace('<', "\\u003c");
    PAGE.replacen(DATA, &data, 1)
}

/// What is said of it on standard error.
pub fn told(requests: &[Request], page: &Path) -> String {
    let file = page.display();
    if requests.is_empty() {
        return format!("rnic: no send work request was posted; {file} says so");
    }
    let both = requests
        .iter()
        .filter(|it| it.first_arrived.is_some())
        .count();
    let what = count(requests.len() as u64, "send work request");
    let sides = match both {
        0 => "; of the peer nothing is known: run it with --trace, too, on this host".to_owned(),
        n if n < requests.len() => format!("; of {n} both sides are known"),
        _ => String::new(),
    };
    format!("rnic: {file} has the way of {what}{sides}")
}
