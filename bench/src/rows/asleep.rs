//! Rows of programs that sleep until there is work, each beside itself over TCP.

use super::{Aim, Contender, Role, Row};
use crate::asleep::{HOST, LO, Mpi, Over, Rados, Sleeper, TCP, Valkey, Work};
use crate::contender::Program;
use crate::place::Wire;
use crate::setting::Way;

fn contender(name: &str, role: Role, work: Work, over: Over, busy: bool) -> Contender {
    Contender {
        name: name.to_owned(),
        role,
        program: Program::Sleeper(Sleeper { work, over, busy }),
    }
}

/// The same over TCP and over rnic's ways, which are to be as fast at least.
fn beside_tcp(name: String, title: String, work: &Work, busy: bool) -> Row {
    let contenders: Vec<Contender> = [TCP, HOST, LO]
        .into_iter()
        .map(|over| {
            let role = if over.is_rdma() {
                Role::Rnic
            } else {
                Role::Peer
            };
            contender(over.describe(), role, work.clone(), over, busy)
        })
        .collect();
    row(name, title, contenders, TCP.describe())
}

/// Each of rnic's is to be as good as this one at least.
fn row(name: String, title: String, contenders: Vec<Contender>, than: &str) -> Row {
    let own = contenders.iter().filter(|c| c.role == Role::Rnic);
    let aims = own.map(|own| Aim::AsGood(own.name.clone(), than.to_owned()));
    Row {
        aims: aims.collect(),
        name,
        title,
        contenders,
    }
}

/// All of them.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    let ends = |name: &str, title: &str, busy: bool| match busy {
        true => (
            format!("{name}-busy"),
            format!("{title}, beside two busy loops"),
        ),
        false => (name.to_owned(), title.to_owned()),
    };
    for (wire, place) in [(Wire::Lo, "lo"), (Wire::Veth, "veth")] {
        for busy in [false, true] {
            let socket = Over::Sockets(wire);
            let mut contenders = vec![
                contender(
                    "TCP",
                    Role::Peer,
                    Work::PingPong("tcp", "epoll"),
                    socket,
                    busy,
                ),
                contender(
                    "UDP sockets",
                    Role::Floor,
                    Work::PingPong("udp", "epoll"),
                    socket,
                    busy,
                ),
            ];
            let mut ways = vec![Over::Rnic(Way::Udp(wire))];
            if wire == Wire::Lo {
                let eventfd = Work::PingPong("eventfd", "epoll");
                contenders.push(contender("eventfd", Role::Floor, eventfd, socket, busy));
                ways.insert(0, HOST);
            }
            for over in ways {
                let work = Work::PingPong("rc", "epoll");
                contenders.push(contender(over.describe(), Role::Rnic, work, over, busy));
            }
            let title = match wire {
                Wire::Lo => "ping-pong of 64 B, asleep in epoll_wait, one host",
                _ => "ping-pong of 64 B, asleep in epoll_wait, a veth pair",
            };
            let (name, title) = ends(&format!("asleep-{place}"), title, busy);
            rows.push(row(name, title, contenders, "TCP"));
        }
    }
    for (how, title) in [
        (
            "crowd",
            "ping-pong of 64 B, asleep in epoll_wait for 16 channels, one host",
        ),
        (
            "polled",
            "ping-pong of 64 B, asleep in poll of an epoll set, one host",
        ),
    ] {
        let contenders = [
            (TCP, "tcp", Role::Peer),
            (HOST, "rc", Role::Rnic),
            (LO, "rc", Role::Rnic),
        ];
        let contenders = contenders.map(|(over, what, role)| {
            contender(
                over.describe(),
                role,
                Work::PingPong(what, how),
                over,
                false,
            )
        });
        rows.push(row(
            format!("asleep-lo-{how}"),
            title.into(),
            contenders.into(),
            "TCP",
        ));
    }
    for (count, one, title) in [
        (2, false, "2 threads with a connection and a loop each"),
        (4, false, "4 threads with a connection and a loop each"),
        (16, true, "16 connections in one loop"),
    ] {
        let name = match one {
            true => format!("one-loop-{count}"),
            false => format!("loops-{count}"),
        };
        let title = format!("ping-pong of 64 B, asleep in epoll_wait, {title}");
        rows.push(beside_tcp(name, title, &Work::Loops(count, one), false));
    }
    rows.push(beside_tcp(
        "idle".into(),
        "100 idle connections, both programs asleep in epoll_wait".into(),
        &Work::Idle(100),
        false,
    ));
    for busy in [false, true] {
        let role = Role::Peer;
        let mut contenders = vec![
            contender(
                "no busy connection",
                Role::Floor,
                Work::Mixed(false),
                TCP,
                busy,
            ),
            contender("a busy TCP connection", role, Work::Mixed(true), TCP, busy),
        ];
        for way in [Way::Host, Way::Udp(Wire::Lo)] {
            // Without rnic's part in the wait it is a yardstick for the one with it.
            for (over, role) in [
                (Over::Asleep(way), Role::Peer),
                (Over::Rnic(way), Role::Rnic),
            ] {
                contenders.push(contender(
                    over.describe(),
                    role,
                    Work::Mixed(true),
                    over,
                    busy,
                ));
            }
        }
        let (name, title) = ends(
            "mixed",
            "TCP round trip, and a timer of 1 ms, in the epoll set of a busy connection",
            busy,
        );
        rows.push(row(name, title, contenders, "a busy TCP connection"));
    }
    rows.extend(of_programs());
    rows
}

fn of_programs() -> Vec<Row> {
    let mut rows = Vec::new();
    for (bytes, size) in [(100, "100 B"), (4096, "4 KiB"), (32768, "32 KiB")] {
        for test in ["get", "set"] {
            for (pipeline, clients) in [(1, 1), (1, 16), (16, 1), (16, 16)] {
                let requests = match (bytes, pipeline) {
                    (32768, 1) => 3_000,
                    (32768, _) => 6_000,
                    (_, 1) => 8_000,
                    _ => 40_000,
                };
                let load = |requests| {
                    Work::Valkey(Valkey {
                        test,
                        bytes,
                        pipeline,
                        clients,
                        requests,
                    })
                };
                let name = format!("valkey-{test}-{bytes}-p{pipeline}-c{clients}");
                let plural = if clients == 1 { "client" } else { "clients" };
                let title = format!(
                    "Valkey {} {size}, pipeline {pipeline}, {clients} {plural}",
                    test.to_uppercase()
                );
                rows.push(beside_tcp(
                    name.clone(),
                    title.clone(),
                    &load(requests),
                    false,
                ));
                if bytes == 100 && test == "get" && pipeline == clients {
                    let title = format!("{title}, beside two busy loops");
                    rows.push(beside_tcp(name + "-busy", title, &load(requests / 5), true));
                }
            }
        }
    }
    for (blocks, at_once, size) in [(8, 1, "4 KiB"), (8, 16, "4 KiB"), (512, 16, "256 KiB")] {
        rows.push(beside_tcp(
            format!("iscsi-{}-{at_once}", blocks * 512),
            format!("iSCSI or iSER, tgt and libiscsi, reads of {size}, {at_once} at once"),
            &Work::Iscsi(blocks, at_once),
            false,
        ));
    }
    for bytes in [64, 16384] {
        rows.push(beside_tcp(
            format!("ucx-{bytes}"),
            format!("ucx_perftest -E sleep, tag_lat, {bytes} B: half a round trip"),
            &Work::Ucx(bytes),
            false,
        ));
    }
    for bytes in [8, 65536] {
        let work = |own_tcp| Work::Mpi(Mpi { bytes, own_tcp });
        let contenders = vec![
            contender("TCP by UCX", Role::Peer, work(false), TCP, false),
            contender("TCP by Open MPI", Role::Peer, work(true), TCP, false),
            contender(HOST.describe(), Role::Rnic, work(false), HOST, false),
            contender(LO.describe(), Role::Rnic, work(false), LO, false),
        ];
        rows.push(row(
            format!("mpi-{bytes}"),
            format!("Open MPI, MPI_Allreduce of {bytes} B, 4 ranks on the machine's processors"),
            contenders,
            "TCP by UCX",
        ));
    }
    for (bytes, size) in [(4096, "4 KiB"), (65536, "64 KiB")] {
        for (reads, what) in [(false, "writes"), (true, "reads")] {
            let work = |sleeps| {
                Work::Ceph(Rados {
                    bytes,
                    reads,
                    sleeps,
                })
            };
            let mut row = beside_tcp(
                format!("ceph-{what}-{bytes}"),
                format!("Ceph, rados bench on memstore, {what} of {size}, 16 at once"),
                &work(false),
                false,
            );
            let name = "rnic, shared memory, ms_async_rdma_polling_us=0";
            let asleep = contender(name, Role::Peer, work(true), HOST, false);
            row.contenders.push(asleep);
            rows.push(row);
        }
    }
    rows.push(beside_tcp(
        "curl".into(),
        "curl, 64 KiB from a small server, a connection each; over rsockets (librspreload)".into(),
        &Work::Curl(65536),
        false,
    ));
    rows
}
