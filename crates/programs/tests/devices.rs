//! Programs that list devices see rnic0, its port and its GIDs.

use rnic_programs::place::free_port;
use rnic_programs::process::Process;
use rnic_programs::{Place, Trial, User, skip};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// The GID of an address: itself, or IPv4-mapped.
fn gid_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The rows `GID[ 0]: address, RoCE v2` of `ibv_devinfo -v`.
fn devinfo_gids(text: &str) -> Vec<(u32, Ipv6Addr, String)> {
    text.lines()
        .filter_map(|line| {
            let (index, rest) = line.trim().strip_prefix("GID[")?.split_once("]:")?;
            let (gid, kind) = rest.split_once(',')?;
            Some((
                index.trim().parse().ok()?,
                gid.trim().parse().ok()?,
                kind.trim().to_owned(),
            ))
        })
        .collect()
}

fn lists_the_device(place: &Place) {
    let devices = place.finish("ibv_devices", [""; 0]);
    devices.expect_success();
    assert!(
        devices
            .stdout
            .lines()
            .any(|line| line.split_whitespace().next() == Some("rnic0")),
        "{}",
        devices.describe()
    );
}

fn describes_the_device(place: &Place) {
    let info = place.finish("ibv_devinfo", ["-v"]);
    info.expect_success();
    let field = |name: &str| {
        let of = |line: &str| {
            line.trim()
                .strip_prefix(name)?
                .trim()
                .strip_prefix(':')
                .map(|v| v.trim().to_owned())
        };
        info.stdout
            .lines()
            .find_map(of)
            .unwrap_or_else(|| panic!("no {name}\n{}", info.describe()))
    };
    assert_eq!(field("hca_id"), "rnic0");
    assert!(
        field("transport").starts_with("InfiniBand"),
        "{}",
        info.describe()
    );
    assert!(
        field("state").starts_with("PORT_ACTIVE"),
        "{}",
        info.describe()
    );
    assert_eq!(field("link_layer"), "Ethernet");
    assert!(field("max_mtu").starts_with("4096"), "{}", info.describe());
    let part: u32 = field("vendor_part_id").parse().expect("a number");
    assert!(
        !(4099..=4129).contains(&part),
        "vendor_part_id {part} impersonates another vendor's device"
    );

    // ibv_devinfo, rnic devices and the system agree about the addresses.
    let listed = devinfo_gids(&info.stdout);
    let ours: Vec<_> = place
        .gids()
        .into_iter()
        .map(|gid| (gid.index, gid.gid, gid.kind))
        .collect();
    assert_eq!(listed, ours, "{}", info.describe());
    for address in [
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ] {
        assert!(
            ours.iter().any(|(_, gid, _)| *gid == gid_of(address)),
            "no GID for {address}: {ours:?}"
        );
    }
    assert!(
        ours.iter().all(|(_, _, kind)| kind == "RoCE v2"),
        "{ours:?}"
    );
}

#[test]
fn devices_on_this_machine() {
    let trial = Trial::start_beside_others("devices_on_this_machine");
    if !skip::have_programs(trial.name(), &["ibv_devices", "ibv_devinfo"]) {
        return;
    }
    let place = trial.here();
    lists_the_device(&place);
    describes_the_device(&place);
}

#[test]
fn devices_in_a_namespace() {
    let trial = Trial::start_beside_others("devices_in_a_namespace");
    if !skip::have_programs(trial.name(), &["ibv_devices", "ibv_devinfo"]) {
        return;
    }
    for user in [User::Current, User::Nobody] {
        let Some((place, _other)) = trial.linked(user, 1500) else {
            continue;
        };
        lists_the_device(&place);
        describes_the_device(&place);
        for address in ["10.77.0.1", "fd77::1"] {
            let gid = place.gid(address);
            assert_eq!(gid.interface, "rn0");
            assert_eq!(gid.gid, gid_of(gid.address));
        }
        assert_eq!(place.gid("127.0.0.1").interface, "lo");
    }
}

/// A new address is a new GID, without any restart; the text shows what the JSON does.
#[test]
fn gids_follow_the_addresses() {
    let trial = Trial::start_beside_others("gids_follow_the_addresses");
    let Some(place) = trial.fresh(User::Current) else {
        return;
    };
    let count = place.gids().len();
    place
        .netns()
        .expect("fresh")
        .ip("addr add 10.99.1.2/32 dev lo");
    assert_eq!(place.gids().len(), count + 1);
    let gid = place.gid("10.99.1.2");

    let mut command = place.command(place.rnic());
    command.arg("devices");
    let text = Process::spawn(command).wait(SOON);
    text.expect_success();
    let row = text
        .stdout
        .lines()
        .find(|line| line.contains("10.99.1.2") && line.contains("rnic0"));
    let row = row.unwrap_or_else(|| panic!("no row for 10.99.1.2\n{}", text.describe()));
    for word in [gid.index.to_string().as_str(), "lo"] {
        assert!(
            row.split_whitespace().any(|field| field == word),
            "no {word} in {row:?}"
        );
    }
}

/// `rnic run` says what is wrong in words, and gives the program's own exit status otherwise.
#[test]
fn run_explains_itself() {
    let trial = Trial::start_beside_others("run_explains_itself");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };

    let finished = place.finish("sh", ["-c", "exit 42"]);
    assert_eq!(finished.status.code(), Some(42), "{}", finished.describe());
    let finished = place.finish("sh", ["-c", "kill -TERM $$"]);
    assert!(!finished.ok(), "{}", finished.describe());

    let finished = place.finish("no-such-program", [""; 0]);
    assert_eq!(
        finished.status.code(),
        Some(127),
        "as a shell: not found\n{}",
        finished.describe()
    );
    assert!(
        finished.stderr.contains("no-such-program"),
        "{}",
        finished.describe()
    );

    for spec in ["drop=101%", "nonsense", "drop=x"] {
        let mut command = place.command(place.rnic());
        command.args(["run", "--faults", spec, "--", "true"]);
        let finished = Process::spawn(command).wait(SOON);
        assert!(
            !finished.ok() && !finished.stderr.is_empty(),
            "{}",
            finished.describe()
        );
    }
}

/// A statically linked program cannot be given another library: said before it runs.
#[test]
fn run_refuses_static_programs() {
    let trial = Trial::start_beside_others("run_refuses_static_programs");
    if !skip::have_programs(trial.name(), &["gcc"]) {
        return;
    }
    let program = trial.folder().join("static");
    let source = trial.folder().join("static.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("own folder");
    let gcc = std::process::Command::new("gcc")
        .arg("-static")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    if !gcc.expect("gcc is installed").status.success() {
        skip::skipped(trial.name(), "this compiler does not link statically");
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let finished = place.finish(&program, [""; 0]);
    assert!(!finished.ok(), "{}", finished.describe());
    assert!(
        finished.stderr.contains("static"),
        "{}",
        finished.describe()
    );
}

/// Two users cannot share the port: the second is told what is the matter, the first is not
/// disturbed.
#[test]
fn port_of_another_user() {
    let trial = Trial::start_beside_others("port_of_another_user");
    if !skip::have_programs(trial.name(), &["ibv_rc_pingpong", "ibv_devinfo"]) {
        return;
    }
    let Some(place) = trial.fresh(User::Current) else {
        return;
    };
    let Some(other) = trial.beside(&place, User::Nobody) else {
        return;
    };
    let port = free_port();
    let (port_text, gid) = (port.to_string(), place.gid("127.0.0.1").index.to_string());
    let args = ["-p", &port_text, "-g", &gid];
    let options = Default::default();
    let mut server = Process::spawn(place.rnic_run(&options, "ibv_rc_pingpong", args));
    server.wait_for_listener(port, SOON);

    let refused = other.finish("ibv_rc_pingpong", args);
    assert!(!refused.ok(), "{}", refused.describe());
    assert!(refused.stderr.contains("4791"), "{}", refused.describe());
    let mut command = other.command(other.rnic());
    command.arg("devices");
    let devices = Process::spawn(command).wait(SOON);
    let all = format!("{}{}", devices.stdout, devices.stderr);
    assert!(
        all.contains("DOWN") && all.contains("4791"),
        "{}",
        devices.describe()
    );

    let args = ["-p", &port_text, "-g", &gid, "127.0.0.1"];
    let client = Process::spawn(place.rnic_run(&options, "ibv_rc_pingpong", args)).wait(SOON);
    client.expect_success();
    server.wait(SOON).expect_success();
}

/// It runs through, as this user and as nobody; its numbers are for people and quiet machines.
#[test]
fn bench_runs() {
    let trial = Trial::start("bench_runs");
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let mut command = place.command(place.rnic());
        command.args(["bench", "--size", "8,64K", "--milliseconds", "20", "--json"]);
        let finished = Process::spawn(command).wait(SOON);
        finished.expect_success();
        let value: serde_json::Value = serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("not JSON: {error}\n{}", finished.describe()));
        assert!(value.is_object(), "{}", finished.describe());
    }
}

/// The newcomer's command: verifies every byte and prints a table.
#[test]
fn demo() {
    let trial = Trial::start_beside_others("demo");
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let mut command = place.command(place.rnic());
        command.arg("demo");
        let finished = Process::spawn(command).wait(SOON);
        finished.expect_success();
        let text = finished.stdout.to_lowercase();
        for word in ["send", "write", "read", "compare", "fetch"] {
            assert!(text.contains(word), "no {word}\n{}", finished.describe());
        }
    }
}

/// Promise: `rnic study --device` measures a device of the system's libibverbs, and says what did the
/// NIC's work. That library is rnic's own drop-in here.
#[test]
fn a_study_of_a_device_of_the_system() {
    let trial = Trial::start_beside_others("a_study_of_a_device_of_the_system");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let folder = trial.new_folder("system", User::Current, 0o755);
    let library = place.rnic().with_file_name("librnic_verbs.so");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        std::os::unix::fs::symlink(&library, folder.join(name)).expect("own folder");
    }
    let file = folder.join("study.json");
    let mut command = place.command(place.rnic());
    command
        .env("LD_LIBRARY_PATH", &folder)
        .args(["study", "--device", "system:rnic0"])
        .args(["--rounds", "1", "--seconds", "0.5", "--json"])
        .arg(&file);
    let finished = Process::spawn(command).wait(SOON);
    finished.expect_success();
    let text = std::fs::read(&file).expect("written");
    let study: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(study["backend"], "libibverbs");
    assert_eq!(study["device"], "rnic0");
    assert_eq!(study["left_out"], serde_json::json!([]));
    assert_eq!(study["questions"].as_array().map(Vec::len), Some(13));
    assert!(
        !finished.stdout.contains("On a card:"),
        "it is no software: {}",
        finished.stdout
    );
}
