//! Figures with their units, and as many digits as mean something.

/// Microseconds, without the unit.
pub fn micros(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Operations per second.
pub fn rate(value: f64) -> String {
    match value {
        0.0..1e3 => format!("{value:.0}/s"),
        1e3..1e6 => format!("{:.1} k/s", value / 1e3),
        _ => format!("{:.2} M/s", value / 1e6),
    }
}

pub fn gigabytes(value: f64) -> String {
    match value {
        0.0..1e8 => format!("{:.2} MB/s", value / 1e6),
        _ => format!("{:.2} GB/s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(
            [micros(0.314), micros(12.34), micros(5000.4)],
            ["0.31", "12.3", "5000"]
        );
        assert_eq!(
            [rate(12.0), rate(1234.0), rate(2.5e6)],
            ["12/s", "1.2 k/s", "2.50 M/s"]
        );
        assert_eq!([gigabytes(3e6), gigabytes(2e9)], ["3.00 MB/s", "2.00 GB/s"]);
    }
}
