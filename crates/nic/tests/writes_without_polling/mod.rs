//! A program that posts WRITEs one after the other, and then looks at memory and does not poll.

use super::pair;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_nic::{Access, Context, Cq, Qp, SendData, SendOp, SendWqe, SgList, Sge};

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 300;
const POSTS: u64 = 12;

/// The word that the queue pair's peer writes to, and its sources; as atomics, since the NIC writes
/// meanwhile.
#[repr(C)]
struct Words {
    target: AtomicU64,
    sources: [AtomicU64; POSTS as usize],
}

/// Posts it and waits for its completion.
fn end(qp: &Qp, cq: &Cq, wqe: SendWqe) {
    qp.post_send(&mut std::iter::once(Ok(wqe)))
        .map_err(|(_, why)| why)
        .expect("posted");
    let start = Instant::now();
    while cq.poll(1, &mut |_| {}).expect("polled") == 0 {
        assert!(start.elapsed() < PATIENCE, "no completion");
    }
}

/// All of them arrive, and in order. `ends`: also those of a queue pair that goes at once, which
/// repeats nothing.
pub fn posts_arrive(ends: bool) {
    let context = Context::open().expect("a device");
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 0).expect("a completion queue");
    let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 64));
    pair::connect(&context, &a, &b);
    let words = Box::new(Words {
        target: AtomicU64::new(0),
        sources: Default::default(),
    });
    let at = &raw const *words;
    // SAFETY: the box outlives the region, which is deregistered below, and its words are atomic.
    let mr = unsafe {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        pd.reg_mr(at.cast_mut().cast(), size_of::<Words>(), at as u64, access)
    }
    .expect("a region");

    let write = |source: &AtomicU64, wr_id| SendWqe {
        wr_id,
        op: SendOp::Write {
            remote_addr: &raw const words.target as u64,
            rkey: mr.rkey(),
        },
        data: SendData::Gather(SgList::from_slice(&[Sge {
            addr: source.as_ptr() as u64,
            length: 8,
            lkey: mr.lkey(),
        }])),
        ..SendWqe::default()
    };
    if ends {
        // Before anybody knows that this program turns away: its queue pair goes, what was posted
        // to it is done.
        for source in &words.sources {
            source.store(1, Ordering::Relaxed);
            end(&a, &cq, write(source, 1));
        }
        for (source, left) in words.sources.iter().zip((0..POSTS).rev()) {
            source.store(u64::MAX - left, Ordering::Relaxed);
            a.post_send(&mut std::iter::once(Ok(write(source, u64::MAX))))
                .expect("posted");
        }
        drop(a);
        let start = Instant::now();
        while words.target.load(Ordering::Acquire) != u64::MAX {
            assert!(start.elapsed() < PATIENCE, "the last did not come");
        }
    }
    words.target.store(0, Ordering::Relaxed);
    let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, 64));
    pair::connect(&context, &a, &b);

    for round in 0..ROUNDS {
        for (k, source) in words.sources.iter().enumerate() {
            let value = round * POSTS + k as u64 + 1;
            source.store(value, Ordering::Relaxed);
            a.post_send(&mut std::iter::once(Ok(write(source, value))))
                .expect("posted");
        }
        let start = Instant::now();
        let mut seen = 0;
        while seen < (round + 1) * POSTS {
            let now = words.target.load(Ordering::Acquire);
            assert!(now >= seen, "{now} behind {seen}");
            seen = now;
            assert!(
                start.elapsed() < PATIENCE,
                "round {round}: {seen} is the last that came"
            );
        }
        let mut done = 0;
        while done < POSTS as usize {
            assert!(
                start.elapsed() < PATIENCE,
                "round {round}: {done} completed"
            );
            done += cq.poll(16, &mut |_| {}).expect("polled");
        }
        // Polls in vain let the background thread leave the engine to this one.
        for _ in 0..round % 7 * 100 {
            cq.poll(16, &mut |_| {}).expect("polled");
        }
    }
    mr.deregister();
}
