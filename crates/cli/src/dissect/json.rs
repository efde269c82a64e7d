//! The report for machines. The page of `--html` is made from the same.

use rnic_dissect::{
    Connection, Conversation, Finding, Message, MtuSource, Outcome, Pairing, Repeat, Severity, Side,
};
use serde_json::{Value, json};

use super::format::{end, opcode, service, syndrome};
use super::words::{Words, say};
use super::{Report, connections, packets, text};

/// All of it.
pub fn of(report: &Report<'_>) -> Value {
    let capture = report.capture;
    let skipped: Vec<Value> = capture
        .skipped
        .frames
        .iter()
        .map(|(why, n)| json!({ "why": text::skipped(*why), "frames": n }))
        .collect();
    let strange: Vec<Value> = capture
        .skipped
        .packets
        .iter()
        .map(|(why, n, first)| json!({ "why": text::no_packet(*why), "frames": n, "first": first }))
        .collect();
    let conversations: Vec<Value> = capture
        .conversations
        .iter()
        .enumerate()
        .filter(|(_, conversation)| report.shows(conversation))
        .map(|(index, found)| conversation(index, found))
        .collect();
    let all: Vec<Value> = capture.connections.iter().map(connection).collect();
    let mut value = json!({
        "file": report.name,
        "format": report.format.map(|format| format.to_string()),
        "link_types": report.link_types,
        "ended": report.ended,
        "frames": capture.frames,
        "packets": capture.packets,
        "start_ns": capture.time.0,
        "end_ns": capture.time.1,
        "gso_frames": capture.uncut,
        "cut_packets": capture.cut,
        "copies": capture.skipped.copies,
        "skipped": skipped,
        "no_packets": strange,
        "icrc": {
            "wrong": capture.icrc_wrong,
            "other_ip_header": capture.icrc_other,
            "unchecked": capture.icrc_unchecked,
        },
        "conversations": conversations,
        "connections": all,
        "findings": findings(&capture.findings, None),
        "more_findings": capture.more_findings,
    });
    if !report.packets.is_empty() {
        let all: Vec<Value> = report
            .packets
            .iter()
            .map(|(packet, place)| {
                json!({
                    "number": packet.number,
                    "time_ns": packet.time_ns,
                    "src": packet.outer.flow.src,
                    "dst": packet.outer.flow.dst,
                    "src_port": packet.outer.flow.src_port,
                    "dest_qp": packet.bth.dest_qp,
                    "opcode": packet.bth.opcode.0,
                    "operation": opcode(packet.bth.opcode),
                    "psn": packet.bth.psn.value(),
                    "ack_req": packet.bth.ack_req,
                    "payload": packet.payload_len,
                    "icrc": text::icrc(packet.icrc),
                    "conversation": place.map(|place| place.conversation + 1),
                    "from": place.map(|place| end(place.from)),
                    "message": place.and_then(|place| place.message).map(|(side, id)| {
                        json!({ "of": end(side), "id": id })
                    }),
                    "place": packets::place(packet, *place),
                })
            })
            .collect();
        value["packet_list"] = Value::Array(all);
        value["more_packets"] = json!(report.more_packets);
    }
    value
}

pub fn words(words: &Words, numbers: &[u64], severity: Severity) -> Value {
    json!({
        "packets": numbers,
        "severity": match severity {
            Severity::Note => "note",
            Severity::Repaired => "repaired",
            Severity::Failed => "failed",
        },
        "what": words.what,
        "cause": words.cause,
        "explain": words.explain,
    })
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

fn conversation(index: usize, conversation: &Conversation) -> Value {
    let ends: Vec<Value> = conversation
        .ends
        .iter()
        .map(|found| json!({ "address": found.addr, "qpn": found.qpn, "src_port": found.src_port }))
        .collect();
    let (how, connection) = match conversation.pairing {
        Pairing::Connection { index } => ("connection", Some(index)),
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
    let qkeys: Vec<Value> = conversation
        .qkeys
        .iter()
        .map(|(qkey, n)| json!({ "qkey": qkey, "datagrams": n }))
        .collect();
    json!({
        "id": index + 1,
        "service": service(conversation.service),
        "ends": ends,
        "pairing": how,
        "pairing_words": text::pairing(conversation),
        "connection": connection,
        "mtu": mtu,
        "start_ns": conversation.time.0,
        "end_ns": conversation.time.1,
        "first_packet": conversation.numbers.0,
        "last_packet": conversation.numbers.1,
        "packets": conversation.packets,
        "qkeys": qkeys,
        "ecn_marked": conversation.ecn_marked,
        "cnps": conversation.cnps,
        "sides": conversation.sides.iter().map(|found| side(conversation, found)).collect::<Vec<_>>(),
        "findings": findings(&conversation.findings, Some(conversation)),
        "more_findings": conversation.more_findings,
    })
}

fn side(conversation: &Conversation, side: &Side) -> Value {
    let kinds: Vec<Value> = side
        .kinds
        .iter()
        .map(|(kind, n, bytes)| json!({ "operation": kind.name(), "messages": n, "bytes": bytes }))
        .collect();
    let latencies: Vec<Value> = side
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
        })
        .collect();
    let naks: Vec<Value> = side
        .naks
        .iter()
        .map(|(of, n)| json!({ "syndrome": of.to_u8(), "words": syndrome(*of), "count": n }))
        .collect();
    json!({
        "messages": side.messages.iter().map(message).collect::<Vec<_>>(),
        "message_count": side.message_count,
        "bytes": side.bytes,
        "operations": kinds,
        "latencies": latencies,
        "naks": naks,
        "retransmissions": side.repeats.iter().map(repeat).collect::<Vec<_>>(),
        "retransmission_count": side.repeat_count,
        "request_packets": side.request_packets,
        "repeated_packets": side.repeated_packets,
        "repeated_bytes": side.repeated_bytes,
        "doubled_packets": side.doubled_packets,
        "acks": side.acks.0,
        "messages_acked": side.acks.1,
        "partial_acks": side.partial_acks,
        "duplicate_acks": side.duplicate_acks,
        "duplicate_responses": side.duplicate_responses,
        "missing_packets": side.missing_packets,
        "reordered": side.reordered,
        "most_outstanding": side.most_outstanding,
        "most_reads": side.most_reads,
        "summary": text::summary(conversation, side),
    })
}

fn repeat(repeat: &Repeat) -> Value {
    json!({
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

fn message(message: &Message) -> Value {
    let (answered, answer, result) = match message.outcome {
        Outcome::Open => (None, None, "open"),
        Outcome::Done { time, number, .. } => (Some(time), Some(number), "done"),
        Outcome::Refused { time, number, .. } => (Some(time), Some(number), "refused"),
        Outcome::Sent => (None, None, "sent"),
        Outcome::Lost => (None, None, "lost"),
    };
    json!({
        "id": message.id,
        "operation": message.kind.name(),
        "bytes": message.bytes,
        "packets": message.packets,
        "repeated": message.repeated,
        "missing": message.missing,
        "first_psn": message.psn.value(),
        "last_psn": message.last_psn().value(),
        "first_packet": message.begun.1,
        "last_packet": message.sent.1,
        "begun_ns": message.begun.0,
        "sent_ns": message.sent.0,
        "answered_ns": answered,
        "answered_by": answer,
        "latency_ns": answered.map(|time| time.saturating_sub(message.begun.0)),
        "result": result,
        "immediate": message.imm.map(u32::from_be_bytes),
        "remote_address": message.remote.map(|(va, ..)| format!("{va:#x}")),
        "rkey": message.remote.map(|(_, rkey, _)| rkey),
        "rnr_naks": message.rnr_naks,
        "timeouts": message.timeouts,
        "outcome": text::outcome(message),
        "notes": text::notes(message),
    })
}

fn connection(connection: &Connection) -> Value {
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
    let troubles: Vec<Value> = connections::troubles(connection)
        .iter()
        .map(|(numbers, said)| words(said, numbers, Severity::Repaired))
        .collect();
    json!({
        "active": connection.addrs[0],
        "passive": connection.addrs[1],
        "service": connection.service.map(|service| service.to_string()),
        "headline": connections::headline(connection),
        "outcome": connections::outcome(connection),
        "parameters": connections::parameters(connection),
        "reject_reason": connection.rejected.map(|(_, _, reason)| reason.0),
        "conversation": connection.conversation.map(|index| index + 1),
        "steps": steps,
        "findings": troubles,
    })
}
