//! `rnic advise`: labelled programs get the verdict and the parameters of their label, and behave as
//! without it.

use rnic_programs::{Place, Process, Trial, User, compile, skip};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// Runs a program, and gives what is said of it.
fn opinion(place: &Place, options: &[&str], program: &[&str]) -> serde_json::Value {
    let mut command = place.command(place.rnic());
    command
        .args(["advise", "--json", "--no-measure"])
        .args(options);
    command.arg("--").args(program);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    let last = finished.stderr.lines().last().expect("a line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", finished.stderr))
}

fn changes(opinion: &serde_json::Value) -> Vec<&str> {
    let all = opinion["advice"].as_array().expect("a list");
    let changes = all.iter().filter(|advice| advice["is_change"] == true);
    changes
        .map(|advice| advice["parameter"].as_str().expect("a name"))
        .collect()
}

#[test]
fn each_habit_of_a_verbs_program_is_named() {
    let trial = Trial::start_beside_others("each_habit_of_a_verbs_program_is_named");
    let Some(program) = compile::c_program(&trial, "habits") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    // LENGTH COUNT DEPTH LIST SIGNAL INLINE REGISTER, and what is objected to.
    for (habits, objections) in [
        ("64 6400 128 16 32 1 0", &[][..]),
        ("64 6400 128 16 32 0 0", &["inline limit"]),
        ("64 6400 128 16 1 1 0", &["signal interval"]),
        ("64 6400 128 1 32 1 0", &["post lists"]),
        ("64 6400 1 1 1 1 0", &["depth"]),
        ("4096 6400 1 1 1 0 1", &["depth", "pool"]),
        ("64 64 64 16 32 1 0", &[]),
    ] {
        let line: Vec<&str> = [program, "0"]
            .into_iter()
            .chain(habits.split(' '))
            .collect();
        let opinion = opinion(&place, &[], &line);
        let thin = habits.starts_with("64 64 ");
        let verdict = if thin { "unknown" } else { "one-sided" };
        assert_eq!(opinion["verdict"], verdict, "{habits}: {opinion}");
        assert_eq!(changes(&opinion), objections, "{habits}: {opinion}");
    }
}

#[test]
fn sockets_have_their_verdict() {
    let trial = Trial::start_beside_others("sockets_have_their_verdict");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let alone = opinion(&place, &[], &["seq", "1000"]);
    assert_eq!(alone["verdict"], "no-gain", "{alone}");
    assert_eq!(alone["evidence"]["processes"], 1, "{alone}");
    if !skip::have_programs(trial.name(), &["nc", "sh", "ss"]) {
        return;
    }
    // A file goes one way.
    let line = "nc -l 127.0.0.1 7006 >/dev/null & \
        until ss -Hltn 'sport = :7006' | grep -q .; do sleep 0.05; done; \
        head -c 100000000 /dev/zero | nc -N 127.0.0.1 7006; wait";
    let bulk = opinion(&place, &[], &["sh", "-c", line]);
    assert_eq!(bulk["verdict"], "one-sided", "{bulk}");
    let sent = bulk["evidence"]["sockets"]["asks"]["sent"]["bytes"].as_u64();
    assert_eq!(sent, Some(100_000_000), "{bulk}");
    let received = bulk["evidence"]["sockets"]["serves"]["received"]["bytes"].as_u64();
    assert_eq!(received, Some(100_000_000), "{bulk}");
    // It waits for somebody, and is ended.
    let mut command = place.command(place.rnic());
    command.args(["advise", "--json", "--no-measure", "--for", "0.5", "--"]);
    command.args(["nc", "-l", "127.0.0.1", "7007"]);
    let finished = Process::spawn(command).wait(TIME);
    let last = finished.stderr.lines().last().expect("a line");
    let idle: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(idle["verdict"], "unknown", "{idle}");
}

/// Promise: a program is as without the recorder, and what it moves is counted to the byte: also by
/// a process that was killed, and after all descriptors were closed.
#[test]
fn the_recorder_disturbs_nothing() {
    let trial = Trial::start_beside_others("the_recorder_disturbs_nothing");
    let Some(program) = compile::c_program(&trial, "undisturbed") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    // It ends with a failure if anything is otherwise.
    let opinion = opinion(&place, &[], &[program, "7010"]);
    let sockets = &opinion["evidence"]["sockets"];
    // Five times 1000 messages of 10 bytes, half of them each way.
    for lane in ["asks", "serves"] {
        for way in ["sent", "received"] {
            assert_eq!(
                sockets[lane][way]["bytes"], 25_000,
                "{lane} {way}: {opinion}"
            );
            assert_eq!(
                sockets[lane][way]["calls"], 2_500,
                "{lane} {way}: {opinion}"
            );
        }
    }
    assert_eq!(opinion["verdict"], "rsockets", "{opinion}");
}

/// Promise: `--for` ends daemons, too.
#[test]
fn what_became_a_daemon_is_ended() {
    let trial = Trial::start_beside_others("what_became_a_daemon_is_ended");
    if !skip::have_programs(trial.name(), &["setsid", "sh", "sleep"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let told = trial.new_folder("told", User::Current, 0o755).join("pid");
    // The daemon ignores the first signal.
    let daemon = format!("trap '' TERM; echo $$ >{}; sleep 1000", told.display());
    let mut command = place.command(place.rnic());
    command.args(["advise", "--json", "--no-measure", "--for", "0.5", "--"]);
    command.args(["setsid", "-f", "sh", "-c", &daemon]);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    let pid = std::fs::read_to_string(&told).expect("the daemon began");
    let left = std::path::Path::new("/proc").join(pid.trim());
    assert!(!left.exists(), "the daemon {} is left", pid.trim());
}

/// Promise: a child that serves a connection is counted by itself, and connections of all processes
/// are those that were open at once.
#[test]
fn children_of_a_server_count_by_themselves() {
    let trial = Trial::start_beside_others("children_of_a_server_count_by_themselves");
    if !skip::have_programs(trial.name(), &["python3"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = r#"
import os, socket
server = socket.create_server(("127.0.0.1", 7012))
for child in range(3):
    if os.fork() == 0:
        server.close()
        client = socket.create_connection(("127.0.0.1", 7012))
        for _ in range(300):
            client.sendall(b"x" * 100)
            assert len(client.recv(100, socket.MSG_WAITALL)) == 100
        os._exit(0)
for child in range(3):
    connection, _ = server.accept()
    if os.fork() == 0:
        while question := connection.recv(100, socket.MSG_WAITALL):
            connection.sendall(question)
        os._exit(0)
    connection.close()
for child in range(6):
    assert os.wait()[1] == 0
"#;
    let opinion = opinion(&place, &[], &["python3", "-c", program]);
    let sockets = &opinion["evidence"]["sockets"];
    assert_eq!(sockets["most_open"], 1, "{opinion}");
    for lane in ["asks", "serves"] {
        assert_eq!(sockets[lane]["sockets"], 3, "{lane}: {opinion}");
        assert_eq!(sockets[lane]["sent"]["bytes"], 90_000, "{lane}: {opinion}");
    }
    // The parent, which only listens, and six children.
    assert_eq!(sockets["processes"], 7, "{opinion}");
}
