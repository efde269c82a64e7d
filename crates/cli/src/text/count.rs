//! Counts with what is counted.

/// "1 packet", "2 packets", "3 retries". Of a phrase the last word is counted.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 {
        return format!("1 {what}");
    }
    let before_y = what
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{n} {stem}ies"),
        None if what.ends_with(['s', 'x']) || what.ends_with("ch") => format!("{n} {what}es"),
        None => format!("{n} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_unit_follows_the_number() {
        for (n, what, text) in [
            (0, "byte", "0 bytes"),
            (1, "byte", "1 byte"),
            (2, "RNR NAK", "2 RNR NAKs"),
            (1, "retry", "1 retry"),
            (2, "retry", "2 retries"),
            (3, "way", "3 ways"),
            (2, "process", "2 processes"),
            (2, "queue pair", "2 queue pairs"),
        ] {
            assert_eq!(count(n, what), text);
        }
    }
}
