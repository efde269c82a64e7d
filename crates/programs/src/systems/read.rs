//! Reads what programs print.

use super::Rate;

/// Throughput in MB/s (10^6 bytes).
pub fn rate(text: &str, rate: Rate) -> Option<f64> {
    match rate {
        Rate::After(words) => quantity(text.rsplit_once(words)?.1),
        Rate::Gigabits(start, nth) => Some(self::rate(text, Rate::Column(start, nth))? * 125.0),
        Rate::Column(start, nth) => {
            let lines = text.lines().map(str::trim_start);
            let line = lines.rev().find(|line| line.starts_with(start))?;
            line.split_whitespace().nth(nth)?.parse().ok()
        }
    }
    .filter(|value| value.is_finite() && *value > 0.0)
}

/// `119MiB/s`, ` 4.2 GB/sec`, `940 Mbits/sec`: in MB/s.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim_start();
    // The longest first.
    const UNITS: [(&str, f64); 16] = [
        ("KiB/s", 1024e-6),
        ("MiB/s", 1.048_576),
        ("GiB/s", 1_073.741_824),
        ("kB/s", 1e-3),
        ("KB/s", 1e-3),
        ("MB/s", 1.0),
        ("GB/s", 1e3),
        ("Mibit/s", 0.131_072),
        ("Mbit/s", 0.125),
        ("Kbits/s", 0.125e-3),
        ("Mbits/s", 0.125),
        ("Gbits/s", 125.0),
        ("Mbps", 0.125),
        ("mbps", 0.125),
        ("B/s", 1e-6),
        ("bytes/s", 1e-6),
    ];
    let (_, factor) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
    Some(value * factor)
}

/// How many bytes `rnic run --stats` says that the device moved, in its own words: the most of what
/// several programs said, which count the same bytes. Nothing, when none moved any.
pub fn moved(text: &str) -> Option<String> {
    let amounts = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("rnic: moved ")?;
        let (amount, _) = rest.split_once(" over rnic0 in")?;
        let bytes = quantity(&format!("{amount}/s"))?;
        (bytes > 0.0).then(|| (amount.to_owned(), bytes))
    });
    let most = amounts.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(most.0)
}

#[cfg(test)]
mod tests {
    //! Guards that figures of docs/programs.md are what programs said, in one unit.

    use super::*;

    #[test]
    fn throughput_in_any_unit() {
        for (text, is) in [
            ("bw=119MiB/s (125MB/s)", 124.780_544),
            ("bw=2.0GB/s", 2000.0),
            ("bw = 4 Gbits/sec", 500.0),
            ("bw=940 Mbps", 117.5),
        ] {
            let words = if text.contains("bw =") { "bw =" } else { "bw=" };
            let found = rate(text, Rate::After(words)).expect(text);
            assert!((found - is).abs() < 1e-6, "{text}: {found}");
        }
        for text in ["bw=", "bw=fast", "bw=3 apples", "bw=0 MB/s", ""] {
            assert_eq!(rate(text, Rate::After("bw=")), None, "{text}");
        }
    }

    #[test]
    fn a_column_of_the_last_line() {
        let text = "bytes MB/sec\n64k 1.5\n 64k 2.5\n";
        assert_eq!(rate(text, Rate::Column("64k", 1)), Some(2.5));
        assert_eq!(rate(text, Rate::Column("64k", 2)), None);
    }

    #[test]
    fn what_moved_nothing_did_not_use_the_device() {
        let said = "x\nrnic: moved 262.1 MB over rnic0 in 34 QPs\n";
        assert_eq!(moved(said).as_deref(), Some("262.1 MB"));
        let several = format!(
            "rnic: moved 71.8 kB over rnic0 in 2 QPs\n{said}rnic: moved 1.0 MB over rnic0 in 1 QP"
        );
        assert_eq!(moved(&several).as_deref(), Some("262.1 MB"));
        assert_eq!(moved("rnic: moved 0 B over rnic0 in 1 QP\n"), None);
        assert_eq!(moved("nothing moved over rnic0 in\n"), None);
    }
}
