//! Numbers as people read them.

use std::fmt;

pub use crate::text::count;
use rnic_dissect::{Conversation, End, Message};
use rnic_wire::{NakCode, Opcode, Operation, Service, Syndrome};

/// A duration.
pub fn span(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} us", short(value / 1e3)),
        1_000_000..=999_999_999 => format!("{} ms", short(value / 1e6)),
        _ => format!("{} s", short(value / 1e9)),
    }
}

/// Three or four digits that count.
fn short(value: f64) -> String {
    let digits = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// A time in the capture, in seconds from its first frame.
pub fn at(ns: u64, start: u64) -> String {
    let ns = ns.saturating_sub(start);
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// An amount of data.
pub fn bytes(n: u64) -> String {
    match n {
        0..=9_999 => format!("{n} B"),
        10_000..=9_999_999 => format!("{} kB", short(n as f64 / 1e3)),
        10_000_000..=9_999_999_999 => format!("{} MB", short(n as f64 / 1e6)),
        _ => format!("{} GB", short(n as f64 / 1e9)),
    }
}

/// "packet 5", "packets 5 and 7", "packets 5, 7, 9 ...".
pub fn packets(numbers: &[u64]) -> String {
    match numbers {
        [] => "somewhere".into(),
        [one] => format!("packet {one}"),
        [first, second] => format!("packets {first} and {second}"),
        many => {
            let shown: Vec<_> = many.iter().take(6).map(u64::to_string).collect();
            let more = if many.len() > 6 { " ..." } else { "" };
            format!("packets {}{more}", shown.join(", "))
        }
    }
}

/// The two ends are called A and B.
pub fn end(end: End) -> char {
    if end == 0 { 'A' } else { 'B' }
}

/// A queue pair of a conversation.
pub struct Endpoint<'a>(pub &'a Conversation, pub End);

impl fmt::Display for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.0.ends[self.1];
        write!(f, "{} ", found.addr)?;
        match found.qpn {
            Some(0xff_ffff) => f.write_str("multicast"),
            Some(qpn) => write!(f, "QP {qpn:#x}"),
            None => f.write_str("QP unknown"),
        }
    }
}

/// RC, UC ...
pub fn service(service: Service) -> String {
    match service {
        Service::Rc => "RC".into(),
        Service::Uc => "UC".into(),
        Service::Rd => "RD".into(),
        Service::Ud => "UD".into(),
        Service::Cnp => "CNP".into(),
        Service::Xrc => "XRC".into(),
        Service::Other(code) => format!("service {code}"),
    }
}

/// "SEND First", as tshark says, too.
pub fn opcode(opcode: Opcode) -> &'static str {
    use Operation::*;
    let Some(operation) = opcode.operation() else {
        return if opcode == Opcode::CNP {
            "CNP"
        } else {
            "unknown opcode"
        };
    };
    match operation {
        SendFirst => "SEND First",
        SendMiddle => "SEND Middle",
        SendLast => "SEND Last",
        SendLastImm => "SEND Last Imm",
        SendOnly => "SEND Only",
        SendOnlyImm => "SEND Only Imm",
        WriteFirst => "WRITE First",
        WriteMiddle => "WRITE Middle",
        WriteLast => "WRITE Last",
        WriteLastImm => "WRITE Last Imm",
        WriteOnly => "WRITE Only",
        WriteOnlyImm => "WRITE Only Imm",
        ReadRequest => "READ Request",
        ReadResponseFirst => "READ Response First",
        ReadResponseMiddle => "READ Response Middle",
        ReadResponseLast => "READ Response Last",
        ReadResponseOnly => "READ Response Only",
        Acknowledge => "ACK",
        AtomicAcknowledge => "ATOMIC ACK",
        CompareSwap => "CMP SWAP",
        FetchAdd => "FETCH ADD",
        Resync => "RESYNC",
        SendLastInvalidate => "SEND Last Inv",
        SendOnlyInvalidate => "SEND Only Inv",
        Flush => "FLUSH",
        AtomicWrite => "ATOMIC WRITE",
    }
}

/// "NAK 0x62 (remote access error)".
pub fn syndrome(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack { .. } => "ACK".into(),
        Syndrome::RnrNak { timer } => {
            format!("RNR NAK (wait {})", span(rnic_wire::rnr_timer_ns(timer)))
        }
        Syndrome::Nak(code) => format!("NAK {:#04x} ({})", syndrome.to_u8(), nak(code)),
        Syndrome::Reserved(byte) => format!("AETH of a reserved type ({byte:#04x})"),
    }
}

/// What a NAK code is called.
pub fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccessError => "remote access error",
        NakCode::RemoteOperationalError => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
        NakCode::Other(_) => "reserved code",
    }
}

/// PSNs of a message.
pub fn psns(message: &Message) -> String {
    if message.span <= 1 {
        format!("{:#08x}", message.psn.value())
    } else {
        let last = message.last_psn().value();
        format!("{:#08x}-{:06x}", message.psn.value(), last)
    }
}

/// Bytes as text where they are text, else in hexadecimal digits.
pub fn data(bytes: &[u8]) -> String {
    let text = bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
    if text && !bytes.is_empty() {
        return format!("\"{}\"", String::from_utf8_lossy(bytes).escape_default());
    }
    let shown: String = bytes
        .iter()
        .take(64)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let more = if bytes.len() > 64 { "..." } else { "" };
    format!("0x{shown}{more} ({})", count(bytes.len() as u64, "byte"))
}
