//! What is measured.

use super::Where;
use std::path::Path;

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The median time, in microseconds: one way for SEND and WRITE, there and back for READ and
    /// atomics.
    Microseconds,
    /// MB (2^20 bytes) per second.
    Megabytes,
    /// Thousands of messages per second.
    Messages,
}

impl Unit {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Megabytes => "MB/s",
            Unit::Messages => "1000/s",
        }
    }

    /// How many times as fast `new` is as `old`.
    pub fn ratio(self, new: f64, old: f64) -> f64 {
        match self {
            Unit::Microseconds => old / new,
            Unit::Megabytes | Unit::Messages => new / old,
        }
    }
}

/// One program with its options.
#[derive(Clone, Debug)]
pub struct Measure {
    /// In the table.
    pub name: String,
    /// One of perftest's, or with "./" one of ours.
    pub program: &'static str,
    /// Its options, but those that select device and peer.
    pub args: Vec<String>,
    /// What is looked at.
    pub unit: Unit,
}

impl Measure {
    /// The program; ours lie in the job's folder.
    pub fn path(&self, job: &Path) -> String {
        match self.program.strip_prefix("./") {
            Some(name) => job.join(name).to_string_lossy().into_owned(),
            None => self.program.to_owned(),
        }
    }

    /// As one would type it.
    pub fn line(&self) -> String {
        format!("{} {}", self.program, self.args.join(" "))
    }

    /// Whether its name or its line has this in it.
    pub fn has(&self, part: &str) -> bool {
        self.name.contains(part) || self.line().contains(part)
    }

    /// The number, from what the client printed. None: no table; not finite: perftest could not
    /// find out its clock's rate, as on a machine that is too busy at that moment.
    pub fn read(&self, text: &str) -> Option<f64> {
        let row = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with("#bytes"))
            .find(|line| {
                let line = line.trim_start();
                line.starts_with(|first: char| first.is_ascii_digit())
            })?;
        let fields: Vec<&str> = row.split_whitespace().collect();
        let (column, factor) = match self.unit {
            // #bytes #iterations t_min t_max t_typical ...
            Unit::Microseconds => (4, 1.0),
            // #bytes #iterations peak average rate
            Unit::Megabytes => (3, 1.0),
            Unit::Messages => (4, 1000.0),
        };
        Some(fields.get(column)?.parse::<f64>().ok()? * factor)
    }
}

fn size(bytes: u32) -> String {
    match bytes {
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        1024.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Iterations that take an emulated processor half a second or so.
fn iterations(unit: Unit, bytes: u32) -> u32 {
    match (unit, bytes) {
        (Unit::Microseconds, ..=4096) => 1000,
        (Unit::Microseconds, _) => 200,
        (_, ..=1024) => 5000,
        (_, ..=4096) => 3000,
        (_, ..=65536) => 400,
        (_, _) => 50,
    }
}

/// All, in the table's order.
pub fn all(place: Where) -> Vec<Measure> {
    // What an Ethernet link can carry; one host needs no link.
    let mtu = match place {
        Where::OneHost => 4096,
        Where::TwoHosts => 1024,
    };
    let mut measures = Vec::new();
    let mut add = |program: &'static str, name: String, unit, bytes: u32, more: &str| {
        let mut args = format!(
            "-F -u 18 -m {mtu} -s {bytes} -n {}",
            iterations(unit, bytes)
        );
        if program.contains("read") || program.contains("atomic") {
            // As many READs at once as both have.
            args.push_str(" -o 16");
        }
        let args = args.split_whitespace().chain(more.split_whitespace());
        measures.push(Measure {
            name,
            program,
            args: args.map(str::to_owned).collect(),
            unit,
        });
    };
    let latency = Unit::Microseconds;
    // What bare sockets make of a packet as long as that of the first row, which has 28 bytes
    // behind the UDP header.
    add(
        "./udp_pingpong",
        "bare UDP, the floor".to_owned(),
        latency,
        28,
        "",
    );
    for (verb, program) in [
        ("send", "ib_send_lat"),
        ("write", "ib_write_lat"),
        ("read", "ib_read_lat"),
    ] {
        for bytes in [10, 1024, 4096, 65536] {
            add(
                program,
                format!("{verb} {}", size(bytes)),
                latency,
                bytes,
                "",
            );
        }
    }
    add(
        "ib_atomic_lat",
        "fetch and add".to_owned(),
        latency,
        8,
        "-A FETCH_AND_ADD",
    );
    for (verb, program, service) in [
        ("send", "ib_send_lat", "UC"),
        ("write", "ib_write_lat", "UC"),
        ("send", "ib_send_lat", "UD"),
    ] {
        let name = format!("{verb} 10 B, {service}");
        add(program, name, latency, 10, &format!("-c {service}"));
    }
    if place == Where::OneHost {
        // What it costs to wake a process that sleeps.
        let name = "bare pipe, the floor of events".to_owned();
        add("./wakeup_pingpong", name, latency, 1, "");
    }
    for (verb, program, bytes) in [
        ("send", "ib_send_lat", 10),
        ("send", "ib_send_lat", 65536),
        ("read", "ib_read_lat", 10),
    ] {
        let name = format!("{verb} {}, events", size(bytes));
        add(program, name, latency, bytes, "-e");
    }
    // The same at a depth: what bare sockets make of READs of 8 B, and of an ACK for some long
    // packets.
    for depth in [16, 128] {
        let name = format!("bare UDP, each answered, depth {depth}");
        let more = format!("-t {depth}");
        add("./udp_window", name, Unit::Messages, 28, &more);
    }
    if place == Where::TwoHosts {
        let name = "bare UDP, 1 KiB, one in 16 answered".to_owned();
        add("./udp_window", name, Unit::Megabytes, 1040, "-t 64 -a 16");
    }
    for (verb, program) in [
        ("send", "ib_send_bw"),
        ("write", "ib_write_bw"),
        ("read", "ib_read_bw"),
    ] {
        for (bytes, depths) in [
            (8, &[1, 16, 128][..]),
            (4096, &[1, 128]),
            (65536, &[1, 16, 128]),
            (1 << 20, &[16]),
        ] {
            for depth in depths {
                let unit = if bytes == 8 {
                    Unit::Messages
                } else {
                    Unit::Megabytes
                };
                let name = format!("{verb} {}, depth {depth}", size(bytes));
                add(program, name, unit, bytes, &format!("-t {depth}"));
            }
        }
    }
    // No more than 16 are under way.
    for depth in [1, 16, 128] {
        let name = format!("fetch and add, depth {depth}");
        let more = format!("-A FETCH_AND_ADD -t {depth}");
        add("ib_atomic_bw", name, Unit::Messages, 8, &more);
    }
    for (verb, program, more, what) in [
        ("write", "ib_write_bw", "-q 8", "8 QPs"),
        ("write", "ib_write_bw", "-b", "both ways"),
        ("send", "ib_send_bw", "-e", "events"),
        ("send", "ib_send_bw", "-c UC", "UC"),
        ("write", "ib_write_bw", "-c UC", "UC"),
    ] {
        let name = format!("{verb} 4 KiB, depth 128, {what}");
        add(program, name, Unit::Megabytes, 4096, more);
    }
    // A datagram that finds no receive is lost, and perftest waits for it: there is one for each.
    for (bytes, unit) in [(8, Unit::Messages), (1024, Unit::Megabytes)] {
        let name = format!("send {}, depth 128, UD", size(bytes));
        add("ib_send_bw", name, unit, bytes, "-c UD -r 5000");
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_perftest_prints() {
        let measures = all(Where::OneHost);
        let text = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]
 10      1000          2.55           10.53        2.61     \t       2.67        \t0.20   \t\t3.61
";
        assert_eq!(measures[1].read(text), Some(2.61));
        let text = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8          5000             0.59               0.47   \t\t   0.125000
";
        let rate = measures
            .iter()
            .find(|measure| measure.unit == Unit::Messages);
        assert_eq!(rate.expect("one").read(text), Some(125.0));
        assert_eq!(rate.expect("one").read("Failed status 12\n"), None);
        let text = " #bytes #iterations t_min[usec]\n 10 1000 inf inf inf inf -nan inf inf\n";
        assert_eq!(measures[0].read(text), Some(f64::INFINITY));
    }

    #[test]
    fn measures_are_found_by_name_and_by_line() {
        let measures = all(Where::OneHost);
        let count = |part: &str| measures.iter().filter(|measure| measure.has(part)).count();
        assert_eq!(count("send 10 B, events"), 1);
        assert!(count("ib_write_bw") > 5);
        assert_eq!(count("no such thing"), 0);
    }

    #[test]
    fn a_ratio_above_one_is_faster() {
        assert!(Unit::Microseconds.ratio(5.0, 10.0) > 1.9);
        assert!(Unit::Megabytes.ratio(5.0, 10.0) < 0.6);
    }
}
