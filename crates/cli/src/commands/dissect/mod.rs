//! `rnic dissect`: what a capture of RoCEv2 holds.

mod connections;
mod format;
mod head;
mod html;
mod json;
mod lesson;
mod packets;
mod page_fields;
mod phrases;
mod pick;
mod source;
mod text;
mod words;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use lesson::{Lesson, Operation};
use pick::Pick;
use rnic_dissect::{
    Capture, Connection, Conversation, Dissector, Finished, Format, Limits, Packet, Place,
};
use source::{Read, Source};

use crate::platform::failure::{Failure, Result};
use crate::platform::out::fit;
use crate::platform::replace::may_be_replaced;
use crate::platform::signals;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic run --pcap trace.pcap -- ./my_program; rnic dissect trace.pcap
  tcpdump -i eth0 -s 200 -w trace.pcap udp port 4791         # 200 bytes hold all headers
  tcpdump -i eth0 -w - udp port 4791 | rnic dissect -
  rnic dissect --html trace.html trace.pcap                  # a page with a sequence diagram per queue pair
  rnic dissect --packets --qp 0x11 trace.pcap

FILE is pcap or pcapng, also gzipped: of rnic, tcpdump, dumpcap, Wireshark or a NIC's sniffer. A BTH says for which queue \
pair a packet is, not from which: unless the connection manager's messages are in the capture, rnic infers which two \
directions belong together, and says so. The sides of a conversation are called A (who sent first) and B.

Marks of what happened:
  .  worth knowing
  *  was repaired, and cost time
  ?  what came of it is not in the capture
  !  failed

Exit status: 0 if the capture was read to its end, whatever it shows; 1 if it cannot be read, or not to its end: what was \
read is shown all the same; 2 for arguments that are wrong. Of a live capture (FILE is -) the first ^C is left to tcpdump, \
whose end brings the report; the second one ends rnic.")]
pub struct Args {
    /// The capture; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only conversations of this queue pair (decimal or 0x...)
    #[arg(long, value_name = "QPN", value_parser = number)]
    pub qp: Option<u32>,
    /// Every packet in a line, with its place in its message
    #[arg(long)]
    pub packets: bool,
    /// Messages shown of each send queue; 0 for none
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub messages: usize,
    /// All of it, for machines
    #[arg(long)]
    pub json: bool,
    /// Write a page with sequence diagrams, for any browser
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
}

/// Packets that are kept for --html, and for --json with --packets.
const KEPT_PACKETS: usize = 200_000;

fn number(text: &str) -> std::result::Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed
        .ok()
        .filter(|qpn| *qpn < 1 << 24)
        .ok_or_else(|| "a queue pair number has 24 bits: 17 or 0x11".into())
}

/// What was read.
pub struct Report<'a> {
    pub name: String,
    pub format: Option<Format>,
    pub link_types: Vec<u16>,
    pub capture: &'a Capture,
    /// Packets with their places, if they were to be kept.
    pub packets: Vec<(Packet, Option<Place>)>,
    /// Packets that were not kept.
    pub more_packets: u64,
    /// Why the file was not read to its end.
    pub ended: Option<String>,
    pub qp: Option<u32>,
}

impl<'a> Report<'a> {
    /// The conversations that are asked for, with their index.
    pub fn conversations(&self) -> impl Iterator<Item = (usize, &'a Conversation)> {
        let all = self.capture.conversations.iter().enumerate();
        all.filter(|(_, found)| match self.qp {
            Some(qp) => found.ends.iter().any(|end| end.qpn == Some(qp)),
            None => true,
        })
    }

    /// The connections of these, and others in which the queue pair is named.
    pub fn connections(&self) -> impl Iterator<Item = (usize, &'a Connection)> {
        let all = self.capture.connections.iter().enumerate();
        all.filter(|(_, found)| {
            let Some(qp) = self.qp else { return true };
            let req = found.req.as_ref();
            let rep = found.rep.as_ref();
            let replied = rep.map(|rep| req.map_or(rep.qpn, |req| rep.qpn_of(req.transport)));
            let resolved = found.resolved.map(|(_, qpn, _)| qpn);
            [req.map(|req| req.qpn), replied, resolved].contains(&Some(qp))
        })
    }
}

pub fn main(args: Args) -> Result<()> {
    signals::end_on_broken_pipe();
    if args.file.as_os_str() == "-" {
        // It goes to tcpdump, too, whose end is the end of the capture.
        signals::outlive_one_interrupt();
    }
    run(&args, &mut BufWriter::new(io::stdout().lock()))
}

/// What is printed of a capture, with each packet in a line if that is wished.
pub fn shown(file: &Path, packets: bool) -> Result<String> {
    let args = Args {
        file: file.to_owned(),
        qp: None,
        packets,
        messages: 12,
        json: false,
        html: None,
    };
    let mut text = Vec::new();
    run(&args, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Each packet of a capture, as `look` sees it.
pub fn each_packet(file: &Path, mut look: impl FnMut(&Packet)) -> Result<()> {
    let mut dissector = Dissector::new(Limits::default());
    let read = source::read(file, |what| {
        if let Read::Frame(frame) = what {
            dissector.frame(frame, |packet, _| look(packet));
        }
        Ok(())
    });
    read.map(drop)
}

/// A step of reading a capture.
enum Seen<'a> {
    /// With its place, and the time of the first frame.
    Packet(&'a Packet, Option<Place>, u64),
    /// All frames that are there by now.
    Piece,
}

/// What was read.
struct Gathered {
    finished: Finished,
    packets: Vec<(Packet, Option<Place>)>,
    more_packets: u64,
    source: Source,
}

impl Gathered {
    fn report(&mut self, file: &Path, qp: Option<u32>) -> Report<'_> {
        Report {
            name: source::name(file),
            format: self.source.format,
            link_types: std::mem::take(&mut self.source.link_types),
            capture: &self.finished.capture,
            packets: std::mem::take(&mut self.packets),
            more_packets: self.more_packets,
            ended: self.source.ended.take(),
            qp,
        }
    }
}

/// Reads a capture to its end. Packets are kept, each with its place, if that is wished.
fn gather(
    file: &Path,
    qp: Option<u32>,
    keep: bool,
    mut see: impl FnMut(Seen<'_>) -> Result<()>,
) -> Result<Gathered> {
    let mut dissector = Dissector::new(Limits::default());
    let mut packets: Vec<(Packet, Option<Place>)> = Vec::new();
    let mut more_packets = 0;
    let mut start = None;
    let mut pick = Pick::new(qp);
    let source = source::read(file, |what| {
        if let Read::Frame(frame) = what {
            start.get_or_insert(frame.time_ns);
            dissector.frame(frame, |packet, place| pick.push(packet, place));
        }
        let start = start.unwrap_or_default();
        while let Some((packet, place)) = pick.next(&dissector, matches!(what, Read::End)) {
            see(Seen::Packet(&packet, place, start))?;
            if keep && packets.len() < KEPT_PACKETS {
                packets.push((packet, place));
            } else if keep {
                more_packets += 1;
            }
        }
        match what {
            Read::Frame(_) => Ok(()),
            // Somebody may watch a live capture.
            Read::Piece | Read::End => see(Seen::Piece),
        }
    })?;
    let finished = dissector.finish();
    for (_, place) in &mut packets {
        *place = place.and_then(|place| finished.resolve(place));
    }
    Ok(Gathered {
        finished,
        packets,
        more_packets,
        source,
    })
}

/// Reads the capture and writes what it holds.
fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    const EXAMPLE: &str = "rnic dissect --html trace.html trace.pcap";
    if let Some(path) = &args.html {
        may_be_page(path, EXAMPLE)?;
    }
    let keep = args.html.is_some() || (args.packets && args.json);
    let print = args.packets && !args.json;
    let unwritable = |error: io::Error| Failure::new(format!("cannot write: {error}"));
    let mut gathered = gather(&args.file, args.qp, keep, |seen| match seen {
        Seen::Packet(packet, place, start) if print => {
            writeln!(out, "{}", packets::line(packet, place, start)).map_err(unwritable)
        }
        Seen::Packet(..) => Ok(()),
        Seen::Piece => out.flush().map_err(unwritable),
    })?;
    let report = gathered.report(&args.file, args.qp);
    if let Some(path) = &args.html {
        write_page(path, &report, None)?;
    }
    if args.json {
        serde_json::to_writer(&mut *out, &json::of(&report, args.packets))
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        let separator = if print { "\n" } else { "" };
        let page = match &args.html {
            Some(path) => format!("\nThe page: {}\n", path.display()),
            None => String::new(),
        };
        let words = fit(text::of(&report, args.messages));
        write!(out, "{separator}{words}{page}")
    }
    .and_then(|()| out.flush())
    .map_err(unwritable)?;
    match report.ended {
        Some(why) => Err(Failure::new(format!(
            "{} was not read to its end: {why}",
            report.name
        ))),
        None => Ok(()),
    }
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| {
        Failure::new(format!("cannot write the page {}", path.display()))
            .cause(error.to_string())
            .next("choose a name in a folder that you may write to, such as /tmp/page.html")
    }
}

/// A page may come to be there: the name may have been left out, so that the capture's stands in
/// its place.
pub fn may_be_page(path: &Path, example: &str) -> Result<()> {
    let is_page = |head: &[u8]| {
        let start = html::START.as_bytes();
        head.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    let refused = |what: &str| {
        Failure::new(format!("{} {what}", path.display()))
            .next(format!("a name for the page: {example}"))
            .status(2)
    };
    if path.as_os_str() == "-" {
        return Err(refused("is standard input or output, and a page is a file"));
    }
    match may_be_replaced(path, is_page).map_err(unwritable(path))? {
        true => Ok(()),
        false => Err(refused("is there, and no page: it is left alone")),
    }
}

/// Fails if the page cannot be written: what is there is left as it is.
pub fn can_write_page(path: &Path) -> Result<()> {
    let mut options = File::options();
    let opened = options.append(true).create(true).open(path);
    opened.map(drop).map_err(unwritable(path))
}

/// The page of a lesson, which ends in the diagram of its capture.
pub fn write_lesson(capture: &Path, page: &Path, lesson: &Lesson) -> Result<()> {
    let mut gathered = gather(capture, None, true, |_| Ok(()))?;
    let mut report = gathered.report(capture, None);
    report.name = lesson.title.clone();
    write_page(page, &report, Some(lesson))
}

fn write_page(path: &Path, report: &Report<'_>, lesson: Option<&Lesson>) -> Result<()> {
    let unwritable = unwritable(path);
    let mut file = BufWriter::new(File::create(path).map_err(&unwritable)?);
    html::page(&mut file, report, lesson)
        .and_then(|()| file.flush())
        .map_err(unwritable)
}

#[cfg(test)]
mod tests;
