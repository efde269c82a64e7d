//! The oracle sees what goes wrong: a scenario that says something false of its end fails, and says
//! why.

use rnic_fabric::script::parse;
use rnic_fabric::{Scenario, run};

const HOSTS: &str = "host a 10.0.0.1\nhost b 10.0.0.2\n";

fn scenario(text: &str) -> Scenario {
    parse(&format!("{HOSTS}{text}")).unwrap_or_else(|why| panic!("{why}:\n{text}"))
}

#[test]
fn what_is_false_is_seen() {
    let wrong = [
        // A datagram that leaves does not fail, and one that is too long does.
        (
            "ud x a\nud y b\nx send 10 to y -> local_length",
            "endpoint x: datagram 0 ends with Success, not LocalLengthError",
        ),
        (
            "ud x a\nud y b\nx send 4097 to y",
            "endpoint x: datagram 0 ends with LocalLengthError, not Success",
        ),
        // Who is in no group gets nothing from it.
        (
            "ud x a\nud y b\nx send 10 to 239.1.1.1\nexpect received = 1",
            "`expect received = 1`: it was 0",
        ),
        // Not an event for each receive below the limit.
        (
            "srq s b receives 8 late 500s limit 4\nflow rc a b srq - s\na send 1 times 8\n\
             expect limit_events = 5",
            "`expect limit_events = 5`: it was 1",
        ),
        // Windows have rules.
        (
            "flow rc a b\na window type2 write 0..100\na bind 1\n\
             a write 100 through 1 -> remote_access",
            "operation 1 is to end with RemoteAccessError, and windows have it end with Success",
        ),
        (
            "flow rc a b\na window type2 read 0..100\na bind 1\na read 1 through 1\n\
             a send_inv 1 through 1",
            "operation 2 invalidates a window, and may overtake what goes through it",
        ),
    ];
    for (text, why) in wrong {
        let failure = run(&scenario(text)).failure;
        let what = failure.map(|failure| failure.what).unwrap_or_default();
        assert!(what.contains(why), "{text}\nfails with {what:?}");
    }
}

/// Promise: a datagram that the network repeats is told from one that the device repeats. The
/// oracle takes as many as the network says, and no more.
#[test]
fn repeated_datagrams_are_counted() {
    let text = "ud x a\nud y b\nx send 10 to y times 5\nduplicate a b SEND_ONLY 2..3\n\
                expect received = 7";
    assert_eq!(run(&scenario(text)).failure, None);
}
