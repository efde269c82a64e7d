//! Malformed and hostile packets over a real socket, at a process with registered memory: no byte
//! of it changes, nothing crashes or hangs, and the process works afterwards.

use rnic_programs::process::Process;
use rnic_programs::{Trial, User, compile};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(240);

/// How many packets each test sends: one million, or what `RNIC_HOSTILE_PACKETS` says.
fn packets() -> u64 {
    std::env::var("RNIC_HOSTILE_PACKETS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000)
}

fn survives(trial: &Trial, user: User, address: &str, seed: u32) {
    let Some(victim) = compile::c_program(trial, "victim") else {
        return;
    };
    let blaster = trial.folder().join("blaster");
    fs::copy(env!("CARGO_BIN_EXE_blaster"), &blaster).expect("own folder");
    fs::set_permissions(&blaster, Permissions::from_mode(0o755)).expect("own file");
    let Some(place) = trial.loopback(user) else {
        return;
    };
    let secret = trial.new_folder("secret", user, 0o700).join("secret");
    let gid = place.gid(address).index.to_string();

    let args = [gid.as_ref(), "16".as_ref(), secret.as_os_str()];
    let mut victim = Process::spawn(place.rnic_run(&Default::default(), &victim, args));
    victim.wait_for("ready", TIME, |text| text.contains("ready\n").then_some(()));

    let mut command = place.command(&blaster);
    command
        .arg(address)
        .arg(&secret)
        .arg(packets().to_string())
        .arg(seed.to_string());
    let blaster = Process::spawn(command).wait(TIME);
    blaster.expect_success();
    let numbers: Vec<u64> = blaster
        .stdout
        .lines()
        .last()
        .unwrap_or("")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let &[sent, dropped] = &numbers[..] else {
        panic!("{}", blaster.describe())
    };
    // The kernel itself refuses some datagrams (too long for the path); most have to have been
    // delivered.
    assert!(
        sent - dropped >= packets() / 10 * 9,
        "only {sent} sent, {dropped} dropped\n{}",
        blaster.describe()
    );

    victim.close_stdin();
    let victim = victim.wait(TIME);
    victim.expect_success();
    assert!(
        victim.stdout.contains("unchanged, repaired "),
        "{}",
        victim.describe()
    );
    // If no queue pair was ever hit hard enough to fail, the packets did not get far.
    assert!(
        !victim.stdout.contains("repaired 0,"),
        "{}",
        victim.describe()
    );
}

#[test]
fn hostile_packets_ipv4() {
    let trial = Trial::start_beside_others("hostile_packets_ipv4");
    survives(&trial, User::Current, "127.0.0.1", 1);
}

#[test]
#[ignore = "./test full"]
fn hostile_packets_ipv6() {
    let trial = Trial::start_beside_others("hostile_packets_ipv6");
    let user = if User::Nobody.available(trial.name()) {
        User::Nobody
    } else {
        User::Current
    };
    survives(&trial, user, "::1", 2);
}
