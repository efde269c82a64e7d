//! Peers on other hosts, as far as the network tells of them.

use std::time::Duration;

use rnic_programs::process::Process;
use rnic_programs::{Meeting, Trial, User, compile, skip};

const TIME: Duration = Duration::from_secs(30);

fn wait_for(process: &mut Process, line: &str) {
    process.wait_for(line, TIME, |text| {
        text.lines().any(|l| l == line).then_some(())
    });
}

/// Nothing of a killed process is left to say that it is gone, and no lock shows it on the other
/// host. Another process beside it that uses the connection manager says it.
#[test]
fn the_peer_elsewhere_of_a_killed_process_is_disconnected() {
    let trial =
        Trial::start_beside_others("the_peer_elsewhere_of_a_killed_process_is_disconnected");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some(program) = compile::c_program_with(&trial, "connected", &["-lrdmacm"]) else {
        return;
    };
    let program = program.to_str().expect("a path");
    let Some((here, elsewhere)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let beside = Meeting::at(&elsewhere, "10.77.0.2").port(7472);
    let mut bystander = beside.start_server(&["rping", "-s", "-p", "{port}"]);
    beside.wait_until_ready(&mut bystander);
    let meeting = Meeting::between((&here, "10.77.0.1"), (&elsewhere, "10.77.0.2"));
    let (mut server, mut client) =
        meeting.start(&[program, "{port}"], &[program, "{port}", "{server}"]);
    wait_for(&mut server, "connected");
    wait_for(&mut client, "connected");
    client.kill();
    wait_for(&mut server, "RDMA_CM_EVENT_DISCONNECTED");
    server.wait(TIME).expect_success();
    bystander.kill();
}

/// As hardware: the neighbour does not answer, and the program's own timeout ends the wait (rping's
/// is two seconds).
#[test]
fn an_address_that_nobody_has_is_not_resolved() {
    let trial = Trial::start_beside_others("an_address_that_nobody_has_is_not_resolved");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some((here, _elsewhere)) = trial.linked(User::Current, 1500) else {
        return;
    };
    for (own, nobody) in [("10.77.0.1", "10.77.0.99"), ("fd77::1", "fd77::99")] {
        let meeting = Meeting::at(&here, own);
        let end = meeting
            .start_client(&["rping", "-c", "-a", nobody])
            .wait(TIME);
        let told = end.describe();
        assert!(
            told.contains("RDMA_CM_EVENT_ADDR_ERROR, error -110"),
            "{told}"
        );
    }
}
