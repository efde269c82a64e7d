//! `--html`: one page without external resources, for any browser.
//!
//! What comes from the capture is in the page as JSON, in which `<`, `>` and `&` are escaped, so
//! that nothing in it can end the element that holds it; the script shows it as text alone.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::net::IpAddr;

use rnic_dissect::{
    Connection, Conversation, End, Icrc, Mark, Message, Outcome, Packet, Pairing, Place, Severity,
    Step, What, other,
};
use rnic_wire::{Syndrome, credit_count};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Serializer, Value, json};

use super::format::{Endpoint, count, end, opcode, service, syndrome};
use super::json::List;
use super::lesson::{self, Lesson};
use super::words::{Degree, degree};
use super::{Report, connections, head, json as full, packets, page_fields, phrases};

/// How a page begins.
pub const START: &str = "<!DOCTYPE html";

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Writes the page. A lesson comes in front of the diagram.
pub fn page(out: &mut impl Write, report: &Report<'_>, lesson: Option<&Lesson>) -> io::Result<()> {
    let (before, rest) = split(PAGE, "@@STYLE@@");
    let (head, rest) = split(rest, "@@LESSON@@");
    let (middle, rest) = split(rest, "@@DATA@@");
    let (after, last) = split(rest, "@@SCRIPT@@");
    let [style, markup, script] = match lesson {
        Some(_) => lesson::PARTS,
        None => [""; 3],
    };
    for part in [before, STYLE, style, head, markup, middle] {
        out.write_all(part.as_bytes())?;
    }
    data(out, report, lesson)?;
    for part in [after, SCRIPT, script, last] {
        out.write_all(part.as_bytes())?;
    }
    Ok(())
}

fn split<'a>(page: &'a str, mark: &str) -> (&'a str, &'a str) {
    page.split_once(mark).unwrap_or((page, ""))
}

/// JSON that may stand in a script element whatever is in its strings.
struct Island;

impl Formatter for Island {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        const UNSAFE: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        for part in text.split_inclusive(UNSAFE) {
            let plain = part.trim_end_matches(UNSAFE);
            out.write_all(plain.as_bytes())?;
            for c in part[plain.len()..].chars() {
                write!(out, "\\u{:04x}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

/// Values that packets share, so that each is in the page once.
struct Index<T> {
    places: HashMap<T, usize>,
    all: Vec<T>,
}

impl<T: Copy + Eq + std::hash::Hash> Index<T> {
    fn of(values: impl Iterator<Item = T>) -> Index<T> {
        let (mut places, mut all) = (HashMap::new(), Vec::new());
        for value in values {
            places.entry(value).or_insert_with(|| {
                all.push(value);
                all.len() - 1
            });
        }
        Index { places, all }
    }

    fn place(&self, value: T) -> usize {
        self.places.get(&value).copied().unwrap_or_default()
    }
}

/// What all packets of the page need.
struct Shared {
    start: u64,
    addresses: Index<IpAddr>,
    kinds: Index<(u8, Kind)>,
    /// Packets that their receiver missed.
    lost: HashSet<u64>,
    /// The connection manager's packets.
    steps: HashMap<u64, Place>,
}

impl Shared {
    fn of(report: &Report<'_>) -> Shared {
        let capture = report.capture;
        let all = capture.conversations.iter();
        let lost = all
            .flat_map(|conversation| &conversation.findings)
            .filter_map(|finding| match finding.what {
                What::Lost { sent, .. } => sent,
                _ => None,
            });
        let flows = report.packets.iter().map(|(p, _)| p.outer.flow);
        let steps = report.connections().flat_map(|(index, connection)| {
            let place = move |step: &Step| Place {
                conversation: entry(report, index, connection),
                from: step.from,
                message: None,
                mark: Mark::Cm(step.what.name()),
            };
            let steps = connection.steps.iter();
            steps.map(move |step| (step.number, place(step)))
        });
        let steps: HashMap<u64, Place> = steps.collect();
        let kinds = report.packets.iter().map(|(p, _)| kind(p));
        Shared {
            start: capture.time.0,
            addresses: Index::of(flows.flat_map(|flow| [flow.src, flow.dst])),
            kinds: Index::of(kinds),
            lost: lost.collect(),
            steps,
        }
    }
}

/// What a packet is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// By its opcode.
    Operation,
    /// By the connection manager's message in it.
    Cm(&'static str),
    /// To QP 1, but none of these.
    Mad,
}

fn kind(p: &Packet) -> (u8, Kind) {
    let kind = match p.cm {
        Some(message) => Kind::Cm(message.name()),
        None if p.bth.dest_qp == 1 => Kind::Mad,
        None => Kind::Operation,
    };
    (p.bth.opcode.0, kind)
}

fn name(&(code, kind): &(u8, Kind)) -> String {
    match kind {
        Kind::Operation => opcode(rnic_wire::Opcode(code)).to_owned(),
        Kind::Cm(name) => format!("CM {name}"),
        Kind::Mad => "MAD".to_owned(),
    }
}

/// How packets and messages are drawn. The names are those of the style sheet and of the script.
const DRAWN: [(&str, &str, &str); 12] = [
    (
        "request",
        "request",
        "A request packet, sent for the first time: of a SEND, WRITE, READ or atomic.",
    ),
    (
        "answer",
        "answer",
        "An ACK, a READ response, or the answer to an atomic.",
    ),
    (
        "again",
        "sent again",
        "A request packet that was sent again: dashed. A finding says why.",
    ),
    (
        "nak",
        "NAK",
        "The receiver refuses a message, misses a packet, or has no receive posted (RNR).",
    ),
    (
        "odd",
        "fits badly",
        "Came late, answers nothing in the capture, has a wrong ICRC, or reports congestion (CNP).",
    ),
    (
        "cm",
        "connection manager",
        "A message to QP 1: CM REQ, CM REP, CM RTU and others make a connection, CM DREQ and CM DREP end it.",
    ),
    (
        "lost",
        "lost",
        "The red cross: its receiver says that this packet is missing, so it was lost behind the place of the capture.",
    ),
    (
        "missing",
        "not seen",
        "So many packets are missing in front of this one: the capture does not have them.",
    ),
    (
        "message",
        "message",
        "A bracket at the sender's side, from the first packet of a message to its answer.",
    ),
    (
        "message-again",
        "message, sent again",
        "An orange bracket: packets of this message were sent again.",
    ),
    (
        "message-nak",
        "message, failed",
        "A red bracket: this message was refused, is lost, or has no answer.",
    ),
    (
        "pause",
        "pause",
        "So much time passes. Longer pauses are not drawn to scale.",
    ),
];

/// The entry of a connection: that of its conversation, or one of its own behind all conversations.
fn entry(report: &Report<'_>, index: usize, connection: &Connection) -> usize {
    let own = report.capture.conversations.len() + index;
    connection.conversation.unwrap_or(own)
}

fn data(out: &mut impl Write, report: &Report<'_>, lesson: Option<&Lesson>) -> io::Result<()> {
    let capture = report.capture;
    let shared = Shared::of(report);
    #[derive(Serialize)]
    struct Data<'a, Conversations, Connections, Packets> {
        title: String,
        about: Vec<String>,
        start_ns: String,
        more_packets: u64,
        addresses: &'a [IpAddr],
        degrees: Vec<[String; 3]>,
        drawn: &'static [(&'static str, &'static str, &'static str)],
        headers: &'static [page_fields::Header],
        fields: &'static [page_fields::Field],
        messages: &'static [page_fields::Message],
        opcodes: Vec<String>,
        codes: Vec<u8>,
        conversations: Conversations,
        connections: Connections,
        findings: Vec<Value>,
        more_findings: u64,
        packets: Packets,
        lesson: Option<&'a Lesson>,
    }
    let data = Data {
        title: format!(
            "{}: {}, {}",
            report.name,
            count(capture.packets, "RoCEv2 packet"),
            count(capture.conversations.len() as u64, "conversation")
        ),
        about: head::lines(report),
        start_ns: capture.time.0.to_string(),
        more_packets: report.more_packets,
        addresses: &shared.addresses.all,
        degrees: Severity::ALL.map(legend).into(),
        drawn: &DRAWN,
        headers: page_fields::HEADERS,
        fields: page_fields::FIELDS,
        messages: page_fields::MESSAGES,
        opcodes: shared.kinds.all.iter().map(name).collect(),
        codes: shared.kinds.all.iter().map(|(code, _)| *code).collect(),
        conversations: List(|| {
            let all = report.conversations();
            all.map(|(index, found)| conversation(report, index, found))
        }),
        connections: List(|| {
            let all = report.connections();
            all.filter(|(_, found)| found.conversation.is_none())
                .map(|(index, found)| connection(report, index, found))
        }),
        findings: full::findings(&capture.findings, None),
        more_findings: capture.more_findings,
        packets: List(|| {
            let all = report.packets.iter();
            all.map(|(found, place)| packet(found, *place, &shared))
        }),
        lesson,
    };
    data.serialize(&mut Serializer::with_formatter(out, Island))?;
    Ok(())
}

/// How bad a finding is: the name that findings have, the mark, what it means.
fn legend(severity: Severity) -> [String; 3] {
    let Degree {
        name,
        mark,
        meaning,
    } = degree(severity);
    [name.into(), mark.into(), meaning.into()]
}

/// What the connection manager's messages agreed on, and which they were.
fn about_connection(report: &Report<'_>, connection: &Connection) -> Vec<String> {
    let mut about = vec![connections::headline(connection)];
    about.extend(connections::parameters(connection));
    about.extend(connections::steps(connection, report.capture.time.0));
    about
}

/// What each of the connection manager's messages said, by its name.
fn said(connection: &Connection) -> Map<String, Value> {
    let mut all: Map<String, Value> = Map::new();
    for (message, lines) in connections::said(connection) {
        let known = all.entry(message.name()).or_insert_with(|| json!([]));
        if let Value::Array(known) = known {
            known.extend(lines.into_iter().map(Value::from));
        }
    }
    if connection.rejected.is_some() {
        all.insert("REJ".into(), json!([connections::outcome(connection)]));
    }
    if connection.resolved.is_some() {
        all.insert("SIDR_REP".into(), json!([connections::outcome(connection)]));
    }
    all
}

/// The number of the last packet in the page: messages that begin behind it have nothing to be
/// shown at.
fn last_packet(report: &Report<'_>) -> u64 {
    match report.packets.last() {
        Some((last, _)) if report.more_packets > 0 => last.number,
        _ => u64::MAX,
    }
}

fn conversation(report: &Report<'_>, index: usize, conversation: &Conversation) -> impl Serialize {
    let mut about = vec![phrases::pairing(conversation)];
    if let Some((mtu, source)) = conversation.mtu {
        about.push(phrases::path_mtu(mtu, source));
    }
    let mut cm = Map::new();
    let mut findings = full::findings(&conversation.findings, Some(conversation));
    if let Pairing::Connection { index } = conversation.pairing
        && let Some(connection) = report.capture.connections.get(index)
    {
        about.extend(about_connection(report, connection));
        cm = said(connection);
        findings.splice(0..0, full::troubles(connection));
    }
    let last = last_packet(report);
    let here = move |side: End| {
        let messages = conversation.sides[side].messages.iter();
        messages.filter(move |message| message.begun.1 <= last)
    };
    for side in [0, 1] {
        let found = &conversation.sides[side];
        if found.message_count == 0 {
            continue;
        }
        about.push(format!(
            "{} -> {}: {}, {}",
            end(side),
            end(other(side)),
            count(found.message_count, "message"),
            count(found.bytes, "byte")
        ));
        let shown = here(side).count() as u64;
        if shown < found.message_count {
            about.push(format!(
                "{} in this page: those that begin with its packets, as far as they were kept",
                match shown {
                    1 => "1 message is".into(),
                    n => format!("{n} messages are"),
                }
            ));
        }
        about.extend(phrases::summary(conversation, found));
    }
    let of = |end| Endpoint(conversation, end).to_string();
    let packets = conversation.packets[0] + conversation.packets[1];
    Entry {
        id: index,
        title: format!(
            "{}. {} {} - {} ({}, {})",
            index + 1,
            service(conversation.service),
            of(0),
            of(1),
            count(packets, "packet"),
            count(findings.len() as u64, "finding")
        ),
        ends: [0, 1].map(|side| format!("{} {}", end(side), of(side))),
        about,
        findings,
        more_findings: conversation.more_findings,
        cm,
        messages: List(move || {
            let of = move |side| here(side).map(move |found| message(side, found));
            of(0).chain(of(1))
        }),
    }
}

/// An entry of the page.
#[derive(Serialize)]
struct Entry<Messages> {
    id: usize,
    title: String,
    ends: [String; 2],
    about: Vec<String>,
    findings: Vec<Value>,
    more_findings: u64,
    /// What the connection manager's messages said, by their names.
    cm: Map<String, Value>,
    messages: Messages,
}

/// A connection that never had data, or of which the capture lacks one of REQ and REP.
fn connection(report: &Report<'_>, index: usize, connection: &Connection) -> impl Serialize {
    let findings = full::troubles(connection);
    let packets = connection.steps.len() as u64 + connection.more_steps;
    Entry {
        id: entry(report, index, connection),
        title: format!(
            "{} ({}, {})",
            connections::headline(connection),
            count(packets, "packet"),
            count(findings.len() as u64, "finding")
        ),
        ends: [0, 1].map(|side| format!("{} {}", end(side), connection.addrs[side])),
        about: about_connection(report, connection),
        findings,
        more_findings: 0,
        cm: said(connection),
        messages: [(); 0],
    }
}

/// In the order in which the script reads it.
fn message(side: usize, message: &Message) -> Value {
    let (answer, result) = match message.outcome {
        Outcome::Open => (0, "open"),
        Outcome::Done { number, .. } => (number, "done"),
        Outcome::Refused { number, .. } => (number, "refused"),
        Outcome::Sent => (0, "sent"),
        Outcome::Lost => (0, "lost"),
        Outcome::Cut => (0, "cut"),
    };
    json!([
        side,
        message.id,
        message.kind.name(),
        message.bytes,
        message.begun.1,
        message.last_sent.1.max(message.sent.1),
        answer,
        result,
        phrases::outcome(message),
        message.repeated,
        phrases::notes(message).join("; "),
    ])
}

/// In the order in which the script reads it.
fn packet(p: &Packet, place: Option<Place>, shared: &Shared) -> Value {
    let place = place.or_else(|| shared.steps.get(&p.number).copied());
    let (class, missing) = class(p, place);
    let flow = &p.outer.flow;
    let head = json!([
        shared.addresses.place(flow.src),
        shared.addresses.place(flow.dst),
        flow.src_port,
        p.outer.ip_id,
        u8::from(p.outer.dont_fragment),
        p.outer.traffic_class,
        p.outer.hop_limit,
        p.outer.vlan,
        u8::from(p.bth.solicited),
        u8::from(p.bth.mig_req),
        p.bth.pad,
        p.bth.pkey,
        u8::from(p.bth.fecn),
        u8::from(p.bth.becn),
        p.bth.dest_qp,
        u8::from(p.bth.ack_req),
        phrases::icrc(p.icrc),
        u8::from(p.cut),
    ]);
    json!([
        p.number,
        p.time_ns.saturating_sub(shared.start),
        place.map_or(-1, |place| place.conversation as i64),
        place.map_or(0, |place| place.from),
        shared.kinds.place(kind(p)),
        p.bth.psn.value(),
        p.payload_len,
        place
            .and_then(|place| place.message)
            .map_or(0, |(side, _)| side),
        place
            .and_then(|place| place.message)
            .map_or(0, |(_, id)| id),
        class,
        missing,
        u8::from(shared.lost.contains(&p.number)),
        packets::place(p, place),
        head,
        extensions(p),
    ])
}

/// How it is drawn: an index into the script's `CLASSES`, and how many packets are missing in front
/// of it.
fn class(p: &Packet, place: Option<Place>) -> (u8, u32) {
    const REQUEST: u8 = 0;
    const AGAIN: u8 = 1;
    const ANSWER: u8 = 2;
    const NAK: u8 = 3;
    const ODD: u8 = 4;
    const CM: u8 = 5;
    let Some(place) = place else {
        return match p.icrc {
            Icrc::Right | Icrc::Unchecked if p.bth.dest_qp == 1 => (CM, 0),
            _ => (ODD, 0),
        };
    };
    match place.mark {
        Mark::Request { .. } | Mark::Datagram => (REQUEST, 0),
        Mark::AfterGap { missing, .. } => (REQUEST, missing),
        Mark::Repeated { .. } => (AGAIN, 0),
        Mark::Ack { .. } | Mark::DuplicateAck | Mark::Response { .. } | Mark::AtomicAnswer => {
            (ANSWER, 0)
        }
        Mark::DuplicateResponse => (ANSWER, 0),
        Mark::ResponseAfterGap { missing, .. } => (ANSWER, missing),
        Mark::Nak { .. } | Mark::Rnr { .. } => (NAK, 0),
        Mark::Reordered { .. } | Mark::Orphan | Mark::Stray | Mark::Cnp => (ODD, 0),
        Mark::Cm(_) => (CM, 0),
    }
}

/// By the names that the script knows.
fn extensions(p: &Packet) -> Value {
    let mut found = Map::new();
    let mut add = |name: &str, value: Value| {
        found.insert(name.into(), value);
    };
    let ext = &p.ext;
    if let Some(reth) = ext.reth {
        let rkey = format!("{:#010x}", reth.rkey);
        add(
            "reth",
            json!([format!("{:#x}", reth.va), rkey, reth.dma_len]),
        );
    }
    if let Some(aeth) = ext.aeth {
        let words = match aeth.syndrome {
            Syndrome::Ack { credits } => match credit_count(credits) {
                None => "ACK, receives not counted".into(),
                Some(count) => format!("ACK, {}", super::format::count(count.into(), "receive")),
            },
            other => syndrome(other),
        };
        let byte = aeth.syndrome.to_u8();
        add("aeth", json!([format!("{byte:#04x}: {words}"), aeth.msn]));
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            add("nak", json!(syndrome(aeth.syndrome)));
        }
    }
    if let Some(feth) = ext.feth {
        add("feth", json!([feth.placement, feth.selectivity]));
    }
    if let Some(message) = p.cm {
        add("cm", json!(message.name()));
    }
    if let Some(imm) = ext.imm {
        add("imm", json!(format!("{:#010x}", u32::from_be_bytes(imm.0))));
    }
    if let Some(ieth) = ext.ieth {
        add("ieth", json!(format!("{:#010x}", ieth.rkey)));
    }
    if let Some(deth) = ext.deth {
        let (qkey, qp) = (
            format!("{:#010x}", deth.qkey),
            format!("{:#x}", deth.src_qp),
        );
        add("deth", json!([qkey, qp]));
    }
    if let Some(atomic) = ext.atomic {
        add(
            "atomic",
            json!([
                format!("{:#x}", atomic.va),
                format!("{:#010x}", atomic.rkey),
                format!("{:#x}", atomic.swap_or_add),
                format!("{:#x}", atomic.compare),
            ]),
        );
    }
    if let Some(ack) = ext.atomic_ack {
        add("original", json!(format!("{:#x}", ack.original)));
    }
    if let Some(xrceth) = ext.xrceth {
        add("srqn", json!(format!("{:#x}", xrceth.srqn)));
    }
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The legend names every arrow, mark and bracket that the script draws, each once.
    #[test]
    fn the_legend_names_all_that_is_drawn() {
        let (_, classes) = SCRIPT.split_once("const CLASSES = [").unwrap();
        let classes = classes.split_once(']').unwrap().0.split(", ");
        let classes = classes.map(|class| class.trim_matches('"'));
        let brackets = ["message", "message-again", "message-nak"];
        let marks = ["lost", "missing", "pause"].into_iter();
        let mut drawn: Vec<&str> = classes.chain(brackets).chain(marks).collect();
        let mut named: Vec<&str> = DRAWN.iter().map(|(kind, ..)| *kind).collect();
        drawn.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, drawn);
        for (kind, name, meaning) in DRAWN {
            assert!(!name.is_empty() && meaning.ends_with('.'), "{kind}");
            // Where it has a colour of its own, that is in the style sheet.
            let class = kind.trim_start_matches("message-");
            let styled = ["message", "pause"].contains(&class)
                || STYLE.contains(&format!(".{class} "))
                || kind == "lost" && STYLE.contains("svg .cross ");
            assert!(styled, "{kind}");
        }
    }

    /// What happened stands in front of all else: of what is about the queue pair, and of the
    /// packets.
    #[test]
    fn findings_come_first() {
        let at = |id: &str| PAGE.find(&format!("id=\"{id}\"")).expect(id);
        let order = ["findings", "others", "about", "legend", "diagram", "detail"].map(at);
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn nothing_in_the_data_can_end_its_element() {
        let value = json!({ "a": "</script><script>alert(1)</script>", "b": "<!-- & \u{2028}" });
        let mut out = Vec::new();
        let serialized = value.serialize(&mut Serializer::with_formatter(&mut out, Island));
        serialized.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
