//! rsockets: the ones of the installed librdmacm, over our connection manager and verbs. With its
//! own test programs, and with programs that only know TCP.

use rnic_programs::each::each;
use rnic_programs::meeting::{Path, Ready};
use rnic_programs::{Meeting, Trial, User, compile, skip};
use std::fs;
use std::path::PathBuf;

const PROGRAMS: &[&str] = &["rstream", "riostream", "rcopy", "udpong"];

/// Options of both sides of a stream program.
struct Stream {
    program: &'static str,
    /// Of both.
    options: &'static str,
    /// Of one side.
    server: &'static str,
}

const fn stream(program: &'static str, options: &'static str) -> Stream {
    Stream {
        program,
        options,
        server: "",
    }
}

/// Every way to wait, verified; `-T a` (poll) on the server only: the client's last poll may find
/// the data and the server's shutdown at once, POLLIN and POLLHUP, which these programs take for a
/// failure; sizes from one byte to more than a buffer.
const STREAMS: &[Stream] = &[
    stream("rstream", "-S 1000 -I 20 -C 5 -T v"),
    stream("rstream", "-S 1 -I 50 -C 2 -T v"),
    stream("rstream", "-S 65536 -I 5 -C 5 -T b -T v"),
    stream("rstream", "-S 65536 -I 5 -C 5 -T n -T v"),
    Stream {
        program: "rstream",
        options: "-S 65536 -I 5 -C 5 -T v",
        server: "-T a",
    },
    Stream {
        program: "rstream",
        options: "-S 4096 -I 5 -C 20 -T n -T v",
        server: "-T a",
    },
    stream("rstream", "-S 1000000 -I 2 -C 3 -T b -T v"),
    stream("rstream", "-S 1000 -I 5 -C 5 -T r -T v"),
    stream("rstream", "-S 1000 -I 5 -C 5 -T r -T n"),
    stream("rstream", "-f name -S 1000 -I 5 -C 5"),
    stream("rstream", "-f ip -B 100000 -i 0 -k 5 -S 3000 -I 5 -C 5"),
    stream("riostream", "-S 1000 -I 20 -C 5 -T v"),
    stream("riostream", "-S 65536 -I 5 -C 5 -T b -T v"),
    stream("riostream", "-S 65536 -I 5 -C 5 -T n -T v"),
    Stream {
        program: "riostream",
        options: "-S 4096 -I 5 -C 5 -T v",
        server: "-T a",
    },
];

/// Over IPv6, whose addresses `rstream` takes if it is told so or left to guess.
const STREAMS6: &[Stream] = &[
    stream("rstream", "-S 3000 -I 20 -C 5 -T v"),
    stream("rstream", "-f ipv6 -S 65536 -I 5 -C 5 -T b -T v"),
    stream("rstream", "-f ipv6 -S 65536 -I 5 -C 5 -T n -T v"),
    stream("rstream", "-f ipv6 -S 1000 -I 5 -C 5 -T r"),
    stream("rstream", "-f ipv6 -B 100000 -i 0 -k 5 -S 3000 -I 5 -C 5"),
    stream("riostream", "-S 3000 -I 20 -C 5 -T v"),
    stream("riostream", "-f ipv6 -S 65536 -I 5 -C 5 -T n -T v"),
];

/// The same program over plain TCP, for comparison; a server that forks for each client does only
/// that.
const OVER_TCP: &[Stream] = &[
    stream("rstream", "-T s -S 3000 -I 5 -C 5 -T v"),
    Stream {
        program: "rstream",
        options: "-T s -S 3000 -I 5 -C 5",
        server: "-T f",
    },
];

/// Where nothing but the address differs.
const FEW_STREAMS: &[Stream] = &[
    stream("rstream", "-S 3000 -I 20 -C 5 -T v"),
    stream("riostream", "-S 3000 -I 20 -C 5 -T v"),
];

fn run_stream(meeting: &Meeting, stream: &Stream) {
    let (program, port) = (stream.program, "{port}");
    let split = |options: &'static str| options.split_whitespace();
    let mut server = vec![program, "-b", "{server}", "-p", port];
    server.extend(split(stream.options).chain(split(stream.server)));
    let mut client = vec![program, "-s", "{server}", "-p", port];
    client.extend(split(stream.options));
    let outcome = meeting.run(&server, &client);
    println!("{program} {}: {:?}", stream.options, outcome.took);
    outcome.expect_success();
    // The header and a line of results.
    assert!(
        outcome
            .client
            .stdout
            .lines()
            .any(|line| line.starts_with("custom ")),
        "no results\n{}",
        outcome.describe()
    );
}

fn test(name: &str, path: Path, user: User, streams: &[Stream]) {
    let trial = Trial::start_beside_others(name);
    if !skip::have_programs(name, PROGRAMS) {
        return;
    }
    let Some(meeting) = Meeting::on(&trial, path, user) else {
        return;
    };
    each(
        streams,
        |stream| stream.options,
        |stream| run_stream(&meeting, stream),
    );
    let tcp = meeting.clone().ready(Ready::ListensByTcp);
    each(
        OVER_TCP,
        |stream| stream.options,
        |stream| run_stream(&tcp, stream),
    );
    // Its server listens on IPv4's addresses only.
    if !meeting.server_address.contains(':') {
        copy_a_file(&trial, &meeting, user);
    }
    datagrams(&meeting);
}

/// `rcopy`: a file arrives as it left.
fn copy_a_file(trial: &Trial, meeting: &Meeting, user: User) {
    let folder = trial.new_folder("files", user, 0o755);
    let (from, to) = (folder.join("from"), folder.join("to"));
    let bytes: Vec<u8> = (0..3_000_001u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect();
    fs::write(&from, &bytes).expect("own folder");
    let destination = format!("{{server}}:{}", to.display());
    let meeting = meeting.clone().port(7480);
    let outcome = meeting.visit(
        &["rcopy", "-p", "{port}"],
        &[
            "rcopy",
            from.to_str().expect("a path"),
            &destination,
            "-p",
            "{port}",
        ],
    );
    assert!(outcome.client.ok(), "{}", outcome.describe());
    let arrived = fs::read(&to).unwrap_or_default();
    assert!(
        arrived == bytes,
        "{} bytes\n{}",
        arrived.len(),
        outcome.describe()
    );
}

/// `udpong`: datagrams, answered and not.
fn datagrams(meeting: &Meeting) {
    let meeting = meeting.clone().ready(Ready::HasUdpPort);
    for options in [
        "-T e -C 50 -S 1000",
        "-C 50 -S 500",
        "-T e -C 20 -S 64 -T b",
        "-T e -C 20 -T a",
    ] {
        let server = ["udpong", "-b", "{server}", "-p", "{port}"];
        let mut client = vec!["udpong", "-s", "{server}", "-p", "{port}"];
        client.extend(options.split_whitespace());
        let outcome = meeting.visit(&server, &client);
        println!("udpong {options}: {:?}", outcome.took);
        let told = outcome
            .client
            .stdout
            .lines()
            .any(|line| line.starts_with("custom "));
        assert!(
            outcome.client.ok() && told,
            "udpong {options}\n{}",
            outcome.describe()
        );
    }
}

macro_rules! paths {
    ($($name:ident: $path:ident, $user:ident, $streams:ident;)*) => {
        $(#[test]
        fn $name() {
            test(stringify!($name), Path::$path, User::$user, $streams);
        })*
    };
}

paths! {
    loopback: Loopback, Current, STREAMS;
    loopback6_as_nobody: Loopback6, Nobody, STREAMS6;
    veth: Veth, Current, FEW_STREAMS;
    veth6_as_nobody: Veth6, Nobody, FEW_STREAMS;
}

/// The library that turns a program's TCP sockets into rsockets.
fn preload() -> Option<PathBuf> {
    ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .map(|triple| PathBuf::from(format!("/usr/lib/{triple}/rsocket/librspreload.so")))
        .into_iter()
        .chain([PathBuf::from("/usr/lib64/rsocket/librspreload.so")])
        .find(|path| path.exists())
}

/// A shell command that runs a program with it, beside what `rnic run` preloads.
fn over_rsockets(preload: &std::path::Path, program: &str) -> [String; 3] {
    let script = format!(
        "LD_PRELOAD=\"$LD_PRELOAD:{}\" exec {program}",
        preload.display()
    );
    ["sh".to_owned(), "-c".to_owned(), script]
}

/// Programs that know only TCP, under the stock librspreload.so: curl and nc, and a server that
/// listens in the port space of the connection manager and on no TCP port. (OpenBSD's nc, Python
/// and Perl make sockets with SOCK_NONBLOCK or SOCK_CLOEXEC in their type, which librspreload
/// leaves to TCP. The traditional nc does not, but serves no connection whose descriptor is above
/// 16.)
#[test]
fn tcp_programs_over_rsockets() {
    let trial = Trial::start_beside_others("tcp_programs_over_rsockets");
    if !skip::have_programs(trial.name(), &["curl"]) {
        return;
    }
    let Some(preload) = preload() else {
        skip::skipped(
            trial.name(),
            "librspreload.so (librdmacm1) is not installed",
        );
        return;
    };
    let Some(server) = compile::c_program(&trial, "tcp_server") else {
        return;
    };
    let nc = skip::have_programs(trial.name(), &["nc.traditional"]);
    for (user, address, url) in [
        (User::Current, "127.0.0.1", "http://127.0.0.1:7471/"),
        (User::Nobody, "::1", "http://[::1]:7471/"),
    ] {
        let Some(place) = trial.fresh(user) else {
            continue;
        };
        let meeting = Meeting::at(&place, address);
        let server = format!("{} {{server}} {{port}}", server.display());
        let server = over_rsockets(&preload, &server);
        let mut server = meeting.start_server(&server.each_ref().map(String::as_str));
        meeting.wait_until_ready(&mut server);
        assert!(!server.listens(meeting.port), "it has a TCP port");
        let mut clients = vec![
            (format!("curl -sS {url}"), "hello over rsockets\n"),
            (
                format!("curl -sS {url} {url}"),
                "hello over rsockets\nhello over rsockets\n",
            ),
        ];
        // It knows IPv4 only, and ends when the server closes; by itself (`-q`) it does not over
        // rsockets.
        if nc && !address.contains(':') {
            clients.push((
                format!("sh -c 'echo GET by nc | nc.traditional {address} 7471'"),
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello over rsockets\n",
            ));
        }
        for (program, answer) in clients {
            let program = over_rsockets(&preload, &program);
            let client = meeting.start_client(&program.each_ref().map(String::as_str));
            let client = client.wait(meeting.time);
            assert!(
                client.ok() && client.stdout == answer,
                "{}server: {}",
                client.describe(),
                server.output()
            );
        }
    }
}
