//! Sizes of messages, as people write them.

/// Bytes of the longest message.
pub const LARGEST: usize = 64 << 20;
/// Where `all` ends.
const USUAL: usize = 4 << 20;

/// Some sizes, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct List(Vec<usize>);

impl List {
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    pub fn largest(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }
}

/// `8,64K,1M`, or `all`.
pub fn parse_list(text: &str) -> Result<List, String> {
    let mut sizes = match text {
        "all" => (1..).map(|n| 1 << n).take_while(|n| *n <= USUAL).collect(),
        text => text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?,
    };
    sizes.sort_unstable();
    sizes.dedup();
    Ok(List(sizes))
}

pub fn parse(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let number = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, factor) = match number.chars().last() {
        Some('k' | 'K') => (&number[..number.len() - 1], 1 << 10),
        Some('m' | 'M') => (&number[..number.len() - 1], 1 << 20),
        _ => (number, 1usize),
    };
    let size = digits
        .trim()
        .parse()
        .ok()
        .and_then(|n: usize| n.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is no size: 8, 4K or 1M"))?;
    match (1..=LARGEST).contains(&size) {
        true => Ok(size),
        false => Err(format!("a message has 1 byte to {}", show(LARGEST))),
    }
}

pub fn show(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let of = |text| parse_list(text).map(|list| list.0);
        assert_eq!(of("1M,8, 64K,8"), Ok(vec![8, 64 << 10, 1 << 20]));
        assert_eq!(of("4KiB,100"), Ok(vec![100, 4096]));
        assert_eq!(of("all").map(|sizes| sizes.len()), Ok(22));
        for text in [
            "",
            "0",
            "x",
            "65M",
            "1G",
            "-1",
            "K",
            "99999999999999999999M",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(
            [show(100), show(1500), show(4096), show(3 << 20)],
            ["100 B", "1500 B", "4 KiB", "3 MiB"]
        );
    }
}
