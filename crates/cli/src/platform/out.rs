//! Words for people, on stdout and stderr: either may be a pipe that nobody reads any more (`|
//! head`).

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use rustix::termios::tcgetwinsize;

use crate::platform::signals;

/// Columns of text that is broken into lines, where the terminal does not have fewer. More are hard
/// to read.
pub const WIDTH: usize = 100;

/// Columns of the terminal that the answer goes to; `None` if it goes to a file or pipe.
pub fn columns() -> Option<usize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    // Some terminals do not know their size.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A line of the answer. If nobody reads any more, the process ends quietly, as programs in C do.
#[macro_export]
macro_rules! say {
    () => { $crate::platform::out::answer(format_args!("\n")) };
    ($($words:tt)*) => { $crate::platform::out::answer(format_args!("{}\n", format_args!($($words)*))) };
}

/// A line beside it. If nobody reads it, all else goes on.
#[macro_export]
macro_rules! remark {
    ($($words:tt)*) => { $crate::platform::out::aside(format_args!("{}\n", format_args!($($words)*))) };
}

pub fn answer(words: Arguments<'_>) {
    match std::io::stdout().write_fmt(words) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => signals::end_by_broken_pipe(),
        Err(error) => {
            aside(format_args!("rnic: cannot write to stdout: {error}\n"));
            std::process::exit(1);
        }
    }
}

/// At one go: others write to the same terminal or file.
pub fn aside(words: Arguments<'_>) {
    let _ = std::io::stderr().write_all(words.to_string().as_bytes());
}
