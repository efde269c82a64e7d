//! Any verb from any thread: threads post, poll, register, deregister, create and destroy at once,
//! and nothing is lost.
//!
//! `./test sanitize` runs this under AddressSanitizer and ThreadSanitizer, which see what goes
//! wrong without showing.

use crate::pair;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::{
    Access, Completion, Context, Cq, Mr, Pd, Qp, RecvWqe, SendData, SendOp, SendWqe, SgList, Sge,
    ShortSend, Status,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Memory that lives as long as the test, with its region.
struct Region {
    bytes: Box<[u8]>,
    mr: Mr,
}

impl Region {
    fn new(pd: &Pd, len: usize) -> Region {
        let mut bytes = vec![0; len].into_boxed_slice();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let at = bytes.as_mut_ptr();
        // SAFETY: the box outlives the region (fields drop in order, and `revoke` comes first), and
        // nobody looks at its bytes meanwhile.
        let mr = unsafe { pd.reg_mr(at, len, at as u64, access) }.expect("a region");
        Region { bytes, mr }
    }

    /// Deregisters, then gives the bytes, which the NIC cannot touch any more.
    fn revoke(self) -> Box<[u8]> {
        pair::deregister(self.mr);
        self.bytes
    }

    fn sge(&self, at: usize, length: u32) -> Sge {
        Sge {
            addr: self.mr.addr() + at as u64,
            length,
            lkey: self.mr.lkey(),
        }
    }
}

fn wqe(wr_id: u64, op: SendOp, sge: Sge) -> SendWqe {
    SendWqe {
        wr_id,
        op,
        data: SendData::Gather(SgList::from_slice(&[sge])),
        signaled: true,
        ..SendWqe::default()
    }
}

fn post(qp: &Qp, wqe: SendWqe) -> bool {
    // As the C ABI does.
    ShortSend::of(&wqe).is_some_and(|short| qp.post_short(short))
        || qp.post_send(&mut std::iter::once(Ok(wqe))).is_ok()
}

/// Polls until `n` completions came.
fn poll(cq: &Cq, n: usize) -> Vec<Completion> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < n {
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {n} completions",
            got.len()
        );
        cq.poll(16, &mut |c| got.push(*c)).expect("poll");
    }
    got
}

/// One thread's life: pairs of queue pairs are made, exchange messages, and are destroyed, some
/// with work in flight.
fn pairs(context: &Context, rounds: u64) {
    let pd = context.alloc_pd();
    let cq = context.create_cq(256, None, 0).expect("cq");
    for round in 0..rounds {
        let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 64));
        pair::connect(context, &a, &b);
        let (from, to) = (Region::new(&pd, 8192), Region::new(&pd, 8192));
        for i in 0..8 {
            let receive = RecvWqe {
                wr_id: 100 + i,
                sges: SgList::from_slice(&[to.sge(1024 * i as usize, 1024)]),
            };
            b.post_recv(&mut std::iter::once(Ok(receive)))
                .expect("post a receive");
        }
        for i in 0..8 {
            assert!(post(
                &a,
                wqe(i, SendOp::Send, from.sge(1024 * i as usize, 1000))
            ));
        }
        if round % 4 == 3 {
            // In flight, with the memory gone first.
            from.revoke();
            drop(a);
            to.revoke();
            continue;
        }
        let done = poll(&cq, 16);
        assert!(done.iter().all(|c| c.status == Status::Success), "{done:?}");
    }
}

#[test]
fn queue_pairs_come_and_go_while_others_talk() {
    let context = Context::open().expect("the device opens");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pairs(&context, 12));
        }
    });
}

/// A peer writes and reads without end while the region comes and goes: afterwards nothing touches
/// the memory.
#[test]
fn deregistration_ends_all_access() {
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd();
    let stop = AtomicBool::new(false);
    let refused = AtomicU32::new(0);
    let target = rustix_futex_sync::Mutex::new((0u64, 0u32));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cq = context.create_cq(256, None, 0).expect("cq");
            let mut source = Region::new(&pd, 4096);
            source.bytes.fill(0xff);
            while !stop.load(Ordering::Relaxed) {
                let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 64));
                pair::connect(&context, &a, &b);
                loop {
                    let (remote_addr, rkey) = *target.lock();
                    let op = SendOp::Write { remote_addr, rkey };
                    assert!(post(&a, wqe(1, op, source.sge(0, 4096))));
                    let done = poll(&cq, 1)[0];
                    if done.status != Status::Success {
                        assert_eq!(done.status, Status::RemoteAccessError);
                        refused.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
        });
        let start = Instant::now();
        while refused.load(Ordering::Relaxed) < 20 {
            assert!(start.elapsed() < PATIENCE, "no access is ever refused");
            let region = Region::new(&pd, 4096);
            *target.lock() = (region.mr.addr(), region.mr.rkey());
            std::thread::yield_now();
            let mut bytes = region.revoke();
            bytes.fill(0);
            std::thread::yield_now();
            assert!(
                bytes.iter().all(|b| *b == 0),
                "written after deregistration"
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Several threads poll one queue that is resized meanwhile, and each completion is taken once.
#[test]
fn threads_share_a_queue_that_is_resized() {
    const EACH: u64 = 64;
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 0).expect("cq");
    let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 64));
    pair::connect(&context, &a, &b);
    let (from, to) = (Region::new(&pd, 4096), Region::new(&pd, 4096));
    let taken = rustix_futex_sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (a, cq, from, to, taken) = (&a, &cq, &from, &to, &taken);
            scope.spawn(move || {
                for i in 0..EACH {
                    let op = SendOp::Write {
                        remote_addr: to.mr.addr(),
                        rkey: to.mr.rkey(),
                    };
                    let id = thread * EACH + i;
                    // The queue may be full of what others posted.
                    while !post(a, wqe(id, op, from.sge(0, 64))) {
                        cq.poll(4, &mut |c| taken.lock().push(c.wr_id))
                            .expect("poll");
                    }
                    if i % 16 == 0 {
                        cq.resize(64 + (i as u32 % 3) * 64).expect("resize");
                    }
                    cq.poll(4, &mut |c| taken.lock().push(c.wr_id))
                        .expect("poll");
                }
            });
        }
    });
    let start = Instant::now();
    while (taken.lock().len() as u64) < 3 * EACH {
        assert!(start.elapsed() < PATIENCE, "completions are missing");
        cq.poll(16, &mut |c| taken.lock().push(c.wr_id))
            .expect("poll");
    }
    let mut taken = taken.into_inner();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..3 * EACH));
}
