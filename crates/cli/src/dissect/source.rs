//! Reads a capture, piece by piece: a file or standard input, gzipped or not.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rnic_dissect::{CaptureError, Decoder, Format, Frame};

use crate::failure::{Failure, Result};

/// What is known of the file.
pub struct Source {
    pub format: Option<Format>,
    pub link_types: Vec<u16>,
    /// Why it was not read to its end. What came before is good.
    pub ended: Option<String>,
}

const PIECE: usize = 1 << 20;

/// Calls `each` with every frame.
pub fn read(path: &Path, each: impl FnMut(&Frame<'_>)) -> Result<Source> {
    let unreadable = |error: io::Error| {
        Failure::new(format!("cannot read {}", path.display()))
            .cause(error.to_string())
            .next("`rnic dissect FILE.pcap`; - is standard input")
    };
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(unreadable)?)
    };
    let mut magic = [0; 2];
    let mut len = 0;
    while len < magic.len() {
        match input.read(&mut magic[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    let whole = io::Cursor::new(magic[..len].to_vec()).chain(input);
    let mut input: Box<dyn Read> = if magic == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    frames(&mut input, each).map_err(|error| match error {
        Stop::Read(error) => unreadable(error),
        Stop::NotACapture => Failure::new(format!(
            "{} is neither a pcap nor a pcapng file",
            path.display()
        ))
        .next("make one: `rnic run --pcap FILE -- PROGRAM`, or `tcpdump -w FILE udp port 4791`"),
    })
}

enum Stop {
    Read(io::Error),
    NotACapture,
}

fn frames(
    input: &mut dyn Read,
    mut each: impl FnMut(&Frame<'_>),
) -> std::result::Result<Source, Stop> {
    let mut decoder = Decoder::new();
    let mut piece = vec![0; PIECE];
    let mut frames = 0u64;
    let ended = loop {
        let len = match input.read(&mut piece) {
            Ok(0) => match decoder.finish() {
                Ok(()) => break None,
                Err(CaptureError::NotACapture) => return Err(Stop::NotACapture),
                Err(error) => break Some(error.to_string()),
            },
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A gzipped file that was cut, for example: what was read is good.
            Err(error) if frames > 0 => break Some(error.to_string()),
            Err(error) => return Err(Stop::Read(error)),
        };
        decoder.feed(&piece[..len]);
        let stopped = loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    frames += 1;
                    each(&frame);
                }
                Ok(None) => break None,
                Err(CaptureError::NotACapture) => return Err(Stop::NotACapture),
                Err(error) => break Some(error.to_string()),
            }
        };
        if stopped.is_some() {
            break stopped;
        }
    };
    Ok(Source {
        format: decoder.format(),
        link_types: decoder.link_types().collect(),
        ended,
    })
}
