//! UCX and libfabric, on which MPI, SHMEM and storage stand, run on the device: between processes
//! of one host through shared memory and over UDP, and between two hosts.
//!
//! UCX uses UD for its own reliable transport and to set up RC's, and reads from a completion what
//! network header a datagram begins with.

use rnic_programs::each::each;
use rnic_programs::place::{RunOptions, free_port};
use rnic_programs::{Outcome, Pair, Place, Process, Trial, User, skip};
use std::time::Duration;

/// `linked`, in which the server has this address.
const SERVER: &str = "10.77.0.1";
const MTU: u32 = 1500;

/// What UCX is measured with: messages by eager and by rendezvous protocols, one-sided operations,
/// atomics.
const UCX: [&[&str]; 8] = [
    &["tag_lat", "-s", "8"],
    &["tag_bw", "-s", "1000"],
    &["tag_bw", "-s", "1000000"],
    &["stream_bw", "-s", "10000"],
    &["ucp_put_bw", "-s", "100000"],
    &["ucp_get", "-s", "100000"],
    &["ucp_fadd", "-s", "8"],
    &["ucp_cswap", "-s", "8"],
];

/// How many of each.
const MESSAGES: u32 = 500;

/// The last row is that of all messages: their number, times, and rates at the end.
fn all_sent(figures: &str) -> bool {
    let last = figures.lines().last().unwrap_or_default();
    let row: Result<Vec<f64>, _> = last.split_whitespace().map(str::parse).collect();
    row.is_ok_and(|row| row.first() == Some(&MESSAGES.into()) && row.last() > Some(&0.0))
}

fn ucx(name: &str, transport: &str) {
    let trial = Trial::start_beside_others(name);
    if !skip::have_programs(name, &["ucx_perftest"]) {
        return;
    }
    let Some((server, client)) = trial.linked(User::Current, MTU) else {
        return;
    };
    let transports = format!("UCX_TLS={transport},self");
    let messages = MESSAGES.to_string();
    for (client, path) in [(&server, "on"), (&server, "off"), (&client, "on")] {
        let path = format!("RNIC_HOST_PATH={path}");
        let pair = Pair::between(&server, client, SERVER);
        each(
            &UCX,
            |test| test[0],
            |test| {
                let env = ["UCX_NET_DEVICES=rnic0:1", &transports, &path];
                let fixed = ["ucx_perftest", "-f", "-n", &messages, "-w", "50", "-t"];
                let outcome = pair.run("env", &[&env[..], &fixed, test].concat());
                println!("{transports} {path} {test:?}: {:?}", outcome.took);
                outcome.expect_success();
                assert!(
                    all_sent(&outcome.client.stdout),
                    "no figures\n{}",
                    outcome.describe()
                );
            },
        );
    }
}

#[test]
fn ucx_reliable_connections() {
    ucx("ucx_reliable_connections", "rc_v");
}

#[test]
#[ignore = "./test full"]
fn ucx_datagrams() {
    ucx("ucx_datagrams", "ud_v");
}

/// libfabric's pingpong, which checks what it receives.
fn fi_pingpong(server: &Place, client: &Place, endpoint: &str) {
    let time = Duration::from_secs(60);
    let port = free_port().to_string();
    let args = ["-p", "verbs", "-c", "-I", "20", "-e", endpoint];
    let start = |place: &Place, more: &[&str]| {
        let args = [&args[..], more].concat();
        Process::spawn(place.rnic_run(&RunOptions::default(), "fi_pingpong", args))
    };
    let mut listening = start(server, &["-B", &port]);
    listening.wait_for_listener(port.parse().expect("a number"), time);
    let connecting = start(client, &["-P", &port, SERVER]);
    let outcome = Outcome::of(listening, connecting, time);
    outcome.expect_success();
    assert!(
        outcome.client.stdout.contains("usec/xfer"),
        "no figures\n{}",
        outcome.describe()
    );
}

#[test]
fn libfabric_endpoints() {
    let trial = Trial::start_beside_others("libfabric_endpoints");
    if !skip::have_programs(trial.name(), &["fi_pingpong"]) {
        return;
    }
    let Some((server, client)) = trial.linked(User::Current, MTU) else {
        return;
    };
    for endpoint in ["msg", "rdm", "dgram"] {
        fi_pingpong(&server, &server, endpoint);
        fi_pingpong(&server, &client, endpoint);
    }
}
