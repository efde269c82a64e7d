//! In a forked child what the parent made is dead: calls on it fail at once, whatever the parent's
//! threads were about when it was forked, and dropping it takes nothing from the parent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic::cm::{CmChannel, CmListener};
use rnic::{Context, Error, Rc, SendRequest};

/// Runs `child` in a forked child; false if it hung or failed.
pub(crate) fn in_child(child: impl FnOnce()) -> bool {
    /// Seconds after which a child that hangs is killed.
    const PATIENCE: u32 = 60;
    // SAFETY: the child calls nothing that relies on the parent's other threads; that it need not
    // is what is tested.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: takes no pointer.
        unsafe { libc::alarm(PATIENCE) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_ok();
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

pub(crate) fn is_dead(error: &Error) -> bool {
    matches!(error, Error::Verb { source, .. } if source.raw_os_error() == Some(libc::ENODEV))
}

#[test]
fn a_child_waits_for_no_lock_of_the_parents_threads() {
    const FORKS: usize = 100;
    let context = Context::open().expect("a device");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(64).build().expect("a queue");
    let build = || {
        let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&gid);
        qp.build().expect("a queue pair")
    };
    let (left, right) = (build(), build());
    let (to_left, to_right) = (left.endpoint(), right.endpoint());
    let left = left.handshake(to_right).expect("connected");
    let right = right.handshake(to_left).expect("connected");
    let channel = CmChannel::new().expect("a channel");
    let listener = CmListener::<Rc>::builder((gid.addr, 0)).expect("an address");
    let listener = listener.channel(&channel, 1).listen().expect("listens");

    let stop = AtomicBool::new(false);
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        // Who polls has the queue's lock most of the time.
        scope.spawn(|| while going() && cq.poll_one().expect("a poll").is_none() {});
        scope.spawn(|| {
            while going() {
                let _ = cq.wait(Duration::from_micros(200));
            }
        });
        scope.spawn(|| {
            while going() {
                let _ = listener.try_request();
                let _ = channel.try_event();
            }
        });
        // All handles that there are of these, with places in what the threads have locked.
        let another = CmListener::<Rc>::builder((gid.addr, 0)).expect("an address");
        let another = another.channel(&channel, 2).listen().expect("listens");
        let mut only = Some((build(), another));
        let works = (0..FORKS).all(|_| {
            in_child(|| {
                let polled = cq.poll_one().expect_err("the parent's");
                assert!(is_dead(&polled), "{polled}");
                let waited = cq.wait(Duration::from_secs(1)).expect_err("the parent's");
                assert!(is_dead(&waited), "{waited}");
                let sent = left.post(SendRequest::send_inline(b"no"));
                assert!(is_dead(&sent.expect_err("the parent's").error));
                let buffer = pd.buffer(8);
                assert!(buffer.is_err_and(|error| is_dead(&error)));
                let receive = right.post_recv_empty(1);
                assert!(is_dead(&receive.expect_err("the parent's").error));
                assert!(is_dead(&channel.try_event().expect_err("the parent's")));
                assert!(
                    listener
                        .try_request()
                        .is_ok_and(|request| request.is_none())
                );
                drop(only.take());
            })
        });
        assert!(only.is_some(), "the parent's are the parent's");
        stop.store(true, Ordering::Relaxed);
        assert!(works);
    });

    right.post_recv_empty(7).expect("a receive");
    left.post(SendRequest::send_inline(b"").unsignaled())
        .expect("posts");
    let received = cq
        .wait(Duration::from_secs(60))
        .expect("the parent goes on");
    assert_eq!(received.ok().expect("a success").id(), 7);
}
