//! Programs that sleep until a completion channel's descriptor is readable, in `epoll_wait`,
//! `poll`, `select` and their kin. The library may serve them while they wait; what they see is
//! what the kernel says. `waits.c` counts each message.

use rnic_programs::each::each;
use rnic_programs::{Finished, Place, Process, Trial, User, compile, full, skip};
use std::path::PathBuf;
use std::time::Duration;

/// `waits.c` ends itself after 40 seconds, with a message that says where it hung.
const TIME: Duration = Duration::from_secs(120);

/// How programs are run.
#[derive(Clone, Copy, Debug)]
struct Manner {
    name: &'static str,
    host_path: &'static str,
    /// `RNIC_WAIT`.
    wait: Option<&'static str>,
    /// The calls that wait are the library's, which looks after packets in them, and not the C
    /// library's own.
    preloaded: bool,
    /// `RNIC_SHARDS`.
    shards: Option<&'static str>,
}

const SHARED_MEMORY: Manner = Manner {
    name: "shared memory",
    host_path: "on",
    wait: None,
    preloaded: true,
    shards: None,
};

const UDP: Manner = Manner {
    name: "UDP",
    host_path: "off",
    ..SHARED_MEMORY
};

/// The usual ones, those where the library has no part in the wait, and of threads that never stay
/// awake or always do.
const MANNERS: [Manner; 6] = [
    SHARED_MEMORY,
    UDP,
    Manner {
        name: "UDP, not preloaded",
        preloaded: false,
        ..UDP
    },
    // The others are other mixtures of the same code: `./test full`.
    Manner {
        name: "shared memory, not preloaded",
        preloaded: false,
        ..SHARED_MEMORY
    },
    Manner {
        name: "UDP, RNIC_WAIT=sleep",
        wait: Some("sleep"),
        ..UDP
    },
    Manner {
        name: "shared memory, RNIC_WAIT=spin",
        wait: Some("spin"),
        ..SHARED_MEMORY
    },
];

fn manners() -> &'static [Manner] {
    if full() { &MANNERS } else { &MANNERS[..3] }
}

/// Each completion queue has an engine of its own, up to four.
const SHARDS: [Manner; 3] = [
    Manner {
        name: "UDP, RNIC_SHARDS=4",
        shards: Some("4"),
        ..UDP
    },
    Manner {
        name: "shared memory, RNIC_SHARDS=4",
        shards: Some("4"),
        ..SHARED_MEMORY
    },
    Manner {
        name: "UDP, RNIC_SHARDS=4, not preloaded",
        shards: Some("4"),
        preloaded: false,
        ..UDP
    },
];

fn shards() -> &'static [Manner] {
    if full() { &SHARDS } else { &SHARDS[..1] }
}

struct Stage {
    program: PathBuf,
    place: Place,
    gid: String,
}

impl Stage {
    /// `None`: skipped, which was said.
    fn new(trial: &Trial, program: &str) -> Option<Stage> {
        // The C library's functions come before those of libibverbs, as in programs that load that
        // late; preloaded ones come first.
        let libraries = ["-Wl,--no-as-needed", "-lc"];
        let program = compile::c_program_with(trial, program, &libraries)?;
        let place = trial.loopback(User::Current)?;
        let gid = place.gid("127.0.0.1").index.to_string();
        Some(Stage {
            program,
            place,
            gid,
        })
    }

    fn run(&self, manner: Manner, words: &[&str]) -> Finished {
        let mut command = self.place.command(self.place.rnic());
        command.env("RNIC_HOST_PATH", manner.host_path);
        match manner.wait {
            Some(wait) => command.env("RNIC_WAIT", wait),
            None => command.env_remove("RNIC_WAIT"),
        };
        match manner.shards {
            Some(shards) => command.env("RNIC_SHARDS", shards),
            None => command.env_remove("RNIC_SHARDS"),
        };
        command.args(["run", "--"]);
        if !manner.preloaded {
            command.args(["env", "-u", "LD_PRELOAD"]);
        }
        command.arg(&self.program).args(words);
        Process::spawn(command).wait(TIME)
    }
}

/// Runs these cases of `waits.c` in each manner.
#[track_caller]
fn cases(test: &str, names: &[&str]) {
    cases_in(manners(), test, names);
}

#[track_caller]
fn cases_in(manners: &[Manner], test: &str, names: &[&str]) {
    let trial = Trial::start_beside_others(test);
    let Some(stage) = Stage::new(&trial, "waits") else {
        return;
    };
    let mut all = Vec::new();
    for manner in manners {
        for name in names {
            all.push((format!("{name}, {}", manner.name), *manner, *name));
        }
    }
    each(
        &all,
        |(title, ..)| title,
        |(title, manner, name)| {
            let finished = stage.run(*manner, &[*name, &stage.gid]);
            finished.expect_success();
            println!("{title}:\n{}", finished.stdout);
            let mut lines = finished.stdout.lines();
            if let Some(why) = lines.find_map(|line| line.strip_prefix("refused: ")) {
                skip::skipped(title, why);
            }
            let well = format!("{name}: well");
            let said = finished.stdout.lines().last() == Some(well.as_str());
            assert!(said, "{}", finished.describe());
        },
    );
}

/// A thread that waits for a channel in any way is woken by each event, also if it came before, and
/// finds a completion then: of a channel that blocks nobody has to wait for an event that was
/// promised.
#[test]
fn each_message_wakes_who_waits_in_any_way() {
    cases(
        "each_message_wakes_who_waits_in_any_way",
        &["ways", "before"],
    );
}

/// One thread may wait for several channels, four for one each, and two for the same set: no
/// message is lost or told twice.
#[test]
fn threads_and_channels_may_be_several() {
    cases(
        "threads_and_channels_may_be_several",
        &[
            "several",
            "threads",
            "shared",
            "many_channels",
            "beside_polls",
        ],
    );
}

/// Channels of several engines may be in one set, and each of several threads may have its own.
#[test]
fn channels_may_be_of_several_engines() {
    cases_in(
        shards(),
        "channels_may_be_of_several_engines",
        &["several", "threads", "shared", "ways", "duplicates"],
    );
}

/// A descriptor is what the kernel says that it is: duplicates, sets in sets, sets of a parent,
/// numbers that are used again.
#[test]
fn descriptors_are_what_the_kernel_says() {
    cases(
        "descriptors_are_what_the_kernel_says",
        &[
            "duplicates",
            "duplicates_are_known",
            "moved",
            "inherited",
            "sets_of_sets",
            "forked",
            "renumbered_channel",
            "renumbered_set",
            "set_becomes_socket",
        ],
    );
}

/// The kernel waits for a descriptor by itself, and the device's own thread brings the event.
#[test]
fn io_uring_tells_of_each_event() {
    cases("io_uring_tells_of_each_event", &["io_uring"]);
}

/// What else a program waits for is seen in time while a channel is busy, in the same call; the
/// latencies are printed.
#[test]
fn others_in_the_same_call_are_seen() {
    cases(
        "others_in_the_same_call_are_seen",
        &["others", "arrays", "exceptions"],
    );
}

/// A wait ends when its time is over, not earlier, also while packets come that complete nothing.
#[test]
fn waits_end_in_time() {
    cases("waits_end_in_time", &["timeouts", "timeouts_in_traffic"]);
}

/// A handler ends the wait (EINTR), also while packets come that complete nothing; the mask of a
/// wait holds in it.
#[test]
fn signals_end_waits() {
    cases(
        "signals_end_waits",
        &["interrupted", "interrupted_in_traffic", "masks"],
    );
}

/// `poll` and `epoll_wait` may be called in a handler, whatever the thread is at
/// (signal-safety(7)).
#[test]
fn handlers_may_wait() {
    cases(
        "handlers_may_wait",
        &["handler_waits_for_others", "handler_waits_for_the_channel"],
    );
}

/// `pthread_cancel` ends a thread that waits, and leaves a channel that can be waited for.
#[test]
fn threads_that_wait_can_be_cancelled() {
    cases("threads_that_wait_can_be_cancelled", &["cancelled"]);
}

/// What cannot be waited for is an error at once, the kernel's.
#[test]
fn errors_are_the_kernels() {
    cases("errors_are_the_kernels", &["errors"]);
}

/// A program that waits for channels may start others, by vfork and exec as by `posix_spawn`.
#[test]
fn programs_may_be_started() {
    cases("programs_may_be_started", &["started_programs"]);
}

/// Two processes that both sleep between any two messages exchange all of them; the round trips are
/// printed.
#[test]
fn two_processes_asleep_exchange_all_messages() {
    let trial = Trial::start_beside_others("two_processes_asleep_exchange_all_messages");
    let Some(stage) = Stage::new(&trial, "asleep") else {
        return;
    };
    let ways = [
        "epoll", "edge", "crowd", "nested", "polled", "poll", "select",
    ];
    let mut all = Vec::new();
    for manner in manners() {
        for way in ways {
            all.push((format!("{way}, {}", manner.name), *manner, way));
        }
    }
    each(
        &all,
        |(title, ..)| title,
        |(title, manner, way)| {
            let finished = stage.run(*manner, &["rc", way, "64", "1000"]);
            finished.expect_success();
            println!("{title}: {}", finished.stdout);
            let start = format!("rc {way}: median");
            let said = finished.stdout.starts_with(&start);
            assert!(said, "{}", finished.describe());
        },
    );
}

/// Threads with an event loop each exchange all messages, beside others that wait in vain; so does
/// one thread with one loop for many connections. Round trips and sleeps are printed.
#[test]
fn each_thread_may_have_a_loop() {
    let trial = Trial::start_beside_others("each_thread_may_have_a_loop");
    let Some(stage) = Stage::new(&trial, "loops") else {
        return;
    };
    let mut all = Vec::new();
    for manner in manners().iter().chain(shards()) {
        for (active, idle, how) in [
            ("1", "0", "threads"),
            ("2", "0", "threads"),
            ("4", "0", "threads"),
            ("1", "3", "threads"),
            ("2", "2", "threads"),
            ("9", "0", "together"),
            ("4", "2", "together"),
        ] {
            let title = format!("{active} {how} and {idle} idle, {}", manner.name);
            all.push((title, *manner, active, idle, how));
        }
    }
    each(
        &all,
        |(title, ..)| title,
        |(title, manner, active, idle, how)| {
            let mut arguments = vec!["rc", active, idle, "300", "60000"];
            arguments.extend((*how == "together").then_some(*how));
            let finished = stage.run(*manner, &arguments);
            finished.expect_success();
            println!("{title}: {}", finished.stdout);
            let start = format!("rc, {active} {how} and {idle} idle: median");
            let said = finished.stdout.starts_with(&start);
            assert!(said, "{}", finished.describe());
        },
    );
}
