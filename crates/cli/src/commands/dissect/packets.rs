//! `--packets`: a packet in a line.

use rnic_dissect::{Cause, Icrc, Mark, Packet, Place};
use rnic_wire::Service;

use super::format::{at, bytes, count, nak, opcode, service, span, syndrome};

/// Number, time, addresses, what it is, and its place.
pub fn line(p: &Packet, place: Option<Place>, start: u64) -> String {
    let flow = &p.outer.flow;
    let of = service(p.bth.opcode.service());
    let dest = match p.bth.dest_qp {
        0xff_ffff => "multicast".into(),
        qpn => format!("QP {qpn:#x}"),
    };
    let mut line = format!(
        "{:>6} {:>11}  {} > {} {dest}  {of} {:<18} PSN {:#08x}",
        p.number,
        at(p.time_ns, start),
        flow.src,
        flow.dst,
        name(p),
        p.bth.psn.value(),
    );
    if p.payload_len > 0 {
        line += &format!("  {}", bytes(u64::from(p.payload_len)));
    }
    if let Some(reth) = p.ext.reth {
        line += &format!(
            "  {} at {:#x}, rkey {:#010x}",
            bytes(u64::from(reth.dma_len)),
            reth.va,
            reth.rkey
        );
    }
    if let Some(imm) = p.ext.imm {
        line += &format!("  imm {:#010x}", u32::from_be_bytes(imm.0));
    }
    if let (Service::Ud, Some(deth)) = (p.bth.opcode.service(), p.ext.deth) {
        line += &format!("  from QP {:#x}, Q_Key {:#010x}", deth.src_qp, deth.qkey);
    }
    if let Some(aeth) = p.ext.aeth
        && !matches!(aeth.syndrome, rnic_wire::Syndrome::Ack { .. })
    {
        line += &format!("  {}", syndrome(aeth.syndrome));
    }
    // What it is called says it.
    let place = place.filter(|place| !matches!(place.mark, Mark::Cm(_)));
    let place = self::place(p, place);
    if !place.is_empty() {
        line += &format!("  | {place}");
    }
    line
}

/// What it is called: a message of the connection manager by its name, others by their opcode.
fn name(p: &Packet) -> String {
    match p.cm {
        Some(message) => format!("CM {}", message.name()),
        None => opcode(p.bth.opcode).to_owned(),
    }
}

/// Where it belongs, in words.
pub fn place(p: &Packet, place: Option<Place>) -> String {
    let Some(place) = place else {
        return match p.icrc {
            Icrc::Wrong { .. } => "ICRC wrong".into(),
            _ => String::new(),
        };
    };
    let message = match place.message {
        Some((_, id)) => format!("message {id}"),
        None => "no known message".into(),
    };
    match place.mark {
        Mark::Request { index } => format!("{message}, packet {index}"),
        Mark::AfterGap { index, missing } => {
            format!("{message}, packet {index}; {missing} missing before it")
        }
        Mark::Reordered { index } => format!("{message}, packet {index}, overtaken"),
        Mark::Repeated { index, cause } => {
            format!("{message}, packet {index}, again ({})", self::cause(cause))
        }
        Mark::Ack { completes: 0 } => format!("acknowledges a part of {message}"),
        Mark::Ack { completes: 1 } => format!("acknowledges {message}"),
        Mark::Ack { completes } => {
            format!(
                "acknowledges {}, the last one {message}",
                count(u64::from(completes), "message")
            )
        }
        Mark::DuplicateAck => match place.message {
            Some(_) => format!("acknowledges {message} again"),
            None => "acknowledges nothing new".into(),
        },
        Mark::Nak { code } => format!("{message}: {}", nak(code)),
        Mark::Rnr { timer_ns } => format!("{message}: not ready, wait {}", span(timer_ns)),
        Mark::Response { index } => format!("answers {message}, response {index}"),
        Mark::ResponseAfterGap { index, missing } => {
            format!("answers {message}, response {index}; {missing} missing before it")
        }
        Mark::DuplicateResponse => format!("answers {message} again"),
        Mark::AtomicAnswer => format!("answers {message}"),
        Mark::Orphan => "answers what is not in the capture".into(),
        Mark::Datagram => "datagram".into(),
        Mark::Cm(name) => format!("CM {name}"),
        Mark::Cnp => "congestion notification".into(),
        Mark::Stray => "fits nowhere".into(),
    }
}

/// Why something was sent again.
pub fn cause(cause: Cause) -> String {
    match cause {
        Cause::Nak { number } => format!("NAK in packet {number}"),
        Cause::Rnr { number, timer_ns } => {
            format!("receiver not ready, packet {number}, {}", span(timer_ns))
        }
        Cause::MissingResponse { number } => format!("response missing before packet {number}"),
        Cause::Timeout => "timeout".into(),
        Cause::Early => "not asked for".into(),
    }
}

/// For the summary.
pub fn repeats(n: u64) -> String {
    count(n, "retransmission")
}
