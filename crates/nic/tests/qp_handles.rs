//! Several handles of one queue pair: each gets its events, whatever becomes of the others.

use rnic_nic::{AsyncEvent, Context, Qp, QpAttr, QpAttrMask as M, QpEvent, QpState};

/// Takes it from RESET to ERR, which is an event.
fn fail(qp: &Qp) {
    let to = |qp_state, mask| {
        let attr = QpAttr {
            qp_state,
            port_num: 1,
            ..QpAttr::default()
        };
        qp.modify(&attr, M::STATE | mask).expect("modify");
    };
    to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
    to(QpState::Err, M(0));
}

#[test]
fn a_handle_gets_no_event_before_it_listens() {
    let context = Context::open().expect("a device");
    let domain = context.open_xrcd(None, true, false).expect("a domain");
    let qp = domain.create_qp(7).expect("a target");
    let (deaf, other) = (domain.open_qp(qp.qpn(), 8), domain.open_qp(qp.qpn(), 9));
    let (deaf, other) = (deaf.expect("a handle"), other.expect("a handle"));
    other.listen();
    fail(&qp);
    let cookies = std::iter::from_fn(|| context.next_async_event()).map(|event| match event {
        AsyncEvent::Qp { cookie, .. } => cookie,
        other => panic!("{other:?}"),
    });
    assert_eq!(cookies.collect::<Vec<_>>(), [7, 9]);
    drop(deaf);
}

#[test]
fn the_end_of_one_handle_leaves_the_others_their_events() {
    let context = Context::open().expect("a device");
    let domain = context.open_xrcd(None, true, false).expect("a domain");
    let qp = domain.create_qp(7).expect("a target");
    let twin = domain.open_qp(qp.qpn(), 7).expect("another handle of it");
    twin.listen();
    drop(twin);
    fail(&qp);
    let event = QpEvent::LastWqeReached;
    let expected = AsyncEvent::Qp { cookie: 7, event };
    assert_eq!(context.next_async_event(), Some(expected));
    assert_eq!(context.next_async_event(), None);
}
