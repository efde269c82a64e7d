use rnic_wire::{Flow, IcrcContext, ROCE_PORT};

use super::inbox::sender_of;
use super::*;
use crate::path::PathId;

fn flow(port: u16) -> Flow {
    Flow {
        src: "10.0.0.1".parse().unwrap(),
        dst: "10.0.0.2".parse().unwrap(),
        src_port: port,
        dst_port: ROCE_PORT,
    }
}

#[test]
fn senders_are_told_apart_by_all_of_their_flow() {
    let other_dst = Flow {
        dst: "10.0.0.3".parse().unwrap(),
        ..flow(1000)
    };
    let mut inbox = Inbox::default();
    // More than there are places: newcomers displace, nobody is taken for another.
    for port in 0..2000 {
        assert_eq!(sender_of(&mut inbox.senders, flow(port)).flow, flow(port));
        assert_eq!(sender_of(&mut inbox.senders, other_dst).flow, other_dst);
    }
    assert_eq!(
        sender_of(&mut inbox.senders, flow(7)).icrc,
        IcrcContext::new(&flow(7))
    );
}

#[test]
fn an_abandoned_link_does_nothing() {
    let mut link = RoceLink {
        live: None,
        counters: LinkCounters::default(),
    };
    let spec = crate::path::tests::spec("127.0.0.1", "127.0.0.1", 5);
    assert!(link.path(&spec).is_err());
    assert!(link.claim_qpn_range().is_err());
    assert!(link.packet(PathId(0), 20).is_none());
    assert_eq!(link.receive(0, 10, true, &mut |_| {}), 0);
    link.flush(0);
    link.retract();
    assert!(!link.has_pending());
    assert_eq!(link.rx_fd(), -1);
    assert!(link.door_fds().is_empty() && link.qpn_ranges().is_empty());
    assert_eq!(link.maintain(0), u64::MAX);
}
