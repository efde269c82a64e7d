//! What surrounds a program: sanitizers, valgrind, debuggers, another allocator, a sandbox, limits,
//! forbidden system calls, launchers. It runs as without rnic, or is told why not.

use rnic_programs::{Finished, Place, Process, Trial, User, compile, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Valgrind is slow, and so is this machine now and then.
const TIME: Duration = Duration::from_secs(240);

const PATHS: [&str; 3] = ["on", "rings", "off"];

/// A place, and a program that sends a message there: what it prints, and its arguments.
struct Traffic {
    place: Place,
    program: PathBuf,
    gid: String,
}

const PRINTS: &str = "status 0\ngot 1\n";

impl Traffic {
    fn new(trial: &Trial, flags: &[&str]) -> Option<Traffic> {
        let program = compile::c_program_with(trial, "silent", flags)?;
        let place = trial.loopback(User::Current)?;
        let gid = place.gid("127.0.0.1").index.to_string();
        Some(Traffic {
            place,
            program,
            gid,
        })
    }

    /// Behind `before`, which may start it in its own way.
    fn words<'a>(&'a self, before: &[&'a str]) -> Vec<&'a str> {
        let program = self.program.to_str().expect("a path");
        [before, &[program, &self.gid, "fits"]].concat()
    }

    fn run(&self, variables: &[(&str, &str)], before: &[&str]) -> Finished {
        let mut command = self.place.command(self.place.rnic());
        command.envs(variables.iter().copied());
        command.args(["run", "--"]).args(self.words(before));
        Process::spawn(command).wait(TIME)
    }
}

/// It has run, and nobody has said a word.
fn expect_silent_success(finished: &Finished) {
    finished.expect_success();
    assert_eq!(finished.stdout, PRINTS, "{}", finished.describe());
    assert_eq!(finished.stderr, "", "{}", finished.describe());
}

fn expect(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "no {part:?}\n{}",
            finished.describe()
        );
    }
}

/// The run-time library of a sanitizer is installed: gcc knows where.
fn have_sanitizer(trial: &Trial, library: &str) -> bool {
    if !skip::have_programs(trial.name(), &["gcc"]) {
        return false;
    }
    let asked = Command::new("gcc")
        .arg(format!("-print-file-name={library}"))
        .output()
        .expect("gcc is installed");
    let is_there = asked.stdout.starts_with(b"/");
    if !is_there {
        skip::skipped(trial.name(), &format!("{library} is not installed"));
    }
    is_there
}

/// A sanitizer's run-time library starts, has nothing to say of rnic, and still finds a mistake of
/// the program's: also where a shell starts the program, and where the user has options of his own.
fn sanitized(name: &str, library: &str, flag: &str, variable: &str, option: &str) {
    let trial = Trial::start_beside_others(name);
    if !have_sanitizer(&trial, library) {
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[flag]) else {
        return;
    };
    for path in PATHS {
        let variables = [("RNIC_HOST_PATH", path), (variable, option)];
        expect_silent_success(&traffic.run(&variables, &[]));
    }
    let by_shell = ["sh", "-c", "\"$@\"", "sh"];
    expect_silent_success(&traffic.run(&[(variable, option)], &by_shell));
}

#[test]
fn address_sanitizer() {
    // The program leaves its memory to the end of the process.
    let (variable, option) = ("ASAN_OPTIONS", "detect_leaks=0");
    sanitized(
        "address_sanitizer",
        "libasan.so",
        "-fsanitize=address",
        variable,
        option,
    );
}

#[test]
fn thread_sanitizer() {
    let (variable, option) = ("TSAN_OPTIONS", "report_signal_unsafe=1");
    sanitized(
        "thread_sanitizer",
        "libtsan.so",
        "-fsanitize=thread",
        variable,
        option,
    );
}

/// Valgrind finds nothing in rnic, whichever way packets go, and nothing that it leaves behind: no
/// memory, nor a thread that still runs when the last device was closed.
#[test]
fn valgrind() {
    let trial = Trial::start_beside_others("valgrind");
    if !skip::have_programs(trial.name(), &["valgrind", "ibv_devinfo"]) {
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let valgrind = ["valgrind", "-q", "--error-exitcode=9"];
    for path in PATHS {
        expect_silent_success(&traffic.run(&[("RNIC_HOST_PATH", path)], &valgrind));
    }
    let mut command = traffic.place.command(traffic.place.rnic());
    command
        .args(["run", "--"])
        .args(valgrind)
        .args(["--leak-check=full", "--show-leak-kinds=definite,possible"])
        .args(["--errors-for-leak-kinds=definite,possible"])
        .args(["ibv_devinfo", "-v"]);
    let finished = Process::spawn(command).wait(TIME);
    finished.expect_success();
    assert_eq!(finished.stderr, "", "{}", finished.describe());
}

#[test]
fn strace() {
    let trial = Trial::start_beside_others("strace");
    if !skip::have_programs(trial.name(), &["strace"]) {
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let log = trial.folder().join("strace.log");
    let before = ["strace", "-f", "-o", log.to_str().expect("a path")];
    expect_silent_success(&traffic.run(&[], &before));
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("eventfd2("), "strace has seen the device");
}

#[test]
fn gdb() {
    let trial = Trial::start_beside_others("gdb");
    if !skip::have_programs(trial.name(), &["gdb"]) {
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let before = ["gdb", "-q", "-nx", "-batch", "-ex", "run", "--args"];
    let finished = traffic.run(&[], &before);
    finished.expect_success();
    for part in ["got 1", "exited normally"] {
        assert!(finished.stdout.contains(part), "{}", finished.describe());
    }
}

/// Another allocator that the user preloads.
#[test]
fn jemalloc() {
    let trial = Trial::start_beside_others("jemalloc");
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let places = folders.map(|folder| Path::new(folder).join("libjemalloc.so.2"));
    let Some(library) = places.iter().find(|place| place.exists()) else {
        skip::skipped(trial.name(), "libjemalloc2 is not installed");
        return;
    };
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let library = library.to_str().expect("a path");
    let variables = [("LD_PRELOAD", library), ("MALLOC_CONF", "stats_print:true")];
    let finished = traffic.run(&variables, &[]);
    finished.expect_success();
    assert!(finished.stdout.contains("got 1"), "{}", finished.describe());
    expect(&finished, &["Begin jemalloc statistics"]);
}

/// A sandbox with a process-number space of its own.
#[test]
fn bubblewrap() {
    let trial = Trial::start_beside_others("bubblewrap");
    if !skip::have_programs(trial.name(), &["bwrap"]) {
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let sandbox = [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--unshare-pid",
        "--proc",
        "/proc",
    ];
    let tried = traffic
        .place
        .finish("bwrap", [&sandbox[1..], &["true"]].concat());
    if !tried.ok() {
        skip::skipped(trial.name(), "bwrap cannot make a sandbox here");
        return;
    }
    expect_silent_success(&traffic.run(&[], &sandbox));
}

/// Limits that leave room change nothing; those that do not are named, and none ends a process by
/// a signal.
#[test]
fn limits() {
    let trial = Trial::start_beside_others("limits");
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let run_in = |is_fresh: bool, limit: &str| {
        let script = format!("ulimit {limit} && exec \"$@\"");
        let words = traffic.words(&[]);
        let mut command = traffic.place.command("bash");
        if is_fresh {
            // Its files are made under the limit.
            let fresh = trial.new_folder("limited", User::Current, 0o700);
            command.env("RNIC_RUNTIME_DIR", fresh);
        }
        command.args(["-c", &script, "bash"]);
        command
            .arg(traffic.place.rnic())
            .args(["run", "--"])
            .args(words);
        Process::spawn(command).wait(TIME)
    };
    for enough in [
        "-n 64",
        "-l 64",
        "-v 4000000",
        "-f 65536",
        "-u 4096",
        "-s 1024",
    ] {
        let finished = run_in(true, enough);
        assert_eq!(finished.stdout, PRINTS, "{enough} {}", finished.describe());
        assert_eq!(finished.stderr, "", "{enough} {}", finished.describe());
    }
    for (little, says) in [
        ("-n 12", &["os error 24", "ulimit -n"][..]),
        ("-f 1000", &["File too large", "ulimit -f"]),
        ("-f 0", &["File too large", "ulimit -f"]),
    ] {
        let finished = run_in(true, little);
        assert_eq!(
            finished.status.code(),
            Some(1),
            "{little} {}",
            finished.describe()
        );
        expect(&finished, says);
    }
    // Where the files are there already, and longer than the limit.
    run_in(false, "-f unlimited").expect_success();
    let finished = run_in(false, "-f 1");
    assert_eq!(finished.status.code(), Some(1), "{}", finished.describe());
    expect(&finished, &["File too large", "ulimit -f"]);
}

/// The errno of a system call that failed, and the call's name, reach the user.
#[test]
fn forbidden_calls_are_named() {
    let trial = Trial::start_beside_others("forbidden_calls_are_named");
    let Some(forbid) = compile::c_program(&trial, "forbid") else {
        return;
    };
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let forbid = forbid.to_str().expect("a path");
    for (call, named) in [
        ("timerfd_create", "timerfd_create"),
        ("eventfd", "eventfd"),
        ("epoll_create1", "epoll_create1"),
        ("socket", "getifaddrs"),
    ] {
        let finished = traffic.run(&[], &[forbid, call]);
        assert_eq!(finished.status.code(), Some(1), "{}", finished.describe());
        expect(&finished, &[named, "Operation not permitted (os error 1)"]);
        expect(&finished, &["ibv_open_device (errno 1"]);
    }
}

/// A file system that has no room for what processes share, or for a capture, gets a word.
#[test]
fn a_full_file_system() {
    let trial = Trial::start_beside_others("a_full_file_system");
    if !skip::is_root() || !skip::have_programs(trial.name(), &["unshare", "mount"]) {
        skip::skipped(trial.name(), "mounts need root");
        return;
    }
    let Some(traffic) = Traffic::new(&trial, &[]) else {
        return;
    };
    let folder = trial.new_folder("full", User::Current, 0o700);
    let folder = folder.to_str().expect("a path");
    let rnic = traffic.place.rnic();
    let run = |options: &str| {
        let script = format!("mount -t tmpfs -o size=16k none {folder} && {options} -- \"$@\"",);
        let mut command = traffic.place.command("unshare");
        command.args(["--mount", "bash", "-c", &script, "bash"]);
        command.args(traffic.words(&[]));
        Process::spawn(command).wait(TIME)
    };
    let rnic = rnic.display();
    let finished = run(&format!(
        "dd if=/dev/zero of={folder}/full bs=4k count=4 2>/dev/null; RNIC_RUNTIME_DIR={folder}/rnic exec {rnic} run"
    ));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.describe());
    expect(&finished, &["No space left on device", folder]);
    // A capture that ends early does not end the program; one that cannot begin does.
    let capture = |blocks: u32| {
        run(&format!(
            "dd if=/dev/zero of={folder}/full bs=4k count={blocks} 2>/dev/null; exec {rnic} run --pcap {folder}/capture"
        ))
    };
    let finished = capture(3);
    finished.expect_success();
    assert_eq!(finished.stdout, PRINTS, "{}", finished.describe());
    expect(
        &finished,
        &["the capture ends here: No space left on device"],
    );
    let finished = capture(4);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.describe());
    expect(
        &finished,
        &["No space left on device", "capture", "(errno 28"],
    );
}

/// Launchers that drop the variables, and a library that is opened by its full path.
#[test]
fn a_program_that_was_not_reached_is_told() {
    let trial = Trial::start_beside_others("a_program_that_was_not_reached_is_told");
    if !skip::have_programs(trial.name(), &["ibv_devinfo", "env"]) {
        return;
    }
    let Some(opens) = compile::c_program_with(&trial, "opens", &["-ldl"]) else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let run = |words: &[&str]| {
        let mut command = place.command(place.rnic());
        command.args(["run", "--"]).args(words);
        Process::spawn(command).wait(TIME)
    };
    let devinfo = skip::find_program("ibv_devinfo").expect("it is installed");
    let devinfo = devinfo.to_str().expect("a path");
    let opens = opens.to_str().expect("a path");
    let system = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ]
    .map(|folder| format!("{folder}/libibverbs.so.1"));
    let system = system.iter().find(|path| Path::new(path).exists());
    let system = system.expect("what the programs were linked with");
    let not_reached: [&[&str]; 4] = [
        &["env", "-i", devinfo],
        &["env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH", devinfo],
        &[
            "sh",
            "-c",
            "unset LD_PRELOAD LD_LIBRARY_PATH; exec ibv_devinfo",
        ],
        &[opens, system],
    ];
    for words in not_reached {
        let finished = run(words);
        assert!(!finished.ok(), "{}", finished.describe());
        expect(
            &finished,
            &["no process of this run has called rnic's library", "env -i"],
        );
    }
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        let finished = run(&[opens, name]);
        assert_eq!(finished.stdout, "1 devices\n", "{}", finished.describe());
        assert_eq!(finished.stderr, "", "{}", finished.describe());
    }
}

/// What the program survived is no reason for its end; what it did not, is, also if the device
/// just lacks it.
#[test]
fn probes_are_told_from_refusals() {
    let trial = Trial::start_beside_others("probes_are_told_from_refusals");
    let Some(program) = compile::c_program(&trial, "refused") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let run = |how: &str| {
        let mut command = place.command(place.rnic());
        command.args(["run", "--"]).arg(&program).arg(how);
        Process::spawn(command).wait(TIME)
    };
    let finished = run("probe");
    assert_eq!(finished.status.code(), Some(3), "{}", finished.describe());
    expect(
        &finished,
        &[
            "a probe, after which refused",
            "ibv_create_cq was refused with errno 22 EINVAL",
            "ibv_create_qp was refused with errno 95 EOPNOTSUPP",
            "no other refused call",
        ],
    );
    assert!(
        !finished.stderr.contains("cause:"),
        "{}",
        finished.describe()
    );
    let finished = run("fatal");
    assert_eq!(finished.status.code(), Some(4), "{}", finished.describe());
    expect(
        &finished,
        &[
            "the last call that was refused",
            "ibv_create_qp with errno 95 EOPNOTSUPP",
            "cause: there are no queue pairs of raw Ethernet frames",
        ],
    );
    assert!(
        !finished.stderr.contains("probe"),
        "{}",
        finished.describe()
    );
}
