//! What the tests share.

use std::net::SocketAddr;
use std::sync::RwLock;
use std::time::Duration;

use rnic_nic::QpType;
use rnic_nic::cm::{ConnEvent, Event, EventChannel, EventKind, EventParam, Id, PortSpace};

/// The errno of a call that has to fail.
#[track_caller]
pub fn errno<T>(result: rnic_nic::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it went well"),
        Err(e) => e.errno(),
    }
}

pub fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub fn channel() -> EventChannel {
    EventChannel::new().expect("an event channel")
}

/// An id for reliable connections.
pub fn tcp(channel: &EventChannel) -> Id {
    Id::new(channel, PortSpace::Tcp, QpType::Rc, 0).expect("an id")
}

/// An id for datagrams.
pub fn udp(channel: &EventChannel) -> Id {
    Id::new(channel, PortSpace::Udp, QpType::Ud, 0).expect("an id")
}

/// Whether an event waits.
pub fn waits(channel: &EventChannel, patience: Duration) -> bool {
    let mut fd = libc::pollfd {
        fd: channel.fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, as many as is said.
    unsafe { libc::poll(&mut fd, 1, patience.as_millis() as i32) == 1 }
}

/// The next event, which has to be of this kind and without error.
#[track_caller]
pub fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = next(channel);
    assert_eq!((event.kind, event.status), (kind, 0));
    event
}

/// The next event.
#[track_caller]
pub fn next(channel: &EventChannel) -> Event {
    assert!(waits(channel, Duration::from_secs(30)), "no event");
    channel.get().expect("an event")
}

/// Takes an id as far as RouteResolved.
#[track_caller]
pub fn resolve(id: &Id, channel: &EventChannel, peer: SocketAddr) {
    id.resolve_addr(None, peer, 2000).expect("a way");
    expect(channel, EventKind::AddrResolved);
    id.resolve_route(2000).expect("a route");
    expect(channel, EventKind::RouteResolved);
}

/// Held to write by tests that start other processes, to read by those that rely on the order of
/// messages: what reaches another process first is handed over, and late.
pub static HOST: RwLock<()> = RwLock::new(());

/// What an event of a connection tells.
#[track_caller]
pub fn conn(event: &Event) -> &ConnEvent {
    match &event.param {
        EventParam::Conn(conn) => conn,
        other => panic!("{other:?}"),
    }
}
