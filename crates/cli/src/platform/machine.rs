//! When and where it was measured: figures without that cannot be compared.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The host of this side.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Year, month, day and time in UTC, as in RFC 3339.
    pub date: String,
    pub host: String,
    /// Model of its processors.
    pub cpu: String,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    pub fn here() -> Machine {
        let first_line = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            date: date(now.map_or(0, |time| time.as_secs())),
            host: first_line("/proc/sys/kernel/hostname"),
            cpu: cpu(&cpuinfo),
            kernel: format!("Linux {}", first_line("/proc/sys/kernel/osrelease")),
        }
    }
}

/// Seconds since 1970 as a date. (Days to dates by counting years from March on, so that a leap day
/// is the last one.)
fn date(seconds: u64) -> String {
    const DAYS_OF_ERA: u64 = 146_097;
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{of_month:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + next,
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// The model of the first processor, as /proc/cpuinfo says it. ARM's kernels give numbers in place
/// of a name.
fn cpu(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    let numbers = || {
        let (maker, part) = (value("CPU implementer")?, value("CPU part")?);
        Some(format!(
            "{}, implementer {maker}, part {part}",
            std::env::consts::ARCH
        ))
    };
    value("model name")
        .filter(|name| !name.is_empty())
        .or_else(numbers)
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Of the minute before.
pub fn load_average() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = load.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(0.0)
}

/// What to think of before believing figures of two sides that poll.
pub fn warning(processors: usize, load_average: f64) -> Option<&'static str> {
    if processors < 2 {
        Some("One processor for two sides that poll: these are the figures of waiting for it.")
    } else if load_average > 0.5 * processors as f64 {
        Some(
            "The load average before was high. Both sides poll, and lose milliseconds whenever another program takes a processor.",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates are right at the ends of months, in leap years and without one.
    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    /// A processor has a name on either architecture.
    #[test]
    fn processors() {
        assert_eq!(
            cpu("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: other\n"),
            "Some CPU @ 2 GHz"
        );
        let arm = cpu("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n");
        assert!(arm.ends_with("implementer 0x41, part 0xd0c"), "{arm}");
        assert_eq!(cpu(""), std::env::consts::ARCH);
    }
}
