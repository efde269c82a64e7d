//! Shards are opened when completion queues need them, and have what was made before; what is made,
//! ends or is forked meanwhile is whole.

use crate::environment;
use crate::pair;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::{Context, Cq, Mr, Pd, Qp, SendData, SendOp, SendWqe, SgList, Sge, Status};

const PATIENCE: Duration = Duration::from_secs(60);

fn cq(context: &Context) -> Cq {
    context.create_cq(64, None, 0).expect("a completion queue")
}

/// Which shard it is in, as its number says.
fn range(qp: &Qp) -> u32 {
    qp.qpn() >> 12
}

/// Writes the first word to the second, and gives the status.
fn write(qp: &Qp, cq: &Cq, words: &[AtomicU64; 2], mr: &Mr) -> Status {
    write_by(mr.rkey(), qp, cq, words, mr)
}

/// The same by another remote key.
fn write_by(rkey: u32, qp: &Qp, cq: &Cq, words: &[AtomicU64; 2], mr: &Mr) -> Status {
    let wqe = SendWqe {
        op: SendOp::Write {
            remote_addr: &raw const words[1] as u64,
            rkey,
        },
        data: SendData::Gather(SgList::from_slice(&[Sge {
            addr: &raw const words[0] as u64,
            length: 8,
            lkey: mr.lkey(),
        }])),
        ..SendWqe::default()
    };
    qp.post_send(&mut std::iter::once(Ok(wqe)))
        .map_err(|(_, why)| why)
        .expect("posted");
    let start = Instant::now();
    let mut status = None;
    while status.is_none() {
        assert!(start.elapsed() < PATIENCE, "no completion");
        cq.poll(1, &mut |completion| status = Some(completion.status))
            .expect("polled");
    }
    status.expect("a completion")
}

fn register(pd: &Pd, words: &[AtomicU64; 2]) -> Mr {
    let at = words.as_ptr().cast_mut().cast();
    // SAFETY: the words are atomic, and each region here is deregistered before they go.
    unsafe { pd.reg_mr(at, 16, at as u64, pair::RIGHTS) }.expect("a region")
}

#[test]
fn shards_grow_and_are_the_same_device() {
    environment::set("RNIC_SHARDS", "4");
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let words = [const { AtomicU64::new(0) }; 2];
    let mr = register(&pd, &words);

    // Completion queues alone are no reason, nor are those that only receive.
    let (send, receive) = (cq(&context), cq(&context));
    let others: Vec<Cq> = (0..5).map(|_| cq(&context)).collect();
    let first = pair::create(&pd, &send, &receive, None, 8);
    assert_eq!(
        range(&pair::create(&pd, &send, &others[4], None, 8)),
        range(&first)
    );
    // Who receives where queue pairs send that have a home is at home there.
    assert_eq!(
        range(&pair::create(&pd, &others[0], &send, None, 8)),
        range(&first)
    );

    // So is who receives where they receive.
    assert_eq!(
        range(&pair::create(&pd, &others[2], &receive, None, 8)),
        range(&first)
    );
    // Those that come and go one after the other are in one place.
    let mut passing: Vec<u32> = (0..9)
        .map(|_| {
            let cq = cq(&context);
            range(&pair::create(&pd, &cq, &cq, None, 8))
        })
        .collect();
    passing.dedup();
    assert_eq!(passing.len(), 1);
    assert_ne!(passing[0], range(&first));

    // Another one that sends is: its shard has the region of before, for what it reads and for what
    // its peers write.
    let second = pair::create(&pd, &others[1], &others[1], None, 8);
    assert_ne!(range(&second), range(&first));
    pair::connect(&context, &first, &second);
    for (value, (qp, cq)) in [(&first, &send), (&second, &others[1])].iter().enumerate() {
        words[0].store(value as u64 + 1, Ordering::Relaxed);
        assert_eq!(write(qp, cq, &words, &mr), Status::Success);
        assert_eq!(words[1].load(Ordering::Acquire), value as u64 + 1);
    }

    // More of them are opened while regions come and go, and processes are forked.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let registering = [(); 2].map(|()| {
            scope.spawn(|| {
                let own = Box::new([const { AtomicU64::new(0) }; 2]);
                let mut last = register(&pd, &own);
                while !over.load(Ordering::Acquire) {
                    std::mem::replace(&mut last, register(&pd, &own)).deregister();
                }
                (own, last)
            })
        });
        for _ in 0..20 {
            fork();
        }
        let grown: Vec<(Qp, Cq)> = (0..6)
            .map(|_| {
                let cq = cq(&context);
                (pair::create(&pd, &cq, &cq, None, 8), cq)
            })
            .collect();
        for _ in 0..20 {
            fork();
        }
        over.store(true, Ordering::Release);
        let mut ranges: Vec<u32> = grown.iter().map(|(qp, _)| range(qp)).collect();
        ranges.extend([range(&first), range(&second)]);
        ranges.sort_unstable();
        ranges.dedup();
        assert_eq!(ranges.len(), 4);
        let regions = registering.map(|thread| thread.join().expect("it ends"));
        // All of them know what is there, and only that.
        for ends in grown.chunks(2) {
            let [(a, a_cq), (b, b_cq)] = ends else { break };
            pair::connect(&context, a, b);
            for (own, mr) in &regions {
                own[0].store(7, Ordering::Relaxed);
                assert_eq!(write(a, a_cq, own, mr), Status::Success);
                assert_eq!(write(b, b_cq, own, mr), Status::Success);
                assert_eq!(own[1].swap(0, Ordering::AcqRel), 7);
            }
        }
        for (_, mr) in regions {
            mr.deregister();
        }
    });
    let key = mr.rkey();
    mr.deregister();
    let next = register(&pd, &words);
    assert_ne!(next.rkey(), key);
    let status = write_by(key, &first, &send, &words, &next);
    assert_eq!(status, Status::RemoteAccessError);
    next.deregister();
}

/// A child that ends at once.
fn fork() {
    // SAFETY: the child makes no call but the one that ends it.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(0);
        }
        let mut status = 1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(status, 0, "the forked child");
    }
}
