//! Findings in words: what happened, and the likely cause.

use rnic_dissect::{Conversation, Finding, Icrc, PeerHad, Severity, What, other};
use rnic_wire::NakCode;

use super::format::{bytes, count, end, nak, packets, span};
use super::phrases;

/// A finding as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub what: String,
    pub cause: Option<String>,
    /// The argument of `rnic explain` that says more.
    pub explain: Option<String>,
}

/// How bad a finding is, for people and for machines.
pub struct Degree {
    /// In front of it in the report and in the page.
    pub mark: char,
    /// In `--json`.
    pub name: &'static str,
    /// The legend; that of `--help` and of docs/dissect.md is the same.
    pub meaning: &'static str,
}

/// In words.
pub fn degree(severity: Severity) -> Degree {
    let (mark, name, meaning) = match severity {
        Severity::Note => ('.', "note", "worth knowing"),
        Severity::Repaired => ('*', "repaired", "was repaired, and cost time"),
        Severity::Open => ('?', "open", "what came of it is not in the capture"),
        Severity::Failed => ('!', "failed", "failed"),
    };
    Degree {
        mark,
        name,
        meaning,
    }
}

/// Says a finding. `conversation` is where it belongs, if to any.
pub fn say(finding: &Finding, conversation: Option<&Conversation>) -> Words {
    let (me, peer) = (end(finding.side), end(other(finding.side)));
    let kept = |id: u64| {
        conversation.and_then(|conversation| {
            let messages = &conversation.sides[finding.side].messages;
            messages.iter().find(|message| message.id == id)
        })
    };
    let message = |id: u64| match kept(id) {
        Some(found) => format!(
            "{me}'s message {id} ({}, {})",
            found.kind.name(),
            bytes(found.bytes)
        ),
        None => format!("{me}'s message {id}"),
    };
    let (what, cause, explain): (String, Option<String>, Option<&str>) = match &finding.what {
        What::Lost { psn, sent } => {
            let psn = psn.value();
            let cause = match sent {
                Some(number) => format!(
                    "packet {number} carried it past the place of the capture, and was lost between there and {peer}, or {peer} \
                     dropped it (its receive buffer was full, or its ICRC was wrong there)"
                ),
                None => format!("it was lost between {me} and the place of the capture"),
            };
            (
                format!("{peer} says that PSN {psn:#08x} is missing (NAK, PSN sequence error)"),
                Some(cause),
                Some("nak 0x60"),
            )
        }
        What::NakAfterRnr { psn } => (
            format!(
                "{peer} adds a NAK (PSN sequence error) to its RNR NAK for PSN {:#08x}",
                psn.value()
            ),
            Some(
                "nothing was lost: Linux's Soft-RoCE says so when the rest of a message arrives behind a packet for which it had no \
                 receive"
                    .into(),
            ),
            None,
        ),
        What::Timeout { psn, packets, last, waited_ns, acknowledged_by, peer_had } => {
            let cause = match (acknowledged_by, peer_had) {
                (Some(number), _) => format!(
                    "packet {number} had acknowledged it, so that answer was lost between the place of the capture and {me}, or came \
                     after {me}'s timer had run out"
                ),
                (None, PeerHad::All { reply }) => format!(
                    "{peer}'s answers (packet {reply}) show that it had everything: the acknowledgement was lost on its way to the place \
                     of the capture"
                ),
                (None, PeerHad::UpTo { psn, reply }) => format!(
                    "{peer}'s first answer, packet {reply}, shows that it had everything up to PSN {:#08x}: what came behind was lost \
                     on the way to {peer}; with no later packet to show the gap, only the timer could repair it",
                    psn.value()
                ),
                (None, PeerHad::Nothing { .. } | PeerHad::Unknown) => format!(
                    "the request or its acknowledgement was lost, or {peer} does not answer"
                ),
            };
            (
                format!(
                    "{me} sent {} again from PSN {:#08x} after {} without an answer",
                    match packets {
                        1 => "a packet".into(),
                        n => format!("{n} packets (up to packet {last})"),
                    },
                    psn.value(),
                    span(*waited_ns)
                ),
                Some(cause),
                None,
            )
        }
        What::Early {
            psn,
            packets,
            waited_ns,
        } => (
            format!(
                "{} of {me} from PSN {:#08x} on came twice, {} apart",
                count(u64::from(*packets), "packet"),
                psn.value(),
                span(*waited_ns)
            ),
            Some(
                "no timer is that short: the network doubled it, or what asked for it is not in the capture"
                    .into(),
            ),
            None,
        ),
        What::Rnr { message: id, timer_ns, times } => (
            format!(
                "{peer} was not ready for {}: {}, wait {}{}",
                message(*id),
                count(u64::from(*times), "RNR NAK"),
                span(*timer_ns),
                if *times > 1 { " each" } else { "" }
            ),
            Some(format!(
                "{peer} had posted no receive for it: receives have to be posted before the sender starts, and faster than it sends"
            )),
            Some("nak 0x20"),
        ),
        What::Refused { message: id, kind, code, remote, bytes: len } => {
            let (cause, explain) = match code {
                NakCode::InvalidRequest => (
                    "its receive is shorter than the message, its queue pair lacks the right for this operation, an address is not \
                     aligned, or the packets make no sense in this order",
                    "nak 0x61",
                ),
                NakCode::RemoteAccessError => (
                    "the rkey is not (or no longer) valid there, the range reaches beyond its region, or the region lacks the right",
                    "nak 0x62",
                ),
                NakCode::RemoteOperationalError => (
                    "its queue pair failed while it executed the request; Linux's Soft-RoCE also says so when the receive is shorter \
                     than the message",
                    "nak 0x63",
                ),
                _ => ("it uses a code that is reserved", "nak"),
            };
            let target = match remote {
                Some((va, rkey, remote_len)) => {
                    format!(", remote address {va:#x}, rkey {rkey:#010x}, {}", bytes(u64::from(*remote_len)))
                }
                None => format!(", {}", bytes(*len)),
            };
            let status = match code {
                NakCode::InvalidRequest => 9,
                NakCode::RemoteAccessError => 10,
                _ => 11,
            };
            (
                format!(
                    "{peer} refused {me}'s message {id} ({}{target}): {}. {me} gets status {status}, and its queue pair is in error",
                    kind.name(),
                    nak(*code)
                ),
                Some(cause.into()),
                Some(explain),
            )
        }
        What::OddSyndrome { syndrome } => (
            format!("{peer} answered with an AETH of a reserved type ({syndrome:#04x})"),
            Some("no RDMA NIC should; the packet may have been made by hand".into()),
            None,
        ),
        What::GaveUp { message: id, times: 1, rnr: true, .. } => (
            format!("{} was told to wait, and was then given up: {me} gets status 13", message(*id)),
            Some(format!("{peer} had posted no receive for it, and {me}'s rnr_retry is 0 (or {me} is gone)")),
            Some("13"),
        ),
        What::GaveUp { message: id, times, span_ns, rnr: true, .. } => (
            format!(
                "{} was sent {} within {}, was told to wait each time, and was then given up: {me} gets status 13",
                message(*id),
                count(u64::from(*times), "time"),
                span(*span_ns)
            ),
            Some(format!("{peer} never posted a receive; rnr_retry was used up (7 means for ever)")),
            Some("13"),
        ),
        What::GaveUp { message: id, times, span_ns, answered: true, .. } => (
            format!(
                "{} was sent {} within {}, though it had been answered, and then given up: {me} gets status 12",
                message(*id),
                count(u64::from(*times), "time"),
                span(*span_ns)
            ),
            Some(format!("{peer}'s answers were lost between the place of the capture and {me}")),
            Some("12"),
        ),
        What::GaveUp { message: id, times, span_ns, ever_answered, .. } => (
            format!(
                "{} was sent {} within {} and never answered: {me} gets status 12",
                message(*id),
                count(u64::from(*times), "time"),
                span(*span_ns)
            ),
            Some(silence(peer, *ever_answered)),
            Some("12"),
        ),
        What::StartPsns { began, expects, answers, given_up } => (
            format!(
                "the start PSNs differ: {me} began at {:#x}, and {peer} expects {:#x}, as {} of {peer} {}{}",
                began.value(),
                expects.value(),
                count(*answers, "answer"),
                if *answers == 1 { "says" } else { "say" },
                if *given_up { format!(": {me} gets status 12") } else { String::new() }
            ),
            Some(format!(
                "nothing was lost. The rq_psn of {peer} (ibv_modify_qp to RTR) must be the sq_psn of {me} (to RTS)"
            )),
            Some("12"),
        ),
        What::Unanswered { message: id, times, span_ns, ns_to_end, rnr: true, .. } => (
            format!(
                "{} {}, and has no answer when the capture ends, {} later",
                message(*id),
                match times {
                    1 => "was told to wait".into(),
                    n => format!("was sent {} within {}, was told to wait each time", count(u64::from(*n), "time"), span(*span_ns)),
                },
                span(*ns_to_end)
            ),
            Some(format!(
                "{peer} had posted no receive yet. What came of it is not in the capture: {me} would get status 13 if its rnr_retry were \
                 used up (7 means for ever)"
            )),
            Some("13"),
        ),
        What::Unanswered { message: id, times: 2.., span_ns, ns_to_end, answered: true, .. } => (
            format!(
                "{} was sent again within {}, though it had been answered, and has no other answer when the capture ends, {} later",
                message(*id),
                span(*span_ns),
                span(*ns_to_end)
            ),
            Some(
                "it comes after the end of the capture, or was lost, too".into(),
            ),
            None,
        ),
        What::Unanswered { message: id, times: times @ 2.., span_ns, ns_to_end, ever_answered, .. } => (
            format!(
                "{} was sent {} within {}, no answer when the capture ends, {} later",
                message(*id),
                count(u64::from(*times), "time"),
                span(*span_ns),
                span(*ns_to_end)
            ),
            Some(format!(
                "the capture is too short to tell: {me} would get status 12 if its retries were used up. If no answer comes: {}",
                silence(peer, *ever_answered)
            )),
            Some("12"),
        ),
        What::Unanswered { message: id, ns_to_end, .. }
            if kept(*id).is_some_and(|message| message.last_response.is_some()) => (
            format!(
                "{} is answered in part when the capture ends, {} after it was sent{}",
                message(*id),
                span(*ns_to_end),
                kept(*id).and_then(phrases::responses).map_or(String::new(), |said| format!(": {said}"))
            ),
            Some(
                "the other responses came after the end of the capture, were lost before it, or take another way than the capture sees"
                    .into(),
            ),
            None,
        ),
        What::Unanswered { message: id, ns_to_end, .. } => (
            format!(
                "{} has no answer when the capture ends, {} later",
                message(*id),
                span(*ns_to_end)
            ),
            Some(
                "the answer came after the end of the capture, was lost before it, or takes another way than the capture sees".into(),
            ),
            None,
        ),
        What::Gap { psn, count: missing, .. } => (
            format!(
                "{} missing from PSN {:#08x} on",
                match missing {
                    1 => format!("1 packet of {me} is"),
                    n => format!("{n} packets of {me} are"),
                },
                psn.value()
            ),
            Some(format!(
                "lost between {me} and the place of the capture, or the capture itself lost it (tcpdump tells at its end: packets \
                 dropped by kernel)"
            )),
            None,
        ),
        What::Reordered { psn, behind } => (
            format!(
                "PSN {:#08x} of {me} came {} late, without having been sent again",
                psn.value(),
                count(u64::from(*behind), "packet")
            ),
            Some("the network (or several receive queues of the capturing host) reorders; RC takes that for a loss".into()),
            None,
        ),
        What::ResponseGap { psn, count: missing } => (
            format!(
                "{} missing from PSN {:#08x} on",
                if *missing == 1 { format!("1 response of {peer} to {me}'s READ is") } else { format!("{missing} responses of {peer} to {me}'s READ are") },
                psn.value()
            ),
            Some(format!("lost between {peer} and the place of the capture")),
            None,
        ),
        What::ReadAgain { message: id, psn, seen, response, waited_ns } => (
            format!(
                "{me} asked for {}{} again, from PSN {:#08x}, after {}",
                if response.is_some() { "" } else { "the rest of " },
                message(*id),
                psn.value(),
                span(*waited_ns)
            ),
            Some(if let Some(number) = response {
                format!("the response with that PSN is packet {number}, lost between there and {me} (or {me} dropped it)")
            } else if *seen {
                format!(
                    "the response with that PSN is in the capture, so it was lost between there and {me} (or {me} dropped it)"
                )
            } else {
                format!("the response with that PSN was lost between {peer} and the place of the capture")
            }),
            None,
        ),
        What::MiddleAnswer { message: id } => (
            format!("{peer} answered the repeated request of {} with a Middle or Last packet", message(*id)),
            Some(
                "Linux's Soft-RoCE goes on in the old numbering; the specification asks for First or Only. Requesters have to take both"
                    .into(),
            ),
            None,
        ),
        What::GhostAck { psn } => (
            format!("{peer} acknowledged PSN {:#08x}, which is not in the capture", psn.value()),
            Some(format!(
                "the capture lost {me}'s packets (tcpdump tells at its end: packets dropped by kernel), or {peer} acknowledges what was \
                 never sent"
            )),
            None,
        ),
        What::Orphans { count: n } => (
            format!(
                "{} of {peer} {} requests that are not in the capture",
                count(*n, "answer"),
                if *n == 1 { "is to" } else { "are to" }
            ),
            Some("the capture began later than the connection, or sees one direction only".into()),
            None,
        ),
        What::Headless { psn, at_start } => (
            format!("a message of {me} begins in its middle, at PSN {:#08x}", psn.value()),
            Some(if *at_start {
                "the capture began while it was under way".into()
            } else {
                "its First packet is not in the capture, or was never sent: a responder refuses that as an invalid request".into()
            }),
            None,
        ),
        What::Unfinished { message: id } => (
            format!("{} has no Last packet, and another message follows", message(*id)),
            Some("the requester broke the order of packets: a responder refuses that as an invalid request".into()),
            Some("nak 0x61"),
        ),
        What::WrongLength { message: id, promised, carried } => (
            format!(
                "{} promises {} in its RETH, and carries {}",
                message(*id),
                bytes(u64::from(*promised)),
                bytes(*carried)
            ),
            Some("a faulty requester: a responder refuses that as an invalid request".into()),
            Some("nak 0x61"),
        ),
        What::NotMtu { len, mtu } => (
            format!("a packet of {me} carries {len} bytes where the path MTU is {mtu}"),
            Some(
                "the two ends disagree about the path MTU, or the packet was made by hand; newer NICs refuse it as an invalid request"
                    .into(),
            ),
            Some("nak 0x61"),
        ),
        What::MtusDiffer { mtus: [a, b] } => (
            format!("the path MTUs differ: full packets of A carry {a} bytes, those of B {b}"),
            Some(
                "each program set a path MTU of its own when its queue pair went to RTR. Both have to take the smaller one: a NIC \
                 refuses First and Middle packets of another length as invalid requests"
                    .into(),
            ),
            Some("nak 0x61"),
        ),
        What::MtuNotAgreed { agreed, len } => (
            format!("full packets of {me} carry {len} bytes, and the REQ says path MTU {agreed}"),
            Some(
                "a program changed the path MTU after the connection manager had agreed on it. It works only if both ends did"
                    .into(),
            ),
            None,
        ),
        What::Restart { from, to } => (
            format!(
                "{me}'s PSNs jump from {:#08x} to {:#08x}",
                from.value(),
                to.value()
            ),
            Some("the queue pair was reset and connected anew, or another one got its number".into()),
            None,
        ),
        What::UcLost { message: id, missing } => (
            format!(
                "{} is not whole: {} not in the capture",
                message(*id),
                match missing {
                    0 => "its first or last packet is".into(),
                    1 => "1 packet of it is".into(),
                    n => format!("{n} packets of it are"),
                }
            ),
            Some(format!(
                "lost before the place of the capture; UC does not repair it: {peer} drops the whole message and nobody is told"
            )),
            None,
        ),
        What::EndsWithin { message: id, ns_to_end } => (
            format!(
                "{} has no Last packet when the capture ends, {} later",
                message(*id),
                span(*ns_to_end)
            ),
            Some(format!(
                "the capture ends within it, or its end was lost: then {peer} drops the whole message and nobody is told"
            )),
            None,
        ),
        What::TooManyReads { seen, agreed } => (
            format!("{me} had {seen} READs and atomics under way at a time, {peer} had agreed to {agreed}"),
            Some(
                "Linux's Soft-RoCE rounds up to a power of two; a responder that takes the number seriously refuses the surplus, or \
                 cannot repeat its answers"
                    .into(),
            ),
            None,
        ),
        What::BeforeRtu => (
            format!("{me} sent data before the RTU"),
            Some("allowed: the passive side may, and packets overtake each other".into()),
            None,
        ),
        What::Pkey { pkey } => (
            format!("{me} uses P_Key {pkey:#06x}"),
            Some("over RoCE there is the default partition alone (0xffff, 0x7fff); others are dropped without a word".into()),
            None,
        ),
        What::Qkey { qkey, expected } => (
            format!("a datagram of {me} to {peer} has Q_Key {qkey:#010x}, the first one had {expected:#010x}"),
            Some(format!("unless {peer}'s queue pair has that Q_Key it drops the datagram, and nobody is told")),
            None,
        ),
        What::DatagramTooLong { len } => (
            format!("a datagram of {me} has {}", bytes(u64::from(*len))),
            Some("more than any path MTU: the receiver drops it".into()),
            None,
        ),
        What::Icrc(Icrc::Wrong { found, right }) => (
            format!(
                "the ICRC is wrong ({}{found:#010x}, it should be {right:#010x}): every receiver drops such a packet without a word",
                example(finding)
            ),
            Some(
                "it was corrupted, changed on the way (NAT rewrites addresses and ports, which the ICRC covers), or made by a faulty \
                 sender"
                    .into(),
            ),
            None,
        ),
        What::Icrc(Icrc::OtherIpHeader { ip_id, df }) => (
            format!(
                "the ICRC would be right with another IP header ({}identification {ip_id:#06x} and DF {}): receivers drop such a packet",
                example(finding),
                u8::from(*df)
            ),
            Some(
                "the ICRC covers the IPv4 identification and DF. A sender that does not know which identification its kernel will \
                 write (a connected UDP socket, segmentation offload), or a box that renumbers, breaks it"
                    .into(),
            ),
            None,
        ),
        What::Icrc(_) => ("the ICRC was not checked".into(), None, None),
        What::Padding { pad } => (
            format!(
                "payload and padding ({}) of a packet of {me} do not end at a multiple of 4",
                count(u64::from(*pad), "byte")
            ),
            Some("made by hand; Linux's Soft-RoCE accepts it".into()),
            None,
        ),
        What::PairingDoubtful { orphans, answers } => (
            format!("{orphans} of {} of {peer} fit no request of {me}", count(*answers, "answer")),
            Some("the two directions were paired by inference, and may not belong together".into()),
            None,
        ),
        What::Congestion { marked, cnps } => (
            format!(
                "{} marked \"congestion experienced\", {}",
                count(*marked, "packet"),
                count(*cnps, "congestion notification packet")
            ),
            Some("a switch on the way had a long queue".into()),
            None,
        ),
        What::CapturedTwice { copies, of } => (
            format!("{copies} of {of} request packets of {me} are in the file twice"),
            Some("captured at two interfaces, or by both ends: what looks like a retransmission is none".into()),
            None,
        ),
        What::NotCm { from, why } => (
            format!("a packet of {from} to QP 1 is no message of the connection manager: {why}"),
            Some("a connection manager may not answer it".into()),
            None,
        ),
    };
    let cause = match &finding.bad[..] {
        [] => cause,
        bad => {
            let (carry, theirs) = if bad.len() == 1 {
                ("carries", "its ICRC is")
            } else {
                ("carry", "their ICRCs are")
            };
            Some(format!(
                "{} of the capture {carry} what is missing, but {theirs} wrong: whoever receives such a packet drops it",
                packets(bad)
            ))
        }
    };
    Words {
        what,
        cause,
        explain: explain.map(str::to_owned),
    }
}

/// The values that are said are those of one packet of several.
fn example(finding: &Finding) -> String {
    match finding.packets[..] {
        [first, _, ..] => format!("in packet {first}, for example, "),
        _ => String::new(),
    }
}

/// Why a peer does not answer.
fn silence(peer: char, ever_answered: bool) -> String {
    if ever_answered {
        format!(
            "{peer} had answered before: it is gone, its queue pair went into error (which makes it silent), or the path broke"
        )
    } else {
        format!(
            "{peer} never answered at all: its queue pair is not in RTR or RTS (or in error), it has another number or address, or UDP \
             port 4791 is blocked"
        )
    }
}
