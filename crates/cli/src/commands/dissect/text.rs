//! The report as text.

use std::fmt::Write;

use rnic_dissect::{Conversation, End, Finding, Message, Pairing, Severity, Side, other};
use rnic_wire::Service;

use super::format::{Endpoint, at, bytes, count, end, packets, psns, service};
use super::phrases::SHOWN;
use super::words::{Words, degree, say};
use super::{Report, connections, head, phrases};

/// Conversations that are shown; thousands are for --json and --qp.
const CONVERSATIONS: usize = 50;

/// All of it; of each send queue the first `messages` messages.
pub fn of(report: &Report<'_>, messages: usize) -> String {
    let mut out = String::new();
    for (n, line) in head::lines(report).iter().enumerate() {
        let _ = writeln!(out, "{}{line}", if n == 0 { "" } else { "  " });
    }
    let capture = report.capture;
    let mut shown = 0;
    for (index, conversation) in report.conversations() {
        shown += 1;
        if shown <= CONVERSATIONS {
            out.push('\n');
            self::conversation(&mut out, report, index, conversation, messages);
        }
    }
    let of_connections = report.connections().next().is_some();
    if shown == 0
        && !of_connections
        && let Some(qp) = report.qp
    {
        let _ = writeln!(
            out,
            "\nno conversation of QP {qp:#x}; {}",
            head::there(capture)
        );
    }
    if shown > CONVERSATIONS {
        let _ = writeln!(
            out,
            "\n... and {} more; --qp selects one, --json has them all",
            count((shown - CONVERSATIONS) as u64, "conversation")
        );
    }
    let all = report.connections().map(|(_, connection)| connection);
    let mut alone = all
        .filter(|connection| connection.conversation.is_none())
        .peekable();
    if alone.peek().is_some() {
        let _ = writeln!(out, "\nConnection manager, without data:");
        for connection in alone.by_ref().take(CONVERSATIONS) {
            out.push('\n');
            let _ = writeln!(
                out,
                "  A {}  B {}",
                connection.addrs[0], connection.addrs[1]
            );
            connection_text(&mut out, connection, capture.time.0);
        }
        let more = alone.count();
        if more > 0 {
            let _ = writeln!(out, "\n  ... and {more} more; --json has them all");
        }
    }
    if !capture.findings.is_empty() {
        let _ = writeln!(out, "\nPackets:");
        findings(&mut out, &capture.findings, capture.more_findings, None);
    }
    out
}

fn conversation(
    out: &mut String,
    report: &Report<'_>,
    index: usize,
    conversation: &Conversation,
    messages: usize,
) {
    let start = report.capture.time.0;
    let total = conversation.packets[0] + conversation.packets[1];
    let _ = writeln!(
        out,
        "{}. {}  A {}  {}  B {}",
        index + 1,
        service(conversation.service),
        Endpoint(conversation, 0),
        if conversation.packets[1] > 0 {
            "<->"
        } else {
            "-->"
        },
        Endpoint(conversation, 1)
    );
    let _ = writeln!(
        out,
        "   {} ({} of A, {} of B), packets {} to {}, {} to {} s",
        count(total, "packet"),
        conversation.packets[0],
        conversation.packets[1],
        conversation.numbers.0,
        conversation.numbers.1,
        at(conversation.time.0, start),
        at(conversation.time.1, start),
    );
    let _ = writeln!(out, "   {}", phrases::pairing(conversation));
    if let Some((mtu, source)) = conversation.mtu {
        let _ = writeln!(out, "   {}", phrases::path_mtu(mtu, source));
    }
    for (from, qkeys) in conversation.qkeys.iter().enumerate() {
        if qkeys.is_empty() {
            continue;
        }
        let keys: Vec<_> = qkeys
            .iter()
            .take(8)
            .map(|(key, n)| format!("{key:#010x} ({})", count(*n, "datagram")))
            .collect();
        let (me, peer) = (end(from), end(other(from)));
        let _ = writeln!(out, "   Q_Key of {me} -> {peer}: {}", keys.join(", "));
    }
    if let Pairing::Connection { index } = conversation.pairing
        && let Some(connection) = report.capture.connections.get(index)
    {
        connection_text(out, connection, start);
    }
    for side in [0, 1] {
        self::side(out, conversation, side, start, messages);
    }
    if !conversation.findings.is_empty() {
        let _ = writeln!(out, "\n   What happened:");
        findings(
            out,
            &conversation.findings,
            conversation.more_findings,
            Some(conversation),
        );
    }
}

fn connection_text(out: &mut String, connection: &rnic_dissect::Connection, start: u64) {
    let _ = writeln!(out, "   {}", connections::headline(connection));
    for line in connections::parameters(connection) {
        let _ = writeln!(out, "     {line}");
    }
    for line in connections::steps(connection, start) {
        let _ = writeln!(out, "     {line}");
    }
    for trouble in connections::troubles(connection) {
        finding(out, &trouble.packets, trouble.severity, &trouble.words);
    }
}

fn side(out: &mut String, conversation: &Conversation, from: End, start: u64, shown: usize) {
    let side = &conversation.sides[from];
    if side.message_count == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "\n   {} -> {}: {}, {}, {}{}",
        end(from),
        end(other(from)),
        count(side.message_count, "message"),
        bytes(side.bytes),
        count(side.request_packets, "request packet"),
        kinds(side)
    );
    for line in phrases::summary(conversation, side) {
        let _ = writeln!(out, "      {line}");
    }
    if shown == 0 {
        return;
    }
    let unreliable = matches!(conversation.service, Service::Uc | Service::Ud);
    let head = format!(
        "      {:>5}  {:<25} {:>9}  {:<15} {:>7}  {:>11}  {}",
        "#",
        "operation",
        "bytes",
        "PSN",
        "packets",
        "begun at",
        if unreliable { "" } else { "answered" }
    );
    let _ = writeln!(out, "{}", head.trim_end());
    for message in side.messages.iter().take(shown) {
        let _ = writeln!(out, "      {}", self::message(message, start).trim_end());
    }
    let kept = side.messages.len();
    let more = side.message_count - kept.min(shown) as u64;
    let how = match (kept > shown, side.message_count > kept as u64) {
        (true, false) => "--messages N shows N, --json all".into(),
        (true, true) => format!("--messages N shows N, --json the first {kept}, which are kept"),
        (false, _) => format!("the first {kept} are kept"),
    };
    if more > 0 {
        let _ = writeln!(out, "      ... and {more} more ({how})");
    }
}

fn kinds(side: &Side) -> String {
    if side.kinds.len() < 2 {
        return String::new();
    }
    let kinds: Vec<_> = side
        .kinds
        .iter()
        .map(|(kind, n, _)| format!("{n} {}", kind.name()))
        .collect();
    format!(": {}", kinds.join(", "))
}

fn message(message: &Message, start: u64) -> String {
    let mut parts = phrases::notes(message);
    parts.insert(0, phrases::outcome(message));
    parts.retain(|part| !part.is_empty());
    format!(
        "{:>5}  {:<25} {:>9}  {:<15} {:>7}  {:>11}  {}",
        message.id,
        message.kind.name(),
        message.bytes,
        psns(message),
        message.packets,
        at(message.begun.0, start),
        parts.join("; "),
    )
}

fn findings(
    out: &mut String,
    findings: &[Finding],
    more: u64,
    conversation: Option<&Conversation>,
) {
    let mut told: Vec<(&str, usize)> = Vec::new();
    for found in findings {
        let name = found.what.name();
        let n = match told.iter_mut().find(|(known, _)| *known == name) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                told.push((name, 1));
                1
            }
        };
        if n > SHOWN {
            continue;
        }
        let words = say(found, conversation);
        finding(out, &found.packets, found.what.severity(), &words);
    }
    let rest: Vec<_> = told
        .iter()
        .filter(|(_, n)| *n > SHOWN)
        .map(|(name, n)| format!("{} more of \"{name}\"", n - SHOWN))
        .collect();
    if !rest.is_empty() || more > 0 {
        let beyond = match more {
            0 => String::new(),
            n => format!(", {n} beyond those that are kept"),
        };
        let _ = writeln!(out, "     ... and {}{beyond} (--json)", rest.join(", "));
    }
}

fn finding(out: &mut String, numbers: &[u64], severity: Severity, words: &Words) {
    let mark = degree(severity).mark;
    let _ = writeln!(out, "   {mark} {}: {}", packets(numbers), words.what);
    if let Some(cause) = &words.cause {
        let _ = writeln!(out, "       cause: {cause}");
    }
    if let Some(explain) = &words.explain {
        let _ = writeln!(out, "       next:  rnic explain {explain}");
    }
}
