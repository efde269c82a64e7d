//! `rnic run --stats`: what moved, per queue pair, per process, in total.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::Report;
use super::record::{ByOperation, Counters, Qp, Traffic};
use crate::text::count;

/// Sums of a process, or of all.
#[derive(Default)]
struct Sum {
    queue_pairs: usize,
    /// Payload, each byte once.
    moved: u64,
    counters: Counters,
    drops: BTreeMap<String, u64>,
    link: BTreeMap<String, u64>,
}

/// What a file says may be anything.
fn raise(to: &mut u64, by: u64) {
    *to = to.saturating_add(by);
}

fn add(to: &mut Traffic, from: Traffic) {
    raise(&mut to.messages, from.messages);
    raise(&mut to.bytes, from.bytes);
}

fn add_all(to: &mut ByOperation, from: &ByOperation) {
    add(&mut to.send, from.send);
    add(&mut to.write, from.write);
    add(&mut to.read, from.read);
    add(&mut to.atomic, from.atomic);
    add(&mut to.flush, from.flush);
}

fn add_named(to: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (name, value) in from {
        raise(to.entry(name.clone()).or_default(), *value);
    }
}

impl Sum {
    fn of(report: &Report, qps: &[&Qp], processes: &[u64]) -> Sum {
        let mut sum = Sum::default();
        let ends = qps.iter().filter_map(|qp| qp.ends.key());
        let ends: HashSet<_> = ends.collect();
        let (mut sent, mut received, mut users) = (0, 0, HashSet::new());
        for qp in qps {
            sum.queue_pairs += 1;
            add_all(&mut sum.counters.requested, &qp.counters.requested);
            add_all(&mut sum.counters.served, &qp.counters.served);
            add_named(&mut sum.counters.events, &qp.counters.events);
            if qp.qp_type == "UD" {
                raise(&mut sent, total(&qp.counters.requested));
                raise(&mut received, total(&qp.counters.served));
                users.insert(qp.process);
                continue;
            }
            raise(&mut sum.moved, total(&qp.counters.requested));
            // Where both ends are in this run, the other one has counted it as its own request.
            let opposite = qp.ends.key().map(|(own, peer)| (peer, own));
            if !opposite.is_some_and(|key| ends.contains(&key)) {
                raise(&mut sum.moved, total(&qp.counters.served));
            }
        }
        // Datagrams have no connection to match: several processes of a run are taken to talk to
        // one another.
        let datagrams = match users.len() {
            0 | 1 => sent.saturating_add(received),
            _ => sent.max(received),
        };
        raise(&mut sum.moved, datagrams);
        for device in processes.iter().filter_map(|id| report.devices.get(id)) {
            add_named(&mut sum.drops, &device.drops);
            add_named(&mut sum.link, &device.link);
        }
        sum
    }

    fn event(&self, name: &str) -> u64 {
        self.counters.events.get(name).copied().unwrap_or(0)
    }

    fn to_json(&self) -> Value {
        json!({
            "queue_pairs": self.queue_pairs,
            "bytes_moved": self.moved,
            "counters": self.counters,
            "drops": self.drops,
            "link": self.link,
        })
    }
}

fn total(by: &ByOperation) -> u64 {
    let all = [by.send, by.write, by.read, by.atomic];
    all.iter().fold(0, |sum, one| sum.saturating_add(one.bytes))
}

/// Bytes as people write them.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        0.0..1e3 => format!("{n} B"),
        1e3..1e6 => format!("{:.1} kB", n / 1e3),
        1e6..1e9 => format!("{:.1} MB", n / 1e6),
        _ => format!("{:.2} GB", n / 1e9),
    }
}

/// Processes that did something with the device.
fn users(report: &Report) -> impl Iterator<Item = (u64, Vec<&Qp>)> {
    report.processes.iter().filter(|p| p.opened).map(|process| {
        let qps = report.qps.iter().filter(|qp| qp.process == process.id);
        (process.id, qps.collect())
    })
}

fn all(report: &Report) -> Sum {
    let ids: Vec<u64> = report.processes.iter().map(|p| p.id).collect();
    Sum::of(report, &report.qps.iter().collect::<Vec<_>>(), &ids)
}

pub fn to_json(report: &Report) -> Value {
    let processes: Vec<Value> = users(report)
        .map(|(id, qps)| {
            let process = report.processes.iter().find(|p| p.id == id);
            json!({
                "program": process.map(|p| p.program.as_str()),
                "pid": process.map(|p| p.pid),
                "queue_pairs": qps,
                "total": Sum::of(report, &qps, &[id]).to_json(),
            })
        })
        .collect();
    json!({ "processes": processes, "total": all(report).to_json() })
}

/// Queue pairs shown one by one; more are summed up.
const SHOWN: usize = 16;

pub fn print(report: &Report) {
    let mut any = false;
    for (id, qps) in users(report) {
        any = true;
        crate::remark!("\nrnic: counters of {}", report.process(id));
        table(&qps);
        let sum = Sum::of(report, &qps, &[id]);
        events(&sum);
        paths(&sum);
        without_packets(&sum);
    }
    if !any {
        crate::remark!(
            "\nrnic: no process of this run opened the device; nothing moved over rnic0"
        );
        return;
    }
    let sum = all(report);
    crate::remark!(
        "rnic: moved {} over rnic0 in {}",
        bytes(sum.moved),
        count(sum.queue_pairs as u64, "QP")
    );
}

const HEAD: [&str; 14] = [
    "QP", "TYPE", "STATE", "PEER", "", "SEND", "WRITE", "READ", "ATOMIC", "FLUSH", "BYTES",
    "PACKETS", "RESENT", "NAKS",
];

/// Two rows per queue pair: what it asked of the peer, and what it did for the peer.
fn table(qps: &[&Qp]) {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for qp in qps.iter().take(SHOWN) {
        let peer = match (&qp.ends.peer, qp.ends.peer_qpn) {
            (Some(peer), Some(qpn)) if qp.qp_type != "UD" => format!("{peer} QP {qpn:#x}"),
            _ => "-".to_owned(),
        };
        let event = |name: &str| qp.counters.events.get(name).copied().unwrap_or(0);
        let naks = |way: &str| -> u64 {
            ["sequence", "rnr", "access", "invalid", "operational"]
                .iter()
                .map(|kind| event(&format!("{kind}_naks_{way}")))
                .fold(0, u64::saturating_add)
        };
        let row = |first: [String; 4], way: &str, by: &ByOperation, last: [u64; 3]| {
            let [qp, kind, state, peer] = first;
            [
                qp,
                kind,
                state,
                peer,
                way.to_owned(),
                by.send.messages.to_string(),
                by.write.messages.to_string(),
                by.read.messages.to_string(),
                by.atomic.messages.to_string(),
                by.flush.messages.to_string(),
                bytes(total(by)),
                last[0].to_string(),
                last[1].to_string(),
                last[2].to_string(),
            ]
        };
        let names = [
            format!("{:#x}", qp.ends.qpn),
            qp.qp_type.clone(),
            qp.state.clone(),
            peer,
        ];
        let out = [
            event("packets_sent"),
            event("retransmitted_packets"),
            naks("sent"),
        ];
        rows.push(row(names, "out", &qp.counters.requested, out));
        let came = [
            event("packets_received"),
            event("duplicates_received"),
            naks("received"),
        ];
        rows.push(row(Default::default(), "in", &qp.counters.served, came));
    }
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            line += &match column < 5 {
                true => format!(" {cell:<width$} "),
                false => format!(" {cell:>width$} "),
            };
        }
        crate::remark!("{}", line.trim_end());
    }
    if qps.len() > SHOWN {
        crate::remark!(
            "  ... and {} (all of them: --json)",
            count((qps.len() - SHOWN) as u64, "more queue pair")
        );
    }
}

/// How the packets came and went.
fn paths(sum: &Sum) {
    let link = |name: &str| sum.link.get(name).copied().unwrap_or(0);
    let both = |one: &str, other: &str| link(one).saturating_add(link(other));
    let by_memory = both("tx_host_packets", "rx_host_packets");
    if by_memory > 0 {
        let all = both("tx_packets", "rx_packets");
        let size = both("tx_host_bytes", "rx_host_bytes");
        crate::remark!(
            "  {:<15} {by_memory} of {} went through shared memory, {}",
            "host path",
            count(all, "packet"),
            bytes(size)
        );
    }
    let past = (link("tx_xdp_packets"), link("rx_xdp_packets"));
    if past != (0, 0) {
        crate::remark!(
            "  {:<15} {} out and {} in went past the kernel's network stack{}",
            "AF_XDP",
            count(past.0, "packet"),
            past.1,
            if link("tx_zero_copy_packets") > 0 {
                ", without copies (the card's driver)"
            } else {
                ""
            }
        );
    }
    let rows = link("tx_detour_packets");
    if rows > 0 {
        crate::remark!(
            "  {:<15} {} left in rows by an interface of rnic's, as the card's has no checksum offload",
            "",
            count(rows, "packet")
        );
    }
}

/// What needed no packets, and where the system did not let it be.
fn without_packets(sum: &Sum) {
    let event = |name: &str| sum.counters.events.get(name).copied().unwrap_or(0);
    let messages = event("messages_without_packets");
    if messages > 0 {
        crate::remark!(
            "  {:<15} {} took no packets, {}",
            "",
            count(messages, "RDMA operation"),
            bytes(event("bytes_without_packets"))
        );
    }
    let refused = sum.link.get("out_of_reach").copied().unwrap_or(0);
    if refused > 0 {
        crate::remark!(
            "  {:<15} the system does not let these processes reach each other's memory (ptrace(2)), so all operations took packets: {refused}",
            ""
        );
    }
}

/// What went wrong, if anything did.
fn events(sum: &Sum) {
    // What is counted, what is said of it, and how often.
    let line = |label: &str, parts: &[(&str, &str, u64)]| {
        let parts: Vec<String> = parts
            .iter()
            .filter(|(.., n)| *n > 0)
            .map(|(what, of_it, n)| match *what {
                // The line says what.
                "" => format!("{n} {of_it}"),
                what => format!("{} {of_it}", count(*n, what)).trim_end().to_owned(),
            })
            .collect();
        let text = if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        };
        crate::remark!("  {label:<15} {text}");
    };
    let naks = |way: &str| {
        [
            ("sequence", "PSN sequence error"),
            ("rnr", "receiver not ready"),
            ("access", "remote access error"),
            ("invalid", "invalid request"),
            ("operational", "operational error"),
        ]
        .map(|(kind, name)| ("", name, sum.event(&format!("{kind}_naks_{way}"))))
    };
    line(
        "retransmission:",
        &[
            ("packet", "sent again", sum.event("retransmitted_packets")),
            ("timeout", "", sum.event("timeouts")),
            ("duplicate", "received", sum.event("duplicates_received")),
            ("packet", "out of sequence", sum.event("out_of_sequence")),
        ],
    );
    line("NAKs sent:", &naks("sent"));
    line("NAKs received:", &naks("received"));
    let of_link: Vec<(String, u64)> = sum
        .drops
        .iter()
        .map(|(cause, n)| (format!("({})", cause.replace('_', " ")), *n))
        .collect();
    let mut drops: Vec<(&str, &str, u64)> = of_link
        .iter()
        .map(|(cause, n)| ("packet", &**cause, *n))
        .collect();
    for (what, of_it, name) in [
        ("packet", "that meant nothing to its queue pair", "dropped"),
        ("message", "without a receive (UC, UD)", "no_receive_drops"),
        ("message", "longer than the receive (UC)", "too_long_drops"),
        (
            "message",
            "refused by key, range or right (UC)",
            "access_drops",
        ),
        (
            "message",
            "of which packets were lost (UC)",
            "incomplete_drops",
        ),
        (
            "message",
            "cut for another path MTU (UC, UD)",
            "packet_length_drops",
        ),
        (
            "message",
            "of a wrong opcode or length (UC)",
            "malformed_drops",
        ),
        ("datagram", "of a wrong Q_Key", "qkey_violations"),
        ("request", "of another start PSN", "start_psn_violations"),
    ] {
        drops.push((what, of_it, sum.event(name)));
    }
    let refused = sum.link.get("tx_errors").copied().unwrap_or(0);
    drops.push(("packet", "refused by the kernel on sending", refused));
    line("dropped:", &drops);
}
