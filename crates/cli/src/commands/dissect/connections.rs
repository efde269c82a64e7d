//! What connection managers did, in words.

use rnic_dissect::{Connection, End, Severity, other};
use rnic_wire::PathMtu;
use rnic_wire::cm::{Answered, Attribute, RejectReason, SidrStatus};

use super::format::{at, count, data, end, span};
use super::words::Words;

/// One line: who asked whom for what, and how it ended.
pub fn headline(connection: &Connection) -> String {
    let [active, passive] = connection.addrs;
    let (from, to) = match connection.ip_cm {
        Some(header) => (
            format!("{}:{}", header.src, header.src_port),
            header.dst.to_string(),
        ),
        None => (active.to_string(), passive.to_string()),
    };
    let service = match connection.service {
        Some(service) => format!("{service}"),
        None => "service not captured".into(),
    };
    let what = if connection.resolution {
        "resolution"
    } else {
        "connection"
    };
    format!("{what} {from} -> {to}, {service}: {}", outcome(connection))
}

/// How it ended.
pub fn outcome(connection: &Connection) -> String {
    use Attribute::*;
    if let Some((status, qpn, qkey)) = connection.resolved {
        return match status {
            SidrStatus::VALID => format!("answered, QP {qpn:#x}, Q_Key {qkey:#010x}"),
            status => format!("refused, status {} ({status})", status.0),
        };
    }
    if let Some((by, message, reason)) = connection.rejected {
        let message = match message {
            Answered::Req => "the request",
            Answered::Rep => "the reply",
            _ => "it",
        };
        return format!(
            "{} rejected {message}, reason {} ({reason})",
            end(by),
            reason.0
        );
    }
    // Both ends may disconnect at once: then each DREQ tells the other end what a DREP would.
    let closing = |end| connection.times(end, Dreq) > 0;
    if connection.has(Drep) || closing(0) && closing(1) {
        return "made and closed".into();
    }
    if closing(0) || closing(1) {
        return "made, closing not answered".into();
    }
    if connection.has(Rtu) {
        return "made".into();
    }
    if connection.has(Rep) {
        return "half made: no RTU in the capture".into();
    }
    if connection.resolution || connection.has(Req) {
        return "no answer".into();
    }
    "begun before the capture".into()
}

/// What the two sides agreed on.
pub fn parameters(connection: &Connection) -> Vec<String> {
    let said = said(connection).into_iter();
    said.flat_map(|(_, lines)| lines).collect()
}

/// What the messages said, by message.
pub fn said(connection: &Connection) -> Vec<(Attribute, Vec<String>)> {
    let mut all = Vec::new();
    if let Some(req) = &connection.req {
        let mtu = match PathMtu::from_ibv(u32::from(req.path_mtu)) {
            Some(mtu) => mtu.bytes().to_string(),
            None => format!("code {}", req.path_mtu),
        };
        let rnr = match req.rnr_retry_count {
            7 => "for ever".into(),
            n => format!("{n} times"),
        };
        let mut lines = vec![format!(
            "REQ: QP {:#x}, B is to start at PSN {:#08x}; path MTU {mtu}, retries {}, RNR retries {rnr}, ACK timeout {} (code {})",
            req.qpn,
            req.starting_psn,
            req.retry_count,
            span(4096u64 << u32::from(req.primary.ack_timeout & 31)),
            req.primary.ack_timeout,
        )];
        lines.push(format!(
            "     answers {} READs and atomics at a time, wants {}; CM retries {}{}",
            req.responder_resources,
            req.initiator_depth,
            req.max_cm_retries,
            if req.srq {
                "; shared receive queue"
            } else {
                ""
            },
        ));
        all.push((Attribute::Req, lines));
    }
    if let Some(rep) = &connection.rep {
        // Without a REQ in the capture the transport is not known.
        let req = connection.req.as_ref();
        let qpn = req.map_or(rep.qpn, |req| rep.qpn_of(req.transport));
        let line = format!(
            "REP: QP {:#x}, A is to start at PSN {:#08x}; answers {} READs and atomics at a time, wants {}; RNR retries {}{}",
            qpn,
            rep.starting_psn,
            rep.responder_resources,
            rep.initiator_depth,
            rep.rnr_retry_count,
            if rep.srq {
                "; shared receive queue"
            } else {
                ""
            },
        );
        all.push((Attribute::Rep, vec![line]));
    }
    for (message, bytes) in &connection.private_data {
        let line = format!("{}: private data {}", message.name(), data(bytes));
        all.push((*message, vec![line]));
    }
    all
}

/// The messages, in order.
pub fn steps(connection: &Connection, start: u64) -> Vec<String> {
    let lines = connection.steps.iter().take(40).map(|step| {
        let again = if step.again { ", again" } else { "" };
        let (from, to) = (end(step.from), end(other(step.from)));
        format!(
            "{from} -> {to}  {:<8} packet {}, {}{again}",
            step.what.name(),
            step.number,
            at(step.time, start)
        )
    });
    let mut lines: Vec<String> = lines.collect();
    let more = connection.steps.len().saturating_sub(40) as u64 + connection.more_steps;
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    lines
}

/// What went wrong.
pub struct Trouble {
    pub severity: Severity,
    /// The packets that show it.
    pub packets: Vec<u64>,
    pub words: Words,
}

/// All that went wrong.
pub fn troubles(connection: &Connection) -> Vec<Trouble> {
    use Attribute::*;
    let mut found = Vec::new();
    let numbers = |by: End, what: Attribute| -> Vec<u64> {
        let of = |step: &&rnic_dissect::Step| step.from == by && step.what == what;
        connection
            .steps
            .iter()
            .filter(of)
            .map(|step| step.number)
            .collect()
    };
    let mut say = |severity, packets, what: String, cause: &str, explain: Option<String>| {
        let words = Words {
            what,
            cause: Some(cause.into()),
            explain,
        };
        found.push(Trouble {
            severity,
            packets,
            words,
        });
    };
    use Severity::{Failed, Note, Open, Repaired};
    if let Some((by, _, reason)) = connection.rejected {
        let cause = match reason {
            RejectReason::INVALID_SERVICE_ID => {
                "nobody listens there: start the server before its clients; check port and port space"
            }
            RejectReason::CONSUMER_DEFINED => {
                "the application there rejected it (rdma_reject), or Linux's rdma_cm did not like the addresses in the request"
            }
            RejectReason::STALE_CONNECTION => {
                "the peer still holds an older connection of the same queue pair (a crashed program's, for example)"
            }
            RejectReason::INVALID_GID => "the request names a GID that is not the receiver's",
            RejectReason::TIMEOUT => "the peer waited too long for an answer",
            _ => "see the explanation of the reason",
        };
        say(
            Failed,
            numbers(by, Rej),
            format!("{} rejected, reason {} ({reason})", end(by), reason.0),
            cause,
            Some(format!("rej {}", reason.0)),
        );
    }
    if let Some((status, ..)) = connection.resolved
        && status != SidrStatus::VALID
    {
        say(
            Failed,
            numbers(1, SidrRep),
            format!("the resolution was refused, status {} ({status})", status.0),
            "nobody listens there for datagrams: check port and port space (RDMA_PS_UDP)",
            Some(format!("sidr {}", status.0)),
        );
    }
    for (asked, by, answers) in [
        (Req, 0, &[Rep, Rej, Mra][..]),
        (Rep, 1, &[Rtu, Rej, Mra, Dreq][..]),
        (Dreq, 0, &[Drep][..]),
        (Dreq, 1, &[Drep][..]),
        (SidrReq, 0, &[SidrRep][..]),
    ] {
        let times = connection.times(by, asked);
        if times == 0 {
            continue;
        }
        let answered = answers
            .iter()
            .any(|&answer| connection.times(other(by), answer) > 0);
        let (me, peer) = (end(by), end(other(by)));
        // What the peer says only once it has the message, or shows that it is alive.
        let alive: &[Attribute] = match asked {
            Req => &[Rtu, Dreq, Drep],
            Dreq => &[Dreq],
            _ => &[],
        };
        let later = |what: &Attribute| {
            connection.times(other(by), *what) > 0
                || asked == Req && connection.times(by, *what) > 0
        };
        if !answered && alive.iter().any(later) {
            let (severity, what, cause) = match asked {
                Req => (
                    Note,
                    format!("{peer}'s answer to {me}'s REQ, a REP, is not in the capture"),
                    "what follows shows that it was given: the capture lacks it, or it takes another way than the capture sees",
                ),
                _ => (
                    Repaired,
                    format!("{peer} did not answer {me}'s DREQ, but sent one of its own"),
                    "the DREQ was lost, or both ends disconnected at the same time",
                ),
            };
            say(severity, numbers(by, asked), what, cause, None);
        } else if !answered {
            let cause = match asked {
                Req | SidrReq => {
                    "the peer's host does not answer on UDP port 4791, has no RDMA device on that address, or a firewall is between"
                }
                Rep => {
                    "the peer gave up before, or the RTU was lost: data that arrives makes up for it"
                }
                _ => "the peer is gone, or has forgotten the connection",
            };
            // What comes of a reply or a disconnect without an answer, others show.
            let severity = match asked {
                Req | SidrReq => Failed,
                _ => Open,
            };
            let word = match times {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            say(
                severity,
                numbers(by, asked),
                format!("{me} sent {} {word}, {peer} did not answer", asked.name()),
                cause,
                (asked == Req).then(|| "RDMA_CM_EVENT_UNREACHABLE".into()),
            );
        } else if times > 1 {
            let cause = if asked == Req && connection.times(other(by), Mra) > 0 {
                "the peer's application took long to accept: MRA asked for patience"
            } else {
                "it, or its answer, was lost the first time, or the answer took longer than the connection manager's timer"
            };
            say(
                Repaired,
                numbers(by, asked),
                format!(
                    "{me} had to send {} {}",
                    asked.name(),
                    count(times as u64, "time")
                ),
                cause,
                None,
            );
        }
    }
    if connection.has(Rep)
        && connection.has(Req)
        && !connection.has(Rtu)
        && connection.rejected.is_none()
        && connection.has(Dreq)
    {
        say(
            Repaired,
            numbers(1, Rep),
            "the RTU is not in the capture".into(),
            "it was lost; data, or a disconnect, told the passive side as well",
            None,
        );
    }
    found
}
