//! The port follows the interfaces of the host: events, GID table, state.

use rnic_programs::process::Process;
use rnic_programs::{Place, Trial, User, compile, place::RunOptions, skip};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

// ibv_event_type
const PORT_ACTIVE: u32 = 9;
const PORT_ERR: u32 = 10;
const GID_CHANGE: u32 = 18;
// ibv_port_state
const DOWN: u32 = 1;
const ACTIVE: u32 = 4;

/// `c/port.c`, told what to do.
struct Port {
    process: Process,
    /// Bytes of its output that were looked at.
    seen: usize,
}

impl Port {
    /// Tells it something and gives the lines up to the one that starts with `last`.
    fn ask(&mut self, what: &str, last: &str) -> Vec<String> {
        self.process.tell(what);
        let seen = self.seen;
        let (lines, end) = self.process.wait_for(what, SOON, |text| {
            let fresh = text.get(seen..)?;
            let end = fresh.rfind('\n')? + 1;
            let lines: Vec<String> = fresh[..end].lines().map(str::to_owned).collect();
            lines
                .last()?
                .starts_with(last)
                .then_some((lines, seen + end))
        });
        self.seen = end;
        lines
    }

    fn expect_event(&mut self, event: u32) {
        assert_eq!(
            self.ask("event", "event"),
            [format!("event {event} port 1")]
        );
    }

    fn expect_table(&mut self, rows: &[(u32, &str)], state: u32) {
        let mut expected: Vec<String> = rows
            .iter()
            .map(|(index, gid)| format!("row {index} {gid}"))
            .collect();
        expected.push(format!("state {state}"));
        assert_eq!(self.ask("table", "state"), expected);
    }
}

#[test]
fn the_gid_table_keeps_its_rows() {
    let trial = Trial::start_beside_others("the_gid_table_keeps_its_rows");
    let Some(program) = compile::c_program(&trial, "port") else {
        return;
    };
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.fresh(user) else {
            continue;
        };
        let ip = |args: &str| place.netns().expect("fresh").ip(args);
        let command = place.rnic_run(&RunOptions::default(), &program, [""; 0]);
        let mut port = Port {
            process: Process::spawn(command),
            seen: "ready\n".len(),
        };
        port.process.wait_for("ready", SOON, |text| {
            text.starts_with("ready\n").then_some(())
        });
        let (lo4, lo6) = ((0, "::ffff:127.0.0.1"), (1, "::1"));
        let (two, three) = ("::ffff:10.0.0.2", "::ffff:10.0.0.3");
        port.expect_table(&[lo4, lo6], ACTIVE);
        ip("addr add 10.0.0.2/32 dev lo");
        port.expect_event(GID_CHANGE);
        port.expect_table(&[lo4, lo6, (2, two)], ACTIVE);
        ip("addr add 10.0.0.3/32 dev lo");
        port.expect_event(GID_CHANGE);
        ip("addr del 10.0.0.2/32 dev lo");
        port.expect_event(GID_CHANGE);
        port.expect_table(&[lo4, lo6, (3, three)], ACTIVE);
        ip("addr add fd00::1/128 dev lo nodad");
        port.expect_event(GID_CHANGE);
        port.expect_table(&[lo4, lo6, (2, "fd00::1"), (3, three)], ACTIVE);
        // What concerns no address is no event.
        ip("link set lo mtu 9000");
        port.ask("quiet", "quiet");
        ip("link set lo down");
        port.expect_event(PORT_ERR);
        port.expect_event(GID_CHANGE);
        port.expect_table(&[], DOWN);
        ip("link set lo up");
        port.expect_event(PORT_ACTIVE);
        port.expect_event(GID_CHANGE);
        port.process.close_stdin();
        port.process.wait(SOON).expect_success();
    }
}

fn watches(place: &Place) {
    let mut command = place.command("stdbuf");
    command.arg("-oL").arg(place.rnic());
    command.args(["run", "--", "ibv_asyncwatch"]);
    let mut watch = Process::spawn(command);
    let mut wait_for = |lines: usize, word: &str| {
        watch.wait_for(word, SOON, |text| {
            let line = text.split_inclusive('\n').nth(lines)?;
            (line.ends_with('\n') && line.contains(word)).then_some(())
        });
    };
    let ip = |args: &str| place.netns().expect("fresh").ip(args);
    wait_for(0, "rnic0: async event FD");
    ip("addr add 10.0.0.2/32 dev lo");
    wait_for(1, "GID_CHANGE (18), port 1");
    ip("link set lo down");
    wait_for(2, "PORT_ERR (10), port 1");
    wait_for(3, "GID_CHANGE (18), port 1");
    ip("link set lo up");
    wait_for(4, "PORT_ACTIVE (9), port 1");
    watch.kill();
}

#[test]
fn asyncwatch_shows_them() {
    let trial = Trial::start_beside_others("asyncwatch_shows_them");
    if !skip::have_programs(trial.name(), &["ibv_asyncwatch", "stdbuf"]) {
        return;
    }
    for user in [User::Current, User::Nobody] {
        if let Some(place) = trial.fresh(user) {
            watches(&place);
        }
    }
}
