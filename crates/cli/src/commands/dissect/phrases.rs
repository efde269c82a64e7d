//! Phrases about conversations, messages and packets, for all forms of the answer.

use rnic_dissect::{
    Conversation, Icrc, Kind, Message, MtuSource, NoPacket, Outcome, Pairing, Side, Skip, What,
};
use rnic_wire::Service;

use super::format::{bytes, count, end, nak, span, syndrome};
use super::packets as lines;

/// Findings of one kind that are shown of a conversation.
pub const SHOWN: usize = 4;

/// Why a frame was left out.
pub fn skipped(skip: Skip) -> String {
    match skip {
        Skip::LinkType(link) => format!("link type {link}, which is not read"),
        Skip::CutShort => "cut within the headers that lead to the packet".into(),
        Skip::NotIp => "no IP".into(),
        Skip::RoceV1 => "RoCE version 1, which has no IP".into(),
        Skip::NotUdp => "IP, but no UDP".into(),
        Skip::OtherPort => "UDP to another port".into(),
        Skip::Fragment => "later fragments of IP datagrams".into(),
        Skip::RoceFragment => {
            "first fragments of datagrams to port 4791: RoCEv2 forbids fragments, receivers drop them; is the path MTU too large?".into()
        }
        Skip::BadLength => "length fields that contradict each other".into(),
    }
}

/// Why something to port 4791 is no packet.
pub fn no_packet(why: NoPacket) -> String {
    match why {
        NoPacket::Short => "shorter than its headers".into(),
        NoPacket::CutShort => "the capture has less of it than its headers".into(),
        NoPacket::Version => "transport header version is not 0: receivers drop it".into(),
        NoPacket::UnknownOpcode(code) => format!("unknown opcode {code:#04x}: receivers drop it"),
        NoPacket::BadPad => "more padding than bytes".into(),
    }
}

/// The path MTU, and how it is known.
pub fn path_mtu(mtu: u32, source: MtuSource) -> String {
    let source = match source {
        MtuSource::Request => "the REQ says so",
        MtuSource::Payload => "the length of First and Middle packets",
        MtuSource::ReadSpan => "the PSNs that a READ took",
    };
    format!("path MTU {mtu} ({source})")
}

/// The start PSNs of the two ends differ.
fn counts_from_elsewhere(conversation: &Conversation) -> bool {
    let apart = |finding: &rnic_dissect::Finding| matches!(finding.what, What::StartPsns { .. });
    conversation.findings.iter().any(apart)
}

/// How the two directions were put together.
pub fn pairing(conversation: &Conversation) -> String {
    match conversation.pairing {
        Pairing::Connection { .. } => {
            "both queue pairs are named by the connection manager's messages".into()
        }
        // Their PSNs do not match, which is what there is to find.
        Pairing::Inferred { .. } if counts_from_elsewhere(conversation) => {
            "the two directions were paired as the only ones without another between the two addresses".into()
        }
        Pairing::Inferred {
            request,
            answer,
            others,
        } => {
            let doubt = match others {
                0 => String::new(),
                1 => "; 1 other queue pair waited for the same PSN, so this may be wrong".into(),
                n => {
                    format!("; {n} other queue pairs waited for the same PSN, so this may be wrong")
                }
            };
            format!(
                "the two directions were paired by inference: packet {answer} answers the PSN of packet {request}{doubt}"
            )
        }
        Pairing::Datagram => "datagrams name both queue pairs".into(),
        Pairing::OneWay => {
            let unknown = end(0);
            match conversation.service {
                Service::Uc => format!(
                    "one direction; UC has no answers, so {unknown}'s queue pair cannot be known without the connection manager's \
                     messages"
                ),
                _ => format!(
                    "one direction: nothing shows {unknown}'s queue pair, as nothing came back"
                ),
            }
        }
    }
}

/// Latencies, throughput, acknowledgements, what was repeated.
pub fn summary(conversation: &Conversation, side: &Side) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, latencies) in &side.latencies {
        let Some(found) = latencies.summary() else {
            continue;
        };
        lines.push(match found.count {
            1 => format!(
                "{}: from first packet to answer {}",
                kind.name(),
                span(found.min)
            ),
            n => format!(
                "{}: from first packet to answer min {}, median {}, p99 {}, max {} ({n})",
                kind.name(),
                span(found.min),
                span(found.median),
                span(found.p99),
                span(found.max)
            ),
        });
    }
    if let Some((first, last)) = side.time
        && side.message_count > 1
        && last > first
    {
        let seconds = (last - first) as f64 / 1e9;
        lines.push(format!(
            "throughput {}/s, {:.0} messages/s, over {}",
            bytes((side.bytes as f64 / seconds) as u64),
            side.message_count as f64 / seconds,
            span(last - first)
        ));
    }
    let (acks, completed) = side.acks;
    if acks > 0 && completed != acks {
        lines.push(format!(
            "{} acknowledged {} ({:.1} each: coalesced)",
            count(acks, "ACK"),
            count(completed, "message"),
            completed as f64 / acks as f64
        ));
    }
    if side.repeat_count > 0 {
        lines.push(format!(
            "{}: {}, {} of payload again",
            lines::repeats(side.repeat_count),
            count(side.repeated_packets, "packet"),
            bytes(side.repeated_bytes)
        ));
        for repeat in side.repeats.iter().take(SHOWN) {
            lines.push(format!(
                "  from PSN {:#08x}: {}, {} to {}, {}, after {}",
                repeat.psns.0.value(),
                count(u64::from(repeat.packets), "packet"),
                repeat.numbers.0,
                repeat.numbers.1,
                lines::cause(repeat.cause),
                span(repeat.waited_ns)
            ));
        }
        let more = side.repeat_count.saturating_sub(SHOWN as u64);
        if more > 0 {
            lines.push(format!("  ... and {more} more"));
        }
    }
    if side.doubled_packets > 0 {
        let doubled = count(side.doubled_packets, "packet");
        lines.push(format!("{doubled} came twice, not sent again"));
    }
    for (of, n) in &side.naks {
        lines.push(format!("{n} x {}", syndrome(*of)));
    }
    for (n, what) in [
        (side.duplicate_acks, "duplicate ACK"),
        (side.duplicate_responses, "duplicate response"),
        (side.partial_acks, "mid-message ACK"),
        (side.reordered, "reordered packet"),
    ] {
        if n > 0 {
            lines.push(count(n, what));
        }
    }
    if side.missing_packets > 0 {
        lines.push(format!(
            "{} never seen",
            if side.missing_packets == 1 {
                "1 PSN was".into()
            } else {
                format!("{} PSNs were", side.missing_packets)
            }
        ));
    }
    if side.most_outstanding > 1 && !matches!(conversation.service, Service::Ud | Service::Uc) {
        lines.push(format!(
            "at most {} under way at a time{}",
            count(side.most_outstanding, "message"),
            match side.most_reads {
                0 => String::new(),
                n => format!(" ({} of them READs or atomics)", n),
            }
        ));
    }
    lines
}

/// What became of a message.
pub fn outcome(message: &Message) -> String {
    match message.outcome {
        Outcome::Open => match responses(message) {
            Some(said) => format!("not whole: {said}"),
            None => "no answer".into(),
        },
        Outcome::Done {
            time,
            number,
            shared,
        } => {
            let shared = match shared {
                0 | 1 => String::new(),
                2 => ", with 1 other".into(),
                n => format!(", with {} others", n - 1),
            };
            let after = span(time.saturating_sub(message.begun.0));
            format!("after {after}, packet {number}{shared}")
        }
        Outcome::Refused { number, code, .. } => {
            format!("refused in packet {number}: {}", nak(code))
        }
        Outcome::Sent => String::new(),
        Outcome::Lost => "not whole: dropped by the receiver".into(),
        Outcome::Cut => "not whole in the capture".into(),
    }
}

/// How far a READ was answered, if in part.
pub fn responses(message: &Message) -> Option<String> {
    let last = message.last_response?;
    Some(format!(
        "answered up to response {} of {}, the last one is packet {last}",
        message.answered, message.span
    ))
}

/// What else there is to know of a message.
pub fn notes(message: &Message) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((va, rkey, len)) = message.remote {
        let len = if message.kind == Kind::Read
            || u64::from(len) == message.bytes
            || message.operands.is_some()
        {
            String::new()
        } else {
            format!("+{len}")
        };
        notes.push(format!("at {va:#x}{len}, rkey {rkey:#010x}"));
    }
    match (message.kind, message.operands) {
        (Kind::CompareSwap, Some((swap, compare))) => {
            notes.push(format!("compare {compare:#x}, swap {swap:#x}"));
        }
        (_, Some((add, _))) => notes.push(format!("add {add:#x}")),
        _ => {}
    }
    if let Some(original) = message.original {
        notes.push(format!("was {original:#x}"));
    }
    if let Some(imm) = message.imm {
        notes.push(format!("imm {:#010x}", u32::from_be_bytes(imm)));
    }
    if let Some(rkey) = message.invalidate {
        notes.push(format!("invalidates rkey {rkey:#010x}"));
    }
    if let Some(srqn) = message.srqn {
        notes.push(format!("SRQ {srqn:#x}"));
    }
    if message.solicited {
        notes.push("solicited".into());
    }
    if message.repeated > 0 {
        notes.push(format!(
            "{} sent again",
            count(u64::from(message.repeated), "packet")
        ));
    }
    if message.rnr_naks > 0 {
        notes.push(count(u64::from(message.rnr_naks), "RNR NAK"));
    }
    if message.missing > 0 {
        notes.push(format!(
            "{} missing",
            count(u64::from(message.missing), "packet")
        ));
    }
    if message.headless {
        notes.push("its beginning is missing".into());
    }
    notes
}

/// What is known of a packet's ICRC.
pub fn icrc(icrc: Icrc) -> String {
    match icrc {
        Icrc::Right => "right".into(),
        Icrc::OtherIpHeader { ip_id, .. } => format!("right only for identification {ip_id:#06x}"),
        Icrc::Wrong { found, right } => {
            format!("{found:#010x} is wrong, {right:#010x} would be right")
        }
        Icrc::Unchecked => "not checked".into(),
    }
}
