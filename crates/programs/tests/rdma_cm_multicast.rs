//! `mckey`: members of a multicast group that they join through the connection manager.

use rnic_programs::{Meeting, Outcome, Process, Trial, User, skip};

/// A group and how its members are told of it; both sides have the words in common.
struct Group {
    what: &'static str,
    address: &'static str,
    words: &'static [&'static str],
    sender: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        what: "IPv4",
        address: "127.0.0.1",
        words: &["-m", "239.7.7.1"],
        sender: &[],
    },
    Group {
        what: "port space IPOIB, two ids each, a send-only member",
        address: "127.0.0.1",
        words: &[
            "-m",
            "239.7.7.2",
            "-p",
            "0x2",
            "-c",
            "2",
            "-C",
            "5",
            "-S",
            "1000",
        ],
        sender: &["-o"],
    },
];

/// Not on ::1: there is no way from there to a group.
const GROUP6: Group = Group {
    what: "IPv6",
    address: "fd77::1",
    words: &["-m", "ff0e::707"],
    sender: &[],
};

fn start(meeting: &Meeting, group: &Group) -> (Process, Process) {
    let mut receiver = vec!["stdbuf", "-oL", "mckey", "-b", "{server}"];
    receiver.extend(group.words);
    let mut sender = vec!["mckey", "-s", "-b", "{client}"];
    sender.extend(group.words.iter().chain(group.sender));
    let mut receiver = meeting.start_server(&receiver);
    // Nobody sends again what comes before.
    receiver.wait_for("the group", meeting.time, |text| {
        text.contains("joined dgid").then_some(())
    });
    (receiver, meeting.start_client(&sender))
}

fn judge(what: &str, outcome: &Outcome) {
    println!("{what}: {:?}", outcome.took);
    outcome.expect_success();
    for side in [&outcome.server, &outcome.client] {
        for said in ["data transfers complete", "return status 0"] {
            assert!(side.stdout.contains(said), "{what}\n{}", outcome.describe());
        }
    }
}

/// All at a time, as mckey sleeps most of it.
#[test]
fn mckey() {
    let trial = Trial::start_beside_others("mckey");
    if !skip::have_programs(trial.name(), &["mckey", "stdbuf"]) {
        return;
    }
    let mut running = Vec::new();
    for group in GROUPS {
        let Some(place) = trial.fresh(User::Current) else {
            return;
        };
        let meeting = Meeting::at(&place, group.address);
        let (receiver, sender) = start(&meeting, group);
        running.push((group.what, receiver, sender, meeting));
    }
    for (what, receiver, sender, meeting) in running {
        judge(what, &Outcome::of(receiver, sender, meeting.time));
    }
}

/// Both at once, so that each host has a process that is a member of the one group and not of the
/// other.
#[test]
fn mckey_elsewhere() {
    let trial = Trial::start_beside_others("mckey_elsewhere");
    if !skip::have_programs(trial.name(), &["mckey", "stdbuf"]) {
        return;
    }
    let Some((left, right)) = trial.linked(User::Nobody, 1500) else {
        return;
    };
    let mut running = Vec::new();
    for (what, server, client, group) in [
        ("veth, as nobody", "10.77.0.1", "10.77.0.2", &GROUPS[0]),
        ("veth, IPv6, as nobody", "fd77::1", "fd77::2", &GROUP6),
    ] {
        let meeting = Meeting::between((&left, server), (&right, client));
        let (receiver, sender) = start(&meeting, group);
        running.push((what, receiver, sender, meeting));
    }
    for (what, receiver, sender, meeting) in running {
        judge(what, &Outcome::of(receiver, sender, meeting.time));
    }
}
