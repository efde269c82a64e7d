//! Processes that are killed: what a kernel would clean up after them is cleaned up all the same.

use rnic_programs::process::Process;
use rnic_programs::{Meeting, Trial, User, compile, skip};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(30);

/// How soon the peer has to know on the same host: a second is what is promised; the rest is for
/// the machine.
const SOON: Duration = Duration::from_secs(2);

/// A listener that was killed leaves no port behind: the next one has it at once, and serves.
#[test]
fn a_killed_listener_leaves_its_port() {
    let trial = Trial::start_beside_others("a_killed_listener_leaves_its_port");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some(place) = trial.fresh(User::Current) else {
        return;
    };
    let mut port = 7471;
    for round in 0..3 {
        // Each round kills one that listens, and then one that has a connection.
        for connected in [false, true] {
            let meeting = Meeting::at(&place, "127.0.0.1").port(port);
            let mut first = meeting.start_server(&["rping", "-s", "-p", "{port}"]);
            meeting.wait_until_ready(&mut first);
            let client = ["rping", "-c", "-a", "{server}", "-p", "{port}", "-v"];
            let mut visitor = connected.then(|| meeting.start_client(&client));
            if let Some(visitor) = &mut visitor {
                visitor.wait_for("a ping", TIME, |text| {
                    text.contains("ping data").then_some(())
                });
            }
            first.kill();
            drop(first);
            let server = ["rping", "-s", "-p", "{port}", "-C", "3"];
            let mut second = meeting.start_server(&server);
            drop(visitor);
            // The port table still has what the dead one left, so it does not tell when this one
            // listens.
            let began = Instant::now();
            let client = ["rping", "-c", "-a", "{server}", "-p", "{port}", "-C", "3"];
            while !meeting.start_client(&client).wait(TIME).ok() {
                let hopeless = second.ended() || began.elapsed() > TIME;
                assert!(!hopeless, "round {round}\n{}", second.output_after_end());
            }
            second.wait(TIME).expect_success();
            port += 1;
        }
    }
}

fn wait_for(process: &mut Process, line: &str) {
    process.wait_for(line, TIME, |text| {
        text.lines().any(|l| l == line).then_some(())
    });
}

/// Whichever side is killed, the other is told.
#[test]
fn the_peer_of_a_killed_process_is_disconnected_within_a_second() {
    let trial = Trial::start("the_peer_of_a_killed_process_is_disconnected_within_a_second");
    let Some(program) = compile::c_program_with(&trial, "connected", &["-lrdmacm"]) else {
        return;
    };
    let program = program.to_str().expect("a path");
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some(place) = trial.fresh(user) else {
            continue;
        };
        // How soon at best: whoever gets no processor for a second knows a second later.
        let mut least = [TIME; 2];
        for (port, kill_server) in (7471..7477).zip([true, false].into_iter().cycle()) {
            let least = &mut least[usize::from(kill_server)];
            if *least < SOON {
                continue;
            }
            let meeting = Meeting::at(&place, address).port(port);
            let (mut server, mut client) =
                meeting.start(&[program, "{port}"], &[program, "{port}", "{server}"]);
            wait_for(&mut server, "connected");
            wait_for(&mut client, "connected");
            let (victim, mut other) = match kill_server {
                true => (&mut server, client),
                false => (&mut client, server),
            };
            let began = Instant::now();
            victim.kill();
            wait_for(&mut other, "RDMA_CM_EVENT_DISCONNECTED");
            let took = began.elapsed();
            println!(
                "{address}, killed the {}: {took:?}",
                if kill_server { "server" } else { "client" }
            );
            *least = took.min(*least);
            let end = other.wait(TIME);
            end.expect_success();
            assert!(
                end.stdout
                    .contains("the receive: Work Request Flushed Error"),
                "{}",
                end.describe()
            );
        }
        assert!(least.iter().all(|took| *took < SOON), "{least:?}");
    }
}
