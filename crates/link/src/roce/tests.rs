use super::*;
use crate::staging::path::PathId;

#[test]
fn an_abandoned_link_does_nothing() {
    let mut link = RoceLink {
        live: None,
        counters: LinkCounters::default(),
    };
    let spec = crate::staging::path::tests::spec("127.0.0.1", "127.0.0.1", 5);
    assert!(link.path(&spec).is_err());
    assert!(link.claim_qpn_range().is_err());
    assert!(link.packet(PathId(0), 20).is_none());
    assert_eq!(link.receive(0, 10, true, &mut |_| {}), 0);
    link.flush(0);
    link.retract();
    assert!(!link.has_pending());
    assert_eq!(link.rx_fd(), -1);
    assert!(link.handover_fds().is_empty() && link.qpn_ranges().is_empty());
    assert_eq!(link.maintain(0), u64::MAX);
}
