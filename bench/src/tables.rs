//! What other people's programs print.

/// The figures of one run of perftest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Perftest {
    /// Median and 99th percentile, microseconds.
    Latency { median: f64, p99: f64 },
    /// GB/s (10^9 bytes) and millions of messages per second.
    Bandwidth { bytes: f64, messages: f64 },
}

/// The first row of perftest's table.
pub fn perftest(text: &str) -> Option<Perftest> {
    let mut lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| !line.starts_with("#bytes"));
    let head = lines.next()?;
    let row = lines.find(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let fields: Vec<f64> = row
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .filter(|value: &f64| value.is_finite())
        .collect();
    if head.contains("t_typical") {
        // #bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%
        Some(Perftest::Latency {
            median: *fields.get(4)?,
            p99: *fields.get(7)?,
        })
    } else {
        // #bytes #iterations peak[MB/sec] average[MB/sec] MsgRate[Mpps]; its MB are 2^20 bytes.
        Some(Perftest::Bandwidth {
            bytes: fields.get(3)? * 1_048_576.0 / 1e9,
            messages: *fields.get(4)?,
        })
    }
}

/// ucx_perftest's last line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ucx {
    /// Median, microseconds.
    pub latency: f64,
    /// GB/s.
    pub bytes: f64,
    /// Millions per second.
    pub messages: f64,
}

/// iterations, 50%ile, average, overall [us], average, overall [MB/s of 2^20], average, overall
/// [messages/s].
pub fn ucx(text: &str) -> Option<Ucx> {
    let row = text.lines().rev().find(|line| {
        line.trim_start()
            .starts_with(|first: char| first.is_ascii_digit())
    })?;
    let fields: Vec<f64> = row
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [_, median, _, _, _, bytes, _, messages] = fields[..] else {
        return None;
    };
    Some(Ucx {
        latency: median,
        bytes: bytes * 1_048_576.0 / 1e9,
        messages: messages / 1e6,
    })
}

/// fi_pingpong's usec/xfer, half a round trip on average: the last column but one.
pub fn libfabric(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("usec/xfer"));
    let fields: Vec<&str> = lines.nth(1)?.split_whitespace().collect();
    fields.get(fields.len().checked_sub(2)?)?.parse().ok()
}

/// What programs/c/scale.c says of many queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub alone: f64,
    pub hundred: f64,
    pub many: f64,
    /// Bytes of memory of an idle queue pair.
    pub idle: f64,
}

/// The number that stands right before some words.
fn before(text: &str, words: &str) -> Option<f64> {
    let (front, _) = text.split_once(words)?;
    front.split_whitespace().last()?.parse().ok()
}

pub fn scale(text: &str) -> Option<Scale> {
    let count = before(text, " queue pairs: ")?;
    Some(Scale {
        alone: before(text, " us alone")?,
        hundred: before(text, " us with 100 idle")?,
        many: before(text, &format!(" us with {count}"))?,
        idle: before(text, " bytes of memory each")?,
    })
}

/// valkey-benchmark's last line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Valkey {
    /// Per second.
    pub requests: f64,
    /// Of a request, microseconds.
    pub median: f64,
    pub p99: f64,
}

/// Its CSV: test, requests per second, average, least, 50%, 95%, 99%, most; milliseconds.
pub fn valkey(text: &str) -> Option<Valkey> {
    let fields: Vec<&str> = text.lines().last()?.split(',').collect();
    let number = |n: usize| fields.get(n)?.trim_matches('"').parse::<f64>().ok();
    Some(Valkey {
        requests: number(1)?,
        median: number(4)? * 1e3,
        p99: number(6)? * 1e3,
    })
}

/// A ping-pong beside a bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Microseconds.
    pub alone: f64,
    pub beside: f64,
    pub beside_99: f64,
    /// Bytes of the bulk for each round trip.
    pub passed: f64,
    /// The bulk's part of what it makes alone.
    pub kept: f64,
}

/// What `rnic bench --json` says of a latency beside a bulk transfer, and of the bulk alone.
pub fn beside(latency: &str, bandwidth: &str) -> Option<Beside> {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let (latency, bandwidth) = (parse(latency)?, parse(bandwidth)?);
    let beside = &latency["latency_beside_bulk"][0];
    let alone = bandwidth["bandwidth"][0]["bytes_per_second"].as_f64()?;
    Some(Beside {
        alone: latency["latency"][0]["p50_us"].as_f64()?,
        beside: beside["p50_us"].as_f64()?,
        beside_99: beside["p99_us"].as_f64()?,
        passed: beside["bulk_bytes_per_sample"].as_f64()?,
        kept: beside["bulk_bytes_per_second"].as_f64()? / alone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_of_perftest() {
        let text = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n\
 10      20000          6.30           24319.84      77.17    	       120.09      	273.84 		1140.50 		2740.99\n---\n";
        let expected = Perftest::Latency {
            median: 77.17,
            p99: 1140.5,
        };
        assert_eq!(perftest(text), Some(expected));
        assert_eq!(perftest("no table"), None);
        assert_eq!(
            perftest("#bytes t_typical\n10 2 inf inf inf inf inf inf inf\n"),
            None
        );
    }

    #[test]
    fn bandwidth_of_perftest() {
        let text = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n\
 1048576    1000             1000.00            2000.00\t\t   0.002000\n";
        let Some(Perftest::Bandwidth { bytes, messages }) = perftest(text) else {
            panic!("not understood")
        };
        assert!((bytes - 2.097152).abs() < 1e-9 && messages == 0.002);
    }

    #[test]
    fn peers() {
        let text = "|     Test     | # iterations | 50.0%ile |\n                      \
                    100000      0.327     4.802    14.027        1.99       0.68      208245       71290\n";
        let figures = ucx(text).unwrap();
        assert_eq!((figures.latency, figures.messages), (0.327, 0.07129));
        assert_eq!(ucx("connection refused"), None);
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      20k     =20k     2.4m        1.92s      1.34      47.91       0.02\n";
        assert_eq!(libfabric(text), Some(47.91));
        assert_eq!(libfabric("usec/xfer\n"), None);
    }

    #[test]
    fn requests_of_valkey() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"GET\",\"31055.90\",\"0.380\",\"0.048\",\"0.135\",\"0.407\",\"6.615\",\"8.399\"\n";
        let expected = Valkey {
            requests: 31055.90,
            median: 135.0,
            p99: 6615.0,
        };
        assert_eq!(valkey(text), Some(expected));
        assert_eq!(valkey("Could not connect\n"), None);
    }

    #[test]
    fn many_queue_pairs() {
        let text = "10000 queue pairs: 64.0 us each to create and connect, 2970 bytes of memory each\n\
            a message and both completions, median: 10.10 us alone, 10.11 us with 100 idle queue pairs, 10.12 us with 10000\n";
        let expected = Scale {
            alone: 10.10,
            hundred: 10.11,
            many: 10.12,
            idle: 2970.0,
        };
        assert_eq!(scale(text), Some(expected));
        assert_eq!(scale("set-up: No such device"), None);
    }

    #[test]
    fn beside_a_bulk_transfer() {
        let latency = r#"{"latency": [{"p50_us": 1.5}], "latency_beside_bulk":
            [{"p50_us": 20.0, "p99_us": 60.5, "bulk_bytes_per_sample": 131072.5, "bulk_bytes_per_second": 3e9}]}"#;
        let bandwidth = r#"{"bandwidth": [{"bytes_per_second": 6e9}]}"#;
        let expected = Beside {
            alone: 1.5,
            beside: 20.0,
            beside_99: 60.5,
            passed: 131_072.5,
            kept: 0.5,
        };
        assert_eq!(beside(latency, bandwidth), Some(expected));
        assert_eq!(beside(r#"{"latency": []}"#, bandwidth), None);
        assert_eq!(beside("no JSON", ""), None);
    }
}
