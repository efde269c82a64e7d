//! The tables of `rnic top`: cells as text, for the screen and for a pipe.

use super::frame::{Frame, Latencies, QueuePair, Rates, Talk};
use crate::text::count;

/// A table: its title, the columns, and the rows.
#[derive(Debug)]
pub struct Table {
    pub title: String,
    pub columns: &'static [Column],
    pub rows: Vec<Vec<String>>,
}

/// A column: its head, how wide it is, and whether it has numbers.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub head: &'static str,
    pub width: u16,
    pub number: bool,
}

const fn words(head: &'static str, width: u16) -> Column {
    Column {
        head,
        width,
        number: false,
    }
}

const fn number(head: &'static str, width: u16) -> Column {
    Column {
        head,
        width,
        number: true,
    }
}

const PROCESSES: &[Column] = &[
    number("PID", 7),
    words("PROGRAM", 15),
    number("QPs", 5),
    number("requested/s", 11),
    number("served/s", 8),
    number("out B/s", 8),
    number("in B/s", 8),
    number("p50", 7),
    number("p99", 7),
    number("waiting", 7),
    number("resent/s", 8),
    number("RNR/s", 6),
    number("drop/s", 6),
];

const QUEUE_PAIRS: &[Column] = &[
    number("PID", 7),
    words("PROGRAM", 15),
    number("QPN", 8),
    words("TYPE", 9),
    words("STATE", 5),
    words("PATH", 7),
    words("PEER", 24),
    number("requested/s", 11),
    number("served/s", 8),
    number("out B/s", 8),
    number("in B/s", 8),
    number("p50", 7),
    number("p99", 7),
    number("waiting", 7),
    number("receives", 8),
    number("resent/s", 8),
    number("RNR/s", 6),
    number("drop/s", 6),
];

const TALKS: &[Column] = &[
    words("WHO", 23),
    words("WITH", 32),
    number("QPs", 5),
    number("requested/s", 11),
    number("served/s", 8),
    number("out B/s", 8),
    number("in B/s", 8),
    number("resent/s", 8),
    number("RNR/s", 6),
];

/// `12.3k`, `4.56M`: three digits.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "-".to_owned();
    }
    let (mut value, mut unit) = (value, "");
    for next in ["k", "M", "G", "T"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    match value {
        ..9.995 if unit.is_empty() => format!("{value:.1}"),
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 if !unit.is_empty() => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// A time: `1.2us`, `45us`, `3.4ms`, `2.1s`.
pub fn time(us: Option<f64>) -> String {
    let Some(us) = us else {
        return "-".to_owned();
    };
    match us {
        ..9.95 => format!("{us:.1}us"),
        ..999.5 => format!("{us:.0}us"),
        ..9_995.0 => format!("{:.1}ms", us / 1e3),
        ..999_500.0 => format!("{:.0}ms", us / 1e3),
        _ => format!("{:.1}s", us / 1e6),
    }
}

fn traffic(rates: &Rates) -> [String; 4] {
    [
        rates.messages_requested,
        rates.messages_served,
        rates.bytes_out,
        rates.bytes_in,
    ]
    .map(short)
}

fn trouble(rates: &Rates) -> [String; 3] {
    [rates.retransmissions, rates.rnr_naks, rates.drops].map(short)
}

fn times(latency: &Latencies) -> [String; 2] {
    [time(latency.p50_us), time(latency.p99_us)]
}

/// All processes.
pub fn processes(frame: &Frame) -> Table {
    let rows = frame.processes.iter().map(|process| {
        let mut row = vec![
            process.pid.to_string(),
            process.program.clone(),
            process.queue_pairs.to_string(),
        ];
        row.extend(traffic(&process.rates));
        row.extend(times(&process.latency));
        row.push(process.sends_outstanding.to_string());
        row.extend(trouble(&process.rates));
        row
    });
    Table {
        title: count(frame.processes.len() as u64, "process"),
        columns: PROCESSES,
        rows: rows.collect(),
    }
}

fn peer(qp: &QueuePair) -> String {
    match (qp.peer, qp.peer_qpn) {
        (Some(ip), Some(qpn)) => format!("{ip} {qpn:#x}"),
        _ => "-".to_owned(),
    }
}

/// All queue pairs.
pub fn queue_pairs(frame: &Frame) -> Table {
    let rows = frame.queue_pairs.iter().map(|qp| {
        let mut row = vec![
            qp.pid.to_string(),
            qp.program.clone(),
            format!("{:#x}", qp.qpn),
            qp.service.to_owned(),
            qp.state.clone(),
            qp.path.unwrap_or("-").to_owned(),
            peer(qp),
        ];
        row.extend(traffic(&qp.rates));
        row.extend(times(&qp.latency));
        row.push(qp.sends_outstanding.to_string());
        let receives = qp.receives_posted;
        row.push(receives.map_or("SRQ".to_owned(), |n| n.to_string()));
        row.extend(trouble(&qp.rates));
        row
    });
    Table {
        title: count(frame.queue_pairs.len() as u64, "queue pair"),
        columns: QUEUE_PAIRS,
        rows: rows.collect(),
    }
}

fn with(talk: &Talk) -> String {
    match (talk.peer_pid, &talk.peer_program, talk.peer) {
        (Some(pid), ..) if pid == talk.pid => "itself".to_owned(),
        (Some(pid), Some(program), _) => format!("{program} ({pid})"),
        (_, _, Some(ip)) => ip.to_string(),
        _ => "-".to_owned(),
    }
}

/// Who talks to whom.
pub fn talks(frame: &Frame) -> Table {
    let rows = frame.talks.iter().map(|talk| {
        let mut row = vec![
            format!("{} ({})", talk.program, talk.pid),
            with(talk),
            talk.queue_pairs.to_string(),
        ];
        row.extend(traffic(&talk.rates));
        row.extend(trouble(&talk.rates).into_iter().take(2));
        row
    });
    Table {
        title: "who talks to whom".to_owned(),
        columns: TALKS,
        rows: rows.collect(),
    }
}

/// Processes that did not answer, in words; `None`: all did.
pub fn silent(frame: &Frame) -> Option<String> {
    let pids: Vec<String> = frame.silent.iter().map(u32::to_string).collect();
    let es = if pids.len() == 1 { "" } else { "es" };
    (!pids.is_empty()).then(|| format!("process{es} {} did not answer (stopped?)", pids.join(", ")))
}

/// Where there is nothing to show.
pub const NOBODY: &str = "No process of this user has a queue pair: rnic run -- PROGRAM";

impl Table {
    /// Of its longest row.
    pub fn width(&self) -> usize {
        let lines = self.lines();
        let lines = lines.lines().skip(1);
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// As lines of text.
    pub fn lines(&self) -> String {
        let line = |cells: &[&str]| {
            let cells = self.columns.iter().zip(cells).map(|(column, cell)| {
                let width = usize::from(column.width);
                match column.number {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                }
            });
            let line: Vec<String> = cells.collect();
            line.join(" ").trim_end().to_owned() + "\n"
        };
        let heads: Vec<&str> = self.columns.iter().map(|column| column.head).collect();
        let mut text = format!("{}\n{}", self.title, line(&heads));
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            text += &line(&cells);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "-"),
            (0.5, "0.5"),
            (12.0, "12"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (1_999_999.0, "2.00M"),
            (7.4e12, "7.40T"),
        ] {
            assert_eq!(short(value), text);
        }
        for (us, text) in [
            (None, "-"),
            (Some(0.52), "0.5us"),
            (Some(9.96), "10us"),
            (Some(999.9), "1.0ms"),
            (Some(45_000.0), "45ms"),
            (Some(2_100_000.0), "2.1s"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
