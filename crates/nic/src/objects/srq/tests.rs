//! The end of a shared receive queue.

use super::*;
use crate::objects::context::Context;

#[test]
fn a_retired_queue_sends_no_event_whoever_holds_it() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let make = || {
        let init = SrqInit {
            max_wr: 7,
            max_sge: 1,
            xrc: None,
            cookie: 7,
        };
        Srq::new(&pd, &init).expect("a queue")
    };
    let armed = SrqAttr {
        srq_limit: 1,
        ..SrqAttr::default()
    };
    let srq = make();
    // As a queue pair that is being destroyed, and no longer counts.
    let held = srq.clone();
    srq.modify(&armed, SrqAttrMask::LIMIT)
        .expect("armed and due");
    srq.retire();
    assert!(srq.is_gone());
    let errno = |outcome: Result<()>| outcome.map_err(|error| error.errno());
    let again = errno(srq.modify(&armed, SrqAttrMask::LIMIT));
    assert_eq!(again, Err(libc::EINVAL));
    let posted = srq.post_recv(&mut std::iter::empty());
    let refused = posted.map_err(|(accepted, error)| (accepted, error.errno()));
    assert_eq!(refused, Err((0, libc::EINVAL)));
    assert_eq!(context.next_async_event(), None);
    // Numbers are used again. The late end of an earlier queue is nothing to a later one.
    let other = make();
    drop((srq, held));
    let engine = context.shared.nic.lock();
    let found = engine.srqs.get(other.number());
    assert!(found.is_some_and(|found| Arc::ptr_eq(found, other.shared())));
    drop(engine);
    assert!(pd.in_use());
    drop(other);
    assert!(!pd.in_use());
}
