//! The counters in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

use rnic::monitor::{Look, QueuePairLook};

use super::frame::path_name;

/// A metric of each queue pair.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: fn(&QueuePairLook) -> Vec<(&'static str, u64)>,
}

macro_rules! counter {
    ($name:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: "counter",
            help: $help,
            values: |qp| vec![("", qp.counters.$field)],
        }
    };
}

/// The counts by operation, with the label that tells them from each other.
fn by_operation(of: rnic::ByOperation, what: fn(rnic::Traffic) -> u64) -> Vec<(&'static str, u64)> {
    vec![
        ("operation=\"send\"", what(of.send)),
        ("operation=\"write\"", what(of.write)),
        ("operation=\"read\"", what(of.read)),
        ("operation=\"atomic\"", what(of.atomic)),
        ("operation=\"flush\"", what(of.flush)),
    ]
}

const METRICS: &[Metric] = &[
    Metric {
        name: "rnic_requested_messages_total",
        kind: "counter",
        help: "Send work requests that succeeded.",
        values: |qp| by_operation(qp.counters.requested, |t| t.messages),
    },
    Metric {
        name: "rnic_requested_bytes_total",
        kind: "counter",
        help: "Payload bytes of send work requests that succeeded.",
        values: |qp| by_operation(qp.counters.requested, |t| t.bytes),
    },
    Metric {
        name: "rnic_served_messages_total",
        kind: "counter",
        help: "Requests of peers that were executed.",
        values: |qp| by_operation(qp.counters.served, |t| t.messages),
    },
    Metric {
        name: "rnic_served_bytes_total",
        kind: "counter",
        help: "Payload bytes of requests of peers.",
        values: |qp| by_operation(qp.counters.served, |t| t.bytes),
    },
    counter!("rnic_packets_sent_total", "Packets sent.", packets_sent),
    counter!(
        "rnic_packets_received_total",
        "Packets received.",
        packets_received
    ),
    counter!(
        "rnic_retransmitted_packets_total",
        "Packets that were sent again.",
        retransmitted_packets
    ),
    counter!("rnic_timeouts_total", "ACK timeouts.", timeouts),
    counter!(
        "rnic_sequence_naks_received_total",
        "NAKs for a PSN sequence error that came.",
        sequence_naks_received
    ),
    counter!(
        "rnic_rnr_naks_received_total",
        "RNR NAKs that came: the peer had no receive posted.",
        rnr_naks_received
    ),
    counter!(
        "rnic_rnr_naks_sent_total",
        "RNR NAKs sent: no receive was posted here.",
        rnr_naks_sent
    ),
    counter!(
        "rnic_out_of_sequence_total",
        "Packets ahead of the expected PSN.",
        out_of_sequence
    ),
    counter!(
        "rnic_duplicates_received_total",
        "Requests and responses that had come before.",
        duplicates_received
    ),
    counter!(
        "rnic_messages_dropped_total",
        "Messages of UC and UD that were dropped.",
        messages_dropped
    ),
    Metric {
        name: "rnic_sends_outstanding",
        kind: "gauge",
        help: "Send work requests that are posted and not done.",
        values: |qp| vec![("", u64::from(qp.sends_outstanding))],
    },
];

/// Quantiles of latency that are told.
const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];

/// A label's value, with what would end it escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn labels(qp: &QueuePairLook, program: &dyn Fn(u32) -> String) -> String {
    let path = path_name(qp.path).unwrap_or("none");
    let mut labels = format!(
        "pid=\"{}\",program=\"{}\",qpn=\"{:#x}\",service=\"{}\",path=\"{path}\"",
        qp.pid,
        escaped(&program(qp.pid)),
        qp.qpn,
        qp.service
    );
    if let (Some(peer), Some(qpn)) = (qp.peer, qp.peer_qpn) {
        let _ = write!(labels, ",peer=\"{peer}\",peer_qpn=\"{qpn:#x}\"");
    }
    labels
}

/// All metrics.
pub fn text(look: &Look, program: &dyn Fn(u32) -> String) -> String {
    let qps: Vec<(&QueuePairLook, String)> = look
        .queue_pairs
        .iter()
        .map(|qp| (qp, labels(qp, program)))
        .collect();
    let mut text = String::new();
    for metric in METRICS {
        let (name, help, kind) = (metric.name, metric.help, metric.kind);
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (qp, labels) in &qps {
            for (more, value) in (metric.values)(qp) {
                let comma = if more.is_empty() { "" } else { "," };
                let _ = writeln!(text, "{name}{{{labels}{comma}{more}}} {value}");
            }
        }
    }
    const LATENCY: &str = "rnic_request_latency_seconds";
    let _ = write!(
        text,
        "# HELP {LATENCY} Time from post to completion of signaled send work requests, of those \
         posted while somebody looked.\n# TYPE {LATENCY} summary\n"
    );
    for (qp, labels) in &qps {
        for (name, share) in QUANTILES {
            if let Some(ns) = qp.latency.quantile(share) {
                let seconds = ns as f64 / 1e9;
                let _ = writeln!(text, "{LATENCY}{{{labels},quantile=\"{name}\"}} {seconds}");
            }
        }
        let _ = writeln!(text, "{LATENCY}_count{{{labels}}} {}", qp.latency.count());
    }
    let silent = look.silent.len();
    text += "# HELP rnic_silent_processes Processes that did not answer.\n";
    text += "# TYPE rnic_silent_processes gauge\n";
    let _ = writeln!(text, "rnic_silent_processes {silent}");
    text
}

#[cfg(test)]
mod tests {
    use rnic::monitor::{Latency, Path};
    use rnic::{Counters, QpState};

    use super::*;

    fn queue_pair() -> QueuePairLook {
        QueuePairLook {
            pid: 7,
            qpn: 0x1234,
            service: "RC",
            state: QpState::Rts,
            peer_qpn: Some(0x5678),
            path: Path::Network,
            local: "192.0.2.1".parse().ok(),
            peer: "192.0.2.2".parse().ok(),
            sends_outstanding: 3,
            receives_posted: Some(1),
            counters: Counters {
                timeouts: 42,
                ..Counters::default()
            },
            latency: Latency::default(),
        }
    }

    /// Promise: each line is a comment or a sample, and a program's name ends no label.
    #[test]
    fn lines_are_well_formed() {
        let look = Look {
            queue_pairs: vec![queue_pair()],
            silent: vec![9],
        };
        let text = text(&look, &|_| "a\"b\\c\n".to_owned());
        assert!(text.contains(
            "rnic_timeouts_total{pid=\"7\",program=\"a\\\"b\\\\c\\n\",qpn=\"0x1234\",service=\"RC\",\
             path=\"network\",peer=\"192.0.2.2\",peer_qpn=\"0x5678\"} 42\n"
        ));
        assert!(text.contains("rnic_silent_processes 1\n"));
        for line in text.lines() {
            let sample = line.rsplit_once(' ').is_some_and(|(name, value)| {
                let braces = name.ends_with('}') == name.contains('{');
                name.starts_with("rnic_") && braces && value.parse::<f64>().is_ok()
            });
            let comment = line.starts_with("# HELP rnic_") || line.starts_with("# TYPE rnic_");
            assert!(sample || comment, "{line}");
        }
    }
}
