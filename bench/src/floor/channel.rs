//! Lines between the two processes, over the socket that is their standard input.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;

use crate::Result;

pub struct Channel {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Channel {
    pub fn of_stdin() -> Result<Channel> {
        let writer = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Channel {
            reader: BufReader::new(writer.try_clone()?),
            writer,
        })
    }

    /// Says something and hears what the peer says.
    pub fn swap(&mut self, text: &str) -> Result<String> {
        writeln!(self.writer, "{text}")?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err("the other process has ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The same with numbers.
    pub fn numbers<const N: usize>(&mut self, own: [u64; N]) -> Result<[u64; N]> {
        let own: Vec<String> = own.iter().map(u64::to_string).collect();
        let line = self.swap(&own.join(" "))?;
        let peer: Vec<u64> = line
            .split(' ')
            .filter_map(|word| u64::from_str(word).ok())
            .collect();
        peer.try_into()
            .map_err(|_| format!("the other process says `{line}`").into())
    }

    /// Returns when the peer has called it too.
    pub fn barrier(&mut self) -> Result<()> {
        self.swap("ready").map(drop)
    }
}
