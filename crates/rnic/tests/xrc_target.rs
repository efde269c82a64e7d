//! A target that goes while a message is on its way. Packets of this process take a while, so that
//! it is: a file of its own.

use crate::environment;

use std::time::{Duration, Instant};

use rnic::{Context, QpState, SendRequest, Status, Xrc};

const PATIENCE: Duration = Duration::from_secs(30);
/// Many round trips' worth.
const LONG: usize = 16 << 20;

/// Every receive that is posted completes, also one that a target had begun to fill when it was
/// dropped.
#[test]
fn a_target_that_is_dropped_in_a_message_gives_its_receive_back() {
    environment::set("RNIC_FAULTS", "delay=300ms,seed=1");
    let device = crate::device();
    if !device.xrc || !device.counters {
        return;
    }
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(16).build().expect("cq");
    let send_cq = context.create_cq(16).build().expect("cq");
    let domain = context.open_xrc_domain().expect("domain");
    let queue = domain.create_srq(&pd, &cq, 8).expect("srq");
    let target = domain.create_target().gid(&gid).build().expect("target");
    let initiator = pd.create_qp::<Xrc>(&send_cq, &send_cq).gid(&gid);
    let initiator = initiator.timeout(20).build().expect("initiator");
    let (to_target, to_initiator) = (target.endpoint(), initiator.endpoint());
    let target = target.handshake(to_initiator).expect("RTR");
    let initiator = initiator.handshake(to_target).expect("RTS");

    let buffer = pd.buffer(LONG).expect("memory");
    queue.post_recv(buffer, 5).expect("posted");
    queue.post_recv_empty(6).expect("posted");
    let message = SendRequest::send(pd.buffer(LONG).expect("memory"));
    initiator.post(message, queue.number()).expect("posted");
    let deadline = Instant::now() + PATIENCE;
    while target.counters().packets_received == 0 {
        assert!(Instant::now() < deadline, "it begins");
        assert!(cq.poll_one().expect("a queue").is_none());
    }

    // A target lives as long as a handle of it.
    drop(target.clone());
    assert_eq!(target.state(), QpState::Rtr);
    drop(target);
    let received = cq.wait(PATIENCE).expect("a completion");
    let of = (received.id(), received.status());
    assert_eq!(of, (5, Status::WorkRequestFlushed));
    let buffer = received.into_buffer().expect("comes back");
    assert_eq!(buffer.len(), LONG);
    // What it had not begun stays for others.
    assert!(cq.poll_one().expect("a queue").is_none());
}
