//! The closing words of a run, and phrases in them.

use crate::text::printable;

/// The closing words of a run.
#[derive(Debug, Default)]
pub struct Story {
    pub what: String,
    pub seen: Vec<String>,
    pub cause: Option<String>,
    /// What the cause may be, where it is not known.
    pub candidates: Vec<String>,
    pub next: Vec<String>,
}

impl Story {
    pub fn print(&self) {
        crate::platform::out::aside(format_args!("{self}"));
    }

    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "what": self.what,
            "seen": self.seen,
            "cause": self.cause,
            "candidates": self.candidates,
            "next": self.next,
        })
    }
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "rnic: {}", printable(&self.what))?;
        let causes = self.cause.iter().map(|cause| ("cause:", cause));
        let seen = self.seen.iter().map(|seen| ("seen:", seen));
        let next = self.next.iter().map(|next| ("next:", next));
        let mut before = "";
        let candidates = self.candidates.iter().map(|text| ("maybe:", text));
        for (label, text) in seen.chain(causes).chain(candidates).chain(next) {
            let shown = if label == before { "" } else { label };
            writeln!(f, "  {shown:<6} {}", printable(text))?;
            before = label;
        }
        Ok(())
    }
}

pub fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// What a process is that answers nothing until somebody lets it go on.
pub fn is_stopped(program: &str, pid: u32) -> String {
    format!(
        "the peer, {program} (pid {pid}), is stopped (SIGSTOP, a debugger's breakpoint, Ctrl-Z)"
    )
}

/// What to do about it.
pub fn go_on(pid: u32) -> String {
    format!("let it go on: `kill -CONT {pid}`, `fg` in its shell, or `continue` in its debugger")
}
