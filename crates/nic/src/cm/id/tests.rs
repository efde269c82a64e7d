//! What depends on who is first at the engine's lock.

use std::sync::Arc;

use crate::QpType;
use crate::cm::{ConnParam, EventChannel, EventKind, Id, PortSpace};

fn tcp(channel: &EventChannel) -> Id {
    Id::new(channel, PortSpace::Tcp, QpType::Rc, 1).expect("an id")
}

/// The last handle of a listener ends while somebody takes a request of it: the request ends too,
/// as its id is nobody's.
#[test]
fn a_request_does_not_outlive_its_listener() {
    let (ours, theirs) = (
        EventChannel::new().expect("a channel"),
        EventChannel::new().expect("a channel"),
    );
    let listener = tcp(&theirs);
    listener.listen(1).expect("it listens");
    let port = listener
        .route()
        .expect("a route")
        .local
        .expect("one")
        .port();
    let client = tcp(&ours);
    let addr = ([127, 0, 0, 1], port).into();
    client.resolve_addr(None, addr, 2000).expect("a way");
    assert_eq!(ours.get().expect("one").kind, EventKind::AddrResolved);
    client.resolve_route(2000).expect("a route");
    assert_eq!(ours.get().expect("one").kind, EventKind::RouteResolved);
    let asked = client.connect(&ConnParam {
        qp_num: 0x66_0001,
        ..ConnParam::default()
    });
    asked.expect("asked");
    let nic = &theirs.shared.nic;
    let waiting = || {
        let mut engine = nic.lock();
        let channel = engine.cm.channels.get_mut(theirs.shared.key)?;
        channel.events.front()?.subject
    };
    let request = loop {
        if let Some(request) = waiting() {
            break request;
        }
        std::thread::yield_now();
    };
    let mut engine = nic.lock();
    let handle = Arc::downgrade(&listener.shared);
    let dropper = std::thread::spawn(|| drop(listener));
    while handle.strong_count() > 0 {
        std::thread::yield_now();
    }
    let now = rnic_sys::now_ns();
    assert!(Id::next_event(nic, &mut engine.cm, theirs.shared.key, now).is_none());
    assert!(engine.cm.ids.get(request).is_none());
    engine.send_cm(now);
    nic.after_drive(engine);
    dropper.join().expect("no panic");
    let event = ours.get().expect("the refusal");
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
}
