//! A line of the report's file that is written over and over.

use super::super::file;
use super::super::line::Line;
use super::Over;

/// Bytes of each line, its end among them.
const LENGTH: usize = 4096;

/// Where a line is; none before the first is written.
#[derive(Debug, Default)]
pub(super) struct Place {
    at: Option<u64>,
    /// The wait that goes on by what is there.
    pub(super) open: Option<u64>,
    /// What is there, without padding.
    text: String,
}

/// Lines whose owners have left.
#[derive(Debug)]
pub(super) struct Free(Vec<u64>);

impl Free {
    pub(super) const fn new() -> Free {
        Free(Vec::new())
    }

    pub(super) fn leave(&mut self, place: &mut Place) {
        self.0.extend(place.at.take());
        place.open = None;
    }
}

impl Place {
    /// Has been written to.
    pub(super) fn is_taken(&self) -> bool {
        self.at.is_some()
    }

    /// Writes the line there. One that is too long is left out: what is said of each object is
    /// short, and so is the number of objects. That it cannot is no reason to disturb the program.
    pub(super) fn write(&mut self, serial: u64, line: Line, free: &mut Free) {
        self.text = line.finish();
        self.open = Some(serial);
        self.put(free);
    }

    /// Has the line of a wait say how that ended, unless it says so already, or is that of `but`.
    pub(super) fn end(&mut self, over: Over, but: Option<u64>, free: &mut Free) {
        if self.open.is_none() || self.open == but {
            return;
        }
        self.open = None;
        // The end of the object, and of the line.
        self.text.truncate(self.text.len().saturating_sub(2));
        self.text += &format!(",\"over\":\"{}\"}}\n", over.name());
        self.put(free);
    }

    fn put(&mut self, free: &mut Free) {
        let Some(padding) = LENGTH.checked_sub(self.text.len()) else {
            return;
        };
        let mut text = self.text.clone();
        text.insert_str(self.text.len() - 1, &" ".repeat(padding));
        self.at = self.at.or_else(|| free.0.pop());
        match self.at {
            Some(at) => file::overwrite(&text, at),
            None => self.at = file::append(&text).and_then(|end| end.checked_sub(LENGTH as u64)),
        }
    }
}
