//! Times, as people write them.

use std::time::Duration;

/// `2` or `0.5`, in seconds: nothing can be measured or checked in no time.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is no number of seconds: 2 or 0.5"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("the time has to be longer than 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.0", "-1", "nan", "inf", "1e30", "x", "1e-12"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
