//! `--html`: one page without external resources, for any browser.
//!
//! What comes from the capture is in the page as JSON, in which `<`, `>` and `&` are escaped, so that nothing in it can end the
//! element that holds it; the script shows it as text alone.

use std::collections::HashMap;
use std::net::IpAddr;

use rnic_dissect::{
    Conversation, Mark, Message, Outcome, Packet, Pairing, Place, Severity, What, other,
};
use rnic_wire::Syndrome;
use serde_json::{Map, Value, json};

use super::format::{Endpoint, end, opcode, service, syndrome};
use super::{Report, connections, json as full, packets, text};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The page.
pub fn page(report: &Report<'_>) -> String {
    let (before, rest) = split(PAGE, "@@STYLE@@");
    let (middle, rest) = split(rest, "@@DATA@@");
    let (after, last) = split(rest, "@@SCRIPT@@");
    [
        before,
        STYLE,
        middle,
        &island(&data(report)),
        after,
        SCRIPT,
        last,
    ]
    .concat()
}

fn split<'a>(page: &'a str, mark: &str) -> (&'a str, &'a str) {
    page.split_once(mark).unwrap_or((page, ""))
}

/// JSON that may stand in a script element whatever is in it.
fn island(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// Places of values that packets share, so that each is in the page once.
struct Index<T> {
    places: HashMap<T, usize>,
    all: Vec<T>,
}

impl<T: Copy + Eq + std::hash::Hash> Index<T> {
    fn new() -> Index<T> {
        Index {
            places: HashMap::new(),
            all: Vec::new(),
        }
    }

    fn of(&mut self, value: T) -> usize {
        *self.places.entry(value).or_insert_with(|| {
            self.all.push(value);
            self.all.len() - 1
        })
    }
}

fn data(report: &Report<'_>) -> Value {
    let capture = report.capture;
    let lost: std::collections::HashSet<u64> = capture
        .conversations
        .iter()
        .flat_map(|conversation| &conversation.findings)
        .filter_map(|finding| match finding.what {
            What::Lost { sent, .. } => sent,
            _ => None,
        })
        .collect();
    let mut addresses: Index<IpAddr> = Index::new();
    let mut codes: Index<u8> = Index::new();
    let shown = |place: &Option<Place>| match (report.qp, place) {
        (None, _) => true,
        (Some(_), Some(place)) => capture
            .conversations
            .get(place.conversation)
            .is_some_and(|conversation| report.shows(conversation)),
        (Some(_), None) => false,
    };
    let packets: Vec<Value> = report
        .packets
        .iter()
        .filter(|(_, place)| shown(place))
        .map(|(p, place)| {
            packet(
                p,
                *place,
                capture.time.0,
                lost.contains(&p.number),
                &mut addresses,
                &mut codes,
            )
        })
        .collect();
    let opcodes: Vec<&str> = codes
        .all
        .iter()
        .map(|&code| opcode(rnic_wire::Opcode(code)))
        .collect();
    let conversations: Vec<Value> = capture
        .conversations
        .iter()
        .enumerate()
        .filter(|(_, conversation)| report.shows(conversation))
        .map(|(index, found)| conversation(report, index, found))
        .collect();
    json!({
        "title": format!("{}: {} RoCEv2 packets, {} conversations", report.name, capture.packets, capture.conversations.len()),
        "start_ns": capture.time.0.to_string(),
        "more_packets": report.more_packets,
        "addresses": addresses.all,
        "opcodes": opcodes,
        "codes": codes.all,
        "conversations": conversations,
        "findings": full::findings(&capture.findings, None),
        "packets": packets,
    })
}

fn conversation(report: &Report<'_>, index: usize, conversation: &Conversation) -> Value {
    let mut about = vec![text::pairing(conversation)];
    if let Some((mtu, _)) = conversation.mtu {
        about.push(format!("path MTU {mtu}"));
    }
    let mut findings = full::findings(&conversation.findings, Some(conversation));
    if let Pairing::Connection { index } = conversation.pairing
        && let Some(connection) = report.capture.connections.get(index)
    {
        about.push(connections::headline(connection));
        about.extend(connections::parameters(connection));
        for (numbers, said) in connections::troubles(connection) {
            findings.insert(0, full::words(&said, &numbers, Severity::Repaired));
        }
    }
    for side in [0, 1] {
        let found = &conversation.sides[side];
        if found.message_count == 0 {
            continue;
        }
        about.push(format!(
            "{} -> {}: {} messages, {} bytes",
            end(side),
            end(other(side)),
            found.message_count,
            found.bytes
        ));
        about.extend(text::summary(conversation, found));
    }
    let messages: Vec<Value> = [0, 1]
        .into_iter()
        .flat_map(|side| {
            conversation.sides[side]
                .messages
                .iter()
                .map(move |message| (side, message))
        })
        .map(|(side, found)| message(side, found))
        .collect();
    let of = |end| Endpoint(conversation, end).to_string();
    json!({
        "id": index,
        "title": format!("{}. {} {} - {} ({} packets, {} findings)", index + 1, service(conversation.service), of(0), of(1),
            conversation.packets[0] + conversation.packets[1], findings.len()),
        "ends": [format!("A {}", of(0)), format!("B {}", of(1))],
        "about": about,
        "findings": findings,
        "messages": messages,
    })
}

/// In the order in which the script reads it.
fn message(side: usize, message: &Message) -> Value {
    let (answer, result) = match message.outcome {
        Outcome::Open => (0, "open"),
        Outcome::Done { number, .. } => (number, "done"),
        Outcome::Refused { number, .. } => (number, "refused"),
        Outcome::Sent => (0, "sent"),
        Outcome::Lost => (0, "lost"),
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
        text::outcome(message),
        message.repeated,
        text::notes(message).join("; "),
    ])
}

/// In the order in which the script reads it.
fn packet(
    p: &Packet,
    place: Option<Place>,
    start: u64,
    lost: bool,
    addresses: &mut Index<IpAddr>,
    codes: &mut Index<u8>,
) -> Value {
    let (class, missing) = class(p, place);
    let flow = &p.outer.flow;
    let head = json!([
        addresses.of(flow.src),
        addresses.of(flow.dst),
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
        text::icrc(p.icrc),
        u8::from(p.cut),
    ]);
    json!([
        p.number,
        p.time_ns.saturating_sub(start),
        place.map_or(-1, |place| place.conversation as i64),
        place.map_or(0, |place| place.from),
        codes.of(p.bth.opcode.0),
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
        u8::from(lost),
        packets::place(p, place),
        head,
        extensions(p),
    ])
}

/// How it is drawn: an index into the script's `CLASSES`, and how many packets are missing in front of it.
fn class(p: &Packet, place: Option<Place>) -> (u8, u32) {
    const REQUEST: u8 = 0;
    const AGAIN: u8 = 1;
    const ANSWER: u8 = 2;
    const NAK: u8 = 3;
    const ODD: u8 = 4;
    const CM: u8 = 5;
    let Some(place) = place else {
        return match p.icrc {
            rnic_dissect::Icrc::Right | rnic_dissect::Icrc::Unchecked => (CM, 0),
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
        let byte = aeth.syndrome.to_u8();
        add("aeth", json!([format!("{byte:#04x}"), aeth.msn]));
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            add("nak", json!(syndrome(aeth.syndrome)));
        }
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

    #[test]
    fn nothing_in_the_data_can_end_its_element() {
        let value = json!({ "a": "</script><script>alert(1)</script>", "b": "<!-- & \u{2028}" });
        let text = island(&value);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
