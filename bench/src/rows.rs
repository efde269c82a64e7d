//! What is measured: one row per promise, with its floors, its peers and its aims.

pub mod asleep;

use crate::contender::Program;
use crate::floor::Kind;
use crate::place::Wire;
use crate::setting::{Unit, Way};

/// Who somebody is in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Role {
    #[serde(rename = "rnic")]
    Rnic,
    #[serde(rename = "floor")]
    Floor,
    #[serde(rename = "peer")]
    Peer,
}

#[derive(Clone, Debug)]
pub struct Contender {
    pub name: String,
    pub role: Role,
    pub program: Program,
}

/// What is hoped for. Names are those of figures in the row; rnic's own has none.
#[derive(Clone, Debug)]
pub enum Aim {
    /// At most so many times the least of these floors' figures.
    AtMostTimes(f64, Vec<String>),
    /// At least this part of the best of these.
    AtLeastPart(f64, Vec<String>),
    /// More than this many times that peer.
    Above(f64, String),
    /// Less than this, in the row's unit.
    Below(f64, &'static str),
    /// More than this.
    AtLeast(f64),
    /// A figure of rnic's by name: at most that many times another one of it.
    OwnAtMost(&'static str, f64, &'static str),
    /// A contender that is rnic's is as good as another one.
    AsGood(String, String),
    /// A figure of rnic's by name: below or above a number.
    OwnBelow(&'static str, f64),
    OwnAbove(&'static str, f64),
}

#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub title: String,
    pub contenders: Vec<Contender>,
    pub aims: Vec<Aim>,
}

pub fn perftest(program: &'static str, args: &str, way: Way, unit: Unit) -> Contender {
    let shown: Vec<&str> = args
        .split(' ')
        .filter(|word| !word.is_empty() && !word.starts_with("N=") && *word != "-n")
        .collect();
    Contender {
        name: format!("{program} {}", shown.join(" ")),
        role: Role::Rnic,
        program: Program::Perftest {
            program,
            args: args.to_owned(),
            way,
            unit,
        },
    }
}

fn floor(kind: Kind, wire: Wire) -> Contender {
    Contender {
        name: kind.describe(),
        role: Role::Floor,
        program: Program::Floor { kind, wire },
    }
}

fn ucx(name: &str, transports: &'static str, args: &str, unit: Unit) -> Contender {
    Contender {
        name: format!("UCX {name}"),
        role: Role::Peer,
        program: Program::Ucx {
            transports,
            args: args.to_owned(),
            unit,
        },
    }
}

fn libfabric(provider: &'static str, endpoint: &'static str) -> Contender {
    Contender {
        name: format!("libfabric {provider} ping-pong, 10 B"),
        role: Role::Peer,
        program: Program::Libfabric {
            provider,
            endpoint,
            args: "-S 10 -I N=20000".into(),
        },
    }
}

const SHM: &str = "posix,cma";

/// Hardware figures that teaching texts print for ConnectX-3 in one rack.
const HARDWARE: &str = "ConnectX-3";

pub fn all() -> Vec<Row> {
    let lo = Way::Udp(Wire::Lo);
    let veth = Way::Udp(Wire::Veth);
    let xdp = Way::Xdp(Wire::Ethernet);
    let of = |kind: Kind| kind.describe();
    let mut rows = vec![
        Row {
            name: "send-lat".into(),
            title: "send, 10 B, one host: half a round trip".into(),
            contenders: vec![
                floor(Kind::RingPingPong, Wire::Lo),
                perftest("ib_send_lat", "-s 10 -n N=100000", Way::Host, Unit::Micros),
                ucx(
                    "tag_lat over shared memory, 10 B",
                    SHM,
                    "-t tag_lat -s 10 -n N=200000",
                    Unit::Micros,
                ),
                libfabric("shm", "rdm"),
            ],
            aims: vec![
                Aim::Below(0.5, "us"),
                Aim::AtMostTimes(3.0, vec![of(Kind::RingPingPong)]),
                Aim::Below(1.41, HARDWARE),
            ],
        },
        Row {
            name: "write-lat".into(),
            title: "RDMA write, 10 B, one host: half a round trip".into(),
            contenders: vec![
                floor(Kind::RingPingPong, Wire::Lo),
                perftest("ib_write_lat", "-s 10 -n N=100000", Way::Host, Unit::Micros),
                ucx(
                    "put_lat over shared memory of its own, 10 B",
                    SHM,
                    "-t ucp_put_lat -s 10 -n N=200000",
                    Unit::Micros,
                ),
            ],
            aims: vec![Aim::Below(1.32, HARDWARE)],
        },
        Row {
            name: "read-lat".into(),
            title: "RDMA read, 10 B, one host: there and back".into(),
            contenders: vec![
                floor(Kind::RingPingPong, Wire::Lo),
                perftest("ib_read_lat", "-s 10 -n N=100000", Way::Host, Unit::Micros),
                ucx(
                    "get over shared memory of its own, 10 B",
                    SHM,
                    "-t ucp_get -s 10 -n N=200000",
                    Unit::Micros,
                ),
            ],
            aims: vec![Aim::Below(2.42, HARDWARE)],
        },
        Row {
            name: "events".into(),
            title: "send, 10 B, by events, one host: half a round trip".into(),
            contenders: vec![
                floor(Kind::EventfdWake, Wire::Lo),
                floor(Kind::UdpWake, Wire::Lo),
                perftest(
                    "ib_send_lat",
                    "-e -s 10 -n N=20000",
                    Way::Host,
                    Unit::Micros,
                ),
            ],
            aims: vec![Aim::AtMostTimes(
                1.2,
                vec![of(Kind::EventfdWake), of(Kind::UdpWake)],
            )],
        },
        Row {
            name: "events-udp".into(),
            title: "send, 10 B, by events, over UDP: half a round trip".into(),
            contenders: vec![
                floor(Kind::UdpWake, Wire::Lo),
                perftest("ib_send_lat", "-e -s 10 -n N=20000", lo, Unit::Micros),
            ],
            aims: vec![Aim::AtMostTimes(1.2, vec![of(Kind::UdpWake)])],
        },
        Row {
            name: "udp-lat-lo".into(),
            title: "send, 10 B, over UDP on lo: half a round trip".into(),
            contenders: vec![
                floor(Kind::UdpPingPong, Wire::Lo),
                perftest("ib_send_lat", "-s 10 -n N=50000", lo, Unit::Micros),
                ucx(
                    "tag_lat over tcp, 10 B",
                    "tcp",
                    "-t tag_lat -s 10 -n N=30000",
                    Unit::Micros,
                ),
                libfabric("tcp", "msg"),
            ],
            aims: vec![Aim::AtMostTimes(1.15, vec![of(Kind::UdpPingPong)])],
        },
        Row {
            name: "udp-lat-veth".into(),
            title: "send, 10 B, over UDP on a veth pair: half a round trip".into(),
            contenders: vec![
                floor(Kind::UdpPingPong, Wire::Veth),
                perftest("ib_send_lat", "-s 10 -n N=50000", veth, Unit::Micros),
            ],
            aims: vec![Aim::AtMostTimes(1.15, vec![of(Kind::UdpPingPong)])],
        },
        Row {
            name: "xdp-lat-veth".into(),
            title: "send, 10 B, past the network stack (AF_XDP) on a veth pair of MTU 1500: half a round trip".into(),
            contenders: vec![
                floor(Kind::UdpPingPong, Wire::Ethernet),
                perftest("ib_send_lat", "-s 10 -n N=50000", xdp, Unit::Micros),
            ],
            aims: vec![Aim::AtMostTimes(1.15, vec![of(Kind::UdpPingPong)])],
        },
    ];
    for (name, title, mtu) in [
        (
            "udp-bw-1024",
            "RDMA write, 1 MiB, over UDP on lo, path MTU 1024",
            1024,
        ),
        (
            "udp-bw-4096",
            "RDMA write, 1 MiB, over UDP on lo, path MTU 4096",
            4096,
        ),
    ] {
        let tcp = ucx(
            "put_bw over tcp, 1 MiB",
            "tcp",
            "-t ucp_put_bw -s 1048576 -w 50 -n N=1000",
            Unit::Gigabytes,
        );
        rows.push(Row {
            name: name.into(),
            title: title.into(),
            aims: vec![
                Aim::AtLeastPart(0.85, vec![of(Kind::Stream(mtu))]),
                Aim::Above(2.0, tcp.name.clone()),
            ],
            contenders: vec![
                floor(Kind::Stream(mtu), Wire::Lo),
                perftest(
                    "ib_write_bw",
                    &format!("-s 1048576 -m {mtu} -n N=1500"),
                    lo,
                    Unit::Gigabytes,
                ),
                tcp,
            ],
        });
    }
    let put = ucx(
        "put_bw over shared memory of its own, 1 MiB",
        SHM,
        "-t ucp_put_bw -s 1048576 -w 50 -n N=5000",
        Unit::Gigabytes,
    );
    let tag = ucx(
        "tag_bw over shared memory, 1 MiB",
        SHM,
        "-t tag_bw -s 1048576 -w 50 -n N=4000",
        Unit::Gigabytes,
    );
    rows.push(Row {
        name: "write-bw".into(),
        title: "RDMA write, 1 MiB, one host".into(),
        aims: vec![
            Aim::AtLeastPart(
                0.9,
                vec![of(Kind::VmWrite), of(Kind::VmRead), of(Kind::DoubleCopy)],
            ),
            Aim::Above(1.0, tag.name.clone()),
            Aim::Above(1.0, put.name.clone()),
        ],
        contenders: vec![
            floor(Kind::VmWrite, Wire::Lo),
            floor(Kind::VmRead, Wire::Lo),
            floor(Kind::DoubleCopy, Wire::Lo),
            perftest(
                "ib_write_bw",
                "-s 1048576 -n N=4000",
                Way::Host,
                Unit::Gigabytes,
            ),
            tag,
            put,
            floor(Kind::Memcpy, Wire::Lo),
        ],
    });
    for (name, title, size, way, count, least) in [
        (
            "rate-8",
            "messages a second, send, 8 B, one host",
            8,
            Way::Host,
            "3000000",
            10.0,
        ),
        (
            "rate-64",
            "messages a second, send, 64 B, one host",
            64,
            Way::Host,
            "3000000",
            10.0,
        ),
        (
            "udp-rate-8",
            "messages a second, send, 8 B, over UDP on lo",
            8,
            lo,
            "1000000",
            3.0,
        ),
        (
            "udp-rate-64",
            "messages a second, send, 64 B, over UDP on lo",
            64,
            lo,
            "1000000",
            3.0,
        ),
    ] {
        let kind = match way {
            Way::Host => Kind::RingRate(size),
            Way::Udp(_) | Way::Xdp(_) => Kind::StreamRate(size),
        };
        let (transports, over) = match way {
            Way::Host => (SHM, "shared memory"),
            Way::Udp(_) | Way::Xdp(_) => ("tcp", "tcp"),
        };
        rows.push(Row {
            name: name.into(),
            title: title.into(),
            contenders: vec![
                floor(kind, Wire::Lo),
                perftest(
                    "ib_send_bw",
                    &format!("-s {size} -n N={count}"),
                    way,
                    Unit::Millions,
                ),
                ucx(
                    &format!("tag_bw over {over}, {size} B"),
                    transports,
                    &format!("-t tag_bw -s {size} -n N={count}"),
                    Unit::Millions,
                ),
            ],
            aims: vec![Aim::AtLeast(least)],
        });
    }
    rows.push(Row {
        name: "queue-pairs".into(),
        title: "a message and both completions within a process, beside 10,000 queue pairs".into(),
        contenders: vec![Contender {
            name: "scale.c 10000".into(),
            role: Role::Rnic,
            program: Program::Scale { count: 10_000 },
        }],
        aims: vec![
            Aim::OwnAtMost("100", 1.1, "alone"),
            Aim::OwnAtMost("", 1.1, "alone"),
            Aim::OwnBelow("idle", 4096.0),
        ],
    });
    for (name, title, way) in [
        (
            "queue-pairs-bw",
            "RDMA write, 64 KiB, by 1 and by 100 queue pairs, one host",
            Way::Host,
        ),
        (
            "queue-pairs-bw-udp",
            "RDMA write, 64 KiB, by 1 and by 100 queue pairs, over UDP on lo",
            lo,
        ),
    ] {
        let count = if way == Way::Host { 60_000 } else { 20_000 };
        let mut one = perftest(
            "ib_write_bw",
            &format!("-s 65536 -q 1 -n N={count}"),
            way,
            Unit::Gigabytes,
        );
        // The yardstick of this row.
        one.role = Role::Floor;
        let mut aims = vec![Aim::AtLeastPart(0.9, vec![one.name.clone()])];
        let mut contenders = vec![one];
        if way == Way::Host {
            // Each queue pair has a buffer of its own, and together they are more than a
            // processor's cache.
            let bare = floor(Kind::VmWriteTo(100), Wire::Lo);
            aims.push(Aim::AtLeastPart(0.9, vec![bare.name.clone()]));
            contenders.push(bare);
        }
        contenders.push(perftest(
            "ib_write_bw",
            // By each queue pair.
            &format!("-s 65536 -q 100 -n N={}", count / 100),
            way,
            Unit::Gigabytes,
        ));
        rows.push(Row {
            name: name.into(),
            title: title.into(),
            aims,
            contenders,
        });
    }
    for (name, title, way) in [
        (
            "beside-bulk",
            "send, 8 B, beside RDMA writes of 1 MiB of the same processes, one host: half a round trip",
            Way::Host,
        ),
        (
            "beside-bulk-udp",
            "send, 8 B, beside RDMA writes of 1 MiB of the same processes, over UDP on lo: half a round trip",
            lo,
        ),
    ] {
        rows.push(Row {
            name: name.into(),
            title: title.into(),
            contenders: vec![Contender {
                name: "rnic bench --beside 1M".into(),
                role: Role::Rnic,
                program: Program::Beside { way },
            }],
            // What a queue pair alone has under way; and a fair share of two.
            aims: vec![
                Aim::OwnBelow("passed", 1048576.0),
                Aim::OwnAbove("bulk kept", 0.5),
            ],
        });
    }
    for (name, title, way, count) in [
        (
            "four-pairs",
            "four pairs of processes at once on two processors, one host",
            Way::Host,
            60_000,
        ),
        (
            "four-pairs-udp",
            "four pairs of processes at once on two processors, over UDP on lo",
            lo,
            15_000,
        ),
    ] {
        rows.push(Row {
            name: name.into(),
            title: title.into(),
            contenders: vec![Contender {
                name: "4 x ib_write_bw -s 65536".into(),
                role: Role::Rnic,
                program: Program::FourPairs {
                    program: "ib_write_bw",
                    args: format!("-s 65536 -n N={count}"),
                    way,
                },
            }],
            aims: vec![
                Aim::OwnAbove("least share", 0.5),
                Aim::OwnAbove("four / one", 0.7),
            ],
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn aims_name_what_is_measured() {
        let mut names = HashSet::new();
        for row in all().into_iter().chain(asleep::all()) {
            assert!(names.insert(row.name.clone()), "{} twice", row.name);
            let contenders: Vec<&String> = row.contenders.iter().map(|c| &c.name).collect();
            for aim in &row.aims {
                let named: Vec<&String> = match aim {
                    Aim::AtMostTimes(_, floors) | Aim::AtLeastPart(_, floors) => {
                        floors.iter().collect()
                    }
                    Aim::Above(_, peer) => vec![peer],
                    Aim::AsGood(own, than) => vec![own, than],
                    _ => Vec::new(),
                };
                for name in named {
                    assert!(contenders.contains(&name), "{}: {name}", row.name);
                }
            }
            let rnic = row
                .contenders
                .iter()
                .filter(|c| c.role == Role::Rnic)
                .count();
            // Aims that name no contender are of the only one.
            let is_named = |aim: &Aim| matches!(aim, Aim::AsGood(..));
            assert!(rnic == 1 || row.aims.iter().all(is_named), "{}", row.name);
        }
    }
}
