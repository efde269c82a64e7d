//! Datagram services: their queue pairs are found by service ID resolution.

use rnic_nic::QpAttrMask as M;
use rnic_nic::QpState;
use rnic_nic::cm::{CONNECT_UD_PRIVATE_DATA, ConnParam, EventKind, EventParam, UDP_QKEY, UdEvent};

use super::tools::{channel, errno, expect, here, next, resolve, udp};

fn ud(param: &EventParam) -> &UdEvent {
    match param {
        EventParam::Ud(ud) => ud,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_datagram_service_is_found() {
    let (ours, theirs) = (channel(), channel());
    let listener = udp(&theirs);
    listener.bind(here(0)).expect("bound");
    listener.listen(8).expect("it listens");
    let port = listener
        .route()
        .expect("a route")
        .local
        .expect("an address")
        .port();
    let client = udp(&ours);
    resolve(&client, &ours, here(port));
    let (attr, mask) = client.init_qp_attr(QpState::Init).expect("resolved");
    assert_eq!(mask, M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY);
    assert_eq!(attr.qkey, UDP_QKEY);
    let asked = ConnParam {
        private_data: b"are you there",
        qp_num: 17,
        ..ConnParam::default()
    };
    client.connect(&asked).expect("asked");
    let event = expect(&theirs, EventKind::ConnectRequest);
    let heard = ud(&event.param);
    assert_eq!(heard.private_data.len(), CONNECT_UD_PRIVATE_DATA);
    assert!(heard.private_data.starts_with(b"are you there\0"));
    assert_eq!(
        event.id.route().expect("a route").peer,
        client.route().expect("a route").local
    );
    let answer = ConnParam {
        private_data: b"here",
        qp_num: 0x1234,
        ..ConnParam::default()
    };
    event.id.accept(Some(&answer), 2).expect("accepted");
    let event = expect(&ours, EventKind::Established);
    let heard = ud(&event.param);
    assert_eq!((heard.qp_num, heard.qkey), (0x1234, UDP_QKEY));
    assert!(heard.private_data.starts_with(b"here\0"));
    assert_eq!(heard.ah.dgid.ip(), here(0).ip());
    assert!(heard.ah.is_global);
    client.disconnect().expect("nothing to end, and no error");
}

#[test]
fn a_datagram_service_may_refuse() {
    let (ours, theirs) = (channel(), channel());
    let listener = udp(&theirs);
    listener.bind(here(0)).expect("bound");
    listener.listen(8).expect("it listens");
    let port = listener
        .route()
        .expect("a route")
        .local
        .expect("an address")
        .port();
    let client = udp(&ours);
    resolve(&client, &ours, here(port));
    client.connect(&ConnParam::default()).expect("asked");
    let server = expect(&theirs, EventKind::ConnectRequest).id;
    assert_eq!(errno(server.reject(&[0; 137], 0)), libc::EINVAL);
    server.reject(b"no", 0).expect("refused");
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Unreachable, 2));
    assert!(ud(&event.param).private_data.starts_with(b"no\0"));
    assert_eq!(
        errno(server.accept(Some(&ConnParam::default()), 2)),
        libc::EINVAL
    );
}

#[test]
fn where_no_datagram_service_is_the_answer_says_so() {
    let ours = channel();
    let client = udp(&ours);
    resolve(&client, &ours, here(9));
    client.connect(&ConnParam::default()).expect("asked");
    let event = next(&ours);
    assert_eq!((event.kind, event.status), (EventKind::Unreachable, 1));
}
