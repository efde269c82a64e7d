//! The report for machines, written as it is made: a list of all messages never is in memory as a
//! whole. The page of `--html` has its findings from here.

use std::net::IpAddr;

use rnic_dissect::{
    Cause, Connection, Conversation, End, Finding, Message, MtuSource, Outcome, Packet, Pairing,
    Place, Repeat, Severity, Side,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::format::{end, opcode, service, syndrome};
use super::words::{Words, degree, say};
use super::{Report, connections, packets, phrases};

/// Of the format that docs/dissect.md describes. Fields may be added to it.
const VERSION: u32 = 1;

/// A list whose elements are made as they are written.
pub struct List<F>(pub F);

impl<F, I> Serialize for List<F>
where
    F: Fn() -> I,
    I: IntoIterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// All of it.
pub fn of(report: &Report<'_>, with_packets: bool) -> impl Serialize {
    let capture = report.capture;
    let frames = capture.skipped.frames.iter();
    let skipped = frames.map(|(why, n)| json!({ "why": phrases::skipped(*why), "frames": n }));
    let strange = capture.skipped.packets.iter().map(
        |(why, n, first)| json!({ "why": phrases::no_packet(*why), "frames": n, "first": first }),
    );
    #[derive(Serialize)]
    struct All<'a, Conversations, Connections, Packets> {
        version: u32,
        file: &'a str,
        format: Option<String>,
        link_types: &'a [u16],
        ended: Option<&'a str>,
        frames: u64,
        packets: u64,
        start_ns: u64,
        end_ns: u64,
        gso_frames: u64,
        cut_packets: u64,
        copies: u64,
        skipped: Vec<Value>,
        no_packets: Vec<Value>,
        icrc: Value,
        conversations: Conversations,
        connections: Connections,
        findings: Vec<Value>,
        more_findings: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        packet_list: Option<Packets>,
        #[serde(skip_serializing_if = "Option::is_none")]
        more_packets: Option<u64>,
    }
    All {
        version: VERSION,
        file: &report.name,
        format: report.format.map(|format| format.to_string()),
        link_types: &report.link_types,
        ended: report.ended.as_deref(),
        frames: capture.frames,
        packets: capture.packets,
        start_ns: capture.time.0,
        end_ns: capture.time.1,
        gso_frames: capture.uncut,
        cut_packets: capture.cut,
        copies: capture.skipped.copies,
        skipped: skipped.collect(),
        no_packets: strange.collect(),
        icrc: json!({
            "wrong": capture.icrc_wrong,
            "other_ip_header": capture.icrc_other,
            "unchecked": capture.icrc_unchecked,
        }),
        conversations: List(|| {
            let all = report.conversations();
            all.map(|(index, found)| conversation(index, found))
        }),
        connections: List(|| {
            let all = report.connections();
            all.map(|(index, found)| connection(index, found))
        }),
        findings: findings(&capture.findings, None),
        more_findings: capture.more_findings,
        packet_list: with_packets.then_some(List(|| report.packets.iter().map(packet))),
        more_packets: with_packets.then_some(report.more_packets),
    }
}

fn packet((packet, place): &(Packet, Option<Place>)) -> impl Serialize {
    #[derive(Serialize)]
    struct Line {
        number: u64,
        time_ns: u64,
        src: IpAddr,
        dst: IpAddr,
        src_port: u16,
        dest_qp: u32,
        opcode: u8,
        operation: &'static str,
        psn: u32,
        ack_req: bool,
        payload: u32,
        icrc: String,
        conversation: Option<usize>,
        from: Option<char>,
        message: Option<Of>,
        place: String,
    }
    #[derive(Serialize)]
    struct Of {
        of: char,
        id: u64,
    }
    let message = place.and_then(|place| place.message);
    Line {
        number: packet.number,
        time_ns: packet.time_ns,
        src: packet.outer.flow.src,
        dst: packet.outer.flow.dst,
        src_port: packet.outer.flow.src_port,
        dest_qp: packet.bth.dest_qp,
        opcode: packet.bth.opcode.0,
        operation: opcode(packet.bth.opcode),
        psn: packet.bth.psn.value(),
        ack_req: packet.bth.ack_req,
        payload: packet.payload_len,
        icrc: phrases::icrc(packet.icrc),
        conversation: place.map(|place| place.conversation + 1),
        from: place.map(|place| end(place.from)),
        message: message.map(|(side, id)| Of { of: end(side), id }),
        place: packets::place(packet, *place),
    }
}

pub fn words(words: &Words, numbers: &[u64], severity: Severity) -> Value {
    json!({
        "packets": numbers,
        "severity": degree(severity).name,
        "what": words.what,
        "cause": words.cause,
        "explain": words.explain,
    })
}

/// What the connection manager's messages show to have gone wrong.
pub fn troubles(connection: &Connection) -> Vec<Value> {
    let all = connections::troubles(connection);
    let said = all
        .iter()
        .map(|trouble| words(&trouble.words, &trouble.packets, trouble.severity));
    said.collect()
}

pub fn findings(findings: &[Finding], conversation: Option<&Conversation>) -> Vec<Value> {
    findings
        .iter()
        .map(|finding| {
            let said = say(finding, conversation);
            let mut value = words(&said, &finding.packets, finding.what.severity());
            value["kind"] = json!(finding.what.name());
            value["time_ns"] = json!(finding.time);
            value["wrong_icrc"] = json!(finding.bad);
            if conversation.is_some() {
                value["side"] = json!(end(finding.side));
            }
            value
        })
        .collect()
}

fn conversation(index: usize, conversation: &Conversation) -> impl Serialize {
    let ends = conversation.ends.each_ref().map(
        |found| json!({ "address": found.addr, "qpn": found.qpn, "src_port": found.src_port }),
    );
    let (how, connection) = match conversation.pairing {
        Pairing::Connection { index } => ("connection", Some(index + 1)),
        Pairing::Inferred { .. } => ("inferred", None),
        Pairing::Datagram => ("datagram", None),
        Pairing::OneWay => ("one-way", None),
    };
    let mtu = conversation.mtu.map(|(mtu, source)| {
        let source = match source {
            MtuSource::Request => "request",
            MtuSource::Payload => "payload",
            MtuSource::ReadSpan => "read-span",
        };
        json!({ "bytes": mtu, "from": source })
    });
    let of = |from: End| {
        let keys = conversation.qkeys[from].iter();
        keys.map(move |(qkey, n)| json!({ "from": end(from), "qkey": qkey, "datagrams": n }))
    };
    #[derive(Serialize)]
    struct One<Sides> {
        id: usize,
        service: String,
        ends: [Value; 2],
        pairing: &'static str,
        pairing_words: String,
        connection: Option<usize>,
        mtu: Option<Value>,
        start_ns: u64,
        end_ns: u64,
        first_packet: u64,
        last_packet: u64,
        packets: [u64; 2],
        qkeys: Vec<Value>,
        ecn_marked: u64,
        cnps: u64,
        sides: Sides,
        findings: Vec<Value>,
        more_findings: u64,
    }
    One {
        id: index + 1,
        service: service(conversation.service),
        ends,
        pairing: how,
        pairing_words: phrases::pairing(conversation),
        connection,
        mtu,
        start_ns: conversation.time.0,
        end_ns: conversation.time.1,
        first_packet: conversation.numbers.0,
        last_packet: conversation.numbers.1,
        packets: conversation.packets,
        qkeys: of(0).chain(of(1)).collect(),
        ecn_marked: conversation.ecn_marked,
        cnps: conversation.cnps,
        sides: conversation
            .sides
            .each_ref()
            .map(|found| side(conversation, found)),
        findings: findings(&conversation.findings, Some(conversation)),
        more_findings: conversation.more_findings,
    }
}

fn side(conversation: &Conversation, side: &Side) -> impl Serialize {
    let kinds = side
        .kinds
        .iter()
        .map(|(kind, n, bytes)| json!({ "operation": kind.name(), "messages": n, "bytes": bytes }));
    let latencies = side
        .latencies
        .iter()
        .filter_map(|(kind, all)| all.summary().map(|found| (kind, found)))
        .map(|(kind, found)| {
            json!({
                "operation": kind.name(),
                "count": found.count,
                "min_ns": found.min,
                "median_ns": found.median,
                "p99_ns": found.p99,
                "max_ns": found.max,
            })
        });
    let naks = side
        .naks
        .iter()
        .map(|(of, n)| json!({ "syndrome": of.to_u8(), "words": syndrome(*of), "count": n }));
    #[derive(Serialize)]
    struct Queue<Messages, Repeats> {
        messages: Messages,
        message_count: u64,
        bytes: u64,
        operations: Vec<Value>,
        latencies: Vec<Value>,
        naks: Vec<Value>,
        retransmissions: Repeats,
        retransmission_count: u64,
        request_packets: u64,
        repeated_packets: u64,
        repeated_bytes: u64,
        doubled_packets: u64,
        acks: u64,
        messages_acked: u64,
        partial_acks: u64,
        duplicate_acks: u64,
        duplicate_responses: u64,
        missing_packets: u64,
        reordered: u64,
        most_outstanding: u64,
        most_reads: u64,
        summary: Vec<String>,
    }
    Queue {
        messages: List(|| side.messages.iter().map(message)),
        message_count: side.message_count,
        bytes: side.bytes,
        operations: kinds.collect(),
        latencies: latencies.collect(),
        naks: naks.collect(),
        retransmissions: List(|| side.repeats.iter().map(repeat)),
        retransmission_count: side.repeat_count,
        request_packets: side.request_packets,
        repeated_packets: side.repeated_packets,
        repeated_bytes: side.repeated_bytes,
        doubled_packets: side.doubled_packets,
        acks: side.acks.0,
        messages_acked: side.acks.1,
        partial_acks: side.partial_acks,
        duplicate_acks: side.duplicate_acks,
        duplicate_responses: side.duplicate_responses,
        missing_packets: side.missing_packets,
        reordered: side.reordered,
        most_outstanding: side.most_outstanding,
        most_reads: side.most_reads,
        summary: phrases::summary(conversation, side),
    }
}

fn repeat(repeat: &Repeat) -> Value {
    let kind = match repeat.cause {
        Cause::Nak { .. } => "nak",
        Cause::Rnr { .. } => "rnr",
        Cause::MissingResponse { .. } => "missing-response",
        Cause::Timeout => "timeout",
        Cause::Early => "early",
    };
    json!({
        "cause_kind": kind,
        "cause": packets::cause(repeat.cause),
        "first_packet": repeat.numbers.0,
        "last_packet": repeat.numbers.1,
        "time_ns": repeat.time,
        "first_psn": repeat.psns.0.value(),
        "last_psn": repeat.psns.1.value(),
        "packets": repeat.packets,
        "bytes": repeat.bytes,
        "waited_ns": repeat.waited_ns,
    })
}

fn message(message: &Message) -> impl Serialize {
    let (answered, answer, result) = match message.outcome {
        Outcome::Open => (None, None, "open"),
        Outcome::Done { time, number, .. } => (Some(time), Some(number), "done"),
        Outcome::Refused { time, number, .. } => (Some(time), Some(number), "refused"),
        Outcome::Sent => (None, None, "sent"),
        Outcome::Lost => (None, None, "lost"),
        Outcome::Cut => (None, None, "cut"),
    };
    #[derive(Serialize)]
    struct One {
        id: u64,
        operation: &'static str,
        bytes: u64,
        packets: u32,
        repeated: u32,
        missing: u32,
        first_psn: u32,
        last_psn: u32,
        first_packet: u64,
        last_packet: u64,
        begun_ns: u64,
        sent_ns: u64,
        answered_ns: Option<u64>,
        answered_by: Option<u64>,
        answered: u32,
        answered_bytes: u64,
        latency_ns: Option<u64>,
        result: &'static str,
        immediate: Option<u32>,
        remote_address: Option<String>,
        rkey: Option<u32>,
        rnr_naks: u32,
        timeouts: u32,
        outcome: String,
        notes: Vec<String>,
    }
    One {
        id: message.id,
        operation: message.kind.name(),
        bytes: message.bytes,
        packets: message.packets,
        repeated: message.repeated,
        missing: message.missing,
        first_psn: message.psn.value(),
        last_psn: message.last_psn().value(),
        first_packet: message.begun.1,
        last_packet: message.sent.1,
        begun_ns: message.begun.0,
        sent_ns: message.sent.0,
        answered_ns: answered,
        answered_by: answer,
        answered: message.answered,
        answered_bytes: message.answered_bytes,
        latency_ns: answered.map(|time| time.saturating_sub(message.begun.0)),
        result,
        immediate: message.imm.map(u32::from_be_bytes),
        remote_address: message.remote.map(|(va, ..)| format!("{va:#x}")),
        rkey: message.remote.map(|(_, rkey, _)| rkey),
        rnr_naks: message.rnr_naks,
        timeouts: message.timeouts,
        outcome: phrases::outcome(message),
        notes: phrases::notes(message),
    }
}

fn connection(index: usize, connection: &Connection) -> Value {
    let steps: Vec<Value> = connection
        .steps
        .iter()
        .map(|step| {
            json!({
                "time_ns": step.time,
                "packet": step.number,
                "from": end(step.from),
                "message": step.what.name(),
                "again": step.again,
            })
        })
        .collect();
    json!({
        "id": index + 1,
        "active": connection.addrs[0],
        "passive": connection.addrs[1],
        "service": connection.service.map(|service| service.to_string()),
        "headline": connections::headline(connection),
        "outcome": connections::outcome(connection),
        "parameters": connections::parameters(connection),
        "reject_reason": connection.rejected.map(|(_, _, reason)| reason.0),
        "conversation": connection.conversation.map(|index| index + 1),
        "steps": steps,
        "more_steps": connection.more_steps,
        "findings": troubles(connection),
    })
}
