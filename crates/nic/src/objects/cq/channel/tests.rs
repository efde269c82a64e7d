//! Which events a channel gives out.

use super::*;

#[test]
fn an_event_that_was_decided_on_is_not_posted_once_its_queue_is_detached() {
    let context = Context::open().expect("a device");
    let channel = context.create_comp_channel().expect("a channel");
    let queue = |cookie| context.create_cq(8, Some(&channel), cookie);
    let (detached, other) = (queue(7).expect("a queue"), queue(8).expect("a queue"));
    channel.shared.push(&detached.shared);
    channel.shared.push(&other.shared);
    // The engine reminds of a moderated event, and has let go of the queue's lock; another thread
    // destroys the queue.
    detached.detach();
    channel.shared.push(&detached.shared);
    assert_eq!(channel.get_event().expect("an event"), 8);
    assert!(!channel.shared.has_event());
    assert_eq!(detached.events_delivered(), 0);
}
