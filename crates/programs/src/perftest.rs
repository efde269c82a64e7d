//! The tables that perftest prints.

use crate::pair::Outcome;

/// What a perftest program measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] ...`
    Latency,
    /// `#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]`
    Bandwidth,
}

impl Kind {
    /// By the program's name.
    pub fn of(program: &str) -> Kind {
        if program.ends_with("_lat") {
            Kind::Latency
        } else {
            Kind::Bandwidth
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Message size.
    pub bytes: u64,
    /// How many were measured.
    pub iterations: u64,
    /// Average latency in microseconds, or average bandwidth in MB/s.
    pub average: f64,
}

/// The rows of the result table, in order. Empty when there is none.
///
/// # Panics
/// When a row holds something that is not a number.
pub fn parse(kind: Kind, text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut within = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("#bytes") {
            within = true;
        } else if line.starts_with("---") {
            within = false;
        } else if within && line.starts_with(|first: char| first.is_ascii_digit()) {
            rows.push(
                parse_row(kind, line).unwrap_or_else(|| panic!("not a row of perftest: {line}")),
            );
        }
    }
    rows
}

fn parse_row(kind: Kind, line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // ib_*_lat with -D, and the atomics, have other columns; all have the average where it is
    // looked for here.
    let average = match kind {
        Kind::Latency => fields.get(5).or(fields.get(2))?,
        Kind::Bandwidth => fields.get(3)?,
    };
    // Only these three: with few iterations perftest prints `-nan` as standard deviation. It prints
    // `inf` when the machine was too busy for it to find out its clock's rate.
    let average: f64 = average.parse().ok()?;
    if average.is_nan() || average < 0.0 {
        return None;
    }
    Some(Row {
        bytes: fields[0].parse().ok()?,
        iterations: fields[1].parse().ok()?,
        average,
    })
}

/// The sizes of `-a`: 2 bytes to 8 MiB.
pub fn all_sizes() -> Vec<u64> {
    (1..=23).map(|power| 1 << power).collect()
}

/// Checks that both sides finished well and the client reported the given sizes, each with a
/// plausible result.
///
/// # Panics
/// When not.
pub fn expect_report(program: &str, outcome: &Outcome, sizes: &[u64]) -> Vec<Row> {
    outcome.expect_success();
    let rows = parse(Kind::of(program), &outcome.client.stdout);
    let reported: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
    assert_eq!(
        reported,
        sizes,
        "the client's table has other sizes\n{}",
        outcome.describe()
    );
    for row in &rows {
        // Under heavy faults a bandwidth may round to 0.00; a latency cannot.
        let plausible =
            row.iterations > 0 && (Kind::of(program) == Kind::Bandwidth || row.average > 0.0);
        assert!(plausible, "{row:?}\n{}", outcome.describe());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_table() {
        let text = "\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          5000             5.59               5.47   \t\t   2.865977
 65536      100              1000.5             998.25 \t\t   0.015972
---------------------------------------------------------------------------------------
";
        let rows = parse(Kind::Bandwidth, text);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[1],
            Row {
                bytes: 65536,
                iterations: 100,
                average: 998.25
            }
        );
    }

    #[test]
    fn latency_table() {
        let text = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          2.55           10.53        2.61     \t       2.67        \t0.20   \t\t3.61    \t\t10.53  
---------------------------------------------------------------------------------------
";
        assert_eq!(
            parse(Kind::Latency, text),
            [Row {
                bytes: 2,
                iterations: 1000,
                average: 2.67
            }]
        );
    }

    #[test]
    fn no_table() {
        assert_eq!(
            parse(Kind::Latency, " Failed status 12: wr_id 0 syndrom 0x81\n"),
            []
        );
    }
}
