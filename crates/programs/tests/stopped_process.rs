//! A peer that is stopped (SIGSTOP, a debugger's breakpoint). A card goes on working for a stopped
//! program, so its peers must not fail: what needs no time of the program is done, all else waits
//! for it.

use rnic_programs::{Finished, Meeting, Place, Process, Trial, User, compile};
use std::path::Path;
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(120);

fn run(place: &Place, host_path: &str, program: &[&str]) -> Process {
    let mut command = place.command(place.rnic());
    command.env("RNIC_HOST_PATH", host_path);
    command.args(["run", "--"]).args(program);
    Process::spawn(command)
}

/// A place on loopback, `stopped.c` compiled, and the GID index of 127.0.0.1; `None`: skipped,
/// which was said.
fn arrange(trial: &Trial) -> Option<(Place, String, String)> {
    let program = compile::c_program(trial, "stopped")?;
    let place = trial.loopback(User::Current)?;
    let gid = place.gid("127.0.0.1").index.to_string();
    Some((place, program.to_str().expect("a path").to_owned(), gid))
}

/// Each path at the same time, in a place of its own: most of the time all of them are stopped.
fn on_each<const N: usize>(paths: [&str; N], trial: &Trial, run: impl Fn(&Place, &str) + Sync) {
    let places = paths.map(|path| Some((trial.loopback(User::Current)?, path)));
    let places: Vec<_> = places.into_iter().flatten().collect();
    std::thread::scope(|scope| {
        for (place, path) in &places {
            scope.spawn(|| run(place, path));
        }
    });
}

/// The GID index of 127.0.0.1.
fn gid(place: &Place) -> String {
    place.gid("127.0.0.1").index.to_string()
}

#[track_caller]
fn expect(finished: &Finished, parts: &[&str]) {
    for part in parts {
        let said = finished.stderr.contains(part);
        assert!(said, "no {part:?}\n{}", finished.describe());
    }
}

/// Seven operations, with the receiver, the sender or both stopped for three times as long as ACK
/// timeout and retries last; and a receiver that is killed while it is stopped.
#[test]
fn nothing_fails_while_a_process_is_stopped() {
    let trial = Trial::start("nothing_fails_while_a_process_is_stopped");
    let Some((_place, program, _)) = arrange(&trial) else {
        return;
    };
    let program = program.as_str();
    on_each(["on", "rings", "off"], &trial, |place, path| {
        let finished = run(place, path, &[program, &gid(place)]).wait(TIME);
        let done = finished.stdout.lines().last() == Some("all done");
        assert!(done, "{path}: {}", finished.describe());
        // What was killed had been stopped before.
        expect(&finished, &["has ended after it was stopped for"]);
    });
}

/// UC and UD have no acknowledgements to wait for.
#[test]
fn messages_without_acknowledgements_wait_for_nobody() {
    let trial = Trial::start("messages_without_acknowledgements_wait_for_nobody");
    let Some((_place, program, _)) = arrange(&trial) else {
        return;
    };
    let program = program.as_str();
    on_each(["on", "rings", "off"], &trial, |place, path| {
        let finished = run(place, path, &[program, &gid(place), "unreliable"]).wait(TIME);
        finished.expect_success();
        println!("{path}: {}", finished.stdout);
    });
}

/// Whoever ends a program that hangs learns for whom it waited; so does who sees it fail.
#[test]
fn the_words_name_a_stopped_process() {
    let trial = Trial::start_beside_others("the_words_name_a_stopped_process");
    let Some((place, program, gid)) = arrange(&trial) else {
        return;
    };
    let program = program.as_str();
    for path in ["on", "off"] {
        // What the first run has noted is not there for the second one.
        let place = place.apart(&trial);
        let mut waiting = run(&place, path, &[program, &gid, "waits"]);
        let peer: u32 = waiting.wait_for("it to wait", TIME, |text| {
            text.lines()
                .find_map(|l| l.strip_prefix("waits ")?.parse().ok())
        });
        let peer = Outlived(peer);
        // Noted after a second.
        let runtime = place.runtime().expect("a runtime folder").to_owned();
        waiting.wait_for("the note", TIME, |_| is_noted(&runtime).then_some(()));
        // The program, whose child the stopped process is, not its parent.
        signal(parent_of(peer.0), libc::SIGINT);
        let finished = waiting.wait(TIME);
        let is_stopped = format!(
            "the peer, stopped (pid {}), is stopped (SIGSTOP, a debugger's breakpoint, Ctrl-Z)",
            peer.0
        );
        let go_on = format!("kill -CONT {}", peer.0);
        let waited = "had waited for a process that is stopped";
        expect(&finished, &[waited, &is_stopped, &go_on]);
        drop(peer);

        let finished = run(&place, path, &[program, &gid, "waits", "killed"]).wait(TIME);
        assert_eq!(finished.status.code(), Some(3), "{}", finished.describe());
        expect(
            &finished,
            &["status 12", ", has ended after it was stopped for 1."],
        );
    }
}

/// Linux's connection manager answers for a stopped program, so nobody waits for it who
/// disconnects.
#[test]
fn disconnecting_does_not_wait_for_a_stopped_peer() {
    let trial = Trial::start("disconnecting_does_not_wait_for_a_stopped_peer");
    let Some(program) = compile::c_program_with(&trial, "connected", &["-lrdmacm"]) else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    let meeting = Meeting::at(&place, "127.0.0.1").port(7471);
    let (mut server, mut client) = meeting.start(
        &[program, "{port}"],
        &[program, "{port}", "{server}", "leave"],
    );
    for side in [&mut server, &mut client] {
        wait_for_line(side, "connected");
    }
    // What `rnic run` has started, or become.
    let stopped = the_program(server.pid());
    signal(stopped, libc::SIGSTOP);
    let begin = Instant::now();
    client.tell("leave");
    wait_for_line(&mut client, "RDMA_CM_EVENT_DISCONNECTED");
    // It would be repeated after six seconds, and given up after a hundred.
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    signal(stopped, libc::SIGCONT);
    wait_for_line(&mut server, "RDMA_CM_EVENT_DISCONNECTED");
    client.wait(TIME).expect_success();
    server.wait(TIME).expect_success();
}

/// Twenty-five stops at any moment of connecting, exchanging messages, taking down. Those that are
/// stopped see no failure, and two others are held up by none of them for much longer than it
/// lasts.
#[test]
fn processes_are_stopped_at_any_moment() {
    let trial = Trial::start("processes_are_stopped_at_any_moment");
    let libraries = ["-lrdmacm"];
    let Some(program) = compile::c_program_with(&trial, "stops", &libraries) else {
        return;
    };
    let program = program.to_str().expect("a path");
    on_each(["on", "off"], &trial, |place, path| {
        let seed = if path == "on" { "1" } else { "2" };
        let words = [program, &gid(place), "127.0.0.1", "25", "600", seed];
        let finished = run(place, path, &words).wait(TIME);
        finished.expect_success();
        let other = finished
            .stdout
            .lines()
            .find(|l| l.contains("the other pair"));
        let longest = other.and_then(|l| l.rsplit_once("longest ")?.1.split(' ').next());
        let ms: f64 = longest.expect("a time").parse().expect("a number");
        // Ten times as long as any stop: a request to connect may wait for a taker of QP 1 that is
        // stopped.
        assert!(ms < 6000.0, "{path}: {}", finished.describe());
    });
}

/// A process has noted, for `rnic run`, that it waits for a stopped one.
fn is_noted(runtime: &Path) -> bool {
    let files = std::fs::read_dir(runtime).into_iter().flatten().flatten();
    let mut reports =
        files.filter(|file| file.file_name().to_string_lossy().starts_with("report-"));
    reports.any(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        text.contains(r#""record":"stopped""#)
    })
}

fn wait_for_line(process: &mut Process, line: &str) {
    process.wait_for(line, TIME, |text| {
        text.lines().any(|l| l == line).then_some(())
    });
}

/// A process started by that one, or that one itself.
fn the_program(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .next()
        .map_or(pid, |child| the_program(child.parse().expect("a number")))
}

/// A process of the program's that it leaves behind, ended with its handle.
struct Outlived(u32);

impl Drop for Outlived {
    fn drop(&mut self) {
        // SAFETY: takes no pointer. It is stopped, so the number is its own.
        unsafe { libc::kill(self.0 as i32, libc::SIGKILL) };
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: takes no pointer; both are processes of this test.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"));
    parent.expect("a line").trim().parse().expect("a number")
}
