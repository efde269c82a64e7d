//! The kernel's interfaces beside verbs: `rdma` of iproute2 (NETLINK_RDMA), `ibstat` and
//! `ibstatus`, shells and Python in sysfs.

use rnic_programs::place::RunOptions;
use rnic_programs::process::{Finished, Process};
use rnic_programs::{Place, Trial, User, compile, skip};
use serde_json::Value;
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(120);

/// What `rdma -j ARGS` prints.
fn rdma(place: &Place, args: &str) -> Vec<Value> {
    let finished = place.finish("rdma", ["-j"].into_iter().chain(args.split(' ')));
    finished.expect_success();
    let all = serde_json::from_str(&finished.stdout);
    all.unwrap_or_else(|error| panic!("{error}\n{}", finished.describe()))
}

/// The one thing that it prints.
fn one(place: &Place, args: &str) -> Value {
    match &rdma(place, args)[..] {
        [one] => one.clone(),
        all => panic!("rdma {args}: {all:?}"),
    }
}

fn says(finished: &Finished, words: &[&str]) {
    finished.expect_success();
    for word in words {
        let all = finished
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(all.contains(word), "no {word:?}\n{}", finished.describe());
    }
}

#[test]
fn rdma_shows_the_device() {
    let trial = Trial::start_beside_others("rdma_shows_the_device");
    if !skip::have_programs(trial.name(), &["rdma"]) {
        return;
    }
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let link = one(&place, "link show");
        assert_eq!(link["ifname"], "rnic0");
        assert_eq!(link["port"], 1);
        assert_eq!(link["state"], "ACTIVE");
        assert_eq!(link["physical_state"], "LINK_UP");
        let gids = place.gids();
        assert!(
            gids.iter().any(|gid| link["netdev"] == *gid.interface),
            "{link} {gids:?}"
        );
        assert_eq!(one(&place, "link show rnic0/1"), link);

        let device = one(&place, "dev show rnic0");
        assert_eq!(device["node_type"], "ca");
        let fw = place.finish("cat", ["/sys/class/infiniband/rnic0/fw_ver"]);
        assert_eq!(device["fw"], fw.stdout.trim());
        let guid = place.finish("cat", ["/sys/class/infiniband/rnic0/node_guid"]);
        assert_eq!(device["node_guid"], guid.stdout.trim());

        says(
            &place.finish("rdma", ["system", "show"]),
            &["netns shared", "copy-on-fork on"],
        );
        assert_eq!(rdma(&place, "resource show qp"), [] as [Value; 0]);
        let none = one(&place, "resource show");
        for kind in ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"] {
            assert_eq!(none[kind], 0, "{none}");
        }
        // The counters of sysfs, in their order.
        let counted = one(&place, "statistic show link rnic0/1");
        let folder = "/sys/class/infiniband/rnic0/ports/1/hw_counters";
        let files = place.finish("ls", [folder]);
        files.expect_success();
        for name in files.stdout.split_whitespace() {
            assert_eq!(counted[name], 0, "{name} {counted}");
        }
        says(
            &place.finish("rdma", ["statistic", "qp", "mode"]),
            &["auto off"],
        );

        // Nobody renames it; who may not even try is told that, as by the kernel.
        let set = place.finish("rdma", ["dev", "set", "rnic0", "name", "other"]);
        assert!(!set.ok(), "{}", set.describe());
        let why = match user {
            User::Nobody => "Operation not permitted",
            User::Current if place.finish("capsh", ["--has-p=cap_net_admin"]).ok() => {
                "cannot be changed"
            }
            User::Current => "Operation not",
        };
        assert!(set.stderr.contains(why), "{}", set.describe());
    }
}

/// A process with so many queue pairs that a socket does not hold what there is to tell of them.
#[test]
fn rdma_shows_what_another_process_has() {
    const QPS: usize = 3000;
    let trial = Trial::start_beside_others("rdma_shows_what_another_process_has");
    if !skip::have_programs(trial.name(), &["rdma"]) {
        return;
    }
    let Some(victim) = compile::c_program(&trial, "victim") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let secret = trial
        .new_folder("secret", User::Current, 0o700)
        .join("secret");
    let (gid, qps) = (place.gid("127.0.0.1").index.to_string(), QPS.to_string());
    let args = [gid.as_ref(), qps.as_ref(), secret.as_os_str()];
    let mut victim = Process::spawn(place.rnic_run(&RunOptions::default(), &victim, args));
    victim.wait_for("ready", TIME, |text| text.contains("ready\n").then_some(()));
    let secret = std::fs::read_to_string(&secret).expect("the secret");
    let mut lines = secret.lines();
    let region: Vec<u64> = numbers(lines.next().expect("a region"));
    let mut qpns: Vec<u64> = lines.map(|line| numbers(line)[0]).collect();
    qpns.sort_unstable();

    let shown = rdma(&place, "resource show qp link rnic0/1");
    let mut lqpns: Vec<u64> = shown.iter().map(|qp| number(qp, "lqpn")).collect();
    lqpns.sort_unstable();
    assert_eq!(lqpns, qpns);
    let pid = number(&shown[0], "pid");
    for qp in &shown {
        assert_eq!(qp["type"], "RC", "{qp}");
        assert_eq!(qp["comm"], "victim", "{qp}");
        assert_eq!((number(qp, "pid"), number(qp, "port")), (pid, 1), "{qp}");
        assert_eq!(number(qp, "pdn"), number(&shown[0], "pdn"), "{qp}");
    }
    let some = &shown[QPS / 2];
    let lqpn = number(some, "lqpn");
    let found = one(
        &place,
        &format!("resource show qp link rnic0/1 lqpn {lqpn}"),
    );
    assert_eq!(found, *some);

    // What belongs together says so.
    let pd = one(
        &place,
        &format!("resource show pd pdn {}", number(some, "pdn")),
    );
    assert_eq!(number(&pd, "users") as usize, QPS + 1, "{pd}");
    let context = one(&place, "resource show ctx");
    assert_eq!(number(&context, "ctxn"), number(&pd, "ctxn"));
    let cq = one(&place, "resource show cq");
    assert_eq!(number(&cq, "users") as usize, 2 * QPS, "{cq}");
    assert!(number(&cq, "cqe") >= 1024, "{cq}");
    let mr = one(&place, "resource show mr");
    assert_eq!(
        (number(&mr, "mrlen"), number(&mr, "pdn")),
        (region[1], number(&pd, "pdn"))
    );
    let key = mr["rkey"].as_str().expect("a key").trim_start_matches("0x");
    assert_eq!(u64::from_str_radix(key, 16), Ok(region[2]));
    let all = one(&place, "resource show");
    assert_eq!(
        (number(&all, "qp") as usize, number(&all, "mr")),
        (QPS, 1),
        "{all}"
    );

    // A process that is stopped is left out, and nobody waits for it for long.
    let stopped = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP)
        .expect("a process of ours");
    let start = Instant::now();
    let without = place.finish("rdma", ["resource", "show", "qp"]);
    let took = start.elapsed();
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT)
        .expect("a process of ours");
    without.expect_success();
    assert!(!without.stdout.contains("victim"), "{}", without.describe());
    assert!(
        without
            .stderr
            .contains(&format!("process {pid} did not answer")),
        "{}",
        without.describe()
    );
    assert!(took < Duration::from_secs(20), "{took:?}");

    victim.close_stdin();
    victim.wait(TIME).expect_success();
    assert_eq!(rdma(&place, "resource show qp"), [] as [Value; 0]);
}

fn numbers(line: &str) -> Vec<u64> {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    line.split_whitespace()
        .map(|word| number(word).expect("a number"))
        .collect()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[test]
fn rdma_shows_who_listens() {
    let trial = Trial::start_beside_others("rdma_shows_who_listens");
    if !skip::have_programs(trial.name(), &["rdma", "rping"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let args = ["-s", "-a", "127.0.0.1", "-p", "7471"];
    let mut server = Process::spawn(place.rnic_run(&RunOptions::default(), "rping", args));
    let deadline = Instant::now() + TIME;
    let id = loop {
        assert!(
            !server.failed() && Instant::now() < deadline,
            "{}",
            server.output()
        );
        let ids = rdma(&place, "resource show cm_id");
        match ids.into_iter().find(|id| id["state"] == "LISTEN") {
            Some(id) => break id,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(
        (&id["ps"], &id["comm"]),
        (&"TCP".into(), &"rping".into()),
        "{id}"
    );
    assert_eq!(id["src-addr"], "127.0.0.1:7471", "{id}");
    server.kill();
}

#[test]
fn infiniband_diags_and_shells_find_the_port_and_its_interface() {
    let trial = Trial::start_beside_others("infiniband_diags_and_shells");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let interface = place.gid("127.0.0.1").interface;
    if skip::have_programs(trial.name(), &["ibstat", "ibstatus"]) {
        let stat = place.finish("ibstat", [""; 0]);
        says(
            &stat,
            &[
                "CA 'rnic0'",
                "State: Active",
                "Physical state: LinkUp",
                "Link layer: Ethernet",
            ],
        );
        let status = place.finish("ibstatus", [""; 0]);
        says(
            &status,
            &[
                "device 'rnic0' port 1",
                "state: 4: ACTIVE",
                "link_layer: Ethernet",
            ],
        );
    }
    // As scripts look for which interface is whose.
    let script = r#"
        for ndev in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0; do
            device=${ndev#/sys/class/infiniband/}
            echo "gid: ${device%%/*} $(cat "$ndev")"
        done
        for net in /sys/class/infiniband/rnic0/device/net/*; do
            echo "net: ${net##*/} $(cat "$net/ifindex")"
        done
        cd /sys/class/infiniband && echo "cd: $(echo *)"
    "#;
    let expected = format!("gid: rnic0 {interface} net: {interface} 1 cd: rnic0");
    for shell in ["sh", "bash"] {
        says(&place.finish(shell, ["-c", script]), &[&expected]);
    }
    if skip::have_programs(trial.name(), &["python3"]) {
        let script = r#"
import glob, os
folder = "/sys/class/infiniband/rnic0/device/net"
names = os.listdir(folder)
assert glob.glob("/sys/class/infiniband/*/device/net/*") == [f"{folder}/{name}" for name in names]
assert [entry.name for entry in os.scandir(folder)] == names
assert os.path.isdir(f"{folder}/{names[0]}")
assert os.path.realpath(f"{folder}/{names[0]}").startswith("/sys/"), os.path.realpath(f"{folder}/{names[0]}")
print(names[0], open(f"{folder}/{names[0]}/ifindex").read())
"#;
        says(
            &place.finish("python3", ["-c", script]),
            &[&format!("{interface} 1")],
        );
    }
}

/// Sockets as a program has them that knows netlink itself, and messages that nobody should send.
#[test]
fn netlink_by_hand_also_by_hostile_ones() {
    const SCRIPT: &str = r#"
import os, random, select, socket, struct

RDMA = 20
def open_socket():
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, RDMA)

def message(op, flags, payload=b"", length=None, client=5):
    length = 16 + len(payload) if length is None else length
    return struct.pack("=IHHII", length, client << 10 | op, flags, 7, 0) + payload

def answers(s):
    """All that there is now."""
    found = []
    while select.select([s], [], [], 0)[0]:
        data, address = s.recvfrom(4096)
        assert address == (0, 0), address
        length, kind, flags, sequence, port = struct.unpack_from("=IHHII", data)
        assert length == len(data) and port == s.getsockname()[0], data
        found.append((kind, data[16:]))
    return found

def errno(answer):
    assert answer[0] == 2, answer
    return -struct.unpack_from("=i", answer[1])[0]

DEVICES = message(1, 0x301)
s = open_socket()
s.bind((0, 0))
s.setsockopt(270, 11, 1)
for send in (lambda: s.send(DEVICES), lambda: s.sendto(DEVICES, (0, 0)),
             lambda: s.sendmsg([DEVICES[:5], DEVICES[5:]]), lambda: s.sendmsg([DEVICES], [], 0, (0, 0))):
    assert send() == len(DEVICES)
    device, end = answers(s)
    assert b"rnic0\0" in device[1] and end[0] == 3
s.connect((0, 0))
s.send(DEVICES)
assert b"rnic0\0" in s.recv(4096)
data, _, _, address = s.recvmsg(4096)
assert address == (0, 0) and len(data) == 20
# Another descriptor, and another process.
copy = socket.socket(fileno=os.dup(s.fileno()))
copy.send(DEVICES)
assert len(answers(s)) == 2
child = os.fork()
if child == 0:
    s.send(DEVICES)
    os._exit(0 if len(answers(s)) == 2 else 1)
assert os.waitpid(child, 0)[1] == 0

# A socket of another kind is nobody's business.
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
route.send(struct.pack("=IHHIIBxxxI", 20, 18, 0x301, 1, 0, 0, 0)[:20])
assert route.recv(65536)

# What makes no sense.
attribute = lambda length, kind, value=b"": struct.pack("=HH", length, kind) + value
for bad, expected in (
    (message(1, 5), 22), (message(999, 5), 22), (message(1, 5, client=2), 22), (message(1, 5, client=63), 22),
    (message(1, 5, attribute(5, 1, b"\0\0\0\0")), 34), (message(1, 5, attribute(3, 1)), 22),
    (message(1, 5, attribute(65535, 1)), 22), (message(1, 5, b"\1"), 22),
    (message(10, 5, attribute(8, 1, b"\0\0\0\0") + attribute(8, 0x8001, b"\xff\xff\xff\xff")), 22),
):
    s.send(bad)
    assert [errno(answer) for answer in answers(s)] == [expected], bad
# The kernel says nothing to what is no message.
for nothing in (b"", b"\0", DEVICES[:15], message(1, 5, length=0), message(1, 5, length=15), message(1, 5, length=17),
                message(1, 5, length=0xffffffff)):
    s.send(nothing)
    assert answers(s) == [], nothing
try:
    s.send(bytes(1 << 20))
    raise SystemExit("a message of 1 MiB was taken")
except OSError as error:
    assert error.errno == 90, error

random.seed(1)
for _ in range(2000):
    noise = bytearray(message(random.randrange(32), random.randrange(1 << 16) | 1, random.randbytes(random.randrange(60))))
    for _ in range(random.randrange(3)):
        noise[random.randrange(len(noise))] = random.randrange(256)
    s.send(noise)
    answers(s)
s.send(DEVICES)
assert len(answers(s)) == 2
for _ in range(1000):
    open_socket().close()
print("well")
"#;
    let trial = Trial::start_beside_others("netlink_by_hand");
    if !skip::have_programs(trial.name(), &["python3"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    says(&place.finish("python3", ["-c", SCRIPT]), &["well"]);
}
