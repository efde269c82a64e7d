//! A forked child has the parent's handles, and may drop them: it takes nothing from the parent by
//! that. What it makes itself works, whatever the parent's threads were about when it was forked.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rnic_nic::cm::{EventChannel, EventKind, Id, PortSpace};
use rnic_nic::{AsyncEvent, Context, Qp, QpCap, QpInit, QpType, SrqAttr, SrqAttrMask, SrqInit};

/// Runs `child` in a forked child; false if it hung or failed.
fn in_child(child: impl FnOnce()) -> bool {
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

fn set_nonblocking(fd: i32) {
    // SAFETY: takes no pointer.
    let set = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0);
}

#[test]
fn a_child_that_drops_handles_takes_no_event_from_the_parent() {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let srq = pd
        .create_srq(&SrqInit {
            max_wr: 15,
            max_sge: 1,
            xrc: None,
            cookie: 7,
        })
        .expect("a shared receive queue");
    // None is posted, so this is due at once.
    let attr = SrqAttr {
        srq_limit: 1,
        ..SrqAttr::default()
    };
    srq.modify(&attr, SrqAttrMask::LIMIT).expect("armed");
    let mut srq = Some(srq);
    assert!(in_child(|| drop(srq.take())));
    set_nonblocking(context.async_fd());
    let event = context.wait_async_event().expect("the event is there");
    assert_eq!(event, AsyncEvent::SrqLimit { cookie: 7 });
}

#[test]
fn a_childs_event_channel_is_dead_and_the_parents_port_stays_taken() {
    let channel = EventChannel::new().expect("an event channel");
    let id = || Id::new(&channel, PortSpace::Tcp, QpType::Rc, 0).expect("an id");
    let bound = id();
    let here = ([127, 0, 0, 1], 0).into();
    bound.bind(here).expect("bound");
    let addr = bound.route().expect("a route").local.expect("an address");
    bound.resolve_addr(None, here, 100).expect("a way");
    let mut held = Some((bound.clone(), channel.clone()));
    assert!(in_child(|| {
        let (id, channel) = held.take().expect("handles");
        let errors = [channel.get().err(), id.listen(1).err(), id.bind(addr).err()];
        let errnos = errors.map(|e| e.map(|e| e.errno()));
        assert_eq!(errnos, [Some(libc::ENODEV); 3]);
        assert_eq!(id.destroy(), 0);
        drop((id, channel));
    }));
    let taken = id().bind(addr).err().map(|e| e.errno());
    assert_eq!(taken, Some(libc::EADDRINUSE));
    set_nonblocking(channel.fd());
    let event = channel.get().expect("the event is there");
    assert_eq!(event.kind, EventKind::AddrResolved);
}

#[test]
fn a_child_learns_nothing_of_the_parents_groups() {
    let context = Context::open().expect("a device");
    let cq = context.create_cq(16, None, 0).expect("a completion queue");
    let init = QpInit {
        qp_type: QpType::Ud,
        send_cq: cq.clone(),
        recv_cq: cq,
        srq: None,
        cap: QpCap::default(),
        sq_sig_all: true,
        cookie: 0,
    };
    let qp: Qp = context.alloc_pd().create_qp(&init).expect("a queue pair");
    assert!(in_child(|| assert!(!qp.is_attached())));
}

/// A handler of a signal may fork (signal-safety(7)), as crash handlers do that start a debugger,
/// though it interrupts a thread within a poll.
#[test]
fn a_signals_handler_forks_within_a_poll() {
    /// Children that ended well.
    static WELL: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: i32) {
        // SAFETY: async-signal-safe functions alone.
        unsafe {
            let errno = *libc::__errno_location();
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            let mut status = 1;
            if libc::waitpid(pid, &mut status, 0) == pid && status == 0 {
                WELL.fetch_add(1, Ordering::Relaxed);
            }
            *libc::__errno_location() = errno;
        }
    }
    const TIMES: u32 = 50;
    let handler: extern "C" fn(i32) = handler;
    // SAFETY: the handler calls async-signal-safe functions alone; no other test has the signal.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let context = Context::open().expect("a device");
    let cq = context.create_cq(16, None, 0).expect("a completion queue");
    // A thread's first polls, until it has the device to itself, allocate what it keeps for them,
    // and glibc's fork() waits for ever in a handler that interrupts its allocator.
    for _ in 0..10_000 {
        cq.poll(1, &mut |_| ()).expect("polled");
    }
    // SAFETY: the calling thread's own.
    let poller = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for time in 1..=TIMES {
                // SAFETY: the scope's thread waits below until this one is done.
                unsafe { libc::pthread_kill(poller, libc::SIGUSR1) };
                while WELL.load(Ordering::Relaxed) < time {
                    std::thread::yield_now();
                }
            }
        });
        while WELL.load(Ordering::Relaxed) < TIMES {
            cq.poll(1, &mut |_| ()).expect("polled");
        }
    });
}

#[test]
fn a_child_gets_objects_while_the_parents_threads_make_theirs() {
    /// So many are gone through for each new one that the lock of their table is hardly ever free.
    const MANY: usize = 2000;
    let context = Context::open().expect("a device");
    let _pds: Vec<_> = (0..MANY).map(|_| context.alloc_pd()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                context.alloc_pd();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(context.alloc_dm(8));
            }
        });
        let works = (0..20).all(|_| {
            in_child(|| {
                // Not in a device of its own: ThreadSanitizer lets no forked child start threads.
                context.alloc_pd();
                assert!(context.import_dm(0).is_err());
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(works);
    });
}
