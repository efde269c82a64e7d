//! In a forked child, futures of the parent fail at once and may be dropped, whatever the parent's
//! threads were about; the parent's go on.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic::Context;
use rnic::aio::{self, CompletionQueue, Listener};

use crate::fork::{in_child, is_dead};
use crate::futures::{on_tokio, pair_on};

#[test]
fn a_child_waits_for_no_lock_of_the_parents_tasks() {
    const FORKS: usize = 50;
    let context = Context::open().expect("the device opens");
    // Without spinning, so that the reactor's thread has its part.
    let cq = CompletionQueue::builder(&context, 1024).spin(Duration::ZERO);
    let cq = cq.build().expect("a queue");
    let [left, right] = pair_on([&cq, &cq], |builder| builder.receives(16, 64));
    let gid = context.loopback_gid().expect("an address");
    let listener = Listener::<rnic::Rc>::bind(&cq, (gid.addr, 0)).expect("listens");
    let region = right.pd.writable(64).readable().build().expect("memory");
    let stop = AtomicBool::new(false);
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while going() {
                aio::block_on(left.qp.send_inline(b"on and on")).expect("sent");
            }
            aio::block_on(left.qp.send_inline(b"")).expect("sent");
        });
        scope.spawn(|| {
            while !aio::block_on(right.qp.recv())
                .expect("a message")
                .is_empty()
            {}
        });
        let mut only = Some((
            left.qp.read(left.buffer(&[0; 8]), region.remote()),
            right.qp.recv(),
        ));
        if let Some((_, receive)) = &mut only {
            // It waits, with its waker in the parent's lists.
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = std::pin::Pin::new(receive).poll(&mut cx);
        }
        let works = (0..FORKS).all(|_| {
            in_child(|| {
                let sent = aio::block_on(left.qp.send_inline(b"no"));
                assert!(is_dead(&sent.expect_err("the parent's").error));
                let read = left.qp.fetch_add(region.remote(), 1);
                assert!(is_dead(&aio::block_on(read).expect_err("the parent's")));
                let received = aio::block_on(left.qp.recv()).map(drop);
                assert!(is_dead(&received.expect_err("the parent's")));
                let asked = aio::block_on(listener.accept()).map(drop);
                assert!(is_dead(&asked.expect_err("the parent's")));
                drop(only.take());
            })
        });
        stop.store(true, Ordering::Relaxed);
        drop(only);
        assert!(works);
    });
    on_tokio(async {
        left.qp.send_inline(b"after").await.expect("sent");
        let message = right.qp.recv().await.expect("a message");
        assert_eq!(&message[..], b"after");
    });
}
