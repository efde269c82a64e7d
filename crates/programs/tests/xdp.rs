//! Packets past the kernel's network stack (`RNIC_XDP`): unmodified programs in two namespaces
//! joined by veth, and what happens where AF_XDP is not to be had.

use rnic_programs::each::each;
use rnic_programs::perftest::expect_report;
use rnic_programs::place::free_port;
use rnic_programs::{Finished, Meeting, Outcome, Place, Process, Trial, User, compile, skip};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(90);
const ADDRESSES4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const ADDRESSES6: [&str; 2] = ["fd77::1", "fd77::2"];
/// The interface on either side, by AF_XDP.
const XDP: &str = "rn0";

/// Two places, of which the server's is the first, and how packets go at each.
struct Ends {
    places: [Place; 2],
    /// `RNIC_XDP`; empty: by sockets.
    xdp: [&'static str; 2],
    gids: [u32; 2],
}

impl Ends {
    /// `None`, said in words, where that cannot be tested.
    fn new(trial: &Trial) -> Option<Ends> {
        Ends::with_mtu(trial, 1500)
    }

    fn with_mtu(trial: &Trial, mtu: u32) -> Option<Ends> {
        if !can_xdp(trial) {
            return None;
        }
        Ends::of(trial, User::Current, mtu)
    }

    /// Also where AF_XDP is not to be had.
    fn of(trial: &Trial, user: User, mtu: u32) -> Option<Ends> {
        let (server, client) = trial.linked(user, mtu)?;
        let ends = Ends {
            places: [server, client],
            xdp: [XDP, XDP],
            gids: [0; 2],
        };
        Some(ends.at(ADDRESSES4))
    }

    fn at(mut self, addresses: [&str; 2]) -> Ends {
        self.gids = [0, 1].map(|end| self.places[end].gid(addresses[end]).index);
        self
    }

    fn by(mut self, server: &'static str, client: &'static str) -> Ends {
        self.xdp = [server, client];
        self
    }

    /// `rnic run OPTIONS -- PROGRAM` at one end, with counters as the last line of standard error.
    fn command(&self, end: usize, options: &[&str], program: &[&str]) -> Command {
        let place = &self.places[end];
        let mut command = place.command(place.rnic());
        command.args(["run", "--stats", "--json"]).args(options);
        command.arg("--").args(program);
        if !self.xdp[end].is_empty() {
            command.env("RNIC_XDP", self.xdp[end]);
        }
        command
    }

    fn spawn(&self, end: usize, options: &[&str], program: &[&str]) -> Process {
        Process::spawn(self.command(end, options, program))
    }

    /// Starts a program of perftest's kind: they meet over TCP, by the same interface.
    fn start(&self, options: [&[&str]; 2], program: &[&str]) -> (Process, Process) {
        let port = free_port();
        let port_text = port.to_string();
        let gids = self.gids.map(|gid| gid.to_string());
        let line = |end: usize| [program, &["-x", &gids[end], "-p", &port_text]].concat();
        let mut server = self.spawn(0, options[0], &line(0));
        server.wait_for_listener(port, TIME);
        let client = [&line(1)[..], &[ADDRESSES4[0]]].concat();
        (server, self.spawn(1, options[1], &client))
    }

    /// Runs it to its end. Gives what both ends counted.
    fn run(&self, program: &[&str]) -> (Outcome, [Totals; 2]) {
        self.run_with([&[], &[]], program)
    }

    /// The same, with options of `rnic run`.
    fn run_with(&self, options: [&[&str]; 2], program: &[&str]) -> (Outcome, [Totals; 2]) {
        let cable = Cable::of(self);
        let (server, client) = self.start(options, program);
        counted(&cable, server, client)
    }

    /// The same for a program of perftest, with the sizes that it reports.
    fn perftest(&self, program: &[&str], size: u64) -> (Outcome, [Totals; 2]) {
        let (outcome, totals) = self.run(&[program, &["-F"]].concat());
        println!("{program:?}: {:?}", outcome.took);
        expect_report(program[0], &outcome, &[size]);
        (outcome, totals)
    }

    /// What `ip -d link show` says of an end's interface.
    fn interface(&self, end: usize) -> String {
        let said = show(&self.places[end], &["-d"]);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// No program is left behind at either end. The kernel takes it away when the last descriptor
    /// goes, a moment after the process has ended.
    fn expect_clean(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        for end in [0, 1] {
            while self.interface(end).contains("xdp") {
                let text = self.interface(end);
                assert!(Instant::now() < deadline, "a program is left:\n{text}");
                std::thread::sleep(rnic_programs::process::GLANCE);
            }
        }
    }
}

/// What `ip OPTIONS link show` says of a place's interface.
fn show(place: &Place, options: &[&str]) -> Vec<u8> {
    let netns = place.netns().expect("linked");
    let mut ip = netns.enter("ip");
    ip.args(options).args(["link", "show", XDP]);
    ip.output().expect("ip is installed").stdout
}

fn counted(cable: &Cable, server: Process, client: Process) -> (Outcome, [Totals; 2]) {
    let outcome = Outcome::of(server, client, TIME);
    outcome.expect_success();
    let lost = cable.lost();
    let totals = [&outcome.server, &outcome.client].map(|side| Totals::of(side, lost));
    (outcome, totals)
}

/// What the two interfaces throw away from now on: on a crowded machine nobody takes packets out of
/// a full ring in time.
struct Cable {
    places: [Place; 2],
    before: u64,
}

impl Cable {
    fn of(ends: &Ends) -> Cable {
        let mut cable = Cable {
            places: ends.places.clone(),
            before: 0,
        };
        cable.before = cable.lost();
        cable
    }

    fn lost(&self) -> u64 {
        let of = |place: &Place| {
            let all: Value = serde_json::from_slice(&show(place, &["-s", "-j"])).expect("JSON");
            let lost = ["rx", "tx"].map(|way| all[0]["stats64"][way]["dropped"].as_u64());
            lost.iter().map(|n| n.expect("a count")).sum::<u64>()
        };
        self.places.iter().map(of).sum::<u64>() - self.before
    }
}

/// What `rnic run --stats --json` says of all processes of an end.
struct Totals {
    total: Value,
    said: String,
    /// Packets that the cable threw away, both ways.
    lost: u64,
}

impl Totals {
    fn of(finished: &Finished, lost: u64) -> Totals {
        let last = finished.stderr.lines().last().unwrap_or_default();
        let document: Value = serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("no counters: {e}\n{}", finished.describe()));
        let total = document["stats"]["total"].clone();
        // Without the program's own output, which is good, and the zeros.
        let mut said = format!("$ {}\n", finished.line);
        for part in ["counters", "link", "drops"] {
            let all = total[part].as_object().into_iter().flatten();
            let some = all.filter(|(_, value)| value.as_u64() != Some(0));
            said.extend(some.map(|(name, value)| format!("  {name}: {value}\n")));
        }
        said.push_str(&format!("  lost by the cable: {lost}\n"));
        Totals { total, said, lost }
    }

    fn link(&self, name: &str) -> u64 {
        let value = self.total["link"][name].as_u64();
        value.unwrap_or_else(|| panic!("no {name}\n{}", self.said))
    }

    fn event(&self, name: &str) -> u64 {
        let value = self.total["counters"][name].as_u64();
        value.unwrap_or_else(|| panic!("no {name}\n{}", self.said))
    }

    /// Most packets went past the network stack, both ways: all but those before the neighbour is
    /// known. Of a `bulk` that leaves in long rows the socket has those, and only what comes goes
    /// past it.
    #[track_caller]
    fn expect_past_the_stack(&self, bulk: Bulk) {
        self.expect_way_past("rx");
        // How many of a bulk are in rows hangs on how fast they are posted; `link/tests/xdp.rs` has
        // which way each takes.
        if bulk == Bulk::None {
            self.expect_way_past("tx");
        }
    }

    #[track_caller]
    fn expect_way_past(&self, way: &str) {
        let all = self.link(&format!("{way}_packets"));
        let past = self.link(&format!("{way}_xdp_packets"));
        assert!(
            past > 0 && past <= all && 2 * past > all,
            "{past} of {all} ({way})\n{}",
            self.said
        );
    }

    /// Some packets did, one way or the other.
    #[track_caller]
    fn expect_some_past(&self) {
        let past = ["tx_xdp_packets", "rx_xdp_packets"].map(|name| self.link(name));
        assert!(past != [0, 0], "{}", self.said);
    }

    /// None did.
    #[track_caller]
    fn expect_by_sockets(&self) {
        let past = ["tx_xdp_packets", "rx_xdp_packets"].map(|name| self.link(name));
        assert_eq!(past, [0, 0], "{}", self.said);
        assert!(self.link("tx_packets") > 0, "{}", self.said);
    }

    /// Nothing was lost or changed, nor sent twice for that.
    #[track_caller]
    fn expect_good_link(&self, peer: &Totals) {
        if self.lost == 0 {
            for name in ["sequence_naks_sent", "sequence_naks_received"] {
                assert_eq!(self.event(name), 0, "{name}\n{}", self.said);
            }
        }
        // A receiver that is not ready is perftest's own doing, and an answer that takes 67 ms a
        // crowded machine's; so is one that is asked for by a packet which has come before.
        let again = self.event("retransmitted_packets");
        let excuses = ["rnr_naks_received", "timeouts"].map(|name| self.event(name));
        let excused = excuses != [0, 0] || self.lost > 0;
        let needless = again <= peer.event("duplicates_received");
        assert!(needless || excused, "{}{}", self.said, peer.said);
        assert_eq!(self.link("tx_errors"), 0, "{}", self.said);
        let drops = self.total["drops"].as_object().expect("drops");
        // What comes before its queue pair is ready, and is sent again in time, is no fault of the
        // link.
        let lost: Vec<_> = drops
            .iter()
            .filter(|(name, n)| name.as_str() != "not_ready" && **n != 0)
            .collect();
        assert!(lost.is_empty(), "{lost:?}\n{}", self.said);
    }
}

/// Whether this machine has AF_XDP for who runs the tests; says why not.
fn can_xdp(trial: &Trial) -> bool {
    if !skip::is_root() {
        skip::skipped(
            trial.name(),
            "AF_XDP takes root; the tests do not run as root",
        );
        return false;
    }
    if !skip::have_programs(trial.name(), &["ibv_devinfo"]) {
        return false;
    }
    let Some(ends) = Ends::of(trial, User::Current, 1500) else {
        return false;
    };
    let finished = ends.spawn(0, &[], &["ibv_devinfo"]).wait(TIME);
    finished.expect_success();
    // What a container or an old kernel says; any other refusal is a failure of the test.
    let lacks = ["(os error 1)", "(os error 38)", "(os error 97)"];
    let refused = words_of_rnic(&finished).find(|line| lacks.iter().any(|l| line.contains(l)));
    if let Some(line) = &refused {
        skip::skipped(trial.name(), line);
    }
    refused.is_none()
}

/// What is said about RNIC_XDP.
fn words_of_rnic(finished: &Finished) -> impl Iterator<Item = String> {
    let lines = finished.stderr.lines();
    lines
        .filter(|line| line.starts_with("rnic: RNIC_XDP"))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

#[track_caller]
fn expect_words(finished: &Finished, words: &[&str]) {
    let said: Vec<_> = words_of_rnic(finished).collect();
    let all = words
        .iter()
        .all(|w| said.iter().any(|line| line.contains(w)));
    assert!(
        all && said.len() == 1,
        "{words:?} in one line?\n{}",
        finished.describe()
    );
}

/// Whether packets leave in rows that are long enough for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bulk {
    None,
    Some,
}

impl Bulk {
    /// Of a perftest program. Up to three packets of 1024 bytes are no long row; messages in a
    /// queue are.
    fn of(program: &[&str], size: u64) -> Bulk {
        match program[0].ends_with("_bw") || size > 3 * 1024 {
            true => Bulk::Some,
            false => Bulk::None,
        }
    }
}

/// A program with its options, and the size that it reports.
type Case = (&'static [&'static str], u64);

const CASES: &[Case] = &[
    (&["ib_send_lat", "-n", "1000"], 2),
    (&["ib_send_lat", "-n", "300", "-s", "5000"], 5000),
    (&["ib_write_lat", "-n", "1000"], 2),
    (&["ib_write_lat", "-n", "300", "-s", "1025"], 1025),
    (&["ib_read_lat", "-n", "1000"], 2),
    (&["ib_read_lat", "-n", "100", "-s", "65536"], 65536),
    (&["ib_atomic_lat", "-n", "1000"], 8),
    (&["ib_send_bw", "-n", "300"], 65536),
    (&["ib_send_bw", "-n", "2000", "-s", "64"], 64),
    (&["ib_send_bw", "-n", "5", "-s", "1000000"], 1_000_000),
    (&["ib_write_bw", "-b", "-n", "300"], 65536),
    (&["ib_write_bw", "-b", "-n", "100", "-q", "4"], 65536),
    (&["ib_read_bw", "-n", "300"], 65536),
    (
        &["ib_send_lat", "-c", "UD", "-n", "1000", "-s", "1000"],
        1000,
    ),
    (
        &["ib_send_lat", "-c", "UC", "-n", "500", "-s", "3000"],
        3000,
    ),
    // Who waits for an event is woken by what comes past the stack, too.
    (&["ib_send_lat", "-e", "-n", "500"], 2),
    (&["ib_read_lat", "-e", "-n", "500"], 2),
];

/// A few of them.
const FEW: &[Case] = &[
    (&["ib_send_lat", "-n", "1000"], 2),
    (&["ib_read_lat", "-e", "-n", "500"], 2),
    (&["ib_write_bw", "-b", "-n", "300"], 65536),
    (
        &["ib_send_lat", "-c", "UD", "-n", "1000", "-s", "1000"],
        1000,
    ),
    (
        &["ib_send_lat", "-c", "UC", "-n", "500", "-s", "3000"],
        3000,
    ),
];

const PERFTEST: &[&str] = &[
    "ib_send_lat",
    "ib_write_lat",
    "ib_read_lat",
    "ib_atomic_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_read_bw",
];

fn perftest(
    name: &str,
    addresses: [&str; 2],
    xdp: [&'static str; 2],
    cases: &[Case],
    judge: impl Fn(&[Totals; 2], Bulk),
) {
    let trial = Trial::start_beside_others(name);
    if !skip::have_programs(name, PERFTEST) {
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let ends = ends.at(addresses).by(xdp[0], xdp[1]);
    let cases: Vec<_> = cases
        .iter()
        .map(|(program, size)| (program.join(" "), *program, *size))
        .collect();
    each(
        &cases,
        |(name, ..)| name,
        |(_, program, size)| {
            let (outcome, totals) = ends.perftest(program, *size);
            for side in [&outcome.server, &outcome.client] {
                assert_eq!(words_of_rnic(side).next(), None, "{}", side.describe());
            }
            judge(&totals, Bulk::of(program, *size));
        },
    );
    ends.expect_clean();
}

fn both([server, client]: &[Totals; 2], bulk: Bulk) {
    for (total, peer) in [(server, client), (client, server)] {
        total.expect_past_the_stack(bulk);
        total.expect_good_link(peer);
    }
}

#[test]
fn over_ipv4() {
    perftest("over_ipv4", ADDRESSES4, [XDP, XDP], CASES, both);
}

#[test]
#[ignore = "./test full"]
fn over_ipv6() {
    perftest("over_ipv6", ADDRESSES6, [XDP, XDP], CASES, both);
}

/// Behind the driver long rows come in one piece and by the socket, and so does what follows close
/// behind them.
fn both_behind([server, client]: &[Totals; 2], bulk: Bulk) {
    for (total, peer) in [(server, client), (client, server)] {
        match bulk {
            Bulk::None => total.expect_past_the_stack(bulk),
            Bulk::Some => total.expect_some_past(),
        }
        total.expect_good_link(peer);
    }
}

/// Behind the driver, where any has room. Nothing is overtaken by what comes the other way.
#[test]
fn behind_the_driver() {
    let generic = ["rn0:generic"; 2];
    perftest("behind_the_driver", ADDRESSES4, generic, CASES, both_behind);
}

/// The same where the first packets take the sockets, as the neighbour is not known: what is behind
/// the driver has been through GRO, which must not make one packet of several.
#[test]
#[ignore = "./test full"]
fn behind_the_driver_to_a_stranger() {
    const NAME: &str = "behind_the_driver_to_a_stranger";
    perftest(NAME, ADDRESSES6, ["rn0:generic"; 2], FEW, both_behind);
}

fn server_only([server, client]: &[Totals; 2], bulk: Bulk) {
    server.expect_past_the_stack(bulk);
    client.expect_by_sockets();
}

/// The peer need not know, nor his driver: what leaves is what a socket would have sent.
#[test]
#[ignore = "./test full"]
fn one_end_by_sockets() {
    const NAME: &str = "one_end_by_sockets";
    perftest(NAME, ADDRESSES4, [XDP, ""], FEW, server_only);
    perftest(
        NAME,
        ADDRESSES6,
        ["", XDP],
        FEW,
        |[server, client], bulk| {
            server.expect_by_sockets();
            client.expect_past_the_stack(bulk);
        },
    );
}

/// What a socket sent in one piece (GSO), or GRO put together, gets behind the driver as it is.
/// Whichever way each goes on, none is taken for one packet.
#[test]
#[ignore = "./test full"]
fn behind_the_driver_from_sockets() {
    const NAME: &str = "behind_the_driver_from_sockets";
    let judge = |[server, client]: &[Totals; 2], bulk: Bulk| {
        client.expect_by_sockets();
        match bulk {
            Bulk::None => server.expect_way_past("tx"),
            Bulk::Some => server.expect_some_past(),
        }
        for (side, peer) in [(server, client), (client, server)] {
            side.expect_good_link(peer);
        }
        for side in [server, client] {
            assert_eq!(side.total["drops"]["bad_icrc"], 0, "{}", side.said);
        }
    };
    // Batches that are no longer than a packet may be, and longer ones.
    let short: &[Case] = &[
        (&["ib_send_bw", "-n", "1000", "-s", "64"], 64),
        (&["ib_write_bw", "-n", "1000", "-s", "300"], 300),
        (&["ib_read_bw", "-n", "1000", "-s", "300"], 300),
    ];
    let cases = [FEW, short].concat();
    perftest(NAME, ADDRESSES4, ["rn0:generic", ""], &cases, judge);
}

/// The program is there while the process is, seen as what was asked for, and goes with it, however
/// it ends.
#[test]
fn the_program_goes_with_the_process() {
    let trial = Trial::start_beside_others("the_program_goes_with_the_process");
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let ends = ends.by(XDP, "rn0:generic");
    ends.expect_clean();
    let mut stream = Stream::start(&ends, [&[], &[]], &program);
    stream.advances();
    let (driver, generic) = (ends.interface(0), ends.interface(1));
    assert!(
        driver.contains(" xdp ") && generic.contains(" xdpgeneric "),
        "{driver}{generic}"
    );
    // The hard way: nobody tidies up.
    stream.server.kill();
    stream.client.kill();
    ends.expect_clean();
    // And the interface can be had again.
    let mut stream = Stream::start(&ends, [&[], &[]], &program);
    stream.advances();
    let [server, client] = stream.finish();
    server.expect_past_the_stack(Bulk::Some);
    // The server's long rows come to the other one in one piece, and by its socket.
    client.expect_some_past();
    server.expect_good_link(&client);
    client.expect_good_link(&server);
    ends.expect_clean();
}

/// `c/stream.c`: a client writes and reads back a server's memory until told to end; both then
/// check every byte.
struct Stream {
    server: Process,
    client: Process,
    cable: Cable,
}

impl Stream {
    fn start(ends: &Ends, options: [&[&str]; 2], program: &Path) -> Stream {
        let program = program.to_str().expect("a path");
        let port = free_port();
        let port_text = port.to_string();
        let gids = ends.gids.map(|gid| gid.to_string());
        let line = [program, "server", &port_text, &gids[0]];
        let mut server = ends.spawn(0, options[0], &line);
        server.wait_for_listener(port, TIME);
        let line = [program, "client", &port_text, &gids[1], ADDRESSES4[0]];
        let client = ends.spawn(1, options[1], &line);
        Stream {
            server,
            client,
            cable: Cable::of(ends),
        }
    }

    /// Waits until it has done more rounds than when this was called.
    fn advances(&mut self) {
        let lines = |text: &str| text.lines().filter(|l| l.starts_with("round ")).count();
        let before = lines(&self.client.stdout());
        self.client.wait_for("another round", TIME, |text| {
            (lines(text) > before).then_some(())
        });
    }

    fn finish(mut self) -> [Totals; 2] {
        self.client.close_stdin();
        let (outcome, totals) = counted(&self.cable, self.server, self.client);
        for side in [&outcome.server, &outcome.client] {
            assert!(side.stdout.contains("verified "), "{}", side.describe());
        }
        totals
    }
}

/// Loss, doubling, reordering and corruption are injected in front of AF_XDP as well, and repaired.
#[test]
fn every_byte_with_faults() {
    let trial = Trial::start_beside_others("every_byte_with_faults");
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    for faults in ["drop=1%", "drop=5%,reorder=5%,dup=1%,corrupt=1%"] {
        let options: &[&str] = &["--faults", faults];
        let mut stream = Stream::start(&ends, [options, options], &program);
        stream.advances();
        for totals in stream.finish() {
            // What faults are injected into leaves packet by packet.
            totals.expect_past_the_stack(Bulk::None);
        }
    }
    ends.expect_clean();
}

/// `rnic verify` between the two: every operation, every size.
#[test]
fn every_byte_verified() {
    let trial = Trial::start_beside_others("every_byte_verified");
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    for (addresses, xdp) in [
        (ADDRESSES4, [XDP, XDP]),
        (ADDRESSES6, [XDP, XDP]),
        (ADDRESSES4, [XDP, ""]),
        (ADDRESSES6, ["rn0:generic", XDP]),
    ] {
        for faults in ["", "drop=5%,reorder=5%,dup=1%,corrupt=1%"] {
            let port = free_port();
            let command = |end: usize, more: &[&str]| {
                let place = &ends.places[end];
                let mut command = place.command(place.rnic());
                command.args(["verify", "--addr", addresses[end]]);
                command.args(more).env("RNIC_XDP", xdp[end]);
                command.env("RNIC_FAULTS", faults);
                if faults.is_empty() {
                    command.env_remove("RNIC_FAULTS");
                }
                Process::spawn(command)
            };
            let mut server = command(0, &["--server", &format!("0.0.0.0:{port}")]);
            server.wait_for_listener(port, TIME);
            let meet = format!("{}:{port}", ADDRESSES4[0]);
            let client = command(1, &["--client", &meet, "--iterations", "60"]);
            let outcome = Outcome::of(server, client, TIME);
            outcome.expect_success();
            let said = format!("{}{}", outcome.server.stderr, outcome.client.stderr);
            assert!(!said.contains("RNIC_XDP"), "{}", outcome.describe());
        }
    }
    ends.expect_clean();
}

/// The interface is one program's. Whoever comes second says so and works by sockets; the first one
/// does not notice.
#[test]
fn the_second_program_takes_sockets() {
    let trial = Trial::start_beside_others("the_second_program_takes_sockets");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let mut first = Stream::start(&ends, [&[], &[]], &program);
    first.advances();
    for (program, size) in FEW {
        let (outcome, totals) = ends.perftest(program, *size);
        for (side, totals) in [&outcome.server, &outcome.client].into_iter().zip(&totals) {
            expect_words(
                side,
                &["rnic: RNIC_XDP=rn0: another program has the interface's XDP"],
            );
            totals.expect_by_sockets();
        }
        first.advances();
    }
    for totals in first.finish() {
        totals.expect_past_the_stack(Bulk::Some);
    }
    ends.expect_clean();
    // The first has gone: the next one has the interface.
    let (program, size) = FEW[0];
    both(&ends.perftest(program, size).1, Bulk::of(program, size));
}

/// Processes of one host talk through shared memory as ever, whatever the interface's packets take.
#[test]
fn within_a_host_nothing_changes() {
    let trial = Trial::start_beside_others("within_a_host_nothing_changes");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let Some(both) = Ends::new(&trial) else {
        return;
    };
    let ends = Ends {
        places: [both.places[0].clone(), both.places[0].clone()],
        ..both
    }
    .at([ADDRESSES4[0]; 2]);
    for (program, size) in FEW {
        let (outcome, totals) = ends.perftest(program, *size);
        assert_eq!(words_of_rnic(&outcome.server).next(), None);
        expect_words(&outcome.client, &["another program has"]);
        for totals in &totals {
            assert_eq!(totals.link("tx_xdp_packets"), 0, "{}", totals.said);
            assert_eq!(totals.link("rx_xdp_packets"), 0, "{}", totals.said);
        }
    }
    ends.expect_clean();
}

/// A name that no interface has, at one end; the other one's packets go past the stack.
#[test]
fn no_such_interface() {
    let trial = Trial::start_beside_others("no_such_interface");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let (program, size) = FEW[0];
    // The loopback interface is one, but no Ethernet.
    for name in ["nosuch0", "lo"] {
        let (outcome, totals) = Ends {
            xdp: [name, XDP],
            places: ends.places.clone(),
            ..ends
        }
        .perftest(program, size);
        let line = format!("rnic: RNIC_XDP={name}: ");
        expect_words(&outcome.server, &[&line, "; its packets take UDP sockets"]);
        totals[0].expect_by_sockets();
        totals[1].expect_past_the_stack(Bulk::of(program, size));
    }
    // Those that are there are taken nevertheless.
    let ends = ends.by("nosuch0,rn0", "rn0,nosuch0:generic");
    let (outcome, totals) = ends.perftest(program, size);
    for side in [&outcome.server, &outcome.client] {
        expect_words(side, &["rnic: RNIC_XDP=nosuch0: "]);
    }
    both(&totals, Bulk::of(program, size));
    ends.expect_clean();
}

/// Frames of AF_XDP are a page: what is longer takes the sockets, and is said. What fits is taken.
#[test]
fn an_mtu_that_no_frame_holds() {
    let trial = Trial::start_beside_others("an_mtu_that_no_frame_holds");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let (program, size) = (&["ib_write_bw", "-n", "300"], 65536);
    let Some(ends) = Ends::with_mtu(&trial, 9000) else {
        return;
    };
    let (outcome, totals) = ends.perftest(program, size);
    for (side, totals) in [&outcome.server, &outcome.client].into_iter().zip(&totals) {
        expect_words(side, &["rnic: RNIC_XDP=rn0: its MTU is 9000"]);
        totals.expect_by_sockets();
    }
    ends.expect_clean();
    for mtu in [1280, 2200, 3400] {
        let Some(ends) = Ends::with_mtu(&trial, mtu) else {
            return;
        };
        both(&ends.perftest(program, size).1, Bulk::of(program, size));
        ends.expect_clean();
    }
}

/// An unprivileged user's program says what it lacks, and works.
#[test]
fn as_nobody() {
    let trial = Trial::start_beside_others("as_nobody");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let Some(ends) = Ends::of(&trial, User::Nobody, 1500) else {
        return;
    };
    for addresses in [ADDRESSES4, ADDRESSES6] {
        let ends = Ends {
            places: ends.places.clone(),
            ..ends
        }
        .at(addresses);
        for (program, size) in FEW {
            let (outcome, totals) = ends.perftest(program, *size);
            for (side, totals) in [&outcome.server, &outcome.client].into_iter().zip(&totals) {
                expect_words(side, &["rnic: RNIC_XDP=rn0: ", "Operation not permitted"]);
                totals.expect_by_sockets();
            }
        }
    }
    ends.expect_clean();
}

/// What names no interface is refused, with the reason, by the variable and by `rnic run --xdp`.
#[test]
fn what_cannot_be_read_is_refused() {
    let trial = Trial::start_beside_others("what_cannot_be_read_is_refused");
    if !skip::have_programs(trial.name(), &["ibv_devinfo"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for bad in ["::", "rn0:fast", "rn0,", "a/b"] {
        let mut command = place.command(place.rnic());
        command.args(["run", "--", "ibv_devinfo"]);
        command.env("RNIC_XDP", bad);
        let finished = Process::spawn(command).wait(TIME);
        assert!(!finished.ok(), "{}", finished.describe());
        for part in ["RNIC_XDP", "write the name of an interface"] {
            assert!(
                finished.stderr.contains(part),
                "{part:?}?\n{}",
                finished.describe()
            );
        }
        let args = ["run", "--xdp", bad, "--", "ibv_devinfo"];
        let mut command = place.command(place.rnic());
        command.args(args);
        let finished = Process::spawn(command).wait(TIME);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.describe());
    }
    // Empty is as if it were not there.
    let mut command = place.command(place.rnic());
    command.args(["run", "--", "ibv_devinfo"]);
    command.env("RNIC_XDP", "");
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    assert_eq!(words_of_rnic(&finished).next(), None);
}

/// `rnic run --xdp` is the variable in other words.
#[test]
fn by_option() {
    let trial = Trial::start_beside_others("by_option");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let ends = ends.by("", "");
    let options: [&[&str]; 2] = [&["--xdp", "rn0"], &["--xdp", "rn0:generic"]];
    let program = ["ib_send_lat", "-F", "-n", "1000"];
    both(&ends.run_with(options, &program).1, Bulk::None);
    ends.expect_clean();
}

/// A capture has every packet, as it was on the wire, whichever way it went.
#[test]
fn captures_hold_every_packet() {
    let trial = Trial::start_beside_others("captures_hold_every_packet");
    if !skip::have_programs(trial.name(), PERFTEST) {
        return;
    }
    if !Path::new("/usr/bin/python3").exists() {
        skip::skipped(trial.name(), "python3 is not installed");
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    for addresses in [ADDRESSES4, ADDRESSES6] {
        let ends = Ends {
            places: ends.places.clone(),
            ..ends
        }
        .at(addresses);
        let folder = trial.new_folder("pcap", User::Current, 0o755);
        let files = ["server.pcap", "client.pcap"].map(|name| folder.join(name));
        let names = files.each_ref().map(|file| file.to_str().expect("a path"));
        let options: [&[&str]; 2] = [&["--pcap", names[0]], &["--pcap", names[1]]];
        let program = ["ib_write_bw", "-F", "-b", "-n", "100"];
        let (outcome, totals) = ends.run_with(options, &program);
        expect_report("ib_write_bw", &outcome, &[65536]);
        both(&totals, Bulk::Some);
        for (file, totals) in files.iter().zip(&totals) {
            let packets = totals.link("tx_packets") + totals.link("rx_packets");
            assert_eq!(right_packets(file), packets, "{}", totals.said);
        }
    }
    ends.expect_clean();
}

/// How many packets `tools/icrc_check.py` finds; all of them are right.
fn right_packets(file: &Path) -> u64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/icrc_check.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(file);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    let line = finished.stdout.lines().last().unwrap_or_default();
    let count = line.find(" RoCEv2").and_then(|end| {
        let head = &line[..end];
        head.rsplit([',', ':', ' ']).next()?.parse().ok()
    });
    count.unwrap_or_else(|| panic!("no count\n{}", finished.describe()))
}

/// Connections are made by QP 1, whose packets are the kernel's; what they then move goes past it.
#[test]
fn connection_manager() {
    let trial = Trial::start_beside_others("connection_manager");
    if !skip::have_programs(trial.name(), &["rping", "ucmatose"]) {
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let mut port = 7471;
    for addresses in [ADDRESSES4, ADDRESSES6] {
        let [server, client] = addresses;
        for (program, server_line, client_line) in [
            (
                "rping",
                format!("rping -s -a {server} -p {{}} -V -S 3000 -C 100"),
                format!("rping -c -a {server} -p {{}} -V -S 3000 -C 100"),
            ),
            (
                "ucmatose",
                format!("ucmatose -p {{}} -b {server} -c 3 -C 50 -S 3000"),
                format!("ucmatose -p {{}} -s {server} -b {client} -c 3 -C 50 -S 3000"),
            ),
        ] {
            let meeting =
                Meeting::between((&ends.places[0], server), (&ends.places[1], client)).port(port);
            let words = |line: &str| {
                let words = line
                    .split(' ')
                    .map(|word| word.replace("{}", &port.to_string()));
                words.collect::<Vec<_>>()
            };
            let start = |end: usize, line: &str| {
                let words = words(line);
                ends.spawn(
                    end,
                    &[],
                    &words.iter().map(String::as_str).collect::<Vec<_>>(),
                )
            };
            let mut server = start(0, &server_line);
            meeting.wait_until_ready(&mut server);
            let outcome = Outcome::of(server, start(1, &client_line), TIME);
            outcome.client.expect_success();
            // rping may look at an event channel that it has just destroyed; see rdma_cm.rs.
            let late = program == "rping"
                && outcome.server.stderr.contains("DISCONNECT EVENT")
                && outcome.server.stderr.contains("rdma_get_cm_event: ");
            if !late {
                outcome.expect_success();
            }
            if program == "ucmatose" {
                let said = &outcome.server.stdout;
                assert!(
                    said.contains("data transfers complete"),
                    "{}",
                    outcome.describe()
                );
            }
            for side in [&outcome.server, &outcome.client] {
                assert_eq!(words_of_rnic(side).next(), None, "{}", side.describe());
                Totals::of(side, 0).expect_past_the_stack(Bulk::None);
            }
            port += 1;
        }
    }
    ends.expect_clean();
}

/// Multicast is the kernel's to hand out, and comes as before.
#[test]
fn multicast_takes_the_kernel() {
    let trial = Trial::start_beside_others("multicast_takes_the_kernel");
    if !skip::have_programs(trial.name(), &["ib_send_bw"]) {
        return;
    }
    let Some(ends) = Ends::new(&trial) else {
        return;
    };
    let ends = ends.at(ADDRESSES6);
    let group = "255:5:0:0:0:0:0:0:0:0:0:0:0:0:18:52";
    let program = ["ib_send_bw", "-c", "UD", "-g", "-M", group];
    let program = [&program[..], &["-n", "200", "-s", "512"]].concat();
    let (_, [server, client]) = ends.perftest(&program, 512);
    assert!(server.link("rx_multicast") >= 200, "{}", server.said);
    assert_eq!(server.link("rx_xdp_packets"), 0, "{}", server.said);
    assert_eq!(client.link("tx_xdp_packets"), 0, "{}", client.said);
    ends.expect_clean();
}
