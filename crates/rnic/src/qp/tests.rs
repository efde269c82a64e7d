use std::time::Duration;

use crate::{Context, Rc, SendRequest};

const PATIENCE: Duration = Duration::from_secs(30);

/// A list is posted in order up to the first request that cannot be: that one and those behind it
/// stay with the caller, and what was posted completes.
#[test]
fn a_list_keeps_what_was_not_posted() {
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let (cq, peer_cq) = (context.create_cq(64), context.create_cq(64));
    let (cq, peer_cq) = (cq.build().expect("cq"), peer_cq.build().expect("cq"));
    let sender = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).max_inline_data(8);
    let sender = sender.build().expect("qp");
    let receiver = pd.create_qp::<Rc>(&peer_cq, &peer_cq).gid(&gid);
    let receiver = receiver.build().expect("qp");
    let (from, to) = (sender.endpoint(), receiver.endpoint());
    let sender = sender.handshake(to).expect("handshake");
    let receiver = receiver.handshake(from).expect("handshake");

    let long = || SendRequest::send_inline(b"longer than eight").id(9);
    let short = |id: u64| SendRequest::send_inline(&[id as u8]).id(id);
    for id in 0..2 {
        let buffer = pd.buffer(8).expect("memory");
        receiver.post_recv(buffer, id).expect("posted");
    }
    let mut list = vec![short(1), short(2), long(), short(3)];
    let refused = sender.post_list(&mut list).expect_err("too long");
    assert!(refused.to_string().contains("max_inline_data"), "{refused}");
    assert_eq!(list.iter().map(|r| r.id).collect::<Vec<_>>(), [9, 3]);
    for id in [1, 2] {
        let came = peer_cq.wait(PATIENCE).expect("a message");
        assert_eq!(came.ok().expect("success").message(), [id as u8]);
        let sent = cq.wait(PATIENCE).expect("the send");
        assert_eq!(sent.ok().expect("success").id(), id);
    }

    // No receive is there: nothing completes, and the queue fills up.
    let mut list: Vec<SendRequest> = (0..200).map(short).collect();
    let refused = sender.post_list(&mut list).expect_err("full");
    assert!(refused.is_queue_full(), "{refused}");
    let posted = 200 - list.len() as u64;
    assert!((64..200).contains(&posted), "{posted}");
    assert_eq!(list[0].id, posted, "the rest begins where the queue ends");
    assert!(sender.post_list(&mut Vec::new()).is_ok());
}
