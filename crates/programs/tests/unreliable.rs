//! UC, UD and multicast with unmodified programs: rdma-core's ping-pongs and perftest.
//!
//! Nobody repeats what is lost, so all of these also show that between processes of one host
//! nothing is.

use rnic_programs::perftest::expect_report;
use rnic_programs::{Pair, Trial, User, full, pingpong, skip};

/// As root and as nobody, over IPv4 and IPv6 loopback.
const WHERE: [(User, &str); 4] = [
    (User::Current, "127.0.0.1"),
    (User::Nobody, "::1"),
    (User::Current, "::1"),
    (User::Nobody, "127.0.0.1"),
];

/// Each user and each protocol; their other pairs by `./test full`.
fn places() -> &'static [(User, &'static str)] {
    if full() { &WHERE } else { &WHERE[..2] }
}

/// What a program is run with, and the sizes that it then reports.
type Case = (&'static [&'static str], &'static [u64]);

fn run(name: &str, program: &str, service: &str, cases: &[Case]) {
    run_some(1, name, program, service, cases);
}

/// Each so many times at most until both sides end.
fn run_some(runs: usize, name: &str, program: &str, service: &str, cases: &[Case]) {
    let trial = Trial::start(name);
    if !skip::have_programs(name, &[program]) {
        return;
    }
    for &(user, address) in places() {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let pair = Pair::at(&place).gid_x(address, address);
        for (args, sizes) in cases {
            let args = [&["-F", "-c", service], *args].concat();
            let outcome = pair.run_some(runs, program, &args);
            println!("{program} {args:?} at {address}: {:?}", outcome.took);
            expect_report(program, &outcome, sizes);
        }
    }
}

/// More messages than receives: those wait that come before the server has posted anew, but for no
/// longer than 50 ms. A server that gets no processor for so long loses some, and waits for them
/// for ever.
fn run_short_of_receives(name: &str, service: &str, cases: &[Case]) {
    run_some(4, name, "ib_send_bw", service, cases);
}

#[test]
fn uc_send_bw_short_of_receives() {
    let cases: [Case; 1] = [(&["-s", "1024", "-r", "32", "-n", "500"], &[1024])];
    run_short_of_receives("uc_send_bw_short_of_receives", "UC", &cases);
}

#[test]
fn ud_send_bw_short_of_receives() {
    let cases: [Case; 2] = [
        (&["-s", "1024", "-r", "64", "-n", "1000"], &[1024]),
        (
            &["-s", "1024", "-q", "4", "--use-srq", "-n", "200"],
            &[1024],
        ),
    ];
    run_short_of_receives("ud_send_bw_short_of_receives", "UD", &cases);
}

#[test]
fn uc_pingpong() {
    pingpongs("ibv_uc_pingpong", &[1, 4096, 100_000]);
}

#[test]
fn ud_pingpong() {
    pingpongs("ibv_ud_pingpong", &[1, 1000, 1024]);
}

fn pingpongs(program: &str, sizes: &[u64]) {
    let trial = Trial::start(program);
    if !skip::have_programs(program, &[program]) {
        return;
    }
    for &(user, address) in places() {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let pair = Pair::at(&place).gid_g(address, address);
        for size in sizes {
            for more in [&["-c"][..], &["-c", "-e"][..]] {
                let size_text = size.to_string();
                let args = [&["-n", "200", "-s", &size_text], more].concat();
                pingpong::expect_report(&pair.run(program, &args), *size, 200);
            }
        }
    }
}

#[test]
fn uc_send_lat() {
    run(
        "uc_send_lat",
        "ib_send_lat",
        "UC",
        &[
            (&["-n", "200"], &[2]),
            (&["-e", "-n", "200"], &[2]),
            (&["-s", "5000", "-n", "100"], &[5000]),
        ],
    );
}

#[test]
fn uc_send_bw() {
    run(
        "uc_send_bw",
        "ib_send_bw",
        "UC",
        &[
            (&["-n", "300"], &[65536]),
            (&["-e", "-n", "100"], &[65536]),
            (&["-s", "4194304", "-n", "10"], &[4_194_304]),
            (&["-q", "8", "-n", "30"], &[65536]),
            (&["-b", "-n", "100"], &[65536]),
        ],
    );
}

#[test]
fn uc_write_lat() {
    run(
        "uc_write_lat",
        "ib_write_lat",
        "UC",
        &[
            (&["-n", "200"], &[2]),
            (&["-s", "5000", "-n", "100"], &[5000]),
        ],
    );
}

#[test]
fn uc_write_bw() {
    run(
        "uc_write_bw",
        "ib_write_bw",
        "UC",
        &[
            (&["-n", "300"], &[65536]),
            (&["-q", "8", "-n", "30"], &[65536]),
        ],
    );
}

#[test]
fn ud_send_lat() {
    run(
        "ud_send_lat",
        "ib_send_lat",
        "UD",
        &[(&["-n", "200"], &[2]), (&["-e", "-n", "200"], &[2])],
    );
}

#[test]
fn ud_send_bw() {
    run(
        "ud_send_bw",
        "ib_send_bw",
        "UD",
        &[
            (&["-s", "1024", "-n", "500"], &[1024]),
            (&["-s", "1024", "-e", "-n", "200"], &[1024]),
            (&["-s", "1024", "-q", "8", "-n", "60"], &[1024]),
            (&["-s", "1024", "-b", "-n", "200"], &[1024]),
        ],
    );
}

/// Sizes up to 4 KiB, the MTU of loopback, and up to 8 MiB: perftest ends each where the service
/// does.
#[test]
fn all_sizes() {
    let trial = Trial::start("all_sizes");
    if !skip::have_programs("all_sizes", &["ib_send_bw", "ib_write_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
    let all = [
        ("ib_send_bw", "UD", 12),
        ("ib_send_bw", "UC", 23),
        ("ib_write_bw", "UC", 23),
    ];
    for &(program, service, largest) in if full() { &all[..] } else { &all[..2] } {
        let outcome = pair.run(program, &["-F", "-c", service, "-a", "-n", "5"]);
        let sizes: Vec<u64> = (1..=largest).map(|power| 1 << power).collect();
        expect_report(program, &outcome, &sizes);
    }
}

/// Over an IPv4 group on loopback, and over perftest's own MGID between two namespaces.
#[test]
fn multicast() {
    let trial = Trial::start("multicast");
    if !skip::have_programs("multicast", &["ib_send_bw"]) {
        return;
    }
    let args = ["-F", "-c", "UD", "-g", "-n", "200", "-s", "512"];
    if let Some(place) = trial.loopback(User::Current) {
        let group = ["-M", "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"];
        let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
        let outcome = pair.run("ib_send_bw", &[&args[..], &group].concat());
        expect_report("ib_send_bw", &outcome, &[512]);
    }
    if let Some((left, right)) = trial.linked(User::Current, 1500) {
        let pair = Pair::between(&left, &right, "10.77.0.1").gid_x("fd77::1", "fd77::2");
        // perftest's own is local to one host; this one is of the site.
        let group = ["-M", "255:5:0:0:0:0:0:0:0:0:0:0:0:0:18:52"];
        let outcome = pair.run("ib_send_bw", &[&args[..], &group].concat());
        expect_report("ib_send_bw", &outcome, &[512]);
    }
}

/// A network that is slower than its sender holds it up and loses nothing, as a port that has no
/// credits does. Five messages of 8 MiB are more than any send buffer; one lost packet of them, and
/// perftest waits for ever.
#[test]
fn a_network_slower_than_its_sender_loses_nothing() {
    let name = "a_network_slower_than_its_sender_loses_nothing";
    let trial = Trial::start(name);
    if !skip::have_programs(name, &["ib_send_bw", "tc"]) {
        return;
    }
    if !skip::is_root() {
        return skip::skipped(name, "only root gets a receive buffer that takes all of it");
    }
    let Some((left, right)) = trial.linked(User::Current, 4300) else {
        return;
    };
    let netns = right.netns().expect("made just now");
    if let Err(why) = netns.pace("800mbit") {
        return skip::skipped(name, &format!("no link with a rate here: {why}"));
    }
    let size = 8 << 20;
    let args = format!("-F -c UC -m 4096 -n 5 -s {size}");
    let args: Vec<&str> = args.split(' ').collect();
    let pair = Pair::between(&left, &right, "10.77.0.1").gid_x("10.77.0.1", "10.77.0.2");
    expect_report("ib_send_bw", &pair.run("ib_send_bw", &args), &[size]);
}
