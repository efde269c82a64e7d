//! How far something is that takes long.

use std::io::IsTerminal;

use super::out;

/// Says on a terminal what is being done.
pub struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    /// Of so many steps.
    pub fn new(total: usize) -> Progress {
        Progress {
            total,
            done: 0,
            shown: std::io::stderr().is_terminal(),
        }
    }

    pub fn step(&mut self, what: &str) {
        self.done += 1;
        if self.shown {
            out::aside(format_args!("\r\x1b[K{}/{}  {what}", self.done, self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            // The line is the result's now.
            out::aside(format_args!("\r\x1b[K"));
        }
    }
}
