//! A network that repeats, reorders and delays what is sent: each event comes once, in its order.

use std::process::Command;

use super::tools::HOST;

/// The tests of connections and datagrams once more, in a process whose packets fare so.
#[test]
fn events_come_once_whatever_the_network_does() {
    let _alone = HOST.write();
    let program = std::env::current_exe().expect("a path");
    let output = Command::new(program)
        .args(["cm::connect::", "cm::datagram::"])
        // These rely on the order of requests, or on having the host for themselves.
        .args(["--skip", "requests_wait_up", "--skip", "a_new_id_has_no"])
        .args(["--skip", "an_id_that_ends"])
        .env("RNIC_FAULTS", "dup=50%,reorder=20%,delay=200us,seed=7")
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    let passed = told
        .split_once("test result: ok. ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(passed.is_some_and(|count| count > 10), "they ran: {told}");
}
