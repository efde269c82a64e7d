//! `rnic run --lint`: each habit that hardware would not forgive is named, with the fix; good
//! programs hear nothing.

use rnic_programs::{Place, Process, Trial, User, compile, skip};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);
const CLEAN: &str = "lint: nothing found";

/// Runs a program with `--lint`, gives what was said on standard error.
fn lint(place: &Place, program: &[&str]) -> String {
    let mut command = place.command(place.rnic());
    command.args(["run", "--lint", "--"]).args(program);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    finished.stderr
}

#[test]
fn each_habit_is_named_once() {
    let trial = Trial::start_beside_others("each_habit_is_named_once");
    let Some(program) = compile::c_program(&trial, "lint") else {
        return;
    };
    let program = program.to_str().expect("a path");
    let cases: [(&str, &str, &str); 11] = [
        ("clean", CLEAN, ""),
        (
            "unsignaled",
            "16 sends in a row without a signaled one",
            "IBV_SEND_SIGNALED at least once",
        ),
        ("inline", "max_inline_data 512", "cap.max_inline_data"),
        (
            "cq",
            "completion queue of 15 entries, fed by queues of 32",
            "as long as all",
        ),
        (
            "memlock",
            "1.0 MB of registered memory, and only 65.5 kB",
            "ulimit -l",
        ),
        (
            "reads",
            "max_rd_atomic is 8, the peer's max_dest_rd_atomic 2",
            "the smaller",
        ),
        (
            "hop-limit",
            "hop_limit is 1, on the way to 127.0.0.1",
            "set ah_attr.grh.hop_limit to 64",
        ),
        (
            "path-mtu",
            "path_mtu is 1024 bytes, the peer's 512",
            "set the smaller on both sides",
        ),
        (
            "late-receive",
            "posted after RTS, and rnr_retry is 0",
            "before the queue pair moves to RTR",
        ),
        (
            "never-ready",
            "rnr_retry is 7 and the peer has posted no receive for ",
            "let the peer post",
        ),
        (
            "buffer",
            "the buffer of work request 0 was changed",
            "wait for the completion",
        ),
    ];
    // Root may lock as much as it likes.
    let user = if skip::is_root() {
        User::Nobody
    } else {
        User::Current
    };
    let Some(place) = trial.loopback(user) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for (case, what, fix) in cases {
        let said = lint(&place, &[program, &gid, &gid, case]);
        assert!(said.contains(what) && said.contains(fix), "{case}:\n{said}");
        let whys = said.matches("    why: ").count();
        assert_eq!(
            whys,
            usize::from(case != "clean"),
            "no other habit: {case}:\n{said}"
        );
    }
}

#[test]
fn gids_of_two_kinds() {
    let trial = Trial::start_beside_others("gids_of_two_kinds");
    let Some(program) = compile::c_program(&trial, "lint") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    if place.netns().is_none() {
        skip::skipped(
            "gids_of_two_kinds",
            "addresses can be added in an own namespace only",
        );
        return;
    }
    for address in ["fe80::7/64", "fd00::7/64"] {
        let mut command = place.command("ip");
        command.args(["-6", "addr", "add", address, "dev", "lo", "nodad"]);
        Process::spawn(command).wait(TIME).expect_success();
    }
    let index = |address: &str| place.gid(address).index.to_string();
    let program = program.to_str().expect("a path");
    let (link_local, global) = (index("fe80::7"), index("fd00::7"));
    let said = lint(&place, &[program, &link_local, &global, "clean"]);
    assert!(
        said.contains("GIDs of different type: fe80::7 (IPv6 link-local) and fd00::7 (IPv6)"),
        "{said}"
    );
    assert!(said.contains("rnic devices"), "{said}");
    assert!(lint(&place, &[program, &global, &global, "clean"]).contains(CLEAN));
}

/// perftest as it comes does nothing that hardware would refuse.
#[test]
fn perftest_is_clean() {
    let trial = Trial::start_beside_others("perftest_is_clean");
    let programs = ["ib_send_bw", "ib_write_lat", "ib_read_bw", "ib_atomic_lat"];
    if !skip::have_programs("perftest_is_clean", &programs) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for program in programs {
        let side = format!("{program} -x {gid} -p 18533 -n 200");
        let script = format!(
            "cd {}; {side} >server.out & until grep -q ':4865 .* 0A ' /proc/net/tcp; do sleep 0.02; done; \
             {side} 127.0.0.1 >client.out && wait $!",
            trial.folder().display()
        );
        let said = lint(&place, &["sh", "-c", &script]);
        assert!(said.contains(CLEAN), "{program}:\n{said}");
    }
}
