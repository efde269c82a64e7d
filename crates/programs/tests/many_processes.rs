//! Many processes share one host's NIC: they do not disturb each other, and a killed one is seen by
//! its peer only.

use rnic_programs::place::free_port;
use rnic_programs::process::Process;
use rnic_programs::{Pair, Place, Trial, User, compile, perftest, pingpong, skip};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(90);

/// A server and a client of `c/stream.c`, running until told otherwise.
struct Stream {
    server: Process,
    client: Process,
}

impl Stream {
    fn start(place: &Place, program: &Path, gid: u32) -> Stream {
        let (port, gid) = (free_port(), gid.to_string());
        let port_text = port.to_string();
        let options = Default::default();
        let mut server =
            Process::spawn(place.rnic_run(&options, program, ["server", &port_text, &gid]));
        server.wait_for_listener(port, TIME);
        let args = ["client", &port_text, &gid, "127.0.0.1"];
        let client = Process::spawn(place.rnic_run(&options, program, args));
        Stream { server, client }
    }

    fn rounds(text: &str) -> u64 {
        text.lines()
            .rev()
            .find_map(|line| line.strip_prefix("round ")?.parse().ok())
            .unwrap_or(0)
    }

    /// Waits until it has done more rounds than when this was called.
    fn advances(&mut self) {
        let before = Stream::rounds(&self.client.stdout());
        self.client.wait_for("another round", TIME, |text| {
            (Stream::rounds(text) > before).then_some(())
        });
    }

    /// Lets it come to its end, which verifies all bytes on both sides.
    fn finish(mut self) {
        self.client.close_stdin();
        for side in [self.client.wait(TIME), self.server.wait(TIME)] {
            side.expect_success();
            assert!(side.stdout.contains("verified "), "{}", side.describe());
        }
    }
}

fn qpn(process: &mut Process) -> u32 {
    process.wait_for("qpn", TIME, |text| {
        text.lines()
            .find_map(|line| line.strip_prefix("qpn ")?.parse().ok())
    })
}

/// Four pairs move data while the target of a fifth is killed in mid-transfer.
#[test]
fn killed_process_harms_only_its_peer() {
    let trial = Trial::start("killed_process_harms_only_its_peer");
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let gid = place.gid("127.0.0.1").index;
        let mut streams: Vec<Stream> = (0..4)
            .map(|_| Stream::start(&place, &program, gid))
            .collect();
        for stream in &mut streams {
            stream.advances();
        }

        let mut fifth = Stream::start(&place, &program, gid);
        fifth.advances();
        fifth.server.kill();
        let client = fifth.client.wait(TIME);
        assert_eq!(client.status.code(), Some(3), "{}", client.describe());
        assert!(
            client
                .stdout
                .contains("status 12 transport retry counter exceeded"),
            "{}",
            client.describe()
        );

        // The other way round: the requester is killed, its target's host goes on.
        let mut sixth = Stream::start(&place, &program, gid);
        sixth.advances();
        sixth.client.kill();
        let server = sixth.server.wait(TIME);
        assert_eq!(
            server.status.code(),
            Some(1),
            "it notices by TCP\n{}",
            server.describe()
        );

        for stream in &mut streams {
            stream.advances();
        }
        streams.into_iter().for_each(Stream::finish);
    }
}

/// The same, as perftest's users see it.
#[test]
fn killed_perftest_server() {
    let trial = Trial::start("killed_perftest_server");
    if !skip::have_programs(trial.name(), &["ib_write_bw", "stdbuf"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
    // Line by line even into a pipe, so that the transfer's beginning is seen.
    let args = ["-oL", "ib_write_bw", "-F", "-D", "60", "-s", "4096"];
    let (mut server, mut client) = pair.start("stdbuf", &args);
    // Both have exchanged their addresses, so the transfer is on.
    client.wait_for("the table's head", TIME, |text| {
        text.contains("#bytes").then_some(())
    });
    server.kill();
    let client = client.wait(TIME);
    assert!(!client.ok(), "{}", client.describe());
    let all = format!("{}{}", client.stdout, client.stderr);
    assert!(all.contains("Failed status 12"), "{}", client.describe());
}

/// Four pairs of different unmodified programs at once, while nobody is killed: all finish and
/// report.
#[test]
fn four_pairs_at_once() {
    let trial = Trial::start("four_pairs_at_once");
    if !skip::have_programs(
        trial.name(),
        &[
            "ib_write_bw",
            "ib_send_lat",
            "ib_read_bw",
            "ibv_rc_pingpong",
        ],
    ) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let (x, g) = (
        Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1"),
        Pair::at(&place).gid_g("127.0.0.1", "127.0.0.1"),
    );
    let (x, g) = (x.within(2 * TIME), g.within(2 * TIME));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            perftest::expect_report(
                "ib_write_bw",
                &x.run("ib_write_bw", &["-F", "-n", "3000"]),
                &[65536],
            );
        });
        scope.spawn(|| {
            perftest::expect_report(
                "ib_send_lat",
                &x.run("ib_send_lat", &["-F", "-n", "1000"]),
                &[2],
            )
        });
        scope.spawn(|| {
            perftest::expect_report(
                "ib_read_bw",
                &x.run("ib_read_bw", &["-F", "-n", "3000"]),
                &[65536],
            )
        });
        scope.spawn(|| {
            let outcome = g.run("ibv_rc_pingpong", &["-c", "-e", "-n", "2000"]);
            pingpong::expect_report(&outcome, 4096, 2000);
        });
    });
}

/// Processes that are alive at the same time have different numbers, and those of killed ones are
/// used again: any number of processes may come and be killed.
#[test]
fn numbers_of_the_killed_are_reclaimed() {
    let trial = Trial::start_beside_others("numbers_of_the_killed_are_reclaimed");
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index;
    let options = Default::default();
    let gid_text = gid.to_string();
    let hold = || Process::spawn(place.rnic_run(&options, &program, ["hold", &gid_text]));

    let mut together: Vec<Process> = (0..12).map(|_| hold()).collect();
    let numbers: BTreeSet<u32> = together.iter_mut().map(qpn).collect();
    assert_eq!(
        numbers.len(),
        together.len(),
        "two processes have the same queue pair number"
    );
    for process in &mut together {
        process.kill();
    }
    drop(together);

    // More than there are ranges of numbers to give out, so that those of the killed have to come
    // round again.
    const MANY: u32 = 4200;
    let Some(mortal) = compile::c_program(&trial, "mortal") else {
        return;
    };
    let finished =
        Process::spawn(place.rnic_run(&options, mortal, [MANY.to_string()])).wait(2 * TIME);
    finished.expect_success();
    assert!(
        finished
            .stdout
            .ends_with(&format!("{MANY} lived and were killed\n")),
        "{}",
        finished.describe()
    );

    // And what comes after works.
    let mut stream = Stream::start(&place, &program, gid);
    stream.advances();
    stream.finish();
}

/// Sixty-four processes at once, each with the device open, connected in pairs.
#[test]
fn a_crowd() {
    let trial = Trial::start("a_crowd");
    let Some(program) = compile::c_program(&trial, "crowd") else {
        return;
    };
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let gid = place.gid("127.0.0.1").index.to_string();
        let finished = place.finish(&program, [gid.as_str(), "64"]);
        finished.expect_success();
        assert!(
            finished
                .stdout
                .contains("64 processes, every byte verified"),
            "{}",
            finished.describe()
        );
    }
}

/// Hundreds of queue pairs of four processes that all write to one at once through shared memory,
/// and thousands by packets, many times as many as its receive buffer holds. Those that find no
/// room there are sent again until they do; no connection fails for it.
#[test]
fn a_storm() {
    let trial = Trial::start("a_storm");
    let Some(program) = compile::c_program(&trial, "storm") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for (host_path, queue_pairs) in [("on", "500"), ("off", "2000")] {
        let args = [gid.as_str(), "4", queue_pairs, "4", "16384"];
        let mut command = place.rnic_run(&Default::default(), &program, args);
        command.env("RNIC_HOST_PATH", host_path);
        let finished = Process::spawn(command).wait(2 * TIME);
        finished.expect_success();
        assert!(
            finished.stdout.ends_with("every byte verified\n"),
            "{}",
            finished.describe()
        );
    }
}
