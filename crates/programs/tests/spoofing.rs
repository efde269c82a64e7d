//! What others on the network, or on the host, say of connections that are not theirs ends none.
//! docs/security.md has who can do what.

use rnic_programs::process::Process;
use rnic_programs::{Place, Trial, User, compile};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);

/// Where everybody may execute it.
fn stranger(trial: &Trial) -> PathBuf {
    let stranger = trial.folder().join("stranger");
    fs::copy(env!("CARGO_BIN_EXE_stranger"), &stranger).expect("own folder");
    fs::set_permissions(&stranger, Permissions::from_mode(0o755)).expect("own file");
    stranger
}

/// The rounds that a client has done.
fn rounds(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.strip_prefix("round "));
    numbers
        .filter_map(|n| n.parse().ok())
        .next_back()
        .unwrap_or(0)
}

fn goes_on(client: &mut Process, from: u64) {
    client.wait_for("rounds", TIME, |text| (rounds(text) > from).then_some(()));
}

/// What the kernel takes for the path's MTU, after what ICMP has said of it.
fn learned_mtu(place: &Place, peer: &str) -> Option<u32> {
    let output = place.command("ip").args(["route", "get", peer]).output();
    let text = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}

/// A host that says by ICMP that the path takes short packets only, and that nobody is there, ends
/// no connection and keeps none from being made: for that the interfaces' MTU counts alone, as for
/// hardware. Long messages, that the kernel cuts, go on.
#[test]
fn a_forged_icmp_message_ends_no_connection() {
    let trial = Trial::start_beside_others("a_forged_icmp_message_ends_no_connection");
    let Some(stream) = compile::c_program(&trial, "stream") else {
        return;
    };
    let stranger = stranger(&trial);
    let Some((here, there)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let stream = stream.to_str().expect("a path");
    // As little as may be said: over IPv6 what every path takes, which is no less than a packet
    // here.
    for (ours, theirs, mtu) in [
        ("10.77.0.1", "10.77.0.2", 600),
        ("fd77::1", "fd77::2", 1280),
    ] {
        let (from, to) = (here.gid(ours).index, there.gid(theirs).index);
        let run = |place: &Place, args: &[&str]| {
            Process::spawn(place.rnic_run(&Default::default(), stream, args))
        };
        let start = |port: u16| {
            let port = port.to_string();
            let server = run(&here, &["server", &port, &from.to_string()]);
            let mut server = server;
            server.wait_for_listener(port.parse().expect("a port"), TIME);
            let args = ["client", &port, &to.to_string(), "10.77.0.1"];
            let mut client = run(&there, &args);
            goes_on(&mut client, 0);
            (server, client)
        };
        let (server, mut client) = start(7001);
        // Both directions: READs make the server send as well.
        for (place, victim, peer) in [(&here, theirs, ours), (&there, ours, theirs)] {
            let mut forge = place.command(&stranger);
            forge.args([victim, peer, &mtu.to_string(), "3"]);
            let forged = Process::spawn(forge).wait(TIME);
            forged.expect_success();
            let sent: u64 = forged.stdout.trim().parse().expect("a number");
            assert!(sent > 100_000, "only {sent} were sent");
        }
        // It is believed elsewhere, so the messages were good ones.
        assert_eq!(learned_mtu(&here, theirs), Some(mtu), "{theirs}");
        assert_eq!(learned_mtu(&there, ours), Some(mtu), "{ours}");
        let before = rounds(&client.stdout());
        goes_on(&mut client, before + 8);
        // And a new connection comes up.
        let (second_server, mut second_client) = start(7002);
        for client in [&mut client, &mut second_client] {
            client.close_stdin();
        }
        for process in [client, second_client, server, second_server] {
            process.wait(TIME).expect_success();
        }
    }
}

/// Each row of docs/security.md ends with tests, and they exist: a promise that nothing tries is
/// none.
#[test]
fn every_promise_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/security.md")).expect("the page");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
        .filter(|line| !line.ends_with("| test |"));
    let mut tests = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let named = cells.last().expect("a cell").split('`').skip(1).step_by(2);
        let before = tests;
        for test in named {
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let text = fs::read_to_string(root.join(file));
            let text = text.unwrap_or_else(|why| panic!("{file}: {why}\n{row}"));
            // Scripts and programs in C are tests as a whole.
            let is_whole = name.is_empty() && !file.ends_with(".rs");
            let is_there = text.contains(&format!("\nfn {name}()"));
            assert!(is_whole || is_there, "{test} is no test\n{row}");
            tests += 1;
        }
        assert!(tests > before, "no test: {row}");
    }
    assert!(tests > 20, "{tests}");
}
