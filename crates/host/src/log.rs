//! What a library says to people.

use std::fmt;
use std::io::Write;

/// A line on standard error, if it can be written: eprintln! panics where it cannot, as on a full
/// disk or in a pipe that nobody reads.
pub fn log(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "rnic: {what}");
}
