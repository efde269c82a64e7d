//! Four clients that connect and disconnect all the time, and their server, on a network that loses
//! packets: every connection comes to its end, and nothing is left over. The program by itself
//! measures: `cm_load --seconds 60`.

use rnic_programs::process::Process;
use rnic_programs::{Trial, User};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(240);

#[test]
fn connections_come_and_go_under_loss() {
    let trial = Trial::start("connections_come_and_go_under_loss");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = trial.folder().join("cm_load");
    fs::copy(env!("CARGO_BIN_EXE_cm_load"), &program).expect("own folder");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("own file");
    let mut command = place.command(&program);
    command.args(["--seconds", "4", "--rate", "250", "--loss", "2"]);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    print!("{}", finished.stdout);
    let all = "under 2 % loss: 1000 connections";
    assert!(finished.stdout.contains(all), "{}", finished.describe());
}
