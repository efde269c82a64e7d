//! The programs of rdmacm-utils, unmodified: every mode on 127.0.0.1, the usual one on every other
//! kind of address, as root and as an unprivileged user.

use rnic_programs::each::each;
use rnic_programs::meeting::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP, Path, Ready};
use rnic_programs::{Finished, Meeting, Outcome, Trial, User, skip};
use std::sync::atomic::{AtomicU16, Ordering};

/// How the server ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// When its client has left.
    Ends,
    /// Never by itself.
    Stays,
}

/// A server and a client, and what one finds in their output when they have done what they should.
struct Case {
    what: &'static str,
    server: &'static str,
    client: &'static str,
    ends: Server,
    ready: Ready,
    /// `None`: one of its own, as what a killed server leaves in the port table would look like a
    /// listener.
    port: Option<u16>,
    /// The server listens on IPv4's addresses only, whatever it is told.
    v4_only: bool,
    server_says: &'static [&'static str],
    client_says: &'static [&'static str],
}

const fn case(what: &'static str, server: &'static str, client: &'static str) -> Case {
    Case {
        what,
        server,
        client,
        ends: Server::Ends,
        ready: Ready::Listens(PS_TCP),
        port: None,
        v4_only: false,
        server_says: &[],
        client_says: &[],
    }
}

impl Case {
    const fn say(
        mut self,
        server: &'static [&'static str],
        client: &'static [&'static str],
    ) -> Case {
        self.server_says = server;
        self.client_says = client;
        self
    }

    const fn stays(mut self) -> Case {
        self.ends = Server::Stays;
        self
    }

    const fn v4_only(mut self) -> Case {
        self.v4_only = true;
        self
    }

    const fn listens(mut self, space: u16) -> Case {
        self.ready = Ready::Listens(space);
        self
    }

    /// The one port that the program has, whatever it is told.
    const fn port(mut self, port: u16) -> Case {
        self.port = Some(port);
        self
    }

    fn run(&self, meeting: &Meeting) {
        if self.v4_only && meeting.server_address.contains(':') {
            return;
        }
        static NEXT: AtomicU16 = AtomicU16::new(7471);
        let port = self.port;
        let port = port.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let meeting = meeting.clone().ready(self.ready).port(port);
        let (server, client) = (words(self.server), words(self.client));
        let outcome = match self.ends {
            Server::Ends => meeting.run(&server, &client),
            Server::Stays => meeting.visit(&server, &client),
        };
        println!("{}: {:?}", self.what, outcome.took);
        self.judge(&outcome);
    }

    fn judge(&self, outcome: &Outcome) {
        assert!(outcome.client.ok(), "failed\n{}", outcome.describe());
        // When rping has seen the end of its connection, it destroys its event channel, while a
        // thread of its own may just be about to look for one event more: it then ends with that
        // error.
        let late = |side: &Finished| {
            side.stderr.contains("DISCONNECT EVENT") && side.stderr.contains("rdma_get_cm_event: ")
        };
        if self.ends == Server::Ends && !late(&outcome.server) {
            outcome.expect_success();
        }
        for (said, all) in [
            (self.server_says, &outcome.server.stdout),
            (self.client_says, &outcome.client.stdout),
        ] {
            for said in said {
                assert!(all.contains(said), "{said:?}?\n{}", outcome.describe());
            }
        }
    }
}

/// What each program does where nothing but the address differs.
const USUAL: &[Case] = &[
    case(
        "rping",
        "rping -s -a {server} -p {port} -v -V -S 200 -C 5",
        "rping -c -a {server} -p {port} -v -V -S 200 -C 5",
    )
    .say(
        &["server ping data: rdma-ping-4: "],
        &["ping data: rdma-ping-4: "],
    ),
    case(
        "ucmatose",
        "ucmatose -p {port} -b {server} -c 3 -C 5 -S 3000",
        "ucmatose -p {port} -s {server} -b {client} -c 3 -C 5 -S 3000",
    )
    .say(
        &["data transfers complete", "return status 0"],
        &["data transfers complete", "return status 0"],
    ),
    case(
        "udaddy",
        "udaddy -b {server} -c 2 -C 5 -S 500",
        "udaddy -s {server} -b {client} -c 2 -C 5 -S 500",
    )
    .listens(PS_UDP)
    .port(7174)
    .say(
        &["data transfers complete", "return status 0"],
        &["data transfers complete", "return status 0"],
    ),
    case(
        "rdma_server",
        "rdma_server -s {server} -p {port}",
        "rdma_client -s {server} -p {port}",
    )
    .say(&["rdma_server: end 0"], &["rdma_client: end 0"]),
    case(
        "rdma_xserver",
        "rdma_xserver -p {port} -c x",
        "rdma_xclient -s {server} -p {port} -c x",
    )
    .v4_only()
    .listens(PS_IB)
    .say(&["rdma_xserver: end 0"], &["rdma_xclient: end 0"]),
    case(
        "cmtime",
        "cmtime -b {server} -p {port}",
        "cmtime -b {client} -s {server} -p {port} -c 20",
    )
    .stays()
    .say(&[], &["disconnect"]),
];

/// The other modes.
const MODES: &[Case] = &[
    case(
        "rping, to any address, one byte of data, from a chosen source",
        "rping -s -p {port} -C 1 -S 64 -d",
        "rping -c -a {server} -I {client} -p {port} -C 1 -S 64 -v",
    )
    .say(&["server received sink adv"], &["ping data: rdma-ping-0: "]),
    case(
        "rping, its largest message",
        "rping -s -a {server} -p {port} -S 65535 -V -C 20",
        "rping -c -a {server} -p {port} -S 65535 -V -C 20",
    ),
    case(
        "rping, queue pairs of its own making",
        "rping -s -a {server} -p {port} -q -v -C 3",
        "rping -c -a {server} -p {port} -q -v -V -C 3",
    )
    .say(
        &["server ping data: rdma-ping-2: "],
        &["ping data: rdma-ping-2: "],
    ),
    case(
        "rping, a server for many",
        "rping -s -P -a {server} -p {port} -v",
        "sh -c rping -c -a {server} -p {port} -C 2 -v && rping -c -a {server} -p {port} -C 2 -v",
    )
    .stays(),
    case(
        "ucmatose, defaults but for the port",
        "ucmatose -p {port}",
        "ucmatose -p {port} -s {server}",
    ),
    case(
        "ucmatose, numeric address, port space IB",
        "ucmatose -p {port} -f ip -b {server} -P ib",
        "ucmatose -p {port} -f ip -s {server} -P ib",
    )
    .listens(PS_IB),
    case(
        "ucmatose, migrating, type of service, timeout",
        "ucmatose -p {port} -m -t 32 -a 14",
        "ucmatose -p {port} -s {server} -m -t 32 -a 14 -c 1",
    ),
    case(
        "ucmatose, many connections and nothing to say",
        "ucmatose -p {port} -c 50 -C 0",
        "ucmatose -p {port} -s {server} -c 50 -C 0",
    ),
    case(
        "udaddy, port space IPOIB, type of service",
        "udaddy -P ipoib -t 32",
        "udaddy -P ipoib -s {server} -t 32",
    )
    .listens(PS_IPOIB)
    .port(7174),
    case("udaddy, defaults", "udaddy", "udaddy -s {server}")
        .listens(PS_UDP)
        .port(7174),
    case(
        "rdma_server at any address",
        "rdma_server -p {port}",
        "rdma_client -s {server} -p {port}",
    ),
    case(
        "rdma_xserver, RC",
        "rdma_xserver -p {port} -c r",
        "rdma_xclient -s {server} -p {port} -c r",
    )
    .say(&["rdma_xserver: end 0"], &["rdma_xclient: end 0"]),
];

/// The words of a line; what follows `sh -c` is one.
fn words(line: &str) -> Vec<&str> {
    match line.strip_prefix("sh -c ") {
        Some(script) => vec!["sh", "-c", script],
        None => line.split_whitespace().collect(),
    }
}

const PROGRAMS: &[&str] = &[
    "rping",
    "ucmatose",
    "udaddy",
    "rdma_client",
    "rdma_xclient",
    "cmtime",
    "mckey",
];

fn test(name: &str, path: Path, user: User, cases: &[Case]) {
    let trial = Trial::start_beside_others(name);
    if !skip::have_programs(name, PROGRAMS) {
        return;
    }
    let Some(meeting) = Meeting::on(&trial, path, user) else {
        return;
    };
    each(cases, |case| case.what, |case| case.run(&meeting));
}

macro_rules! paths {
    ($($name:ident: $path:ident, $user:ident, $cases:ident;)*) => {
        $(#[test]
        fn $name() {
            test(stringify!($name), Path::$path, User::$user, $cases);
        })*
    };
}

paths! {
    loopback: Loopback, Current, USUAL;
    loopback_in_every_mode: Loopback, Current, MODES;
    loopback_as_nobody: Loopback, Nobody, USUAL;
    loopback6: Loopback6, Current, USUAL;
    loopback6_as_nobody: Loopback6, Nobody, USUAL;
    veth: Veth, Current, USUAL;
    veth_as_nobody: Veth, Nobody, USUAL;
    veth6: Veth6, Current, USUAL;
    veth6_as_nobody: Veth6, Nobody, USUAL;
}
