//! Reads a capture, piece by piece: a file or standard input, gzipped or not.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rnic_dissect::{CaptureError, Decoder, Format, Frame};

use crate::platform::failure::{Failure, Result};

/// What is known of the file.
pub struct Source {
    pub format: Option<Format>,
    pub link_types: Vec<u16>,
    /// Why it was not read to its end. What came before is good.
    pub ended: Option<String>,
}

/// What was read.
#[derive(Clone, Copy)]
pub enum Read<'a> {
    Frame(&'a Frame<'a>),
    /// All frames that are there by now.
    Piece,
    /// The last one.
    End,
}

const PIECE: usize = 1 << 20;

/// The file as people are told of it.
pub fn name(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".into(),
        false => path.display().to_string(),
    }
}

/// Calls `each` with every frame, after every piece of the file, and at its end.
pub fn read(path: &Path, each: impl FnMut(Read<'_>) -> Result<()>) -> Result<Source> {
    let name = name(path);
    let unreadable = |error: io::Error| {
        Failure::new(format!("cannot read {name}"))
            .cause(error.to_string())
            .next("`rnic dissect FILE.pcap`; - is standard input")
    };
    let mut input: Box<dyn io::Read> = if path.as_os_str() == "-" {
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
    if len == 0 {
        return Err(Failure::new(format!("{name} is empty"))
            .cause(
                "nobody began to write a capture: a program under `rnic run --pcap FILE` never opened rnic0, or tcpdump was \
                 refused, or killed before it wrote",
            )
            .next("see what that program said"));
    }
    let whole = io::Cursor::new(magic[..len].to_vec()).chain(input);
    let mut input: Box<dyn io::Read> = if magic == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    frames(&mut input, each).map_err(|error| match error {
        Stop::Read(error) => unreadable(error),
        Stop::Each(failure) => failure,
        Stop::NotACapture => Failure::new(format!("{name} is neither a pcap nor a pcapng file"))
            .next(
                "make one: `rnic run --pcap FILE -- PROGRAM`, or `tcpdump -w FILE udp port 4791`",
            ),
    })
}

enum Stop {
    Read(io::Error),
    NotACapture,
    Each(Failure),
}

fn frames(
    input: &mut dyn io::Read,
    mut each: impl FnMut(Read<'_>) -> Result<()>,
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
                    each(Read::Frame(&frame)).map_err(Stop::Each)?;
                }
                Ok(None) => break None,
                Err(CaptureError::NotACapture) => return Err(Stop::NotACapture),
                Err(error) => break Some(error.to_string()),
            }
        };
        if stopped.is_some() {
            break stopped;
        }
        each(Read::Piece).map_err(Stop::Each)?;
    };
    each(Read::End).map_err(Stop::Each)?;
    Ok(Source {
        format: decoder.format(),
        link_types: decoder.link_types().collect(),
        ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe: what is in it comes at once, and no more.
    struct Pieces(Vec<Vec<u8>>);

    impl io::Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn frames_are_given_as_their_piece_comes() {
        let header = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        let header = [&header[..], &[0; 8], &[0, 0, 4, 0, 1, 0, 0, 0]].concat();
        let record = [&[0; 8][..], &[4, 0, 0, 0, 4, 0, 0, 0], &[7; 4]].concat();
        let (half, rest) = record.split_at(9);
        let first = [&header[..], &record, half].concat();
        let mut pieces = Pieces(vec![first, rest.to_vec()]);
        let mut seen = String::new();
        let source = frames(&mut pieces, |what| {
            seen.push(match what {
                Read::Frame(_) => 'f',
                Read::Piece => '|',
                Read::End => '.',
            });
            Ok(())
        });
        assert_eq!(seen, "f|f|.");
        assert!(source.is_ok_and(|source| source.ended.is_none()));
    }
}
