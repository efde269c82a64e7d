//! What `rnic run` says of connections that do not come about.

use rnic_programs::{Finished, Place, Process, Trial, User, skip};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

fn run(place: &Place, program: &[&str]) -> Finished {
    let mut command = place.command(place.rnic());
    command.args(["run", "--"]).args(program);
    Process::spawn(command).wait(TIME)
}

#[track_caller]
fn expect(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "no {part:?} in what was said\n{}",
            finished.describe()
        );
    }
}

/// Who has the port, by name and number.
#[test]
fn a_port_that_is_taken() {
    let trial = Trial::start_beside_others("a_port_that_is_taken");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    // Whichever comes second; the one that has the port waits for nobody, and is ended.
    let script = "rping -s -p 7302 & a=$!; rping -s -p 7302 & b=$!; wait -n; status=$?; kill $a $b; exit $status";
    expect(
        &run(&place, &["bash", "-c", script]),
        &[
            "rdma_bind_addr with errno 99 EADDRNOTAVAIL",
            "cannot take 0.0.0.0:7302 in RDMA_PS_TCP",
            "it is taken: RDMA_PS_TCP port 7302 at any address (rping pid ",
        ],
    );
}

/// A program that is killed while it waits has no time to say so.
#[test]
fn no_answer_yet() {
    let trial = Trial::start_beside_others("no_answer_yet");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some((here, _elsewhere)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let script = "rping -c -a 10.77.0.2 & until grep -q 'no answer yet' $RNIC_REPORT; do sleep 0.02; done; \
                  kill -9 $!; wait $!";
    expect(
        &run(&here, &["sh", "-c", script]),
        &[
            "-> 10.77.0.2:7174 (RDMA_PS_TCP): it was still waiting for an answer",
            "was sent at least once in",
            "ICMP says that nothing takes UDP port 4791 at 10.77.0.2",
            "maybe: the host is down, or no process there uses RDMA",
        ],
    );
}

/// Addresses and ways that lead nowhere.
#[test]
fn addresses_in_words() {
    let trial = Trial::start_beside_others("addresses_in_words");
    if !skip::have_programs(trial.name(), &["rping"]) {
        return;
    }
    let Some((here, _elsewhere)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let netns = here.netns().expect("a namespace of its own");
    netns.ip("link add down0 type veth peer name down1");
    netns.ip("addr add 10.1.2.3/24 dev down0");
    for (program, said) in [
        (
            "rping -s -a 10.1.2.3",
            &[
                "rdma_bind_addr with errno 99 EADDRNOTAVAIL",
                "10.1.2.3 is on down0, which is down (ip link set down0 up)",
            ][..],
        ),
        (
            "rping -s -a 10.1.2.4",
            &["10.1.2.4 is no address of this host"],
        ),
        (
            "rping -c -a 10.77.0.99",
            &[
                "-> 10.77.0.99:7174 (RDMA_PS_TCP): the address did not resolve",
                "nobody answers to 10.77.0.99 (ARP, neighbour discovery)",
            ],
        ),
        (
            "rping -c -a 192.0.2.1",
            &["no way to 192.0.2.1: Network is unreachable"],
        ),
    ] {
        let words: Vec<&str> = program.split(' ').collect();
        expect(&run(&here, &words), said);
    }
}
