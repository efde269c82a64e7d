//! Event channels and the lives of ids.

use std::time::Duration;

use rnic_nic::cm::EventKind;

use super::tools::{channel, errno, expect, here, tcp, waits};

const NONE: Duration = Duration::ZERO;

fn set_nonblocking(fd: i32) {
    // SAFETY: no pointers.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

#[test]
fn the_descriptor_is_readable_exactly_while_an_event_waits() {
    let channel = channel();
    set_nonblocking(channel.fd());
    assert!(!waits(&channel, NONE));
    assert_eq!(errno(channel.get()), libc::EAGAIN);
    let ids = [tcp(&channel), tcp(&channel)];
    for id in &ids {
        id.resolve_addr(None, here(1), 100).expect("a way");
    }
    for _ in 0..2 {
        assert!(waits(&channel, NONE));
        expect(&channel, EventKind::AddrResolved);
    }
    assert!(!waits(&channel, NONE));
    assert_eq!(errno(channel.get()), libc::EAGAIN);
}

#[test]
fn the_events_of_an_id_go_with_it() {
    let channel = channel();
    let (first, second) = (tcp(&channel), tcp(&channel));
    first.set_uid(1);
    second.set_uid(2);
    for id in [&first, &second] {
        id.resolve_addr(None, here(1), 100).expect("a way");
    }
    assert_eq!(first.destroy(), 0, "none was taken");
    assert_eq!(expect(&channel, EventKind::AddrResolved).uid, 2);
    assert!(!waits(&channel, NONE));
    assert_eq!(second.destroy(), 1);
    assert_eq!(second.destroy(), 0);
    assert_eq!(errno(second.bind(here(0))), libc::EINVAL);
}

#[test]
fn the_last_handle_ends_the_id() {
    let channel = channel();
    let id = tcp(&channel);
    id.bind(here(0)).expect("bound");
    let addr = id.route().expect("a route").local.expect("an address");
    let copy = id.clone();
    drop(id);
    assert_eq!(errno(tcp(&channel).bind(addr)), libc::EADDRINUSE);
    drop(copy);
    tcp(&channel).bind(addr).expect("free");
}

#[test]
fn waiting_events_move_with_their_id() {
    let (from, to) = (channel(), channel());
    let id = tcp(&from);
    id.resolve_addr(None, here(1), 100).expect("a way");
    expect(&from, EventKind::AddrResolved);
    id.resolve_route(100).expect("a route");
    assert_eq!(id.migrate(&to).expect("moved"), 1);
    assert!(!waits(&from, NONE));
    expect(&to, EventKind::RouteResolved);
    drop(from);
    assert!(id.route().expect("it lives").path.is_some());
}

#[test]
fn a_closed_channel_takes_its_ids_along() {
    let (first, second) = (channel(), channel());
    let id = tcp(&first);
    id.bind(here(0)).expect("bound");
    let addr = id.route().expect("a route").local.expect("an address");
    drop(first);
    assert_eq!(errno(id.listen(1)), libc::EINVAL);
    tcp(&second).bind(addr).expect("its port is free");
}

#[test]
fn a_blocked_reader_gets_the_event() {
    let channel = channel();
    let id = tcp(&channel);
    let reader = std::thread::spawn({
        let channel = channel.clone();
        move || channel.get().expect("an event").kind
    });
    id.resolve_addr(None, here(1), 100).expect("a way");
    assert_eq!(reader.join().expect("no panic"), EventKind::AddrResolved);
}
