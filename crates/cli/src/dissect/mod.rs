//! `rnic dissect`: what a capture of RoCEv2 holds.

mod connections;
mod format;
mod head;
mod html;
mod json;
mod packets;
mod source;
mod text;
mod words;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rnic_dissect::{Capture, Conversation, Dissector, Format, Limits, Packet, Place};

use crate::failure::{Failure, Result};
use crate::sys;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic run --pcap trace.pcap -- ./my_program; rnic dissect trace.pcap
  tcpdump -i eth0 -s 200 -w trace.pcap udp port 4791         # 200 bytes hold all headers
  tcpdump -i eth0 -w - udp port 4791 | rnic dissect -
  rnic dissect --html trace.html trace.pcap                  # a page with a sequence diagram per queue pair
  rnic dissect --packets --qp 0x11 trace.pcap

FILE is pcap or pcapng, also gzipped: of rnic, tcpdump, dumpcap, Wireshark or a NIC's sniffer. A BTH says for which queue
pair a packet is, not from which: unless the connection manager's messages are in the capture, rnic infers which two
directions belong together, and says so. The sides of a conversation are called A (who sent first) and B.")]
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

impl Report<'_> {
    /// Whether a conversation is asked for.
    pub fn shows(&self, conversation: &Conversation) -> bool {
        match self.qp {
            Some(qp) => conversation.ends.iter().any(|end| end.qpn == Some(qp)),
            None => true,
        }
    }
}

pub fn main(args: Args) -> Result<()> {
    sys::end_on_broken_pipe();
    let keep = args.html.is_some() || (args.packets && args.json);
    let print = args.packets && !args.json;
    let mut dissector = Dissector::new(Limits::default());
    let mut packets: Vec<(Packet, Option<Place>)> = Vec::new();
    let mut more_packets = 0;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut start = None;
    let mut failed = None;
    let read = source::read(&args.file, |frame| {
        let start = *start.get_or_insert(frame.time_ns);
        dissector.frame(frame, |packet, place| {
            if keep {
                if packets.len() < KEPT_PACKETS {
                    packets.push((*packet, place));
                } else {
                    more_packets += 1;
                }
            }
            if print && packets::wanted(packet, args.qp) {
                let line = packets::line(packet, place, start);
                if let Err(error) = writeln!(out, "{line}") {
                    failed.get_or_insert(error);
                }
            }
        });
    })?;
    if let Some(error) = failed {
        return Err(Failure::new(format!("cannot write: {error}")));
    }
    let finished = dissector.finish();
    for (_, place) in &mut packets {
        *place = place.and_then(|place| finished.resolve(place));
    }
    let report = Report {
        name: match args.file.as_os_str() == "-" {
            true => "standard input".into(),
            false => args.file.display().to_string(),
        },
        format: read.format,
        link_types: read.link_types,
        capture: &finished.capture,
        packets,
        more_packets,
        ended: read.ended,
        qp: args.qp,
    };
    if let Some(path) = &args.html {
        write_page(path, &report)?;
    }
    let text = if args.json {
        let text = serde_json::to_string(&json::of(&report));
        text.map_err(|error| Failure::new(error.to_string()))? + "\n"
    } else {
        let separator = if print { "\n" } else { "" };
        format!("{separator}{}", text::of(&report, args.messages))
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(format!("cannot write: {error}")))?;
    if let Some(path) = &args.html
        && !args.json
    {
        crate::say!("\nThe page: {}", path.display());
    }
    Ok(())
}

fn write_page(path: &Path, report: &Report<'_>) -> Result<()> {
    let unwritable = |error: std::io::Error| {
        Failure::new(format!("cannot write the page {}", path.display())).cause(error.to_string())
    };
    let mut file = BufWriter::new(File::create(path).map_err(unwritable)?);
    file.write_all(html::page(report).as_bytes())
        .and_then(|()| file.flush())
        .map_err(unwritable)
}
