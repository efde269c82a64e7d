//! Promise: what UD and UC drop without a word on the wire is told in both terminals: in that of the
//! process which dropped it, and in that of the one which sent it.

use rnic_programs::each::each;
use rnic_programs::situations::{self, Column, causes};
use rnic_programs::{Trial, User, compile};

use crate::misfit::in_two;

/// A case, and what both terminals say of it.
const CASES: [(&str, &str); 12] = [
    ("ud-fits", ""),
    ("ud-qkey", "Q_Key 0x22222222 of QP 0x"),
    ("ud-no-receive", "no receive was posted"),
    ("ud-qpn", "no queue pair of this process has that number"),
    ("ud-init", "it was in INIT, and was never moved to RTR"),
    ("ud-type", "is of type RC, and dropped what came from"),
    ("uc-fits", ""),
    ("uc-no-receive", "no receive was posted"),
    ("uc-rkey", "do not allow the RDMA WRITE"),
    ("uc-qpn", "no queue pair of this process has that number"),
    ("uc-init", "it was in INIT, and was never moved to RTR"),
    ("uc-type", "is of type RC, and dropped what came from"),
];

#[test]
fn both_terminals_tell_of_it() {
    let trial = Trial::start_beside_others("both_terminals_tell_of_it");
    let Some(program) = compile::c_program(&trial, "datagrams") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for host_path in ["on", "off"] {
        let column = |name| Column::new("datagrams", name, "datagrams");
        let nic = column(situations::NIC);
        let sender = column(situations::TWO_TERMINALS);
        let receiver = column(situations::PEER);
        each(
            &CASES,
            |case| case.0,
            |(case, says)| {
                let at = (&place, "127.0.0.1");
                let [here, there] = in_two(&program, case, host_path, at, at);
                let got = match says.is_empty() {
                    true => ("B got 1\n", "the message"),
                    false => ("B got 0\n", "nothing"),
                };
                // A NIC tells the sender of success, whatever became of it.
                assert_eq!(here.stdout, "A status 0\n", "{}", here.describe());
                assert_eq!(there.stdout, got.0, "{}", there.describe());
                for (side, begins) in [(&here, "rnic: at the peer: "), (&there, "rnic: ")] {
                    let said = &side.stderr;
                    assert_eq!(says.is_empty(), said.is_empty(), "{case}: {said}");
                    assert!(said.contains(says), "{case}: no {says:?} in\n{said}");
                    assert!(
                        said.is_empty() || said.starts_with(begins),
                        "{case}: {said}"
                    );
                    assert!(said.lines().count() <= 1, "once: {said}");
                }
                let statuses = situations::statuses(&here.stdout);
                nic.add(case, &format!("{statuses}; the receiver gets {}", got.1));
                sender.add(case, &causes(&here.stderr));
                receiver.add(case, &causes(&there.stderr));
            },
        );
        nic.check();
        sender.check();
        receiver.check();
    }
}
