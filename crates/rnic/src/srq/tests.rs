use std::time::Duration;

use crate::{Context, Rc, SendRequest, device};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a queue pair took and nobody polled goes with it, also when its completion has an event
/// that nobody has fetched.
#[test]
fn a_receive_behind_an_event_that_nobody_fetched_goes_with_its_queue_pair() {
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(16).build().expect("cq");
    let client_cq = context.create_cq(16).build().expect("cq");
    let srq = pd.create_srq(8).expect("srq");
    let server = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).gid(&gid);
    let server = server.build().expect("qp");
    let client = pd.create_qp::<Rc>(&client_cq, &client_cq).gid(&gid);
    let client = client.build().expect("qp");
    let (to_server, to_client) = (server.endpoint(), client.endpoint());
    let client = client.handshake(to_server).expect("handshake");
    let server = server.handshake(to_client).expect("handshake");

    let buffers = [(); 2].map(|()| pd.buffer(16).expect("memory"));
    let regions = [0, 1].map(|n: usize| buffers[n].lkey() >> 8);
    for buffer in buffers {
        srq.post_recv(buffer, 0).expect("posted");
    }
    cq.arm(false);
    for _ in 0..2 {
        let request = SendRequest::send_inline(b"unread");
        client.post(request).expect("posted");
        let sent = client_cq.wait(PATIENCE).expect("the send");
        sent.ok().expect("success");
    }
    drop(server);
    assert_eq!(srq.work().lock().len(), 0, "nothing waits any more");
    let device::Pd::Software(raw) = pd.raw() else {
        panic!("the software NIC");
    };
    for region in regions {
        assert!(raw.find_mr(region).is_err(), "its memory is free");
    }
    // The event was for what went: it may come, and then there is nothing.
    let _ = cq.channel().try_event().expect("a channel");
    assert!(cq.poll_one().expect("a queue").is_none());
}
