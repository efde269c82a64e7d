//! `ibv_rc_pingpong` and its relatives, unmodified, between two processes.

use rnic_programs::{Pair, Place, Trial, User, full, pingpong, skip};

/// Runs it once, with its own check of the received data.
fn run(pair: &Pair, size: u64, iterations: u64, more: &[&str]) {
    let (size_text, iterations_text) = (size.to_string(), iterations.to_string());
    let mut args = vec![
        "-c",
        "-s",
        size_text.as_str(),
        "-n",
        iterations_text.as_str(),
    ];
    args.extend(more);
    pingpong::expect_report(&pair.run("ibv_rc_pingpong", &args), size, iterations);
}

fn trial(name: &str) -> Option<Trial> {
    let trial = Trial::start(name);
    skip::have_programs(name, &["ibv_rc_pingpong"]).then_some(trial)
}

fn loopback(trial: &Trial, user: User, address: &str) -> Option<(Place, Pair)> {
    let place = trial.loopback(user)?;
    let pair = Pair::at(&place).gid_g(address, address);
    Some((place, pair))
}

/// As everybody would type it first: on this machine's own loopback, defaults, no namespace.
#[test]
fn plain_on_this_machine() {
    let Some(trial) = trial("plain_on_this_machine") else {
        return;
    };
    let place = trial.here();
    let pair = Pair::at(&place).gid_g("127.0.0.1", "127.0.0.1");
    pingpong::expect_report(&pair.run("ibv_rc_pingpong", &[]), 4096, 1000);
}

#[test]
fn events() {
    let Some(trial) = trial("events") else { return };
    for user in [User::Current, User::Nobody] {
        let Some((_place, pair)) = loopback(&trial, user, "127.0.0.1") else {
            continue;
        };
        run(&pair, 4096, 500, &["-e"]);
        run(&pair, 1, 500, &["-e"]);
        run(&pair, 1 << 20, 20, &["-e"]);
        // Extended completion queue with time stamps, extended queue pair.
        run(&pair, 4096, 200, &["-e", "-t", "-N"]);
    }
}

/// One side sleeps on events, the other polls.
#[test]
fn events_against_polling() {
    let Some(trial) = trial("events_against_polling") else {
        return;
    };
    let Some((_place, pair)) = loopback(&trial, User::Current, "127.0.0.1") else {
        return;
    };
    let port = rnic_programs::place::free_port().to_string();
    let gid = pair.gid.expect("selected").1.to_string();
    let common = ["-c", "-n", "300", "-g", &gid, "-p", &port];
    let options = Default::default();
    for (at_server, at_client) in [(Some("-e"), None), (None, Some("-e"))] {
        let args = |more: Option<&'static str>, host: Option<&'static str>| {
            let words: Vec<String> = common
                .iter()
                .copied()
                .chain(more)
                .chain(host)
                .map(str::to_owned)
                .collect();
            words
        };
        let server = pair
            .server
            .rnic_run(&options, "ibv_rc_pingpong", args(at_server, None));
        let mut server = rnic_programs::Process::spawn(server);
        server.wait_for_listener(port.parse().expect("a port"), pair.time);
        let client = pair.client.rnic_run(
            &options,
            "ibv_rc_pingpong",
            args(at_client, Some("127.0.0.1")),
        );
        let client = rnic_programs::Process::spawn(client).wait(pair.time);
        let server = server.wait(pair.time);
        let outcome = rnic_programs::Outcome {
            server,
            client,
            took: pair.time,
        };
        pingpong::expect_report(&outcome, 4096, 300);
    }
}

/// Powers of two from 1 byte to 1 MiB, every one of them in `./test full`, and their neighbours.
#[test]
fn sizes_ipv4() {
    let Some(trial) = trial("sizes_ipv4") else {
        return;
    };
    let Some((_place, pair)) = loopback(&trial, User::Current, "127.0.0.1") else {
        return;
    };
    for power in (0..=20).step_by(if full() { 1 } else { 5 }) {
        run(&pair, 1 << power, 40, &[]);
    }
    for size in [
        3,
        255,
        257,
        1023,
        1025,
        4095,
        4097,
        65535,
        65537,
        (1 << 20) - 1,
    ] {
        run(&pair, size, 40, &[]);
    }
}

#[test]
#[ignore = "./test full"]
fn sizes_ipv6_as_nobody() {
    let Some(trial) = trial("sizes_ipv6_as_nobody") else {
        return;
    };
    let Some((_place, pair)) = loopback(&trial, User::Nobody, "::1") else {
        return;
    };
    for power in (0..=20).step_by(2) {
        run(&pair, 1 << power, 40, &[]);
    }
}

#[test]
fn every_mtu() {
    let Some(trial) = trial("every_mtu") else {
        return;
    };
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some((_place, pair)) = loopback(&trial, user, address) else {
            continue;
        };
        for mtu in ["256", "512", "1024", "2048", "4096"] {
            run(&pair, 10_000, 100, &["-m", mtu]);
        }
    }
}

#[test]
fn across_namespaces() {
    let Some(trial) = trial("across_namespaces") else {
        return;
    };
    for user in [User::Current, User::Nobody] {
        // An MTU of 4200 has room for 4096 bytes of payload.
        let Some((left, right)) = trial.linked(user, 4200) else {
            continue;
        };
        for (server, client) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
            // The server listens for TCP on IPv4 only, whatever its GID.
            let pair = Pair::between(&left, &right, "10.77.0.1").gid_g(server, client);
            run(&pair, 1, 200, &[]);
            run(&pair, 4096, 200, &["-e"]);
            run(&pair, 1 << 20, 20, &["-m", "4096"]);
        }
    }
}

/// On an Ethernet of 1500 bytes the path MTU of 1024 is the largest that fits.
#[test]
fn across_an_ethernet_of_1500() {
    let Some(trial) = trial("across_an_ethernet_of_1500") else {
        return;
    };
    let Some((left, right)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let pair = Pair::between(&left, &right, "10.77.0.1").gid_g("10.77.0.1", "10.77.0.2");
    run(&pair, 1 << 20, 20, &["-m", "1024"]);
    run(&pair, 100_000, 50, &["-m", "256"]);
}

/// Sixteen queue pairs of each side share one receive queue.
#[test]
fn shared_receive_queue() {
    let name = "shared_receive_queue";
    let trial = Trial::start(name);
    if !skip::have_programs(name, &["ibv_srq_pingpong"]) {
        return;
    }
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some((_place, pair)) = loopback(&trial, user, address) else {
            continue;
        };
        for args in [&[][..], &["-e"], &["-q", "3", "-r", "5"]] {
            pingpong::expect_report(&pair.run("ibv_srq_pingpong", args), 4096, 1000);
        }
    }
}

/// Both sides send by XRC, to the other's XRC shared receive queue.
#[test]
fn xrc() {
    let name = "xrc";
    let trial = Trial::start(name);
    if !skip::have_programs(name, &["ibv_xsrq_pingpong"]) {
        return;
    }
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some((_place, pair)) = loopback(&trial, user, address) else {
            continue;
        };
        for args in [&[][..], &["-e"], &["-n", "100", "-s", "100000"]] {
            let outcome = pair.run("ibv_xsrq_pingpong", args);
            outcome.expect_success();
            for side in [&outcome.server, &outcome.client] {
                let succeeded = side.stdout.lines().any(|line| line == "success");
                assert!(succeeded, "{}", outcome.describe());
            }
        }
    }
}
