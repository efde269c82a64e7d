//! The program as its users run it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{Scratch, expect_success, rnic, run, run_here, some_library, stderr, stdout};

#[test]
fn help_names_every_command() {
    let output = run(&["--help"]);
    expect_success(&output);
    for word in [
        "run",
        "explain",
        "devices",
        "demo",
        "bench",
        "verify",
        "RNIC_FAULTS",
    ] {
        assert!(stdout(&output).contains(word), "no {word}");
    }
    assert_eq!(run(&[]).status.code(), Some(2), "usage");
    assert_eq!(run(&["nonsense"]).status.code(), Some(2));
    assert!(
        !stdout(&output).contains("part"),
        "the second process's command is nobody's business"
    );
}

#[test]
fn explain_by_number_name_and_message() {
    let text = |args: &[&str]| {
        let output = run(&[&["explain"], args].concat());
        expect_success(&output);
        stdout(&output)
    };
    let by_number = text(&["12"]);
    for part in [
        "IBV_WC_RETRY_EXC_ERR",
        "transport retry counter exceeded",
        "causes",
        "tcpdump",
        "follows",
        "ENOMEM",
        "IBV_EVENT_PKEY_CHANGE",
    ] {
        assert!(by_number.contains(part), "no {part} in:\n{by_number}");
    }
    assert!(text(&["errno", "12"]).contains("unsignaled"));
    assert!(text(&["IBV_EVENT_CQ_ERR"]).contains("overran"));
    assert!(
        text(&["Failed", "status", "12:", "wr_id", "0", "syndrom", "0x81"]).contains("Mellanox")
    );
    let line = text(&["Failed to get IB devices list: Function not implemented"]);
    assert!(
        line.starts_with("line of a program: list of devices"),
        "{line}"
    );
    assert!(line.contains("rnic run -- ibv_devinfo"), "{line}");
    assert!(line.contains("possible causes:"), "{line}");
    assert!(!line.contains("ENOSYS"), "no verb was called: {line}");
    let list = text(&[]);
    for name in [
        "IBV_QPS_SQE",
        "NAK invalid request",
        "IBV_WR_SEND",
        "EBUSY",
        "modify QP to RTR",
    ] {
        assert!(list.contains(name), "no {name}");
    }

    let output = run(&["explain", "Couldn't connect to the database"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("nothing is known of"),
        "{}",
        stderr(&output)
    );
    let output = run(&["explain", "IBV_WC_REM_ACESS_ERR"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("IBV_WC_REM_ACCESS_ERR"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn explain_in_json() {
    let output = run(&["explain", "--json", "wc", "10"]);
    expect_success(&output);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let topic = &value["topics"][0];
    assert_eq!(topic["name"], "IBV_WC_REM_ACCESS_ERR");
    assert_eq!(topic["number"], 10);
    assert!(topic["causes"].as_array().is_some_and(|c| c.len() > 2));
}

#[test]
fn run_prepares_the_environment() {
    let scratch = Scratch::new("environment");
    let pcap = scratch.0.join("x.pcap");
    let mut command = run_here(&scratch);
    command.env("LD_LIBRARY_PATH", "/some/where");
    command.args([
        "--faults", "drop=1%", "--seed", "9", "--pcap", "x.pcap", "--", "sh", "-c", "env",
    ]);
    let output = command
        .current_dir(&scratch.0)
        .output()
        .expect("rnic starts");
    expect_success(&output);
    let text = stdout(&output);
    let value = |name: &str| {
        let of = |line: &str| {
            line.strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        };
        text.lines()
            .find_map(of)
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let (folder, rest) = value("LD_LIBRARY_PATH")
        .split_once(':')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert_eq!(rest, "/some/where");
    assert_eq!(
        value("LD_PRELOAD").split(':').next().unwrap(),
        format!("{folder}/libibverbs.so.1")
    );
    for name in [
        "libibverbs.so.1",
        "libibverbs.so",
        "librdmacm.so.1",
        "librdmacm.so",
    ] {
        assert_eq!(
            std::fs::canonicalize(Path::new(&folder).join(name)).unwrap(),
            std::fs::canonicalize(some_library()).unwrap()
        );
    }
    assert_eq!(Path::new(&value("RNIC_PCAP")), pcap);
    assert!(pcap.exists());
    assert!(
        value("RNIC_FAULTS").contains("seed=9"),
        "{}",
        value("RNIC_FAULTS")
    );
    assert!(
        stderr(&output).contains("seed=9"),
        "the seed is said, so that the run can be repeated"
    );
}

#[test]
fn run_is_the_program() {
    let scratch = Scratch::new("status");
    let status = |program: &[&str]| {
        run_here(&scratch)
            .arg("--")
            .args(program)
            .output()
            .expect("rnic starts")
            .status
    };
    assert!(status(&["/bin/true"]).success());
    assert_eq!(status(&["sh", "-c", "exit 42"]).code(), Some(42));
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]).signal(), Some(15));
    assert_eq!(status(&["no-such-program"]).code(), Some(127));
    assert_eq!(status(&["/etc/passwd"]).code(), Some(126));
    let output = run_here(&scratch)
        .args(["--quiet", "--faults", "drop=1%", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(stderr(&output), "");
}

/// Waits for the line that a shell prints when it is ready.
fn started(command: &mut Command) -> std::process::Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("rnic starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("asked for");
    // One line is all that is printed.
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn signals_reach_the_program() {
    let scratch = Scratch::new("signals");
    let signal = |child: &std::process::Child, name: &str| {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status();
        assert!(status.expect("kill").success());
    };
    let script = "trap 'exit 7' TERM; trap 'exit 8' USR1; echo ready; while :; do sleep 0.01; done";
    for (name, code) in [("TERM", 7), ("USR1", 8)] {
        let mut command = run_here(&scratch);
        let mut child = started(command.args(["--", "sh", "-c", script]));
        signal(&child, name);
        assert_eq!(child.wait().expect("its end").code(), Some(code), "{name}");
    }
    // Killed itself, it does not leave the program behind: the pipe ends with the last of the two.
    let mut command = run_here(&scratch);
    let script = "trap '' HUP; echo ready; exec sleep 1000";
    let mut child = started(command.args(["--", "sh", "-c", script]));
    signal(&child, "KILL");
    let mut rest = String::new();
    let mut stdout = child.stdout.take().expect("asked for");
    stdout.read_to_string(&mut rest).expect("the end");
    assert!(!child.wait().expect("its end").success());
}

/// A signal that whoever starts `rnic run` ignores, the program ignores as well.
#[test]
fn ignored_signals_stay_ignored() {
    let scratch = Scratch::new("ignored");
    let ignored = |program: &[&str]| {
        let output = over(
            run_here(&scratch),
            "env",
            &["--ignore-signal=CHLD,HUP,PIPE"],
            program,
        );
        stdout(&output)
    };
    let without = ignored(&["grep", "SigIgn", "/proc/self/status"]);
    if without.is_empty() {
        rnic_skip::skipped("ignored_signals", "env(1) cannot ignore signals");
        return;
    }
    for quiet in [&[][..], &["--quiet"]] {
        let run = [env!("CARGO_BIN_EXE_rnic"), "run"];
        let grep = ["--", "grep", "SigIgn", "/proc/self/status"];
        assert_eq!(
            ignored(&[&run, quiet, &grep].concat()),
            without,
            "{quiet:?}"
        );
    }
}

/// Runs `launcher` with these arguments in the environment of `rnic`.
fn over(rnic: Command, launcher: &str, first: &[&str], rest: &[&str]) -> Output {
    let mut command = Command::new(launcher);
    for (name, value) in rnic.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(first).args(rest).output().expect("it starts")
}

/// As the first process of a container it does what init does: who is left without a parent is not
/// left a zombie.
#[test]
fn orphans_are_reaped() {
    let scratch = Scratch::new("orphans");
    let unshare = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let possible = Command::new("unshare").args(unshare).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        rnic_skip::skipped("orphans_are_reaped", "no process namespaces here");
        return;
    }
    let orphan = scratch.0.join("orphan");
    let script = format!(
        "(sh -c 'echo $$ > {0}.new && mv {0}.new {0}' &); until [ -e {0} ]; do sleep 0.01; done
         n=0; while [ -e /proc/$(cat {0}) ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 9; sleep 0.01; done; exit 3",
        orphan.display()
    );
    let run = [env!("CARGO_BIN_EXE_rnic"), "run", "--", "sh", "-c", &script];
    let output = over(run_here(&scratch), "unshare", &unshare, &run);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn run_leaves_no_file_behind_and_reports_in_json() {
    let scratch = Scratch::new("leaves");
    let output = run_here(&scratch)
        .args(["--stats", "--json", "--", "sh", "-c", "echo x; exit 3"])
        .output()
        .expect("rnic starts");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        stdout(&output),
        "x\n",
        "the program's output stays what it is"
    );
    let document: serde_json::Value = serde_json::from_str(stderr(&output).trim()).expect("JSON");
    assert_eq!(document["exit_status"], 3);
    assert!(document["failure"].is_null(), "the device was never used");
    assert_eq!(document["stats"]["total"]["queue_pairs"], 0);
    let files = std::fs::read_dir(scratch.0.join("runtime")).expect("the runtime folder");
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        assert!(!name.starts_with("report-"), "{name}");
    }
}

#[test]
fn run_explains_a_missing_library() {
    let scratch = Scratch::new("library");
    let output = run_here(&scratch)
        .env("RNIC_LIB", "/no/such/lib.so")
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("/no/such/lib.so") && stderr(&output).contains("cargo build"),
        "{}",
        stderr(&output)
    );

    // Alone in a folder, the program does not find it, nor in the one above, which is the test's
    // own.
    let alone = scratch.0.join("bin/rnic");
    std::fs::create_dir(scratch.0.join("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_rnic"), &alone).unwrap();
    let output = Command::new(&alone)
        .args(["run", "--", "true"])
        .env_remove("RNIC_LIB")
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("librnic_verbs.so is not here"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn run_refuses_a_runtime_folder_that_others_may_write() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("runtime");
    let open = scratch.0.join("runtime");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = run_here(&scratch).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("RNIC_RUNTIME_DIR"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn devices_as_json_and_as_text_agree() {
    let output = run(&["devices", "--json"]);
    expect_success(&output);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let port = &value["devices"][0]["ports"][0];
    assert_eq!(value["devices"][0]["name"], "rnic0");
    assert_eq!(
        (&port["port"], &port["state"]),
        (&1.into(), &"ACTIVE".into())
    );
    assert_eq!(port["pkeys"], serde_json::json!([0xffff]));
    let gids = port["gids"].as_array().expect("a table");
    assert!(!gids.is_empty());
    let text = run(&["devices"]);
    expect_success(&text);
    let text = stdout(&text);
    for gid in gids {
        assert_eq!(gid["type"], "RoCE v2");
        let address = gid["address"].as_str().unwrap();
        let row = text
            .lines()
            .find(|line| line.split_whitespace().any(|word| word == address));
        let row = row.unwrap_or_else(|| panic!("no {address} in {text}"));
        assert!(
            row.starts_with("rnic0") && row.contains(gid["interface"].as_str().unwrap()),
            "{row}"
        );
    }
}

/// With `--verbose`, beside the settings.
#[test]
fn devices_show_the_p_key_table() {
    let devices = |more: &[&str]| {
        let mut command = rnic();
        command.arg("devices").args(more);
        command.env("RNIC_PKEYS", "0xffff,0x0001");
        command.output().expect("rnic starts")
    };
    let text = devices(&["-v"]);
    expect_success(&text);
    let text = stdout(&text);
    for line in ["0            0xffff  full", "1            0x0001  limited"] {
        assert!(text.lines().any(|is| is == line), "no {line:?} in {text}");
    }
    let value = devices(&["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&value.stdout).expect("JSON");
    let pkeys = &value["devices"][0]["ports"][0]["pkeys"];
    assert_eq!(*pkeys, serde_json::json!([0xffff, 1]));
}

#[test]
fn demo_from_end_to_end() {
    let output = run(&["demo"]);
    expect_success(&output);
    let text = stdout(&output);
    for word in [
        "SEND",
        "RDMA WRITE",
        "immediate",
        "RDMA READ",
        "COMPARE-AND-SWAP",
        "FETCH-AND-ADD",
        "us",
        "GB/s",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert_eq!(text.matches("-> verified").count(), 6, "{text}");
}

#[test]
fn demo_on_another_address_and_on_none() {
    expect_success(&run(&["demo", "--no-bench", "--addr", "127.0.0.1"]));
    let output = run(&["demo", "--no-bench", "--addr", "203.0.113.77"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("203.0.113.77") && stderr(&output).contains("rnic devices"),
        "{}",
        stderr(&output)
    );
}

/// As with `rnic ... | head`.
#[test]
fn whoever_stops_reading_ends_every_command_quietly() {
    use std::os::unix::process::ExitStatusExt;
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let capture = captures.join("rc_read_v4.pcap");
    let commands: [&[&str]; 10] = [
        &["--help"],
        &["explain"],
        &["explain", "12"],
        &["devices"],
        &["devices", "--json"],
        &["dissect", capture.to_str().unwrap()],
        &["demo"],
        &[
            "bench",
            "--milliseconds",
            "5",
            "--op",
            "send",
            "--size",
            "8",
        ],
        &[
            "bench",
            "--milliseconds",
            "5",
            "--op",
            "send",
            "--size",
            "8",
            "--json",
        ],
        &["verify", "--iterations", "5"],
    ];
    for args in commands {
        // Nobody reads from the first byte on.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = rnic();
        let command = command.args(args).stdout(writer);
        let output = command.output().expect("its end");
        assert!(
            !stderr(&output).contains("panicked"),
            "{args:?}: {}",
            stderr(&output)
        );
        // The parser of the command line ignores it.
        let quiet = args == ["--help"] || output.status.signal() == Some(13);
        assert!(quiet, "{args:?}: {} {}", output.status, stderr(&output));
    }
}

#[test]
fn a_program_ends_as_it_ends_when_nobody_reads_what_rnic_says_of_it() {
    let scratch = Scratch::new("unread");
    for option in ["--stats", "--lint", "--stats=json"] {
        let mut command = run_here(&scratch);
        command
            .args([option, "--", "sh", "-c", "exit 7"])
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("rnic starts");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("its end").code(), Some(7), "{option}");
    }
}

/// Not a test: holds the port in a network namespace of its own and lists the devices there.
#[test]
#[ignore = "run by port_taken_by_a_stranger in a namespace"]
fn helper_that_holds_the_port() {
    let _ = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    let _socket = std::net::UdpSocket::bind("0.0.0.0:4791").expect("free in a new namespace");
    let output = run(&["devices"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let (text, errors) = (stdout(&output), stderr(&output));
    assert!(
        text.contains("127.0.0.1") && text.contains("DOWN"),
        "still lists: {text}"
    );
    assert!(
        errors.contains("4791") && errors.contains("next:"),
        "{errors}"
    );
}

#[test]
fn port_taken_by_a_stranger() {
    let possible = Command::new("unshare")
        .args(["-rn", "true"])
        .output()
        .is_ok_and(|o| o.status.success());
    if !possible {
        rnic_skip::skipped("port_taken_by_a_stranger", "no network namespace here");
        return;
    }
    let program = std::env::current_exe().expect("own path");
    let output = Command::new("unshare")
        .arg("-rn")
        .arg(program)
        .args(["--ignored", "--exact", "cli::helper_that_holds_the_port"])
        .env(
            "RNIC_RUNTIME_DIR",
            std::env::temp_dir().join(format!("rnic-port-{}", std::process::id())),
        )
        .output()
        .expect("unshare starts");
    let _ = std::fs::remove_dir_all(
        std::env::temp_dir().join(format!("rnic-port-{}", std::process::id())),
    );
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(stdout(&output).contains("1 passed"), "{}", stdout(&output));
}

#[test]
fn no_address_at_all_is_explained() {
    let output = Command::new("unshare")
        .args(["-rn", env!("CARGO_BIN_EXE_rnic"), "devices"])
        .output();
    let Some(output) = output.ok().filter(|o| !stderr(o).contains("unshare")) else {
        rnic_skip::skipped(
            "no_address_at_all_is_explained",
            "no network namespace here",
        );
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("ip link set lo up"),
        "{}",
        stderr(&output)
    );
}
