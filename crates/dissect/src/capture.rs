//! Capture files: pcap and pcapng, of either byte order and any time resolution, from bytes as they
//! come.
//!
//! What the blocks of these formats are is pcap-parser's business; ours is what it leaves to its
//! caller: sections, interfaces, time stamps, and how much memory a file may make us take.

use std::collections::VecDeque;
use std::fmt;

use pcap_parser::nom;
use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};
use pcap_parser::{
    PcapError, PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header, parse_sectionheaderblock,
};

/// The longest block that is believed. Link layers have frames of 64 KiB; libpcap's own limit is
/// 256 KiB.
const MAX_BLOCK: usize = 16 << 20;

/// Interfaces of a section that are kept.
const MAX_INTERFACES: usize = 1 << 16;

/// A captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Place in the file, from 1, as Wireshark counts.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// LINKTYPE of the interface.
    pub link_type: u16,
    /// Interface of a pcapng file; 0 otherwise.
    pub interface: u32,
    /// Length on the wire; `bytes` is shorter if the capture was cut.
    pub wire_len: u32,
    /// From the link layer's header on.
    pub bytes: &'a [u8],
}

/// Which kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Classic pcap.
    Pcap {
        /// Nanoseconds, not microseconds.
        nanoseconds: bool,
    },
    /// pcapng.
    PcapNg,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Pcap { nanoseconds: false } => "pcap",
            Format::Pcap { nanoseconds: true } => "pcap (nanoseconds)",
            Format::PcapNg => "pcapng",
        })
    }
}

/// Why a file cannot be read, or not further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    NotACapture,
    /// It ends within a record. What came before is good.
    CutShort {
        /// Bytes of the record that are there.
        left: usize,
    },
    /// A block that contradicts itself, or claims a length beyond all frames.
    Corrupt {
        /// Where in the file it begins.
        offset: u64,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::NotACapture => f.write_str("neither a pcap nor a pcapng file"),
            CaptureError::CutShort { left } => {
                write!(
                    f,
                    "the file ends within a record ({left} bytes of it are there)"
                )
            }
            CaptureError::Corrupt { offset } => {
                write!(f, "the record at byte {offset} of the file is corrupt")
            }
        }
    }
}

impl std::error::Error for CaptureError {}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    resolution: u8,
    offset_s: i64,
}

#[derive(Debug)]
enum State {
    Start,
    Pcap(PcapHeader),
    PcapNg { big_endian: bool },
}

/// Reads a file that is fed to it in pieces: [`Decoder::feed`] takes bytes, [`Decoder::next_frame`]
/// gives the frames that are complete, and [`Decoder::finish`] says whether the end was one.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are done with.
    at: usize,
    /// Bytes of the file before `buffer`.
    before: u64,
    state: State,
    interfaces: Vec<Interface>,
    frames: u64,
    link_types: VecDeque<u16>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

enum Step {
    /// So many bytes are done with.
    Skip(usize),
    Frame {
        len: usize,
        time_ns: u64,
        interface: u32,
        link_type: u16,
        wire_len: u32,
        data: (usize, usize),
    },
    More,
}

impl Decoder {
    /// At the beginning of a file.
    pub fn new() -> Decoder {
        Decoder {
            buffer: Vec::new(),
            at: 0,
            before: 0,
            state: State::Start,
            interfaces: Vec::new(),
            frames: 0,
            link_types: VecDeque::new(),
        }
    }

    /// The next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.before += self.at as u64;
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Which kind of file it is, once that is known.
    pub fn format(&self) -> Option<Format> {
        match &self.state {
            State::Start => None,
            State::Pcap(header) => Some(Format::Pcap {
                nanoseconds: header.is_nanosecond_precision(),
            }),
            State::PcapNg { .. } => Some(Format::PcapNg),
        }
    }

    /// Link types that frames had, in the order in which they appeared.
    pub fn link_types(&self) -> impl Iterator<Item = u16> + '_ {
        self.link_types.iter().copied()
    }

    /// The next frame, or `None` until more is fed.
    ///
    /// # Errors
    /// See [`CaptureError`]; the decoder gives nothing afterwards.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        loop {
            let step = self.step()?;
            match step {
                Step::More => return Ok(None),
                Step::Skip(len) => self.at += len,
                Step::Frame {
                    len,
                    time_ns,
                    interface,
                    link_type,
                    wire_len,
                    data: (from, data_len),
                } => {
                    let from = self.at + from;
                    self.at += len;
                    self.frames += 1;
                    if !self.link_types.contains(&link_type) && self.link_types.len() < 16 {
                        self.link_types.push_back(link_type);
                    }
                    return Ok(Some(Frame {
                        number: self.frames,
                        time_ns,
                        link_type,
                        interface,
                        wire_len,
                        bytes: self.buffer.get(from..from + data_len).unwrap_or_default(),
                    }));
                }
            }
        }
    }

    /// To be called at the end of the file.
    ///
    /// # Errors
    /// [`CaptureError::NotACapture`] if nothing was ever understood, [`CaptureError::CutShort`] if
    /// bytes are left.
    pub fn finish(&self) -> Result<(), CaptureError> {
        let left = self.buffer.len() - self.at;
        if matches!(self.state, State::Start) {
            return Err(CaptureError::NotACapture);
        }
        if left > 0 {
            return Err(CaptureError::CutShort { left });
        }
        Ok(())
    }

    fn corrupt(&self) -> CaptureError {
        CaptureError::Corrupt {
            offset: self.before + self.at as u64,
        }
    }

    /// What a parser that wants more, or fails, means for us.
    fn unfinished(&self, error: nom::Err<PcapError<&[u8]>>) -> Result<Step, CaptureError> {
        match error {
            nom::Err::Incomplete(nom::Needed::Size(n)) if n.get() > MAX_BLOCK => {
                Err(self.corrupt())
            }
            nom::Err::Incomplete(_) if self.buffer.len() - self.at > MAX_BLOCK => {
                Err(self.corrupt())
            }
            nom::Err::Incomplete(_) => Ok(Step::More),
            _ => Err(self.corrupt()),
        }
    }

    fn step(&mut self) -> Result<Step, CaptureError> {
        let input = &self.buffer[self.at..];
        if input.is_empty() {
            return Ok(Step::More);
        }
        match &self.state {
            State::Start => self.start(),
            State::Pcap(header) => {
                let parse = match (header.is_modified_format(), header.is_bigendian()) {
                    (true, _) => parse_pcap_frame_modified,
                    (false, true) => parse_pcap_frame_be,
                    (false, false) => parse_pcap_frame,
                };
                let record_header = if header.is_modified_format() { 24 } else { 16 };
                let (rest, record) = match parse(input) {
                    Ok(done) => done,
                    Err(error) => return self.unfinished(error),
                };
                let fraction = u64::from(record.ts_usec);
                let fraction_ns = if header.is_nanosecond_precision() {
                    fraction
                } else {
                    fraction * 1000
                };
                Ok(Step::Frame {
                    len: input.len() - rest.len(),
                    time_ns: u64::from(record.ts_sec) * 1_000_000_000 + fraction_ns,
                    interface: 0,
                    // The upper bits say whether frames end with an FCS.
                    link_type: header.network.0 as u16,
                    wire_len: record.origlen,
                    data: (record_header, record.data.len()),
                })
            }
            State::PcapNg { big_endian } => self.block(*big_endian),
        }
    }

    fn start(&mut self) -> Result<Step, CaptureError> {
        let input = &self.buffer[self.at..];
        if input.len() < 4 {
            return Ok(Step::More);
        }
        if input[..4] == [0x0a, 0x0d, 0x0d, 0x0a] {
            let Some(order) = input.get(8..12) else {
                return Ok(Step::More);
            };
            let big_endian = match order {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(CaptureError::NotACapture),
            };
            self.state = State::PcapNg { big_endian };
            return Ok(Step::Skip(0));
        }
        match parse_pcap_header(input) {
            Ok((rest, header)) => {
                let len = input.len() - rest.len();
                self.state = State::Pcap(header);
                Ok(Step::Skip(len))
            }
            Err(nom::Err::Incomplete(_)) => Ok(Step::More),
            Err(_) => Err(CaptureError::NotACapture),
        }
    }

    fn block(&mut self, big_endian: bool) -> Result<Step, CaptureError> {
        let input = &self.buffer[self.at..];
        let (Some(kind), Some(len)) = (input.first_chunk::<4>(), input.get(4..8)) else {
            return Ok(Step::More);
        };
        if *kind == [0x0a, 0x0d, 0x0d, 0x0a] {
            // A section has a byte order of its own.
            let (len, section) = match parse_sectionheaderblock(input) {
                Ok((rest, section)) => (input.len() - rest.len(), section),
                Err(error) => return self.unfinished(error),
            };
            let big_endian = section.big_endian();
            self.state = State::PcapNg { big_endian };
            self.interfaces.clear();
            return Ok(Step::Skip(len));
        }
        let len = <[u8; 4]>::try_from(len).unwrap_or_default();
        let len = if big_endian {
            u32::from_be_bytes(len)
        } else {
            u32::from_le_bytes(len)
        } as usize;
        if !(12..=MAX_BLOCK).contains(&len) {
            return Err(self.corrupt());
        }
        if input.len() < len {
            return Ok(Step::More);
        }
        let parse = if big_endian {
            parse_block_be
        } else {
            parse_block_le
        };
        let (rest, block) = match parse(&input[..len]) {
            Ok(done) => done,
            Err(_) => return Err(self.corrupt()),
        };
        let used = len - rest.len();
        if used == 0 {
            return Err(self.corrupt());
        }
        match block {
            Block::InterfaceDescription(block) => {
                let interface = Interface {
                    link_type: block.linktype.0 as u16,
                    snap_len: block.snaplen,
                    resolution: block.if_tsresol,
                    // Read as little endian whatever the section is.
                    offset_s: if big_endian {
                        block.if_tsoffset.swap_bytes()
                    } else {
                        block.if_tsoffset
                    },
                };
                if self.interfaces.len() < MAX_INTERFACES {
                    self.interfaces.push(interface);
                }
                Ok(Step::Skip(used))
            }
            Block::EnhancedPacket(block) => {
                let Some(&interface) = self.interfaces.get(block.if_id as usize) else {
                    return Err(self.corrupt());
                };
                let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                // Type, length, interface, time, two lengths.
                let from = 28;
                let data_len = (block.caplen as usize).min(block.data.len());
                Ok(Step::Frame {
                    len: used,
                    time_ns: interface.time_ns(ticks),
                    interface: block.if_id,
                    link_type: interface.link_type,
                    wire_len: block.origlen,
                    data: (from, data_len),
                })
            }
            Block::SimplePacket(block) => {
                let Some(&interface) = self.interfaces.first() else {
                    return Err(self.corrupt());
                };
                let snap_len = match interface.snap_len {
                    0 => usize::MAX,
                    n => n as usize,
                };
                let data_len = block.data.len().min(block.origlen as usize).min(snap_len);
                Ok(Step::Frame {
                    len: used,
                    time_ns: 0,
                    interface: 0,
                    link_type: interface.link_type,
                    wire_len: block.origlen,
                    data: (12, data_len),
                })
            }
            _ => Ok(Step::Skip(used)),
        }
    }
}

impl Interface {
    /// `if_tsresol`: a power of ten, or of two if the upper bit is set.
    fn time_ns(&self, ticks: u64) -> u64 {
        let ticks = u128::from(ticks);
        let exponent = u32::from(self.resolution & 0x7f);
        let ns = if self.resolution & 0x80 != 0 {
            (ticks * 1_000_000_000).checked_shr(exponent).unwrap_or(0)
        } else {
            match 10u128.checked_pow(exponent) {
                Some(unit) => ticks * 1_000_000_000 / unit,
                None => 0,
            }
        };
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        (ns as i128)
            .saturating_add(offset)
            .clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// What a link type is called.
pub fn link_type_name(link_type: u16) -> &'static str {
    match link_type {
        0 => "loopback (NULL)",
        1 => "Ethernet",
        12 | 14 | 101 => "raw IP",
        108 => "loopback (LOOP)",
        113 => "Linux cooked (SLL)",
        228 => "raw IPv4",
        229 => "raw IPv6",
        276 => "Linux cooked (SLL2)",
        _ => "a link type that is not read",
    }
}

#[cfg(test)]
mod tests;
