//! The examples that need no arguments, on the device that the tests run on.

#[path = "../examples/datagrams.rs"]
mod datagrams;
#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/hardware.rs"]
mod hardware;
#[path = "../examples/key_value.rs"]
mod key_value;
#[path = "../examples/multicast.rs"]
mod multicast;
#[path = "../examples/xrc.rs"]
mod xrc;

#[test]
fn messages_are_echoed() {
    echo::main().expect("it runs");
}

/// It is short enough to be read at once.
#[test]
fn values_are_got_by_one_sided_reads() {
    key_value::main().expect("it runs");
    let lines = include_str!("../examples/key_value.rs").lines().count();
    assert!(lines <= 60, "{lines} lines");
}

#[test]
fn datagrams_are_asked_and_answered() {
    if crate::device().ud {
        datagrams::main().expect("it runs");
    }
}

#[test]
fn a_group_hears_one_sender() {
    if crate::device().multicast_loopback {
        multicast::main().expect("it runs");
    }
}

#[test]
fn workers_share_a_connection() {
    xrc::main().expect("it runs");
}

#[test]
fn a_device_of_the_system_is_tried() {
    hardware::main().expect("it runs");
}
